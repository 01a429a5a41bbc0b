//! Requests as the administrator, with a token that is kept until shortly before it expires.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use openstack_operator_engine::ports::IdentityLogin;
use reqwest::{Client, Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::http::{self, Answer, Body, Credentials, Failure, Request};
use crate::identity::DOMAIN;

/// How long before its end a token is no longer used, so that none ends on its way.
const MARGIN: SignedDuration = SignedDuration::from_mins(2);

/// Tokens by whom they are of.
#[derive(Default)]
pub(crate) struct Tokens {
    tokens: Mutex<HashMap<Owner, Token>>,
}

/// Digest of address, username and password: another password is another owner, and none is kept.
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

    /// Another caller may have got a new one in the meantime, which stays.
    fn forget(&self, owner: &Owner, value: &str) {
        let mut tokens = self.lock();
        if tokens.get(owner).is_some_and(|token| token.value == value) {
            tokens.remove(owner);
        }
    }
}

/// A server, and who is its administrator.
pub(crate) struct Session<'a> {
    client: &'a Client,
    tokens: &'a Tokens,
    server: &'a IdentityLogin,
    owner: Owner,
    /// Address that is asked, and the version of the API there.
    base: &'a str,
    version: Option<&'a str>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(client: &'a Client, tokens: &'a Tokens, server: &'a IdentityLogin) -> Self {
        let login = &server.administrator;
        let owner = [&server.url, &login.username, &login.password]
            .into_iter()
            // The digest of each, so that no two of them can be cut differently to the same text.
            .fold(Sha256::new(), |digest, part| digest.chain_update(Sha256::digest(part)))
            .finalize()
            .into();
        Self { client, tokens, server, owner, base: &server.url, version: None }
    }

    /// Asks another service with the same token.
    pub(crate) fn of(self, base: &'a str, version: Option<&'a str>) -> Self {
        Self { base, version, ..self }
    }

    /// Asks with the token at hand, and once more with a new one where it is no longer accepted.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        body: Body,
    ) -> Result<Answer, Failure> {
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
        let answer = http::send(self.client, request.clone()).await?;
        if answer.status != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        self.tokens.forget(&self.owner, &token);
        let token = self.token().await?;
        http::send(self.client, Request { credentials: Credentials::Token(&token), ..request }).await
    }

    /// Everything of a collection that fits the query.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        collection: &Collection,
        query: &[(&str, &str)],
    ) -> Result<Vec<T>, Failure> {
        let answer = self.ask(Method::GET, &[collection.plural], query, Body::Empty).await?;
        answer.part(&[collection.plural])
    }

    /// Makes an entry and returns its id.
    pub(super) async fn create(&self, collection: &Collection, body: Body) -> Result<String, Failure> {
        let body = collection.wrap(body);
        self.ask(Method::POST, &[collection.plural], &[], body).await?.part(&[collection.singular, "id"])
    }

    pub(super) async fn correct(&self, collection: &Collection, id: &str, body: Body) -> Result<(), Failure> {
        let body = collection.wrap(body);
        self.ask(Method::PATCH, &[collection.plural, id], &[], body).await?.granted()?;
        Ok(())
    }

    /// One that is already gone is success.
    pub(super) async fn remove(&self, collection: &Collection, id: &str) -> Result<(), Failure> {
        self.ask(Method::DELETE, &[collection.plural, id], &[], Body::Empty).await?.found()?;
        Ok(())
    }

    /// Whether the user has this password.
    pub(super) async fn accepts(&self, user: &str, password: &str) -> Result<bool, Failure> {
        let answer = self.log_in(&json!({"id": user, "password": password}), &json!("unscoped")).await?;
        if answer.status == StatusCode::UNAUTHORIZED {
            return Ok(false);
        }
        answer.granted()?;
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
        let mut answer = self.log_in(&user, &scope).await?;
        if !answer.status.is_success() {
            return Err(answer.into_rejection());
        }
        let Some(value) = answer.token.take() else {
            return Err(answer.into_incomplete("token"));
        };
        let expires = answer.part(&["token", "expires_at"])?;
        self.tokens.put(self.owner, Token { value: value.clone(), expires });
        Ok(value)
    }

    async fn log_in(&self, user: &Value, scope: &Value) -> Result<Answer, Failure> {
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

/// What the API calls a kind of entry, in paths and in bodies.
pub(super) struct Collection {
    plural: &'static str,
    singular: &'static str,
}

pub(super) const PROJECTS: Collection = Collection { plural: "projects", singular: "project" };
pub(super) const ROLES: Collection = Collection { plural: "roles", singular: "role" };
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
