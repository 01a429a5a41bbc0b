//! Settings that services with one HTTP API share, and rules that their definitions carry.

use kube::core::Rule;
use openstack_operator_model::common::{
    CacheSettings, Common, DatabaseSettings, Exposure, IdentitySettings, NameReference,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiTemplate {
    /// How many pods serve the API.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 32))]
    pub replicas: i32,
    #[serde(flatten)]
    pub exposure: Exposure,
    #[serde(default)]
    pub database: DatabaseSettings,
    #[serde(default)]
    pub cache: CacheSettings,
    #[serde(default)]
    pub keystone: IdentitySettings,
    #[serde(flatten)]
    pub common: Common,
}

pub(crate) fn one() -> i32 {
    1
}

/// Events for other services.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Notifications {
    /// Whether events are sent over the message bus.
    #[serde(default)]
    pub enabled: bool,
}

/// One of several groups of pods that a service has.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Replicas {
    /// How many pods.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 32))]
    pub replicas: i32,
}

impl Default for Replicas {
    fn default() -> Self {
        Self { replicas: 1 }
    }
}

/// Another service of the same cloud.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceReference {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<NameReference>,
}

impl ServiceReference {
    pub(crate) fn name(&self) -> Option<&str> {
        self.cluster_ref.as_ref().map(|reference| reference.name.as_str())
    }
}

pub(crate) fn database_rule() -> Rule {
    Rule::new("has(self.spec.database) && has(self.spec.database.clusterRef) != has(self.spec.database.host)")
        .message("spec.database needs either a clusterRef or a host")
}

pub(crate) fn messaging_rule() -> Rule {
    Rule::new("has(self.spec.messaging) && has(self.spec.messaging.clusterRef)")
        .message("spec.messaging.clusterRef is missing: name a RabbitMQ")
}

pub(crate) fn identity_rule() -> Rule {
    Rule::new("has(self.spec.keystone) && has(self.spec.keystone.clusterRef)")
        .message("spec.keystone.clusterRef is missing: name a Keystone")
}

pub(crate) fn exposure_rule() -> Rule {
    Rule::new("!has(self.spec.gatewayRef) || has(self.spec.publicHostname)")
        .message("spec.gatewayRef needs spec.publicHostname, the name under which the API is reached")
}
