//! Ports: the traits through which the engine accesses everything outside the process.

use std::collections::BTreeMap;

use async_trait::async_trait;
use jiff::Timestamp;
use kube::core::DynamicObject;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::lower::Manifest;
use openstack_operator_model::plan::{CatalogService, Charset, Domain, Encoding, Grant};
use openstack_operator_model::service::{BusView, SqlView};
use serde_json::Value;
use snafu::Snafu;

use crate::claim::{Claim, Refusal};

/// Why a call to a port failed.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub))]
pub enum PortError {
    /// Temporary: a retry may succeed.
    #[snafu(display("failed to {action}"))]
    Unavailable { action: String, source: Box<dyn std::error::Error + Send + Sync> },
    /// Permanent: a retry of the same request fails again.
    #[snafu(display("failed to {action}: {reason}"))]
    Rejected { action: String, reason: String },
    /// The server does not accept the password. A retry may succeed: the server may not have a new password yet.
    #[snafu(display("failed to {action}: {reason}"))]
    LoginRejected { action: String, reason: String },
    /// The resource belongs to another object, or to none.
    #[snafu(display("{refusal}"))]
    Foreign { refusal: Refusal },
    /// The object changed concurrently.
    #[snafu(display("failed to {action}: conflict with a concurrent change"))]
    Conflict { action: String },
}

pub type PortResult<T> = Result<T, PortError>;

/// The Kubernetes API.
#[async_trait]
pub trait Cluster: Send + Sync {
    async fn get(&self, kind: Kind, namespace: &str, name: &str) -> PortResult<Option<DynamicObject>>;
    /// Lists objects with all these labels, in all namespaces if the namespace is empty.
    async fn list(
        &self,
        kind: Kind,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> PortResult<Vec<DynamicObject>>;
    /// Forced server-side apply with the operator's field manager.
    async fn apply(&self, namespace: &str, manifest: &Manifest) -> PortResult<DynamicObject>;
    /// Deletes the object with this uid. Succeeds if it no longer exists or has been recreated.
    async fn delete(&self, kind: Kind, namespace: &str, name: &str, uid: &str) -> PortResult<()>;
    /// Deletes the object with this uid, but keeps its dependents without an owner. Succeeds if it no longer exists or
    /// has been recreated.
    async fn delete_and_orphan(&self, kind: Kind, namespace: &str, name: &str, uid: &str) -> PortResult<()>;
    /// Merges into metadata, and returns the new `resourceVersion`. With a `resourceVersion` in the request, the call
    /// fails with `Conflict` if the object has changed.
    async fn patch_metadata(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        metadata: Value,
    ) -> PortResult<Option<String>>;
    /// Replaces the status by server-side apply, and returns the object as stored, without fields that its CRD does not
    /// have. Fails with `Conflict` if the object has changed since it was read.
    async fn write_status(
        &self,
        kind: Kind,
        object: &DynamicObject,
        status: &Value,
        mode: WriteMode,
    ) -> PortResult<DynamicObject>;
    /// Children of an owner.
    async fn children(&self, namespace: &str, owner_uid: &str) -> PortResult<Vec<ChildReference>>;
    async fn publish(&self, object: &DynamicObject, event: Announcement) -> PortResult<()>;
}

/// Whether the API server stores a write, or only answers as if it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    Store,
    DryRun,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChildReference {
    pub kind: Kind,
    pub name: String,
    pub uid: String,
}

/// A Kubernetes Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    pub warning: bool,
    pub reason: &'static str,
    pub note: String,
}

/// Credentials. The debug output hides the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    pub username: String,
    pub password: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Login({})", self.username)
    }
}

