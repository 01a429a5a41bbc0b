//! A fake Keystone with entries in memory and numbers as ids.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::{Value, json};

use crate::testing::{FakeResponse, FakeService, Request};

pub(super) const ADMINISTRATOR_PASSWORD: &str = "topsecret";

pub(super) struct Directory {
    /// By collection and id.
    entries: BTreeMap<(String, String), Value>,
    /// Paths of role assignments.
    pub(super) assignments: BTreeSet<String>,
    pub(super) administrator_logins: usize,
    pub(super) token_lifetime: SignedDuration,
    pub(super) rejects_users: bool,
    /// Another client creates every project and role first.
    pub(super) is_raced: bool,
    tokens: BTreeSet<String>,
    last_id: usize,
}

impl Default for Directory {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            assignments: BTreeSet::new(),
            administrator_logins: 0,
            token_lifetime: SignedDuration::from_hours(1),
            rejects_users: false,
            is_raced: false,
            tokens: BTreeSet::new(),
            last_id: 0,
        }
    }
}

impl Directory {
    pub(super) fn entry(&mut self, collection: &str, id: &str) -> &mut Value {
        self.entries.entry((collection.to_owned(), id.to_owned())).or_default()
    }

    pub(super) fn insert(&mut self, collection: &str, mut entry: Value) -> Value {
        self.last_id += 1;
        // Clients choose the ids of regions.
        if collection != "regions" {
            entry["id"] = json!(self.last_id.to_string());
        }
        let id = entry["id"].as_str().unwrap_or_default().to_owned();
        self.entries.insert((collection.to_owned(), id), entry.clone());
        entry
    }

    pub(super) fn remove(&mut self, collection: &str, id: &str) -> Option<Value> {
        self.entries.remove(&(collection.to_owned(), id.to_owned()))
    }

    pub(super) fn list(&self, collection: &str) -> impl Iterator<Item = &Value> {
        self.entries.iter().filter(move |entry| entry.0.0 == collection).map(|entry| entry.1)
    }

    pub(super) fn revoke_tokens(&mut self) {
        self.tokens.clear();
    }

    fn authenticate(&mut self, request: &Request) -> FakeResponse {
        let auth = &request.body["auth"];
        let user = &auth["identity"]["password"]["user"];
        let domain = json!({"id": "default"});
        let is_administrator = *user
            == json!({"name": "admin", "domain": domain, "password": ADMINISTRATOR_PASSWORD})
            && auth["scope"] == json!({"project": {"name": "admin", "domain": domain}});
        let is_user = auth["scope"] == "unscoped"
            && self.list("users").any(|entry| {
                entry["id"] == user["id"] && entry["password"] == user["password"] && entry["enabled"] == true
            });
        if !is_administrator && !is_user {
            return unauthorized();
        }
        self.administrator_logins += usize::from(is_administrator);
        let token = format!("token-{}", self.administrator_logins);
        if is_administrator {
            self.tokens.insert(token.clone());
        }
        let expires = Timestamp::now() + self.token_lifetime;
        FakeResponse::new(201, json!({"token": {"expires_at": expires.to_string()}}))
            .header("x-subject-token", &token)
    }

    fn select(&self, collection: &str, request: &Request) -> FakeResponse {
        let matches = |entry: &&Value| {
            ["name", "type", "service_id", "domain_id"]
                .iter()
                .all(|field| request.field(field).is_none_or(|wanted| entry[field] == wanted))
        };
        let found: Vec<Value> = self.list(collection).filter(matches).map(without_password).collect();
        FakeResponse::new(200, json!({collection: found, "links": {}}))
    }

    fn change(&mut self, collection: &str, id: &str, changes: &Value) -> FakeResponse {
        let entry = self.entry(collection, id);
        for (field, value) in changes.as_object().into_iter().flatten() {
            entry[field] = value.clone();
        }
        FakeResponse::new(200, json!({singular(collection): without_password(entry)}))
    }

    fn role_assignments(&self, request: &Request) -> FakeResponse {
        let end = format!("/roles/{}", request.field("role.id").unwrap_or_default());
        let found: Vec<Value> = self
            .assignments
            .iter()
            .filter(|path| path.ends_with(&end))
            .map(|path| json!({"links": {"assignment": path}}))
            .collect();
        FakeResponse::new(200, json!({"role_assignments": found}))
    }

    /// Like Keystone, rejects the removal of an enabled domain, and removes everything in it.
    fn remove_domain(&mut self, id: &str) -> FakeResponse {
        match self.remove("domains", id) {
            None => FakeResponse::empty(404),
            Some(domain) if domain["enabled"] == true => {
                self.entries.insert(("domains".to_owned(), id.to_owned()), domain);
                FakeResponse::new(403, json!({"error": {"message": "The domain is not disabled."}}))
            }
            Some(_) => {
                let users = self.list("users").filter(|user| user["domain_id"] == id);
                let users: Vec<String> =
                    users.filter_map(|user| user["id"].as_str().map(str::to_owned)).collect();
                for user in users {
                    self.remove("users", &user);
                    self.assignments.retain(|path| !path.contains(&format!("/users/{user}/")));
                }
                FakeResponse::empty(204)
            }
        }
    }
}

impl FakeService for Directory {
    fn respond(&mut self, request: &Request) -> FakeResponse {
        let segments = request.segments();
        if segments == ["v3", "auth", "tokens"] {
            return self.authenticate(request);
        }
        if !self.tokens.contains(request.header("x-auth-token")) {
            return unauthorized();
        }
        let method = request.method.clone();
        match segments[1..] {
            ["role_assignments"] => self.role_assignments(request),
            [collection] if method == Method::GET => self.select(collection, request),
            ["users"] if self.rejects_users => {
                let message = format!("{} is too short", request.body["user"]["password"]);
                FakeResponse::new(400, json!({"error": {"message": message}}))
            }
            [collection @ ("projects" | "roles")] if self.is_raced => {
                self.insert(collection, request.body[singular(collection)].clone());
                FakeResponse::new(409, json!({"error": {"message": "Duplicate entry"}}))
            }
            [collection] => {
                let entry = self.insert(collection, request.body[singular(collection)].clone());
                FakeResponse::new(201, json!({singular(collection): without_password(&entry)}))
            }
            ["domains", id] if method == Method::DELETE => self.remove_domain(id),
            [collection, id] if method == Method::DELETE => {
                FakeResponse::empty(if self.remove(collection, id).is_some() { 204 } else { 404 })
            }
            [collection, id] => self.change(collection, id, &request.body[singular(collection)]),
            ref assignment if method == Method::HEAD => {
                FakeResponse::empty(if self.assignments.contains(&assignment.join("/")) { 204 } else { 404 })
            }
            ref assignment => {
                self.assignments.insert(assignment.join("/"));
                FakeResponse::empty(204)
            }
        }
    }
}

fn unauthorized() -> FakeResponse {
    FakeResponse::new(401, json!({"error": {"code": 401, "message": "The request requires authentication."}}))
}

fn singular(collection: &str) -> &str {
    collection.trim_end_matches('s')
}

fn without_password(entry: &Value) -> Value {
    let mut entry = entry.clone();
    if let Some(fields) = entry.as_object_mut() {
        fields.remove("password");
    }
    entry
}
