//! Where pods may run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Where pods may run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scheduling {
    /// Labels of the nodes that may run the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::labels")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the pods tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub tolerations: Vec<Toleration>,
    /// How pods of one component are spread; by node where nothing is given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["topologyKey", "whenUnsatisfiable"],
    ))]
    pub topology_spread: Vec<TopologySpread>,
    /// Priority class of the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub priority_class_name: Option<String>,
    /// Name of one of a cloud's topologies. It stands in the blocks of a cloud in place of all of the above.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub topology: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "has(self.key) || has(self.operator) && self.operator == 'Exists'", "message": "a toleration needs a key, or operator Exists for all keys" },
    { "rule": "!has(self.value) || !has(self.operator) || self.operator == 'Equal'", "message": "a toleration with operator Exists takes every value: leave value out" },
    { "rule": "!has(self.tolerationSeconds) || has(self.effect) && self.effect == 'NoExecute'", "message": "tolerationSeconds needs effect NoExecute: no other ends" },
]))]
pub struct Toleration {
    /// Key of the taint; all keys where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 316), regex(pattern = schema::LABEL))]
    pub key: Option<String>,
    /// How key and value are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<TolerationOperator>,
    /// Value of the taint.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = schema::LABEL_VALUE))]
    pub value: Option<String>,
    /// Effect of the taint; all effects where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<TaintEffect>,
    /// How long a NoExecute taint is tolerated, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub toleration_seconds: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub enum TolerationOperator {
    Exists,
    Equal,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub enum TaintEffect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

impl TaintEffect {
    pub fn name(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologySpread {
    /// Label of the nodes over whose values pods are spread.
    #[schemars(length(min = 1, max = 316), regex(pattern = schema::LABEL))]
    pub topology_key: String,
    /// How many more pods one value may have than another.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 10))]
    pub max_skew: i32,
    /// Whether a pod that cannot be spread waits.
    #[serde(default)]
    pub when_unsatisfiable: WhenUnsatisfiable,
}

fn one() -> i32 {
    1
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub enum WhenUnsatisfiable {
    #[default]
    ScheduleAnyway,
    DoNotSchedule,
}
