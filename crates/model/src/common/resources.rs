//! CPU and memory of containers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::is_default;
use crate::schema;

/// CPU and memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": schema::REQUESTS_WITHIN_LIMITS,
    "message": "requests must not exceed limits",
}]))]
pub struct Resources {
    /// Resource requests.
    #[serde(default, skip_serializing_if = "is_default")]
    pub requests: ResourceAmounts,
    /// Resource limits.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: ResourceAmounts,
}

impl Resources {
    /// These amounts, with gaps filled from another.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        let amounts = |own: &ResourceAmounts, other: &ResourceAmounts| ResourceAmounts {
            cpu: own.cpu.clone().or_else(|| other.cpu.clone()),
            memory: own.memory.clone().or_else(|| other.memory.clone()),
        };
        Self {
            requests: amounts(&self.requests, &other.requests),
            limits: amounts(&self.limits, &other.limits),
        }
    }
}

/// Amounts of CPU and memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceAmounts {
    /// CPU, e.g. `2` or `500m`.
    #[serde(default, deserialize_with = "schema::read_optional", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::cpu")]
    pub cpu: Option<String>,
    /// Memory, e.g. `1Gi`.
    #[serde(default, deserialize_with = "schema::read_optional", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::size")]
    pub memory: Option<String>,
}
