//! Neutron's settings.

use kube::CustomResource;
use openstack_operator_model::common::{
    ClusterReference, Common, Component, ContainerSettings, Exposure, NameReference, Origin, Scheduling,
};
use openstack_operator_model::status::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::concern::{CacheSettings, DatabaseSettings, IdentitySettings, MessagingSettings};
use crate::inputs::{self, Input, Inputs, Link, Needed, Role, Scale};
use crate::switch::{Links, LinksChange, SwitchSettings};
use crate::template::ServiceReference;
use crate::{nova, ovn};

/// Whether networks are made by Neutron's own agents, in CEL.
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
    validation = Rule::new(format!("!{IS_OVS} || !has(self.spec.ovn) || !has(self.spec.ovn.clusterRef) && !has(self.spec.ovn.nbConnection)"))
        .message("spec.ovn has no effect with mechanism ovs: leave it out"),
    validation = Rule::new(format!("{IS_OVS} || !has(self.spec.ovs)"))
        .message("spec.ovs has no effect without mechanism ovs: leave it out"),
    validation = Rule::new(format!("{IS_OVS} || !has(self.spec.ml2) || !has(self.spec.ml2.typeDrivers) || !('vxlan' in self.spec.ml2.typeDrivers)"))
        .message("spec.ml2.typeDrivers: vxlan needs mechanism ovs; OVN has geneve"),
    validation = Rule::new(format!("!has(self.spec.ml2) || !has(self.spec.ml2.mechanismDrivers) || ({IS_OVS} ? 'openvswitch' : 'ovn') in self.spec.ml2.mechanismDrivers"))
        .message("spec.ml2.mechanismDrivers lacks the driver of the mechanism: ovn, or openvswitch with mechanism ovs"),
    validation = Rule::new(format!("!has(self.spec.ovn) || !has(self.spec.ovn.enabled) || self.spec.ovn.enabled != {IS_OVS}"))
        .message("spec.ovn.enabled contradicts spec.mechanism: leave it out"),
    validation = Rule::new("(has(self.spec.mechanism) ? self.spec.mechanism : 'ovn') == (has(oldSelf.spec.mechanism) ? oldSelf.spec.mechanism : 'ovn')")
        .message("spec.mechanism cannot be changed: the ports of VMs would have to be created anew")
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
    /// Number of pods of every component that has none of its own; 1 where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub replicas: Option<i32>,
    /// The API.
    #[serde(default)]
    pub api: Component,
    /// Workers that clean up and check periodically.
    #[serde(default)]
    pub periodic_workers: Component,
    /// Worker that repairs what differs in OVN, with mechanism `ovn`.
    #[serde(default)]
    pub ovn_maintenance_worker: Component,
    /// Server that agents call, with mechanism `ovs`.
    #[serde(default)]
    pub rpc_server: Component,
    /// Agent on nodes that answers VMs which ask for their metadata, with mechanism `ovn`.
    #[serde(default)]
    pub metadata_agent: ContainerSettings,
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
    /// What makes virtual networks on nodes: OVN, the default, or Neutron's own agents. It cannot be changed later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Mechanism>,
    /// OVN, with mechanism `ovn`.
    #[serde(default)]
    pub ovn: OvnReference,
    /// Open vSwitch and agents on nodes, with mechanism `ovs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ovs: Option<OvsSettings>,
    /// Nova object that is notified of changes of ports and serves metadata. Without one VMs get no metadata over the
    /// network.
    #[serde(default)]
    pub nova: ServiceReference,
    /// The ML2 plugin.
    #[serde(default)]
    pub ml2: Ml2,
    /// Domain of the names of VMs.
    #[serde(default = "domain")]
    #[schemars(length(min = 1, max = 200), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?\.$"))]
    pub dns_domain: String,
    #[serde(flatten)]
    pub common: Common,
}

fn domain() -> String {
    "openstack.internal.".to_owned()
}

/// Whether an object names no OVN by its connections, in CEL.
const NEEDS_OVN: &str = "(!has(self.spec.mechanism) || self.spec.mechanism != 'ovs') && (!has(self.spec.ovn) || !has(self.spec.ovn.nbConnection))";

