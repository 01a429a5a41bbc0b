//! OVN's settings.

use kube::CustomResource;
use openstack_operator_model::common::{
    Component, ContainerSettings, DeletionPolicy, Origin, PodSettings, Scheduling, is_default,
};
use openstack_operator_model::schema;
use openstack_operator_model::status::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::inputs::{self, Input, Inputs, Role, Scale};
use crate::switch::{Links, LinksChange, SwitchSettings};

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
    /// The northbound database, which holds the networks that Neutron wants.
    #[serde(default)]
    pub northbound: RaftSettings,
    /// The southbound database, which every node reads.
    #[serde(default)]
    pub southbound: RaftSettings,
    /// ovn-northd, which translates between the two; one pod works, the others stand by.
    #[serde(default)]
    pub northd: Component,
    /// How Neutron and its agents reach the databases, where that is not by the members themselves.
    #[serde(default, skip_serializing_if = "is_default")]
    pub neutron_integration: NeutronIntegration,
    /// ovn-controller, on every node of the virtual networks.
    #[serde(default)]
    pub controller: NodeSettings,
    /// Open vSwitch, on the same nodes.
    #[serde(default)]
    pub ovs: SwitchSettings,
    #[serde(flatten)]
    pub links: ChassisLinks,
    /// Settings of some nodes instead of those of all. Of several that fit a node the first counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub overrides: Vec<NodeOverride>,
    #[serde(flatten)]
    pub common: PodSettings,
}

impl Inputs for OVNNetworkTemplate {
    fn inputs(&mut self) -> Vec<Input<'_>> {
        let mut inputs = Vec::new();
        for (field, group) in [("northbound", &mut self.northbound), ("southbound", &mut self.southbound)] {
            let RaftSettings { replicas, storage, container } = group;
            inputs.push(Input::Replicas { scale: Scale::Quorum, replicas });
            inputs.push(Input::StorageClass(&mut storage.storage_class));
            inputs.push(Input::Component { field, settings: container });
        }
        let NodeSettings { scheduling, container } = &mut self.controller;
        inputs.push(Input::Component { field: "northd", settings: &mut self.northd.container });
        inputs.push(Input::Component { field: "controller", settings: container });
        inputs.push(Input::Component { field: "ovs", settings: &mut self.ovs.container });
        inputs.push(Input::Replicas { scale: Scale::Stateless, replicas: &mut self.northd.replicas });
        inputs.push(Input::Scheduling { field: "controller", role: Role::Network, scheduling });
        inputs.extend(inputs::pods(&mut self.common, Role::Control));
        inputs
    }
}

/// Provider networks of a node, its tunnels, and whether it is a gateway.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ChassisLinks {
    #[serde(flatten)]
    pub links: Links,
    /// Gateways between virtual networks and provider networks.
    #[serde(default)]
    pub gateway: Gateway,
}

/// What is different on some nodes. What is left out is as on all.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeOverride {
    #[serde(flatten)]
    pub change: LinksChange,
    /// Whether these nodes are gateways.
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
    /// The Service.
    pub service: ConnectionService,
}

/// A Service of the object's namespace with an address of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionService {
    /// Name of the Service.
    #[schemars(length(min = 1, max = 63), regex(pattern = schema::NAME))]
    pub name: String,
    /// Port of the Service.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
}

/// A Raft cluster of servers with one database.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RaftSettings {
    /// Number of members, which is odd so that there is a majority; 1 where none is given. Where it becomes smaller,
    /// members leave one by one before their pods are deleted, and their volumes stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 7), extend("x-kubernetes-validations" = [
        { "rule": "self % 2 == 1", "message": "replicas must be odd: 1, 3, 5 or 7" },
    ]))]
    pub replicas: Option<i32>,
    /// Volumes of the members.
    #[serde(default)]
    pub storage: RaftStorage,
    #[serde(flatten)]
    pub container: ContainerSettings,
}

impl RaftSettings {
    pub(super) fn replicas(&self) -> i32 {
        self.replicas.unwrap_or(1)
    }
}

/// Volumes of the members of a database.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "has(self.size) == has(oldSelf.size) && (!has(self.size) || self.size == oldSelf.size)", "message": "storage.size cannot be changed yet: grow the claims themselves where their class allows it" },
    { "rule": "has(self.storageClass) == has(oldSelf.storageClass) && (!has(self.storageClass) || self.storageClass == oldSelf.storageClass)", "message": "storage.storageClass cannot be changed: the volumes stay where they are" },
]))]
pub struct RaftStorage {
    /// Size of each member's volume.
    #[serde(default = "size", deserialize_with = "schema::read")]
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

impl Default for RaftStorage {
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
    #[serde(flatten)]
    pub container: ContainerSettings,
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
