//! Settings that several services share.

use openstack_operator_model::common::{Common, Exposure, NameReference};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::concern::{CacheSettings, DatabaseSettings, IdentitySettings};
use crate::inputs::{self, Input, Inputs, Needed, Role, Scale};

/// Settings of a service with one API and one database.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiTemplate {
    /// Number of API pods. Defaults to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub replicas: Option<i32>,
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

impl Inputs for ApiTemplate {
    fn inputs(&mut self) -> Vec<Input<'_>> {
        let mut inputs = vec![
            Input::Replicas { scale: Scale::Stateless, replicas: &mut self.replicas },
            Input::Exposure(&mut self.exposure),
            Input::Database { field: "database", needed: Needed::Always, settings: &mut self.database },
            Input::Cache(&mut self.cache),
            Input::Identity(&mut self.keystone),
        ];
        inputs.extend(inputs::pods(&mut self.common.pods, Role::Control));
        inputs
    }
}

/// Notifications for other services.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Notifications {
    /// Whether the service sends notifications over the message bus.
    #[serde(default)]
    pub enabled: bool,
}

/// Reference to another service.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceReference {
    /// Object of the referenced service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<NameReference>,
}

impl ServiceReference {
    pub(crate) fn name(&self) -> Option<&str> {
        self.cluster_ref.as_ref().map(|reference| reference.name.as_str())
    }
}