impl Inputs for NeutronTemplate {
    fn inputs(&mut self) -> Vec<Input<'_>> {
        let needed = Needed::Always;
        let mut inputs = vec![
            Input::Replicas { scale: Scale::Stateless, replicas: &mut self.replicas },
            Input::Exposure(&mut self.exposure),
            Input::Database { field: "database", needed, settings: &mut self.database },
            Input::Messaging { field: "messaging", needed, settings: &mut self.messaging },
            Input::Cache(&mut self.cache),
            Input::Identity(&mut self.keystone),
            Input::Service {
                field: "nova",
                kind: nova::KIND,
                link: Link::UsesIfEnabled,
                reference: &mut self.nova.cluster_ref,
            },
            Input::Service {
                field: "ovn",
                kind: ovn::KIND,
                link: Link::Uses(Needed::When(NEEDS_OVN)),
                reference: &mut self.ovn.cluster_ref,
            },
        ];
        inputs.extend([
            Input::Component { field: "api", settings: &mut self.api.container },
            Input::Component { field: "periodicWorkers", settings: &mut self.periodic_workers.container },
            Input::Component {
                field: "ovnMaintenanceWorker",
                settings: &mut self.ovn_maintenance_worker.container,
            },
            Input::Component { field: "rpcServer", settings: &mut self.rpc_server.container },
            Input::Component { field: "metadataAgent", settings: &mut self.metadata_agent },
        ]);
        inputs.extend(inputs::pods(&mut self.common.pods, Role::Control));
        if let Some(ovs) = &mut self.ovs {
            let OvsSettings { scheduling, agents, agent, switch, .. } = ovs;
            inputs.push(Input::Component { field: "ovs", settings: &mut switch.container });
            inputs.push(Input::Component { field: "ovs.agent", settings: agent });
            inputs.push(Input::Component { field: "ovs.agents", settings: &mut agents.container });
            inputs.push(Input::Scheduling { field: "ovs", role: Role::Network, scheduling });
            let (field, scheduling) = ("ovs.agents", &mut agents.scheduling);
            inputs.push(Input::Scheduling { field, role: Role::Network, scheduling });
        }
        inputs
    }

    fn declaration() -> Self {
        Self { ovs: Some(OvsSettings::default()), ..Self::default() }
    }
}

/// OVN: an object of the operator, or databases that exist already.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "has(self.nbConnection) == has(self.sbConnection)", "message": "nbConnection and sbConnection need each other" },
]))]
pub struct OvnReference {
    /// Whether OVN makes the networks. It says the same as `mechanism`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// `OVNNetwork` object: its databases, its nodes and its provider networks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ClusterReference>")]
    pub cluster_ref: Option<NameReference>,
    /// Northbound database, in place of that of the object, e.g. `tcp:ovn-nb.ovn-system:6641`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = CONNECTION))]
    pub nb_connection: Option<String>,
    /// Southbound database, in place of that of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = CONNECTION))]
    pub sb_connection: Option<String>,
}

/// One or more addresses of a database of OVN.
const CONNECTION: &str = r"^tcp:[a-zA-Z0-9.-]+:[0-9]{1,5}(,tcp:[a-zA-Z0-9.-]+:[0-9]{1,5})*$";

/// What makes virtual networks on nodes.
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
    /// The agent beside each switch.
    #[serde(default)]
    pub agent: ContainerSettings,
    #[serde(flatten)]
    pub links: Links,
    /// Settings of some nodes instead of those of all. Of several that fit a node the first counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub overrides: Vec<LinksChange>,
    /// The L3, DHCP and metadata agents.
    #[serde(default)]
    pub agents: AgentSettings,
}

/// Agents that route, lease addresses and answer for metadata.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AgentSettings {
    /// Nodes that run them, which must be among those with a switch; all of those where nothing is given.
    #[serde(flatten)]
    pub scheduling: Scheduling,
    #[serde(flatten)]
    pub container: ContainerSettings,
}

/// The plugin that networks are made by.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ml2 {
    /// Kinds of networks that there can be.
    #[serde(default = "type_drivers")]
    #[schemars(length(min = 1, max = 8))]
    pub type_drivers: Vec<NetworkType>,
    /// Drivers that make networks, e.g. with one of a vendor; the one of the mechanism where nothing is given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(min = 1, max = 8),
        inner(length(min = 1, max = 64), regex(pattern = r"^[a-z0-9_-]+$"))
    )]
    pub mechanism_drivers: Vec<String>,
    /// Kinds of networks that projects create, first choice first.
    #[serde(default = "tenant_network_types")]
    #[schemars(length(min = 1, max = 8))]
    pub tenant_network_types: Vec<NetworkType>,
    /// Drivers of extensions.
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
            mechanism_drivers: Vec::new(),
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
