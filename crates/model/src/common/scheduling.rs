//! Scheduling constraints of pods.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Scheduling constraints of pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scheduling {
    /// Labels of the nodes that can run the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::labels")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the pods tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub tolerations: Vec<Toleration>,
    /// Topology spread constraints of each component. Defaults to an even spread over nodes.
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
    /// Name of a topology of the cloud. Blocks of a cloud have this field in place of all of the above.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub topology: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "has(self.key) || has(self.operator) && self.operator == 'Exists'", "message": "a toleration requires a key, or operator Exists to match all keys" },
    { "rule": "!has(self.value) || !has(self.operator) || self.operator == 'Equal'", "message": "a toleration with operator Exists matches every value: remove value" },
    { "rule": "!has(self.tolerationSeconds) || has(self.effect) && self.effect == 'NoExecute'", "message": "tolerationSeconds requires effect NoExecute" },
]))]
pub struct Toleration {
    /// Key of the taint. Defaults to all keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 316), regex(pattern = schema::LABEL))]
    pub key: Option<String>,
    /// Comparison of key and value: `Exists` or `Equal`. Defaults to `Equal`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<TolerationOperator>,
    /// Value of the taint.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = schema::LABEL_VALUE))]
    pub value: Option<String>,
    /// Effect of the taint. Defaults to all effects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<TaintEffect>,
    /// Time in seconds that pods tolerate a NoExecute taint. Defaults to no limit.
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
    /// Node label whose values are the topology domains.
    #[schemars(length(min = 1, max = 316), regex(pattern = schema::LABEL))]
    pub topology_key: String,
    /// Maximum difference in the number of pods between two topology domains.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 10))]
    pub max_skew: i32,
    /// Handling of a pod that violates the constraint.
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
