//! OVN chassis: one node of an OVN network. The operator creates one for each node.

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

/// OVN chassis: one node of an `OVNNetwork`. The operator creates one for each node; create one yourself to override
/// the settings of a node.
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
    /// Name of the chassis in the southbound database. Defaults to the name of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-zA-Z0-9._-]+$"))]
    pub system_id: Option<String>,
    /// `OVNNetwork` of the node.
    #[serde(default)]
    pub ovn: Network,
    #[serde(flatten)]
    pub links: ChassisLinks,
}

/// Network of the chassis.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// `OVNNetwork` object. Defaults to the object named `ovn`.
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
    /// It has no children with longer names.
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
