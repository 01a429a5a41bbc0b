//! The one status that every kind has.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::Reference;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Where a cloud is on its way to Ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Stage>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Where the service is reached from outside, or from inside where it is not exposed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Image whose data formats are in place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed: Option<String>,
    /// Whether it was ever available. Nobody has made anything on one that was not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub served: bool,
    /// What other objects may use of this one.
    #[serde(default, skip_serializing_if = "Provides::is_empty")]
    pub provides: Provides,
    /// Objects that this one uses; they are deleted after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<Reference>,
    /// What was made outside of Kubernetes and is undone on deletion.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Effect>,
    /// Objects that did not answer when something on them was to be undone for the deletion of this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreachable: Vec<Unreachable>,
    /// What the operator decided earlier and must not forget.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub memory: BTreeMap<String, String>,
    /// Nodes that have a part of the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeStatus>,
    /// Services of a cloud.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceStatus>,
}

impl Status {
    /// What the object consists of outside of its pods, in a few words.
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

/// How the agent of one node is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeStatus {
    pub name: String,
    pub state: NodeState,
    /// What keeps a node from being left, e.g. the servers that it runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<String>,
    /// What its pods have found out about the node, e.g. what its servers can run on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NodeState {
    /// It has not registered.
    Missing,
    Up,
    Down,
    /// It is no longer chosen, gets no more work, and stays for what it holds.
    Leaving,
    /// It is no longer chosen and holds nothing; its pods end, and then its record goes.
    Left,
}

impl NodeState {
    pub fn is_chosen(self) -> bool {
        !matches!(self, Self::Leaving | Self::Left)
    }
}

/// A summary of how far a cloud has come. It orders nothing: each service starts when its own needs are met.
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

/// One service of a cloud.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceStatus {
    pub kind: String,
    pub name: String,
    pub ready: bool,
    /// Why the service is not ready, or what it has lost where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// What the service consists of outside of its pods, e.g. `2 of 3 nodes up`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extent: Option<String>,
}

/// What an object offers to others. It names Secrets and never holds their values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Provides {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<DatabaseServer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messaging: Option<MessagingServer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheServers>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<IdentityServer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkServer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute: Option<ComputeServer>,
}

impl Provides {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseServer {
    pub host: String,
    pub port: u16,
    /// Port that stays free when clients have used up all connections.
    pub admin_port: u16,
    /// Secret with `username` and `password` of the administrator.
    pub secret: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessagingServer {
    /// Every member, since clients fail over between them.
    pub hosts: Vec<String>,
    pub port: u16,
    pub management_url: String,
    /// Secret with `username` and `password` of the administrator.
    pub secret: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CacheServers {
    pub servers: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdentityServer {
    /// Address inside the cluster, with the version, e.g. `http://cloud-keystone.openstack.svc:5000/v3`.
    pub internal_url: String,
    pub public_url: String,
    pub region: String,
    /// Name of the administrator, where the Secret does not hold it as `username`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// Secret of the administrator; none where the operator registers nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Key of the administrator's password in the Secret.
    #[serde(default = "password")]
    pub secret_key: String,
}

fn password() -> String {
    "password".to_owned()
}

/// How a service logs in to the identity service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LoginMethod {
    /// With `username` and `password`.
    #[default]
    Password,
    /// With `application_credential_id` and `application_credential_secret`.
    ApplicationCredential,
}

/// What virtual networks are made with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkServer {
    /// Members of the database of what is wanted, e.g. `tcp:10.96.0.7:6641`. Numbers, since not every client knows
    /// names.
    pub northbound: Vec<String>,
    /// Members of the database of what is.
    pub southbound: Vec<String>,
    /// Whether switches run without the kernel, which some settings must know.
    pub userspace: bool,
    /// Networks outside that nodes lead to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub physical_networks: Vec<String>,
    /// Labels of the nodes that have a switch.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Nodes without these labels that still have a switch, since something there is connected to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<String>,
}

/// What servers are made with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComputeServer {
    /// Address of the API inside the cluster, with the version.
    pub url: String,
    /// Host and port at which servers' metadata is asked for.
    pub metadata_host: String,
    pub metadata_port: u16,
    /// Secret whose `secret` those who ask for metadata share.
    pub metadata_secret: String,
    /// Secret with the credentials of the service's user.
    pub identity_secret: String,
    /// Name of that user, where it is not in the Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity_username: Option<String>,
    /// What those credentials are.
    #[serde(default)]
    pub identity_method: LoginMethod,
    /// Where people see the screens of their servers.
    pub console_url: String,
    pub cells: Vec<CellServer>,
}

/// A group of nodes with a message bus of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CellServer {
    pub name: String,
    /// Secret whose `transport_url` leads to the cell's message bus.
    pub messaging_secret: String,
    /// Port of the cell's message bus.
    #[serde(default = "messaging_port")]
    pub messaging_port: u16,
    /// Name of the object whose nodes belong to the cell by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute: Option<String>,
}

fn messaging_port() -> u16 {
    5672
}

/// Something outside of Kubernetes that exists for an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Effect {
    #[serde(rename = "what")]
    pub kind: EffectKind,
    /// Object on which it was made, or the administrator's Secret of a server that is no object.
    pub provider: Reference,
    /// Address of a server that is no object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Region that an entry of the catalog is for; all regions where none is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    pub name: String,
    /// Whether it outlives the object.
    #[serde(default)]
    pub retained: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum EffectKind {
    Database,
    DatabaseUser,
    MessagingHost,
    MessagingUser,
    /// Named by type, with all its endpoints.
    CatalogService,
    IdentityUser,
}

/// An object that does not answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Unreachable {
    pub provider: Reference,
    /// When it was first found so.
    pub since: Time,
}