/// A database server. Calls write only what differs. The server records the owners of databases and users.
#[async_trait]
pub trait Sql: Send + Sync {
    /// Ensures the database and the user `'name'@'%'` with this password and all privileges on it. Does not change the
    /// character set of an existing database. Writes nothing if a claim does not cover the database or the user.
    async fn ensure(&self, server: &SqlServer, grant: &SqlGrant) -> PortResult<SqlOutcome>;
    async fn has_database(&self, server: &SqlServer, database: &str) -> PortResult<bool>;
    /// Keeps a database that the claim does not cover.
    async fn drop_database(&self, server: &SqlServer, database: &str, claim: &Claim) -> PortResult<()>;
    /// Keeps a user that the claim does not cover.
    async fn drop_user(&self, server: &SqlServer, user: &str, claim: &Claim) -> PortResult<()>;
    /// State of replication of one server. It responds soon or fails, because the next poll follows soon.
    async fn view(&self, server: &SqlServer) -> PortResult<SqlView>;
    /// Makes the component of this server, which lost its quorum, the one that serves.
    async fn restore_quorum(&self, server: &SqlServer) -> PortResult<()>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlServer {
    pub host: String,
    pub port: u16,
    pub administrator: Login,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlGrant {
    pub database: String,
    pub charset: Charset,
    pub database_claim: Claim,
    pub user: Login,
    pub user_claim: Claim,
}

/// What a call found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SqlOutcome {
    pub wrote: bool,
    /// Character set of a database that existed before, if it is not the wanted one.
    pub other_charset: Option<String>,
}

/// A message bus, through RabbitMQ's management API. Calls write only what differs. Virtual hosts carry their owner in
/// their description, users in a tag.
#[async_trait]
pub trait Bus: Send + Sync {
    /// Ensures the virtual host, with quorum queues by default, a policy that gives each quorum queue the wanted number
    /// of members, and the user with this password and all permissions on it. Returns whether it wrote.
    /// Writes nothing if a claim does not cover the virtual host or the user.
    async fn ensure(&self, server: &BusServer, grant: &BusGrant) -> PortResult<bool>;
    /// Keeps a virtual host that the claim does not cover.
    async fn drop_virtual_host(&self, server: &BusServer, name: &str, claim: &Claim) -> PortResult<()>;
    /// Keeps a user that the claim does not cover.
    async fn drop_user(&self, server: &BusServer, user: &str, claim: &Claim) -> PortResult<()>;
    /// The cluster as one broker sees it.
    async fn view(&self, server: &BusServer) -> PortResult<BusView>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusServer {
    /// URL of the management API, e.g. `http://cloud-rabbitmq.openstack.svc:15672`.
    pub management_url: String,
    pub administrator: Login,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusGrant {
    pub virtual_host: String,
    pub virtual_host_claim: Claim,
    /// Number of members of each quorum queue.
    pub queue_members: usize,
    pub user: Login,
    pub user_claim: Claim,
}

/// The identity service, through its v3 API. Calls write only what differs. Endpoints, users and domains carry their owner in
/// their description, roles of services all objects that need them. Other roles and projects stay.
#[async_trait]
pub trait Identity: Send + Sync {
    /// Ensures all entries. Returns whether it wrote. Does not change an endpoint, a user or a domain that its claim does
    /// not cover.
    async fn ensure(&self, server: &IdentityLogin, entries: &IdentityEntries) -> PortResult<bool>;
    /// Removes the endpoints of a service type in the region, or in all regions if none is given, and the service once
    /// it has no endpoint. Keeps endpoints that the claim does not cover.
    async fn drop_service(
        &self,
        server: &IdentityLogin,
        service_type: &str,
        region: Option<&str>,
        claim: &Claim,
    ) -> PortResult<()>;
    /// Keeps a user that the claim does not cover.
    async fn drop_user(
        &self,
        server: &IdentityLogin,
        domain: &Domain,
        user: &str,
        claim: &Claim,
    ) -> PortResult<()>;
    /// Removes a domain with everything in it. Keeps a domain that the claim does not cover.
    async fn drop_domain(&self, server: &IdentityLogin, domain: &str, claim: &Claim) -> PortResult<()>;
    /// Removes a role that no other object needs and no user holds. Keeps a role that no object has created.
    async fn release_role(&self, server: &IdentityLogin, role: &str, owner: &str) -> PortResult<()>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityLogin {
    /// URL with the version, e.g. `http://cloud-keystone.openstack.svc:5000/v3`.
    pub url: String,
    /// Administrator in project `admin` of the default domain.
    pub administrator: Login,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct IdentityEntries {
    /// The object that needs the roles of services.
    pub owner: String,
    pub domains: Vec<IdentityDomainEntry>,
    pub projects: Vec<String>,
    pub roles: Vec<String>,
    pub service_roles: Vec<String>,
    pub services: Vec<IdentityService>,
    pub users: Vec<IdentityAccount>,
}

/// A catalog entry, with the claim to its endpoints in its region.
#[derive(Clone, Debug, PartialEq)]
pub struct IdentityService {
    pub entry: CatalogService,
    pub claim: Claim,
}

#[derive(Clone, Debug, PartialEq)]
pub struct IdentityDomainEntry {
    pub name: String,
    pub claim: Claim,
}

#[derive(Clone, Debug, PartialEq)]
pub struct IdentityAccount {
    pub login: Login,
    pub claim: Claim,
    pub domain: Domain,
    pub grants: Vec<Grant>,
}

/// Agents on nodes, through the registry they report to.
#[async_trait]
pub trait Agents: Send + Sync {
    async fn list(&self, registry: &RegistryLogin) -> PortResult<Vec<Agent>>;
    /// Instances, ports or routers that the agent of a node still hosts.
    async fn holdings(&self, registry: &RegistryLogin, node: &str) -> PortResult<Vec<String>>;
    /// Enables or disables scheduling to the agent of a node.
    async fn set_enabled(&self, registry: &RegistryLogin, node: &str, enabled: bool) -> PortResult<()>;
    /// Removes the record of a stopped agent. Succeeds if there is none.
    async fn remove(&self, registry: &RegistryLogin, node: &str) -> PortResult<()>;
}

/// A registry of agents, with the credentials to access it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryLogin {
    Hypervisors { url: String, identity: IdentityLogin },
    Network { url: String, identity: IdentityLogin },
    Chassis { southbound: Vec<String>, database: &'static str },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    pub node: String,
    pub up: bool,
    pub admin_state: AdminState,
}

/// Whether the scheduler may use an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminState {
    Enabled,
    DisabledByOperator,
    /// An administrator has disabled it, or the registry cannot disable agents.
    Unmanaged,
}

/// Clock, random numbers, and keys made of them.
pub trait Environment: Send + Sync {
    fn now(&self) -> Timestamp;
    /// A random password of letters and digits.
    fn password(&self, length: usize) -> String;
    /// Random bytes as text.
    fn bytes(&self, length: usize, encoding: Encoding) -> String;
    /// A random UUID.
    fn uuid(&self) -> String;
    /// A certificate and its private key, as PEM.
    fn certificate(&self, request: &CertificateRequest<'_>) -> PortResult<KeyPair>;
    /// An ed25519 key pair in the format of OpenSSH.
    fn ssh_key(&self) -> PortResult<KeyPair>;
    /// A random number from 0 to 1, to spread reconciles over time.
    fn jitter(&self) -> f64;
}

/// A private key and what may be published. The debug output hides the private key.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyPair {
    pub public: String,
    pub private: String,
}

impl std::fmt::Debug for KeyPair {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "KeyPair({})", self.public)
    }
}

/// A certificate to issue.
pub struct CertificateRequest<'a> {
    pub common_name: &'a str,
    /// DNS names and IP addresses.
    pub alternative_names: &'a [String],
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    pub signer: Signer<'a>,
}

/// What signs a certificate.
pub enum Signer<'a> {
    /// Its own key, this one or a new one: the certificate is an authority.
    Itself(Option<&'a str>),
    /// An authority. The certificate gets a new key.
    Authority(&'a KeyPair),
}

#[derive(Clone)]
pub struct Ports {
    pub cluster: std::sync::Arc<dyn Cluster>,
    pub sql: std::sync::Arc<dyn Sql>,
    pub bus: std::sync::Arc<dyn Bus>,
    pub identity: std::sync::Arc<dyn Identity>,
    pub agents: std::sync::Arc<dyn Agents>,
    pub environment: std::sync::Arc<dyn Environment>,
}
