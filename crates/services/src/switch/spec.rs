//! Settings of the switch of a node.

use std::collections::BTreeMap;

use openstack_operator_model::common::ContainerSettings;
use openstack_operator_model::need::{Labels, selects};
use openstack_operator_model::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the switch of a node leads.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Links {
    /// Networks outside, and the bridges of a node that lead to them.
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

/// What is different on some nodes. What is left out is as on all.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinksChange {
    /// Labels of these nodes.
    #[schemars(schema_with = "schema::labels")]
    pub node_selector: BTreeMap<String, String>,
    /// Provider networks of these nodes.
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

impl LinksChange {
    /// Whether it is for a node with these labels.
    pub(crate) fn fits(&self, labels: &Labels) -> bool {
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
    /// Whether packets go through the kernel or through the switch's own process, where the kernel cannot.
    #[serde(default)]
    pub datapath: Datapath,
    #[serde(flatten)]
    pub container: ContainerSettings,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Datapath {
    /// The kernel's module `openvswitch`, which nodes must have loaded.
    #[default]
    System,
    /// The switch's own process: slower, and needs nothing of the kernel.
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
    /// Name of the network outside, e.g. `physnet1`.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub physical_network: String,
    /// Bridge that leads to it.
    #[schemars(length(min = 1, max = 15), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub bridge: String,
    /// Interface of the nodes that becomes a port of the bridge. It must have no other use: its addresses stop working.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 15), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub interface: Option<String>,
}

/// How packets of virtual networks travel between nodes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Encapsulation {
    /// Protocol of the tunnels.
    #[serde(rename = "type", default)]
    pub kind: EncapsulationKind,
    /// Address that tunnels begin and end at, for one node or for nodes that are selected one by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 7, max = 15), regex(pattern = r"^[0-9]{1,3}(\.[0-9]{1,3}){3}$"))]
    pub ip: Option<String>,
    /// Interface whose address tunnels begin and end at; the node's own address where none is given. With datapath
    /// `netdev` it becomes a port of the switch, and must have no other use.
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
