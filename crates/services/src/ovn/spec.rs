//! OVN's settings.

use kube::CustomResource;
use openstack_operator_model::common::{Common, DeletionPolicy, Origin, Resources, Scheduling, is_default};
use openstack_operator_model::schema;
use openstack_operator_model::status::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::switch::{Links, LinksChange, SwitchSettings};
use crate::template::{Replicas, one};

/// Virtual networks: their databases, and a switch on every node that has a part in them.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "openstack.k8s.io",
    version = "v1alpha1",
    kind = "OVNNetwork",
    plural = "ovnnetworks",
    namespaced,
    status = "Status",
    shortname = "ovn",
    category = "openstack"
)]
pub struct OVNNetworkSpec {
    #[serde(flatten)]
    pub origin: Origin,
    #[serde(flatten)]
    pub template: OVNNetworkTemplate,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OVNNetworkTemplate {
    /// Database of the networks that are wanted.
    #[serde(default)]
    pub northbound: GroupSettings,
    /// Database of the networks as they are, which every node reads.
    #[serde(default)]
    pub southbound: GroupSettings,
    /// What turns the one into the other; one pod works, the others stand by.
    #[serde(default)]
    pub northd: Replicas,
    /// How Neutron and its agents reach the databases, where that is not by the members themselves.
    #[serde(default, skip_serializing_if = "is_default")]
    pub neutron_integration: NeutronIntegration,
    /// What sets up the switch of a node.
    #[serde(default)]
    pub controller: NodeSettings,
    /// The switch of a node.
    #[serde(default)]
    pub ovs: SwitchSettings,
    #[serde(flatten)]
    pub links: ChassisLinks,
    /// Settings of some nodes instead of those of all. Of several that fit a node the first counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub overrides: Vec<NodeOverride>,
    #[serde(flatten)]
    pub common: Common,
}

/// Where the switch of a node leads, and what is led through it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ChassisLinks {
    #[serde(flatten)]
    pub links: Links,
    #[serde(default)]
    pub gateway: Gateway,
}

/// What is different on some nodes. What is left out is as on all.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeOverride {
    #[serde(flatten)]
    pub change: LinksChange,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Gateway>,
}

/// Services in front of the databases that somebody else made, e.g. of relays that answer for the southbound database.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NeutronIntegration {
    /// Way to the northbound database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nb_connection: Option<Connection>,
    /// Way to the southbound database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sb_connection: Option<Connection>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Connection {
    pub service: ConnectionService,
}

/// A Service of the object's namespace with an address of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionService {
    #[schemars(length(min = 1, max = 63), regex(pattern = schema::NAME))]
    pub name: String,
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
}

/// A group of servers with one database.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupSettings {
    /// How many members; an odd number, so that a majority can be told. Where it is made smaller, members leave one by
    /// one before their pods go, and their volumes stay.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 7), extend("x-kubernetes-validations" = [
        { "rule": "self % 2 == 1", "message": "replicas must be odd: 1, 3, 5 or 7" },
    ]))]
    pub replicas: i32,
    #[serde(default)]
    pub storage: GroupStorage,
    #[serde(default, skip_serializing_if = "is_default")]
    pub resources: Resources,
}

impl Default for GroupSettings {
    fn default() -> Self {
        Self { replicas: 1, storage: GroupStorage::default(), resources: Resources::default() }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "has(self.size) == has(oldSelf.size) && (!has(self.size) || self.size == oldSelf.size)", "message": "storage.size cannot be changed yet: grow the claims themselves where their class allows it" },
    { "rule": "has(self.storageClass) == has(oldSelf.storageClass) && (!has(self.storageClass) || self.storageClass == oldSelf.storageClass)", "message": "storage.storageClass cannot be changed: the volumes stay where they are" },
]))]
pub struct GroupStorage {
    /// Size of each member's volume.
    #[serde(default = "size")]
    #[schemars(schema_with = "schema::size")]
    pub size: String,
    /// Storage class of the volumes; the cluster's default where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub storage_class: Option<String>,
    /// What becomes of the volumes when the object is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

impl Default for GroupStorage {
    fn default() -> Self {
        Self { size: size(), storage_class: None, deletion_policy: DeletionPolicy::default() }
    }
}

fn size() -> String {
    "2Gi".to_owned()
}

/// Pods of nodes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct NodeSettings {
    /// Nodes that have a part in virtual networks; those with label `node-role.kubernetes.io/hypervisor` where nothing is
    /// given.
    #[serde(flatten)]
    pub scheduling: Scheduling,
    #[serde(default, skip_serializing_if = "is_default")]
    pub resources: Resources,
}

/// Nodes through which routers reach networks outside.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Gateway {
    /// Whether every node of the switch may be one.
    #[serde(default = "yes")]
    pub enabled: bool,
}

impl Default for Gateway {
    fn default() -> Self {
        Self { enabled: true }
    }
}

fn yes() -> bool {
    true
}
