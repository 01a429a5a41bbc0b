//! Settings of OVN.

use kube::CustomResource;
use openstack_operator_model::common::{
    Component, ContainerSettings, DeletionPolicy, Origin, PodSettings, Scheduling, is_default,
};
use openstack_operator_model::schema;
use openstack_operator_model::status::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::inputs::{self, Input, Inputs, Role, Scale};
use crate::switch::{Links, LinksOverride, SwitchSettings};

/// OVN: northbound and southbound databases, ovn-northd, and ovn-controller with Open vSwitch on nodes.
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
    /// Northbound database, which holds the networks that Neutron defines.
    #[serde(default)]
    pub northbound: RaftSettings,
    /// Southbound database, which ovn-controller reads on every node.
    #[serde(default)]
    pub southbound: RaftSettings,
    /// ovn-northd, which translates the northbound into the southbound database. One pod is active, the others are
    /// standby.
    #[serde(default)]
    pub northd: Component,
    /// Services through which Neutron and its agents reach the databases. Defaults to the members of the databases.
    #[serde(default, skip_serializing_if = "is_default")]
    pub neutron_integration: NeutronIntegration,
    /// ovn-controller on nodes. `nodeSelector` defaults to label `node-role.kubernetes.io/hypervisor`.
    #[serde(default)]
    pub controller: NodeSettings,
    /// Open vSwitch on the same nodes.
    #[serde(default)]
    pub ovs: SwitchSettings,
    #[serde(flatten)]
    pub links: ChassisLinks,
    /// Overrides for some nodes. The first one that matches a node applies.
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

/// Bridge mappings, tunnels and gateway role of a node.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ChassisLinks {
    #[serde(flatten)]
    pub links: Links,
    /// Gateway chassis, through which routers reach provider networks.
    #[serde(default)]
    pub gateway: Gateway,
}

/// Settings of some nodes. Unset fields keep the settings of all nodes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeOverride {
    #[serde(flatten)]
    pub change: LinksOverride,
    /// Gateway role of these nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Gateway>,
}

/// Services in front of the databases that the operator does not create, e.g. relays of the southbound database.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NeutronIntegration {
    /// Connection to the northbound database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nb_connection: Option<Connection>,
    /// Connection to the southbound database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sb_connection: Option<Connection>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Connection {
    /// Service in the same namespace.
    pub service: ConnectionService,
}

/// Service in the same namespace with a cluster IP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionService {
    /// Name of the Service.
    #[schemars(length(min = 1, max = 63), regex(pattern = schema::NAME))]
    pub name: String,
    /// Port of the Service.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
}

/// Raft cluster of one database.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RaftSettings {
    /// Number of members. It must be odd, so that a quorum exists. Defaults to 1. On scale-down, members leave the
    /// Raft cluster one by one and their volumes are kept.
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
    { "rule": "!has(oldSelf.size) || has(self.size) && quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0", "message": "storage.size cannot be reduced: volumes only grow" },
    { "rule": "has(self.storageClass) == has(oldSelf.storageClass) && (!has(self.storageClass) || self.storageClass == oldSelf.storageClass)", "message": "storage.storageClass cannot be changed: existing volumes keep their storage class" },
]))]
pub struct RaftStorage {
    /// Size of each member's volume. It can grow if the storage class allows volume expansion.
    #[serde(default = "size", deserialize_with = "schema::read")]
    #[schemars(schema_with = "schema::size")]
    pub size: String,
    /// Storage class of the volumes. Defaults to the default class of the Kubernetes cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub storage_class: Option<String>,
    /// Policy for the volumes when the object is deleted.
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

/// Pods on nodes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct NodeSettings {
    /// Nodes of the virtual networks. Defaults to nodes with label `node-role.kubernetes.io/hypervisor`.
    #[serde(flatten)]
    pub scheduling: Scheduling,
    #[serde(flatten)]
    pub container: ContainerSettings,
}

/// Gateway chassis.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Gateway {
    /// Whether the nodes can be gateway chassis.
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
