//! OVN's chassis: the switch of one node, as the network's databases know it. The network makes one for each node.

use kube::CustomResource;
use openstack_operator_model::common::NameReference;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::name;
use openstack_operator_model::need::Needs;
use openstack_operator_model::plan::Plan;
use openstack_operator_model::schema;
use openstack_operator_model::service::{self, Context, Invalid};
use openstack_operator_model::status::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ovn::{self, ChassisLinks};

pub const KIND: Kind = Kind::own("OVNChassis", "ovnchassis");

/// A node of virtual networks. The operator writes one for every node of an `OVNNetwork`; one that a person writes sets the
/// node apart from the others. Its status says whether the node has registered and answers.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "openstack.k8s.io",
    version = "v1alpha1",
    kind = "OVNChassis",
    plural = "ovnchassis",
    namespaced,
    status = "Status",
    shortname = "chassis",
    category = "openstack"
)]
#[serde(rename_all = "camelCase")]
pub struct OVNChassisSpec {
    /// Name of the node.
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub hostname: String,
    /// Name of the chassis in the southbound database; that of the node where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-zA-Z0-9._-]+$"))]
    pub system_id: Option<String>,
    /// The `OVNNetwork` that the node is part of.
    #[serde(default)]
    pub ovn: Network,
    #[serde(flatten)]
    pub links: ChassisLinks,
}

/// The network that the chassis is part of.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// Object of the network; the one named `ovn` where none is given.
    #[serde(default = "network")]
    pub cluster_ref: NameReference,
}

impl Default for Network {
    fn default() -> Self {
        Self { cluster_ref: network() }
    }
}

fn network() -> NameReference {
    NameReference::new("ovn")
}

pub struct Service;

impl service::Service for Service {
    type Object = OVNChassis;
    const KIND: Kind = KIND;
    const NAME: &'static str = "ovn-chassis";
    /// It has nothing whose name would be longer.
    const LONGEST_NAME: usize = name::LONGEST;

    fn needs(object: &OVNChassis) -> Needs {
        Needs::default().object("spec.ovn.clusterRef", ovn::KIND, Some(&object.spec.ovn.cluster_ref))
    }

    fn plan(context: &Context<'_, OVNChassis>) -> Result<Plan, Invalid> {
        let OVNChassisSpec { hostname, ovn, .. } = &context.object.spec;
        let name = &ovn.cluster_ref.name;
        let network = context.inputs.network(ovn::KIND, name, "spec.ovn.clusterRef.name")?;
        let agents = ovn::node_agents(name, &network.southbound, vec![hostname.clone()]);
        Ok(Plan { agents: Some(agents), ..Plan::default() })
    }
}
