//! What the engine asks of the outside. Everything that leaves the process goes through these traits.

use std::collections::BTreeMap;

use async_trait::async_trait;
use jiff::Timestamp;
use kube::core::DynamicObject;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::lower::Manifest;
use serde_json::Value;
use snafu::Snafu;

/// Why something outside did not do what was asked.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub))]
pub enum PortError {
    /// It may work the next time.
    #[snafu(display("failed to {action}"))]
    Unavailable { action: String, source: Box<dyn std::error::Error + Send + Sync> },
    /// The other side understood and refused; asking again in the same way will not help.
    #[snafu(display("{action} was refused: {reason}"))]
    Refused { action: String, reason: String },
    /// Something else changed the object in between.
    #[snafu(display("{action} met another change"))]
    Conflict { action: String },
}

pub type PortResult<T> = Result<T, PortError>;

/// The cluster's API.
#[async_trait]
pub trait Cluster: Send + Sync {
    async fn get(&self, kind: Kind, namespace: &str, name: &str) -> PortResult<Option<DynamicObject>>;
    /// Objects with all these labels.
    async fn list(
        &self,
        kind: Kind,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> PortResult<Vec<DynamicObject>>;
    /// Server-side apply by the operator's one field manager, with force.
    async fn apply(&self, namespace: &str, manifest: &Manifest) -> PortResult<DynamicObject>;
    /// Deletes the object with this uid; one that is gone, or another of the same name, is success.
    async fn delete(&self, kind: Kind, namespace: &str, name: &str, uid: &str) -> PortResult<()>;
    /// Merges into metadata. A `resourceVersion` in it makes the call fail with `Conflict` where the object changed.
    async fn patch_metadata(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        metadata: Value,
    ) -> PortResult<()>;
    /// Replaces the status by server-side apply.
    async fn write_status(&self, kind: Kind, namespace: &str, name: &str, status: Value) -> PortResult<()>;
    /// Children of an owner, by what is known from watches: kind, name and uid.
    async fn children(&self, namespace: &str, owner_uid: &str) -> PortResult<Vec<ChildReference>>;
    async fn publish(&self, object: &DynamicObject, event: Announcement) -> PortResult<()>;
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

/// Who speaks to a server, and where. Its debug output hides the password.
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

/// A database server. Every call first looks and writes only what differs; it returns whether it wrote.
#[async_trait]
pub trait Sql: Send + Sync {
    /// The database exists (utf8mb3), the user `'name'@'%'` exists with this password and has all rights on it.
    async fn ensure(&self, server: &SqlServer, grant: &SqlGrant) -> PortResult<bool>;
    async fn drop_database(&self, server: &SqlServer, database: &str) -> PortResult<()>;
    async fn drop_user(&self, server: &SqlServer, user: &str) -> PortResult<()>;
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
    pub user: Login,
}

/// A message bus, by RabbitMQ's management API. Every call first looks and writes only what differs.
#[async_trait]
pub trait Bus: Send + Sync {
    /// The virtual host exists with quorum queues as the default, the user exists with this password and has all
    /// rights on it. Returns whether it wrote.
    async fn ensure(&self, server: &BusServer, grant: &BusGrant) -> PortResult<bool>;
    async fn drop_virtual_host(&self, server: &BusServer, name: &str) -> PortResult<()>;
    async fn drop_user(&self, server: &BusServer, user: &str) -> PortResult<()>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusServer {
    /// Address of the management API, e.g. `http://cloud-rabbitmq.openstack.svc:15672`.
    pub management_url: String,
    pub administrator: Login,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusGrant {
    pub virtual_host: String,
    pub user: Login,
}

/// The identity service, by its v3 API. Every call first looks and writes only what differs.
#[async_trait]
pub trait Identity: Send + Sync {
    /// Everything in the entries exists and is as said, in the default domain. Returns whether it wrote.
    async fn ensure(&self, server: &IdentityLogin, entries: &IdentityEntries) -> PortResult<bool>;
    /// Removes the endpoints of the service of this type in a region, or in all where none is given, and the service
    /// where no endpoint is left.
    async fn drop_service(
        &self,
        server: &IdentityLogin,
        service_type: &str,
        region: Option<&str>,
    ) -> PortResult<()>;
    async fn drop_user(&self, server: &IdentityLogin, user: &str) -> PortResult<()>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityLogin {
    /// Address with the version, e.g. `http://cloud-keystone.openstack.svc:5000/v3`.
    pub url: String,
    /// Administrator of project `admin` in the default domain.
    pub administrator: Login,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct IdentityEntries {
    pub projects: Vec<String>,
    pub roles: Vec<String>,
    pub services: Vec<openstack_operator_model::plan::CatalogService>,
    pub users: Vec<IdentityAccount>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct IdentityAccount {
    pub login: Login,
    pub project: String,
    pub roles: Vec<String>,
}

/// Agents on nodes, by where they register.
#[async_trait]
pub trait Agents: Send + Sync {
    async fn list(&self, registry: &RegistryLogin) -> PortResult<Vec<Agent>>;
    /// What the agent of a node still has work with.
    async fn holdings(&self, registry: &RegistryLogin, node: &str) -> PortResult<Vec<String>>;
    /// Whether the agent of a node is given work from now on.
    async fn admit(&self, registry: &RegistryLogin, node: &str, admitted: bool) -> PortResult<()>;
    /// Removes the record of an agent that does not run any more; one that is gone is success.
    async fn remove(&self, registry: &RegistryLogin, node: &str) -> PortResult<()>;
}

/// Where agents register, and who asks there.
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
    pub admission: Admission,
}

/// Whether an agent is given work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Open,
    /// The operator has closed it.
    Closed,
    /// Not for the operator to say: somebody else has closed it, or nobody can.
    Fixed,
}

/// Time and chance.
pub trait Environment: Send + Sync {
    fn now(&self) -> Timestamp;
    /// Letters and digits.
    fn password(&self, length: usize) -> String;
    /// A Fernet key: 32 bytes in URL-safe base64.
    fn fernet_key(&self) -> String;
    /// A number from 0 to 1, to spread what would otherwise happen at once.
    fn jitter(&self) -> f64;
}

/// All ports together.
#[derive(Clone)]
pub struct Ports {
    pub cluster: std::sync::Arc<dyn Cluster>,
    pub sql: std::sync::Arc<dyn Sql>,
    pub bus: std::sync::Arc<dyn Bus>,
    pub identity: std::sync::Arc<dyn Identity>,
    pub agents: std::sync::Arc<dyn Agents>,
    pub environment: std::sync::Arc<dyn Environment>,
}
