//! The message bus, by its management API over HTTP.

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use openstack_operator_engine::ports::{Bus, BusGrant, BusServer, Login, PortResult};
use rand::Rng;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::administrator;
use crate::http::{self, Answer, Body, Credentials, Failure, Request};

/// The one way of hashing that the operator writes and can compare.
const HASHING: &str = "rabbit_password_hashing_sha256";
const SALT_BYTES: usize = 4;
/// Rights on everything whose name matches.
const EVERYTHING: &str = ".*";

/// Speaks to the management API.
#[derive(Clone, Debug)]
pub struct ManagementBus {
    client: Client,
}

impl ManagementBus {
    /// A process-wide TLS provider must be installed before.
    pub fn new() -> PortResult<Self> {
        let client =
            http::client().map_err(|failure| failure.into_port_error("prepare for the message bus"))?;
        Ok(Self { client })
    }

    async fn ask(
        &self,
        server: &BusServer,
        method: Method,
        path: &[&str],
        body: Body,
    ) -> Result<Answer, Failure> {
        let credentials = Credentials::Basic(&server.administrator);
        let request = Request {
            method,
            base: &server.management_url,
            path,
            query: &[],
            credentials,
            version: None,
            body,
        };
        http::send(&self.client, request).await
    }

    async fn look(&self, server: &BusServer, path: &[&str]) -> Result<Option<Value>, Failure> {
        self.ask(server, Method::GET, path, Body::Empty).await?.found()
    }

    async fn ensure_virtual_host(&self, server: &BusServer, name: &str) -> Result<bool, Failure> {
        let path = ["api", "vhosts", name];
        if self.look(server, &path).await?.is_some() {
            return Ok(false);
        }
        let body = Body::Plain(json!({"default_queue_type": "quorum"}));
        self.ask(server, Method::PUT, &path, body).await?.granted()?;
        Ok(true)
    }

    async fn ensure_user(&self, server: &BusServer, user: &Login) -> Result<bool, Failure> {
        let path = ["api", "users", &user.username];
        if let Some(found) = self.look(server, &path).await?
            && is_untagged(&found)
            && has_password(&found, &user.password)
        {
            return Ok(false);
        }
        let salt = rand::rng().random::<[u8; SALT_BYTES]>();
        let body = Body::Secret(json!({
            "password_hash": hash(salt, &user.password),
            "hashing_algorithm": HASHING,
            "tags": "",
        }));
        self.ask(server, Method::PUT, &path, body).await?.granted()?;
        Ok(true)
    }

    async fn ensure_rights(&self, server: &BusServer, grant: &BusGrant) -> Result<bool, Failure> {
        let path = ["api", "permissions", &grant.virtual_host, &grant.user.username];
        let rights = ["configure", "write", "read"];
        if let Some(found) = self.look(server, &path).await?
            && rights.iter().all(|right| found.get(right).and_then(Value::as_str) == Some(EVERYTHING))
        {
            return Ok(false);
        }
        let body = rights.iter().map(|right| ((*right).to_owned(), json!(EVERYTHING))).collect();
        self.ask(server, Method::PUT, &path, Body::Plain(Value::Object(body))).await?.granted()?;
        Ok(true)
    }

    async fn remove(&self, server: &BusServer, path: &[&str]) -> Result<(), Failure> {
        self.ask(server, Method::DELETE, path, Body::Empty).await?.found()?;
        Ok(())
    }
}

#[async_trait]
impl Bus for ManagementBus {
    async fn ensure(&self, server: &BusServer, grant: &BusGrant) -> PortResult<bool> {
        let (host, user) = (&grant.virtual_host, &grant.user.username);
        let action = format!("set up user {user} on the message bus");
        administrator::protect(&server.administrator, user, &action)?;
        let made_host = self.ensure_virtual_host(server, host).await.map_err(|failure| {
            failure.into_port_error(&format!("set up virtual host {host} on the message bus"))
        })?;
        let made_user = self
            .ensure_user(server, &grant.user)
            .await
            .map_err(|failure| failure.into_port_error(&action))?;
        let granted = self.ensure_rights(server, grant).await.map_err(|failure| {
            failure.into_port_error(&format!(
                "give user {user} rights on virtual host {host} of the message bus"
            ))
        })?;
        Ok(made_host || made_user || granted)
    }

    async fn drop_virtual_host(&self, server: &BusServer, name: &str) -> PortResult<()> {
        self.remove(server, &["api", "vhosts", name]).await.map_err(|failure| {
            failure.into_port_error(&format!("remove virtual host {name} from the message bus"))
        })
    }

    async fn drop_user(&self, server: &BusServer, user: &str) -> PortResult<()> {
        let action = format!("remove user {user} from the message bus");
        administrator::protect(&server.administrator, user, &action)?;
        self.remove(server, &["api", "users", user]).await.map_err(|failure| failure.into_port_error(&action))
    }
}

/// Tags give rights on the management API, which a service must not have. They are a list, once a text.
fn is_untagged(user: &Value) -> bool {
    match user.get("tags") {
        Some(Value::Array(tags)) => tags.is_empty(),
        Some(Value::String(tags)) => tags.is_empty(),
        _ => true,
    }
}

fn has_password(user: &Value, password: &str) -> bool {
    let text = |field| user.get(field).and_then(Value::as_str);
    let (Some(HASHING), Some(hashed)) = (text("hashing_algorithm"), text("password_hash")) else {
        return false;
    };
    let bytes = STANDARD.decode(hashed).unwrap_or_default();
    bytes.first_chunk::<SALT_BYTES>().is_some_and(|salt| hash(*salt, password) == hashed)
}

/// The salt, and the digest of salt and password after it.
fn hash(salt: [u8; SALT_BYTES], password: &str) -> String {
    let digest = Sha256::new().chain_update(salt).chain_update(password).finalize();
    STANDARD.encode([salt.as_slice(), &digest].concat())
}

#[cfg(test)]
mod tests;
