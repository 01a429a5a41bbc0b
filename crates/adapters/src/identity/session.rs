//! Requests as the administrator, with a token that is reused until shortly before it expires.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use openstack_operator_engine::ports::IdentityLogin;
use reqwest::{Client, Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::http::{self, Body, Credentials, Failure, Request, Response};
use crate::identity::DOMAIN;

/// Tokens are not used this long before they expire, so that none expires in transit.
const MARGIN: SignedDuration = SignedDuration::from_mins(2);

/// Tokens by owner.
#[derive(Default)]
pub(crate) struct Tokens {
    tokens: Mutex<HashMap<Owner, Token>>,
}

/// Digest of URL, username and password: a new password is a new owner, and no password is kept.
type Owner = [u8; 32];

struct Token {
    value: String,
    expires: Timestamp,
}

impl Tokens {
    fn lock(&self) -> MutexGuard<'_, HashMap<Owner, Token>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, owner: &Owner) -> Option<String> {
        let mut tokens = self.lock();
        let now = Timestamp::now();
        tokens.retain(|_, token| now.duration_until(token.expires) > MARGIN);
        tokens.get(owner).map(|token| token.value.clone())
    }

    fn put(&self, owner: Owner, token: Token) {
        self.lock().insert(owner, token);
    }

    /// Keeps a newer token of a concurrent caller.
    fn forget(&self, owner: &Owner, value: &str) {
        let mut tokens = self.lock();
        if tokens.get(owner).is_some_and(|token| token.value == value) {
            tokens.remove(owner);
        }
    }
}

/// A server and its administrator.
pub(crate) struct Session<'a> {
    client: &'a Client,
    tokens: &'a Tokens,
    server: &'a IdentityLogin,
    owner: Owner,
    /// URL of the API, and its microversion.
    base: &'a str,
    version: Option<&'a str>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(client: &'a Client, tokens: &'a Tokens, server: &'a IdentityLogin) -> Self {
        let login = &server.administrator;
        let owner = [&server.url, &login.username, &login.password]
            .into_iter()
            // Digests have a fixed length, so that different parts never concatenate to the same text.
            .fold(Sha256::new(), |digest, part| digest.chain_update(Sha256::digest(part)))
            .finalize()
            .into();
        Self { client, tokens, server, owner, base: &server.url, version: None }
    }

    /// A session for another service with the same token.
    pub(crate) fn for_service(self, base: &'a str, version: Option<&'a str>) -> Self {
        Self { base, version, ..self }
    }

    /// Sends a request, and repeats it with a new token if the current one is rejected.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        body: Body,
    ) -> Result<Response, Failure> {
        let token = self.token().await?;
        let request = Request {
            method,
            base: self.base,
            path,
            query,
            credentials: Credentials::Token(&token),
            version: self.version,
            body,
        };
        let response = http::send(self.client, request.clone()).await?;
        if response.status != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        self.tokens.forget(&self.owner, &token);
        let token = self.token().await?;
        http::send(self.client, Request { credentials: Credentials::Token(&token), ..request }).await
    }

    /// Entries of a collection that match the query.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        collection: &Collection,
        query: &[(&str, &str)],
    ) -> Result<Vec<T>, Failure> {
        let response = self.send(Method::GET, &[collection.plural], query, Body::Empty).await?;
        response.field(&[collection.plural])
    }

    /// Creates an entry and returns its id.
    pub(super) async fn create(&self, collection: &Collection, body: Body) -> Result<String, Failure> {
        let body = collection.wrap(body);
        self.send(Method::POST, &[collection.plural], &[], body).await?.field(&[collection.singular, "id"])
    }

    pub(super) async fn update(&self, collection: &Collection, id: &str, body: Body) -> Result<(), Failure> {
        let body = collection.wrap(body);
        self.send(Method::PATCH, &[collection.plural, id], &[], body).await?.success()?;
        Ok(())
    }

    /// Succeeds if the entry does not exist.
    pub(super) async fn remove(&self, collection: &Collection, id: &str) -> Result<(), Failure> {
        self.send(Method::DELETE, &[collection.plural, id], &[], Body::Empty).await?.success_if_found()?;
        Ok(())
    }

    /// Whether the user has this password.
    pub(super) async fn has_password(&self, user: &str, password: &str) -> Result<bool, Failure> {
        let response =
            self.authenticate(&json!({"id": user, "password": password}), &json!("unscoped")).await?;
        if response.status == StatusCode::UNAUTHORIZED {
            return Ok(false);
        }
        response.success()?;
        Ok(true)
    }

    async fn token(&self) -> Result<String, Failure> {
        if let Some(token) = self.tokens.get(&self.owner) {
            return Ok(token);
        }
        let login = &self.server.administrator;
        let domain = json!({"id": DOMAIN});
        let user = json!({"name": login.username, "domain": domain, "password": login.password});
        let scope = json!({"project": {"name": "admin", "domain": domain}});
        let mut response = self.authenticate(&user, &scope).await?;
        if !response.status.is_success() {
            return Err(response.into_rejection());
        }
        let Some(value) = response.token.take() else {
            return Err(response.into_incomplete("token"));
        };
        let expires = response.field(&["token", "expires_at"])?;
        self.tokens.put(self.owner, Token { value: value.clone(), expires });
        Ok(value)
    }

    async fn authenticate(&self, user: &Value, scope: &Value) -> Result<Response, Failure> {
        let identity = json!({"methods": ["password"], "password": {"user": user}});
        let request = Request {
            method: Method::POST,
            base: &self.server.url,
            path: &["auth", "tokens"],
            query: &[],
            credentials: Credentials::None,
            version: None,
            body: Body::Secret(json!({"auth": {"identity": identity, "scope": scope}})),
        };
        http::send(self.client, request).await
    }
}

/// Names of an entry type in paths and bodies.
pub(super) struct Collection {
    plural: &'static str,
    singular: &'static str,
}

pub(super) const DOMAINS: Collection = Collection { plural: "domains", singular: "domain" };
pub(super) const PROJECTS: Collection = Collection { plural: "projects", singular: "project" };
pub(super) const ROLES: Collection = Collection { plural: "roles", singular: "role" };
pub(super) const ROLE_ASSIGNMENTS: Collection =
    Collection { plural: "role_assignments", singular: "role_assignment" };
pub(super) const USERS: Collection = Collection { plural: "users", singular: "user" };
pub(super) const REGIONS: Collection = Collection { plural: "regions", singular: "region" };
pub(super) const SERVICES: Collection = Collection { plural: "services", singular: "service" };
pub(super) const ENDPOINTS: Collection = Collection { plural: "endpoints", singular: "endpoint" };

impl Collection {
    fn wrap(&self, body: Body) -> Body {
        match body {
            Body::Empty => Body::Empty,
            Body::Plain(entry) => Body::Plain(json!({self.singular: entry})),
            Body::Secret(entry) => Body::Secret(json!({self.singular: entry})),
        }
    }
}
