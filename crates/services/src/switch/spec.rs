//! Settings of Open vSwitch on a node.

use std::collections::BTreeMap;

use openstack_operator_model::common::ContainerSettings;
use openstack_operator_model::need::{Labels, selects};
use openstack_operator_model::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Physical networks and tunnels of a node.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Links {
    /// Physical networks (provider networks) and the bridges that connect nodes to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["physicalNetwork"],
    ))]
    pub bridge_mappings: Vec<BridgeMapping>,
    /// Tunnels between nodes.
    #[serde(default)]
    pub encapsulation: Encapsulation,
}

/// Settings of some nodes. Unset fields keep the settings of all nodes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinksOverride {
    /// Labels of these nodes.
    #[schemars(schema_with = "schema::labels")]
    pub node_selector: BTreeMap<String, String>,
    /// Bridge mappings of these nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["physicalNetwork"],
    ))]
    pub bridge_mappings: Option<Vec<BridgeMapping>>,
    /// Tunnels of these nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encapsulation: Option<Encapsulation>,
}

impl LinksOverride {
    /// Whether it applies to a node with these labels.
    pub(crate) fn matches(&self, labels: &Labels) -> bool {
        selects(&self.node_selector, labels)
    }

    pub(crate) fn apply(&self, plain: &Links) -> Links {
        Links {
            bridge_mappings: self.bridge_mappings.clone().unwrap_or_else(|| plain.bridge_mappings.clone()),
            encapsulation: self.encapsulation.clone().unwrap_or_else(|| plain.encapsulation.clone()),
        }
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct SwitchSettings {
    /// Datapath of Open vSwitch: `system` uses the kernel module, `netdev` runs in userspace.
    #[serde(default)]
    pub datapath: Datapath,
    #[serde(flatten)]
    pub container: ContainerSettings,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Datapath {
    /// Kernel module `openvswitch`, which must be loaded on the nodes.
    #[default]
    System,
    /// Userspace: slower, without a kernel module.
    Netdev,
}

impl Datapath {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Netdev => "netdev",
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BridgeMapping {
    /// Name of the physical network, e.g. `physnet1`.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub physical_network: String,
    /// Bridge to the physical network.
    #[schemars(length(min = 1, max = 15), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub bridge: String,
    /// Interface of the nodes that becomes a port of the bridge. It must be unused, because its IP addresses stop
    /// working.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 15), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub interface: Option<String>,
}

/// Tunnels of virtual networks between nodes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Encapsulation {
    /// Tunnel protocol.
    #[serde(rename = "type", default)]
    pub kind: EncapsulationKind,
    /// IP address of the tunnel endpoint. Set it only where the settings apply to a single node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 7, max = 15), regex(pattern = r"^[0-9]{1,3}(\.[0-9]{1,3}){3}$"))]
    pub ip: Option<String>,
    /// Interface whose IP address is the tunnel endpoint. Defaults to the IP address of the node. With datapath
    /// `netdev` the interface becomes a port of the bridge and must be unused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 15), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub interface: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EncapsulationKind {
    #[default]
    Geneve,
}

impl EncapsulationKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Geneve => "geneve",
        }
    }
}
