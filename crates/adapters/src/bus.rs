//! The message bus, through RabbitMQ's management API.

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use openstack_operator_engine::claim::{Claim, Found};
use openstack_operator_engine::ports::{Bus, BusGrant, BusServer, PortError, PortResult};
use openstack_operator_model::lower::MANAGER;
use openstack_operator_model::service::BusView;
use openstack_operator_model::status::EffectKind;
use rand::Rng;
use reqwest::{Client, Method};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::administrator;
use crate::http::{self, Body, Credentials, Failure, Request, Response};

/// The hash algorithm that the operator writes and can compare.
const HASHING: &str = "rabbit_password_hashing_sha256";
const SALT_BYTES: usize = 4;
/// Permission pattern that matches every name.
const EVERYTHING: &str = ".*";

/// Client of the management API.
#[derive(Clone, Debug)]
pub struct ManagementBus {
    client: Client,
}

impl ManagementBus {
    /// Requires a process-wide TLS provider.
    pub fn new() -> PortResult<Self> {
        let client = http::client()
            .map_err(|failure| failure.into_port_error("create an HTTP client for the message bus"))?;
        Ok(Self { client })
    }

    async fn send(
        &self,
        server: &BusServer,
        method: Method,
        path: &[&str],
        body: Body,
    ) -> Result<Response, Failure> {
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

    async fn get(&self, server: &BusServer, path: &[&str]) -> Result<Option<Value>, Failure> {
        self.send(server, Method::GET, path, Body::Empty).await?.success_if_found()
    }

    async fn ensure_virtual_host(
        &self,
        server: &BusServer,
        grant: &BusGrant,
        found: Option<&Value>,
    ) -> Result<bool, Failure> {
        let mark = grant.virtual_host_claim.mark();
        if found.is_some_and(|found| description(found) == Some(&mark)) {
            return Ok(false);
        }
        let mut body = json!({"default_queue_type": "quorum"});
        if let Some(found) = found {
            // A change replaces all fields.
            let is_set = |field: &&str| found.get(field).is_some_and(|value| value != "undefined");
            let kept = ["default_queue_type", "tags"].into_iter().filter(is_set);
            body = kept.map(|field| (field.to_owned(), found[field].clone())).collect();
        }
        body["description"] = json!(mark);
        let path = ["api", "vhosts", &grant.virtual_host];
        self.send(server, Method::PUT, &path, Body::Plain(body)).await?.success()?;
        Ok(true)
    }

    /// Without a policy, queues keep the members that they were declared with.
    async fn ensure_policy(&self, server: &BusServer, grant: &BusGrant) -> Result<bool, Failure> {
        let path = ["api", "policies", &grant.virtual_host, MANAGER];
        let wanted = json!({
            "pattern": EVERYTHING,
            "apply-to": "quorum_queues",
            "definition": {"target-group-size": grant.queue_members},
            "priority": 0,
        });
        if let Some(found) = self.get(server, &path).await?
            && wanted
                .as_object()
                .is_some_and(|wanted| wanted.iter().all(|(field, value)| found.get(field) == Some(value)))
        {
            return Ok(false);
        }
        self.send(server, Method::PUT, &path, Body::Plain(wanted)).await?.success()?;
        Ok(true)
    }

    async fn ensure_user(
        &self,
        server: &BusServer,
        grant: &BusGrant,
        found: Option<&Value>,
    ) -> Result<bool, Failure> {
        let (user, mark) = (&grant.user, grant.user_claim.mark());
        if found.is_some_and(|found| tags(found) == [mark.as_str()] && has_password(found, &user.password)) {
            return Ok(false);
        }
        let salt = rand::rng().random::<[u8; SALT_BYTES]>();
        let body = Body::Secret(json!({
            "password_hash": hash(salt, &user.password),
            "hashing_algorithm": HASHING,
            "tags": mark,
        }));
        self.send(server, Method::PUT, &["api", "users", &user.username], body).await?.success()?;
        Ok(true)
    }

    async fn ensure_permissions(&self, server: &BusServer, grant: &BusGrant) -> Result<bool, Failure> {
        let path = ["api", "permissions", &grant.virtual_host, &grant.user.username];
        let permissions = ["configure", "write", "read"];
        if let Some(found) = self.get(server, &path).await?
            && permissions
                .iter()
                .all(|permission| found.get(permission).and_then(Value::as_str) == Some(EVERYTHING))
        {
            return Ok(false);
        }
        let body =
            permissions.iter().map(|permission| ((*permission).to_owned(), json!(EVERYTHING))).collect();
        self.send(server, Method::PUT, &path, Body::Plain(Value::Object(body))).await?.success()?;
        Ok(true)
    }

    /// Removes a resource if it exists and the claim covers it.
    async fn remove(
        &self,
        server: &BusServer,
        (kind, name): (EffectKind, &str),
        claim: &Claim,
    ) -> Result<(), Failure> {
        let (collection, owner): (_, fn(&Value) -> Found<'_>) = match kind {
            EffectKind::MessagingHost => ("vhosts", virtual_host_owner),
            _ => ("users", user_owner),
        };
        let path = ["api", collection, name];
        let Some(found) = self.get(server, &path).await? else { return Ok(()) };
        if claim.may_remove(kind, name, owner(&found)) {
            self.send(server, Method::DELETE, &path, Body::Empty).await?.success_if_found()?;
        }
        Ok(())
    }
}

#[async_trait]
impl Bus for ManagementBus {
    async fn ensure(&self, server: &BusServer, grant: &BusGrant) -> PortResult<bool> {
        let (host, user) = (&grant.virtual_host, &grant.user.username);
        let action = format!("set up user {user} on the message bus");
        administrator::protect(&server.administrator, user, &action)?;
        let host_failure = |failure: Failure| {
            failure.into_port_error(&format!("set up virtual host {host} on the message bus"))
        };
        let found_host = self.get(server, &["api", "vhosts", host]).await.map_err(host_failure)?;
        let found_user = self
            .get(server, &["api", "users", user])
            .await
            .map_err(|failure| failure.into_port_error(&action))?;
        admit(grant, found_host.as_ref(), found_user.as_ref())?;
        let wrote_host =
            self.ensure_virtual_host(server, grant, found_host.as_ref()).await.map_err(host_failure)?;
        let wrote_policy = self.ensure_policy(server, grant).await.map_err(|failure| {
            failure.into_port_error(&format!("set the policy of virtual host {host} on the message bus"))
        })?;
        let wrote_user = self
            .ensure_user(server, grant, found_user.as_ref())
            .await
            .map_err(|failure| failure.into_port_error(&action))?;
        let wrote_permissions = self.ensure_permissions(server, grant).await.map_err(|failure| {
            failure.into_port_error(&format!(
                "grant user {user} permissions on virtual host {host} of the message bus"
            ))
        })?;
        Ok(wrote_host || wrote_policy || wrote_user || wrote_permissions)
    }

