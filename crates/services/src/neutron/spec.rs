//! Settings of Neutron.

use kube::CustomResource;
use openstack_operator_model::common::{
    ClusterReference, Common, Component, ContainerSettings, Exposure, NameReference, Origin, Scheduling,
};
use openstack_operator_model::status::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::concern::{CacheSettings, DatabaseSettings, IdentitySettings, MessagingSettings};
use crate::inputs::{self, Input, Inputs, Link, Needed, Role, Scale};
use crate::switch::{Links, LinksOverride, SwitchSettings};
use crate::template::ServiceReference;
use crate::{nova, ovn};

/// CEL expression: the mechanism is `ovs`.
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
        .message("spec.ovn has no effect with mechanism ovs: remove it"),
    validation = Rule::new(format!("{IS_OVS} || !has(self.spec.ovs)"))
        .message("spec.ovs has no effect without mechanism ovs: remove it"),
    validation = Rule::new(format!("{IS_OVS} || !has(self.spec.ml2) || !has(self.spec.ml2.typeDrivers) || !('vxlan' in self.spec.ml2.typeDrivers)"))
        .message("spec.ml2.typeDrivers: vxlan requires mechanism ovs; use geneve with OVN"),
    validation = Rule::new(format!("!has(self.spec.ml2) || !has(self.spec.ml2.mechanismDrivers) || ({IS_OVS} ? 'openvswitch' : 'ovn') in self.spec.ml2.mechanismDrivers"))
        .message("spec.ml2.mechanismDrivers must contain the driver of the mechanism: ovn, or openvswitch with mechanism ovs"),
    validation = Rule::new(format!("!has(self.spec.ovn) || !has(self.spec.ovn.enabled) || self.spec.ovn.enabled != {IS_OVS}"))
        .message("spec.ovn.enabled contradicts spec.mechanism: remove it"),
    validation = Rule::new("(has(self.spec.mechanism) ? self.spec.mechanism : 'ovn') == (has(oldSelf.spec.mechanism) ? oldSelf.spec.mechanism : 'ovn')")
        .message("spec.mechanism cannot be changed: the ports of instances would have to be recreated")
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
    /// Number of pods of each component without its own `replicas`. Defaults to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub replicas: Option<i32>,
    /// Networking API.
    #[serde(default)]
    pub api: Component,
    /// Periodic workers, which clean up and check resources.
    #[serde(default)]
    pub periodic_workers: Component,
    /// OVN maintenance worker, which repairs differences between Neutron and OVN. Used with mechanism `ovn`.
    #[serde(default)]
    pub ovn_maintenance_worker: Component,
    /// RPC server for agents. Used with mechanism `ovs`.
    #[serde(default)]
    pub rpc_server: Component,
    /// Metadata agent on nodes, which serves instance metadata. Used with mechanism `ovn`.
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
    /// Mechanism of virtual networks: `ovn`, or `ovs` for Open vSwitch with Neutron's agents. Defaults to `ovn` and
    /// cannot be changed later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Mechanism>,
    /// OVN databases. Used with mechanism `ovn`.
    #[serde(default)]
    pub ovn: OvnReference,
    /// Open vSwitch and agents on nodes. Used with mechanism `ovs`; `nodeSelector` defaults to label
    /// `node-role.kubernetes.io/hypervisor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ovs: Option<OvsSettings>,
    /// Nova that Neutron notifies of port changes and that serves instance metadata. Without it, instances get no
    /// metadata over the network.
    #[serde(default)]
    pub nova: ServiceReference,
    /// ML2 plugin.
    #[serde(default)]
    pub ml2: Ml2,
    /// DNS domain of instances.
    #[serde(default = "domain")]
    #[schemars(length(min = 1, max = 200), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?\.$"))]
    pub dns_domain: String,
    #[serde(flatten)]
    pub common: Common,
}

fn domain() -> String {
    "openstack.internal.".to_owned()
}

/// CEL expression: the mechanism is `ovn` and no connections are set.
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

/// OVN: an object of the operator, or existing databases.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "has(self.nbConnection) == has(self.sbConnection)", "message": "set nbConnection and sbConnection together" },
]))]
pub struct OvnReference {
    /// Whether OVN is the mechanism. Equivalent to `mechanism`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// `OVNNetwork` object with the databases, nodes and physical networks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ClusterReference>")]
    pub cluster_ref: Option<NameReference>,
    /// Addresses of the northbound database, e.g. `tcp:ovn-nb.ovn-system:6641`. Defaults to those of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = CONNECTION))]
    pub nb_connection: Option<String>,
    /// Addresses of the southbound database. Defaults to those of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = CONNECTION))]
    pub sb_connection: Option<String>,
}

/// One or more addresses of an OVN database.
const CONNECTION: &str = r"^tcp:[a-zA-Z0-9.-]+:[0-9]{1,5}(,tcp:[a-zA-Z0-9.-]+:[0-9]{1,5})*$";

/// Mechanism of virtual networks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mechanism {
    #[default]
    Ovn,
    Ovs,
}

/// Open vSwitch with its agent, and the L3, DHCP and metadata agents.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OvsSettings {
    /// Nodes of the virtual networks. Defaults to nodes with label `node-role.kubernetes.io/hypervisor`.
    #[serde(flatten)]
    pub scheduling: Scheduling,
    #[serde(flatten)]
    pub switch: SwitchSettings,
    /// Open vSwitch agent.
    #[serde(default)]
    pub agent: ContainerSettings,
    #[serde(flatten)]
    pub links: Links,
    /// Overrides for some nodes. The first one that matches a node applies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub overrides: Vec<LinksOverride>,
    /// L3, DHCP and metadata agents. `nodeSelector` defaults to all nodes with Open vSwitch.
    #[serde(default)]
    pub agents: AgentSettings,
}

/// L3, DHCP and metadata agents.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AgentSettings {
    /// Nodes that run the agents. They must run Open vSwitch; defaults to all nodes that do.
    #[serde(flatten)]
    pub scheduling: Scheduling,
    #[serde(flatten)]
    pub container: ContainerSettings,
}

/// ML2 plugin.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ml2 {
    /// Network types that exist in the cloud.
    #[serde(default = "type_drivers")]
    #[schemars(length(min = 1, max = 8))]
    pub type_drivers: Vec<NetworkType>,
    /// Mechanism drivers, e.g. with a vendor's driver. Defaults to the drivers of the mechanism.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(min = 1, max = 8),
        inner(length(min = 1, max = 64), regex(pattern = r"^[a-z0-9_-]+$"))
    )]
    pub mechanism_drivers: Vec<String>,
    /// Network types that projects can create, in order of preference.
    #[serde(default = "tenant_network_types")]
    #[schemars(length(min = 1, max = 8))]
    pub tenant_network_types: Vec<NetworkType>,
    /// Extension drivers.
    #[serde(default = "extension_drivers")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 64), regex(pattern = r"^[a-z0-9_]+$")))]
    pub extension_drivers: Vec<String>,
    /// VLAN ranges of project networks, e.g. `physnet1:100:199`. Defaults to all physical networks without ranges.
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
    /// Requires mechanism `ovs`.
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
