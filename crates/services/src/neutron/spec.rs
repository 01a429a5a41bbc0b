//! Neutron's settings.

use kube::CustomResource;
use openstack_operator_model::common::{
    CacheSettings, Common, DatabaseSettings, Exposure, IdentitySettings, MessagingSettings, Origin,
    Resources, Scheduling, is_default,
};
use openstack_operator_model::status::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::switch::{Links, LinksChange, SwitchSettings};
use crate::template::{self, Replicas, ServiceReference};

/// Whether networks are made by Neutron's own agents.
const IS_OVS: &str = "(has(self.spec.mechanism) && self.spec.mechanism == 'ovs')";

/// Networking service.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "openstack.k8s.io",
    version = "v1alpha1",
    kind = "Neutron",
    plural = "neutrons",
    namespaced,
    status = "Status",
    shortname = "neu",
    category = "openstack",
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint"),
    validation = template::database_rule(),
    validation = template::messaging_rule(),
    validation = template::identity_rule(),
    validation = template::exposure_rule(),
    validation = Rule::new(format!("{IS_OVS} || (has(self.spec.ovn) && has(self.spec.ovn.clusterRef))"))
        .message("spec.ovn.clusterRef is missing: name an OVNNetwork"),
    validation = Rule::new(format!("!{IS_OVS} || !has(self.spec.ovn) || !has(self.spec.ovn.clusterRef)"))
        .message("spec.ovn.clusterRef has no use with mechanism ovs: leave it out"),
    validation = Rule::new(format!("{IS_OVS} || !has(self.spec.ovs)"))
        .message("spec.ovs has no use without mechanism ovs: leave it out"),
    validation = Rule::new(format!("{IS_OVS} || !has(self.spec.ml2) || !has(self.spec.ml2.typeDrivers) || !('vxlan' in self.spec.ml2.typeDrivers)"))
        .message("spec.ml2.typeDrivers: vxlan needs mechanism ovs; OVN has geneve"),
    validation = Rule::new("(has(self.spec.mechanism) ? self.spec.mechanism : 'ovn') == (has(oldSelf.spec.mechanism) ? oldSelf.spec.mechanism : 'ovn')")
        .message("spec.mechanism cannot be changed: ports would have to be made anew")
)]
pub struct NeutronSpec {
    #[serde(flatten)]
    pub origin: Origin,
    #[serde(flatten)]
    pub template: NeutronTemplate,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NeutronTemplate {
    #[serde(default)]
    pub api: Replicas,
    #[serde(flatten)]
    pub exposure: Exposure,
    #[serde(default)]
    pub database: DatabaseSettings,
    #[serde(default)]
    pub messaging: MessagingSettings,
    #[serde(default)]
    pub cache: CacheSettings,
    #[serde(default)]
    pub keystone: IdentitySettings,
    /// What makes the networks on nodes: OVN, which is what is meant where nothing is said, or Neutron's own agents. It
    /// cannot be changed later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Mechanism>,
    /// `OVNNetwork` object that makes the networks, with mechanism `ovn`.
    #[serde(default)]
    pub ovn: ServiceReference,
    /// Switches and agents of nodes, with mechanism `ovs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ovs: Option<OvsSettings>,
    /// Nova object, who is told of changes, and asked for what servers want to know of themselves. Without one servers get
    /// no metadata over the network.
    #[serde(default)]
    pub nova: ServiceReference,
    #[serde(default)]
    pub ml2: Ml2,
    /// Domain of the names that servers get.
    #[serde(default = "domain")]
    #[schemars(length(min = 1, max = 200), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?\.$"))]
    pub dns_domain: String,
    #[serde(flatten)]
    pub common: Common,
}

fn domain() -> String {
    "openstack.internal.".to_owned()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mechanism {
    #[default]
    Ovn,
    Ovs,
}

/// Switches of nodes, each with an agent that sets it up, and the agents that route, lease addresses and answer for
/// metadata.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OvsSettings {
    /// Nodes that have a part in virtual networks; those with label `node-role.kubernetes.io/hypervisor` where nothing is
    /// given.
    #[serde(flatten)]
    pub scheduling: Scheduling,
    #[serde(flatten)]
    pub switch: SwitchSettings,
    #[serde(flatten)]
    pub links: Links,
    /// Settings of some nodes instead of those of all. Of several that fit a node the first counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub overrides: Vec<LinksChange>,
    #[serde(default)]
    pub agents: AgentSettings,
}

/// Agents that route, lease addresses and answer for metadata.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AgentSettings {
    /// Nodes that run them, which must be among those with a switch; all of those where nothing is given.
    #[serde(flatten)]
    pub scheduling: Scheduling,
    #[serde(default, skip_serializing_if = "is_default")]
    pub resources: Resources,
}

/// The plugin that networks are made by.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ml2 {
    #[serde(default = "type_drivers")]
    #[schemars(length(min = 1, max = 8))]
    pub type_drivers: Vec<NetworkType>,
    /// What networks of projects are, first choice first.
    #[serde(default = "tenant_network_types")]
    #[schemars(length(min = 1, max = 8))]
    pub tenant_network_types: Vec<NetworkType>,
    #[serde(default = "extension_drivers")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 64), regex(pattern = r"^[a-z0-9_]+$")))]
    pub extension_drivers: Vec<String>,
    /// Ranges of VLANs that projects may use, e.g. `physnet1:100:199`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 32),
        inner(length(min = 1, max = 128), regex(pattern = r"^[a-zA-Z0-9_.-]+(:[0-9]+:[0-9]+)?$"))
    )]
    pub network_vlan_ranges: Vec<String>,
}

impl Default for Ml2 {
    fn default() -> Self {
        Self {
            type_drivers: type_drivers(),
            tenant_network_types: tenant_network_types(),
            extension_drivers: extension_drivers(),
            network_vlan_ranges: Vec::new(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetworkType {
    Local,
    Flat,
    Vlan,
    Geneve,
    /// With mechanism `ovs`.
    Vxlan,
}

impl NetworkType {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Flat => "flat",
            Self::Vlan => "vlan",
            Self::Geneve => "geneve",
            Self::Vxlan => "vxlan",
        }
    }
}

fn type_drivers() -> Vec<NetworkType> {
    vec![NetworkType::Geneve, NetworkType::Vlan, NetworkType::Flat]
}

fn tenant_network_types() -> Vec<NetworkType> {
    vec![NetworkType::Geneve]
}

fn extension_drivers() -> Vec<String> {
    ["port_security", "qos", "dns_domain_ports"].map(str::to_owned).to_vec()
}