    async fn drop_virtual_host(&self, server: &BusServer, name: &str, claim: &Claim) -> PortResult<()> {
        self.remove(server, (EffectKind::MessagingHost, name), claim).await.map_err(|failure| {
            failure.into_port_error(&format!("remove virtual host {name} from the message bus"))
        })
    }

    async fn drop_user(&self, server: &BusServer, user: &str, claim: &Claim) -> PortResult<()> {
        let action = format!("remove user {user} from the message bus");
        administrator::protect(&server.administrator, user, &action)?;
        self.remove(server, (EffectKind::MessagingUser, user), claim)
            .await
            .map_err(|failure| failure.into_port_error(&action))
    }

    async fn view(&self, server: &BusServer) -> PortResult<BusView> {
        let failed = |failure: Failure| failure.into_port_error("ask a message broker for its cluster");
        let response =
            self.send(server, Method::GET, &["api", "nodes"], Body::Empty).await.map_err(failed)?;
        let nodes: Vec<Node> = response.items().map_err(failed)?;
        let names = |nodes: &mut dyn Iterator<Item = &Node>| nodes.map(|node| node.name.clone()).collect();
        Ok(BusView {
            known: names(&mut nodes.iter()),
            running: names(&mut nodes.iter().filter(|node| node.running)),
        })
    }
}

/// A member of the cluster.
#[derive(Deserialize)]
struct Node {
    name: String,
    running: bool,
}

/// Checks both claims before anything is written.
fn admit(grant: &BusGrant, host: Option<&Value>, user: Option<&Value>) -> PortResult<()> {
    let found_host = host.map_or(Found::Absent, virtual_host_owner);
    let found_user = user.map_or(Found::Absent, user_owner);
    let BusGrant { virtual_host, virtual_host_claim, user, user_claim, .. } = grant;
    virtual_host_claim
        .admit(EffectKind::MessagingHost, virtual_host, found_host)
        .and_then(|()| user_claim.admit(EffectKind::MessagingUser, &user.username, found_user))
        .map_err(|refusal| PortError::Foreign { refusal })
}

fn virtual_host_owner(found: &Value) -> Found<'_> {
    Found::marked(description(found))
}

fn description(virtual_host: &Value) -> Option<&str> {
    virtual_host.get("description").and_then(Value::as_str)
}

/// A user has no description, but any tags.
fn user_owner(found: &Value) -> Found<'_> {
    let mut owners = tags(found).into_iter().map(|tag| Found::marked(Some(tag)));
    owners.find(|found| *found != Found::Unowned).unwrap_or(Found::Unowned)
}

/// Tags of a user. Some grant access to the management API, which services must not have. Older versions return a string,
/// newer ones a list.
fn tags(user: &Value) -> Vec<&str> {
    match user.get("tags") {
        Some(Value::Array(tags)) => tags.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(tags)) => tags.split(',').map(str::trim).filter(|tag| !tag.is_empty()).collect(),
        _ => Vec::new(),
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

/// The salt, followed by the digest of salt and password.
fn hash(salt: [u8; SALT_BYTES], password: &str) -> String {
    let digest = Sha256::new().chain_update(salt).chain_update(password).finalize();
    STANDARD.encode([salt.as_slice(), &digest].concat())
}

#[cfg(test)]
mod tests;
