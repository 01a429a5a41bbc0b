//! Settings of Valkey.

use kube::CustomResource;
use openstack_operator_model::common::{Common, ContainerSettings, Origin, Storage};
use openstack_operator_model::status::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::inputs::{self, Input, Inputs};

/// Key-value store, with which the pods of services coordinate.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "openstack.k8s.io",
    version = "v1alpha1",
    kind = "Valkey",
    plural = "valkeys",
    namespaced,
    status = "Status",
    shortname = "vk",
    category = "openstack"
)]
pub struct ValkeySpec {
    #[serde(flatten)]
    pub origin: Origin,
    #[serde(flatten)]
    pub template: ValkeyTemplate,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ValkeyTemplate {
    /// Number of members: 1, or 3 with a Sentinel each, which elect another primary if the primary is lost. Defaults to 1. A
    /// change restarts the members. On scale-down, the volumes of the other members are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3), extend("x-kubernetes-validations" = [
        { "rule": "self != 2", "message": "replicas must be 1 or 3: two members have no majority" },
    ]))]
    pub replicas: Option<i32>,
    /// Who runs the servers. It cannot be changed later.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-validations" = [
        { "rule": "self == oldSelf", "message": "provider cannot be changed: the data would stay with the former one" },
    ]))]
    pub provider: Provider,
    /// Sentinel of each of 3 members.
    #[serde(default)]
    pub sentinel: ContainerSettings,
    #[serde(flatten)]
    pub storage: Storage,
    #[serde(flatten)]
    pub common: Common,
}

/// Who runs the servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Provider {
    /// This operator.
    #[default]
    Pods,
    /// The valkey-operator of SAP, which must be installed.
    ValkeyOperator,
}

impl ValkeyTemplate {
    pub(super) fn replicas(&self) -> i32 {
        self.replicas.unwrap_or(1)
    }
}

impl Inputs for ValkeyTemplate {
    fn inputs(&mut self) -> Vec<Input<'_>> {
        let mut inputs = inputs::quorum(&mut self.replicas, &mut self.storage, &mut self.common.pods);
        inputs.push(Input::Component { field: "sentinel", settings: &mut self.sentinel });
        inputs
    }
}
