//! Status of all kinds.

mod effect;
mod runtime;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::Reference;
use crate::image::Family;
use crate::release::Release;
pub use effect::{Effect, EffectKind};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Startup phase of a cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Stage>,
    /// Conditions of the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Public URL of the service, or its internal URL if it is not exposed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Image whose database schema is installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed: Option<String>,
    /// Family of the images. It cannot change once the object holds data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<Family>,
    /// Release of the images; of a cloud, the release that all its services have reached. It cannot go back once the
    /// object holds data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<Release>,
    /// Databases with the installed schema. If one is lost, the operator does not replace it by an empty one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub databases: Vec<String>,
    /// Whether the object was ever Available. Nothing was created on an object that never was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub served: bool,
    /// Connection details for objects that use this one.
    #[serde(default, skip_serializing_if = "Provides::is_empty")]
    pub provides: Provides,
    /// Objects that this one uses. They are deleted after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<Reference>,
    /// Resources outside of Kubernetes, e.g. databases and users, that the operator deletes with the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Effect>,
    /// Objects that do not respond while the operator deletes resources on them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreachable: Vec<Unreachable>,
    /// Decisions that the operator must keep, e.g. the bootstrapped member of a cluster.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub memory: BTreeMap<String, String>,
    /// Number of pods by component, for components whose stopped pods leave records. It decreases when these are removed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scale: BTreeMap<String, i32>,
    /// Nodes that belong to the object: no other object may run the same software there.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub claimed_nodes: BTreeSet<String>,
    /// Nodes that run agents of the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeStatus>,
    /// Services of the cloud.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceStatus>,
}

impl Status {
    /// Short summary of the nodes or cells of the object.
    pub fn extent(&self) -> Option<String> {
        let cells = || {
            let cells = &self.provides.compute.as_ref()?.cells;
            let names: Vec<&str> = cells.iter().map(|cell| cell.name.as_str()).collect();
            Some(format!("cells {}", names.join(", ")))
        };
        if self.nodes.is_empty() {
            return cells();
        }
        let up = self.nodes.iter().filter(|row| row.state == NodeState::Up).count();
        Some(format!("{up} of {} nodes up", self.nodes.len()))
    }
}

/// State of the agent on one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeStatus {
    /// Name of the node.
    pub name: String,
    /// State of the agent.
    pub state: NodeState,
    /// Resources that keep the node from leaving, e.g. its instances.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<String>,
    /// Facts that pods report about the node, e.g. its virtualization type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NodeState {
    /// The agent has not registered.
    Missing,
    Up,
    Down,
    /// The node is no longer selected and gets no new work, but still holds resources.
    Leaving,
    /// The node is no longer selected and holds nothing. Its pods stop, then its record is deleted.
    Left,
}

impl NodeState {
    pub fn is_chosen(self) -> bool {
        !matches!(self, Self::Leaving | Self::Left)
    }
}

/// Startup phase of a cloud. It is a summary only: each service starts when its own needs are met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Stage {
    Infrastructure,
    Identity,
    CoreServices,
    Compute,
    ExtendedServices,
    Dashboards,
    Ready,
}

/// Service of the cloud.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceStatus {
    /// Kind of the service.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Whether the service is Ready.
    pub ready: bool,
    /// Reason why the service is not ready, or why it is degraded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// URL of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Release of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<Release>,
    /// Summary of its nodes or cells, e.g. `2 of 3 nodes up`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extent: Option<String>,
}

/// Connection details of an object. They name Secrets and never contain their values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Provides {
    /// Database server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<DatabaseServer>,
    /// Message bus.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messaging: Option<MessagingServer>,
    /// Cache servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheServers>,
    /// Identity service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<IdentityServer>,
    /// Message bus that carries the notifications of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notifications: Option<NotificationServer>,
    /// Network databases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkServer>,
    /// Compute service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute: Option<ComputeServer>,
}

impl Provides {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NotificationServer {
    /// Secret whose key `transport_url` is the URL of the virtual host.
    pub secret: String,
    /// Port of the message bus.
    pub port: u16,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseServer {
    /// Host of the server.
    pub host: String,
    /// Port of the server.
    pub port: u16,
    /// Port that accepts the administrator when clients use all connections.
    pub admin_port: u16,
    /// Secret with `username` and `password` of the administrator.
    pub secret: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessagingServer {
    /// Hosts of all members. Clients fail over between them.
    pub hosts: Vec<String>,
    /// Port of the members.
    pub port: u16,
    /// URL of the management API.
    pub management_url: String,
    /// Secret with `username` and `password` of the administrator.
    pub secret: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CacheServers {
    /// Servers as `host:port`.
    pub servers: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdentityServer {
    /// Internal URL with the version, e.g. `http://cloud-keystone.openstack.svc:5000/v3`.
    pub internal_url: String,
    /// Public URL with the version.
    pub public_url: String,
    /// Region of the identity service.
    pub region: String,
    /// Name of the administrator, if the Secret has no `username`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// Secret of the administrator. Unset if the operator registers nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Key of the administrator's password in the Secret.
    #[serde(default = "password")]
    pub secret_key: String,
}

fn password() -> String {
    "password".to_owned()
}

/// Authentication method at the identity service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LoginMethod {
    /// With `username` and `password`.
    #[default]
    Password,
    /// With `application_credential_id` and `application_credential_secret`.
    ApplicationCredential,
}

/// Connection details of the network databases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkServer {
    /// Addresses of the northbound database members, e.g. `tcp:10.96.0.7:6641`. IP addresses, because some clients
    /// resolve no names.
    pub northbound: Vec<String>,
    /// Addresses of the southbound database members.
    pub southbound: Vec<String>,
    /// Whether Open vSwitch uses the userspace datapath.
    pub userspace: bool,
    /// Physical networks of the nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub physical_networks: Vec<String>,
    /// Labels of the nodes that run Open vSwitch.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Nodes without these labels that still run Open vSwitch, because ports there use it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<String>,
}

/// Connection details of the compute service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComputeServer {
    /// Internal URL of the API with the version.
    pub url: String,
    /// Host of the metadata API.
    pub metadata_host: String,
    /// Port of the metadata API.
    pub metadata_port: u16,
    /// Secret whose key `secret` metadata agents share with the compute service.
    pub metadata_secret: String,
    /// Secret with the credentials of the service user.
    pub identity_secret: String,
    /// Name of the service user, if the Secret has no `username`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity_username: Option<String>,
    /// Authentication method of the service user.
    #[serde(default)]
    pub identity_method: LoginMethod,
    /// Public URL of the noVNC proxy.
    pub console_url: String,
    /// Cells with compute nodes.
    pub cells: Vec<CellServer>,
}

/// Cell with its own message bus.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CellServer {
    /// Name of the cell.
    pub name: String,
    /// Secret whose key `transport_url` is the URL of the cell's message bus.
    pub messaging_secret: String,
    /// Port of the cell's message bus.
    #[serde(default = "messaging_port")]
    pub messaging_port: u16,
    /// Object whose compute nodes belong to the cell by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute: Option<String>,
}

fn messaging_port() -> u16 {
    5672
}

/// Object that does not respond.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Unreachable {
    /// The object.
    pub provider: Reference,
    /// Time of the first failed attempt.
    pub since: Time,
}
