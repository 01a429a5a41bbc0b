//! Settings that several services share.

use openstack_operator_model::common::{Common, Exposure, NameReference};
use openstack_operator_model::oslo::Document;
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

/// Topic for consumers that no service of the cloud is.
const DEFAULT_TOPIC: &str = "notifications";

/// Notifications for other services. Each consumer has its own topic, because consumers of one topic would take
/// notifications from each other.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Notifications {
    /// Whether the service sends notifications to topic `notifications`, e.g. for a consumer outside of the cloud. Without a
    /// consumer they stay on the message bus.
    #[serde(default)]
    pub enabled: bool,
    /// Further topics, one for each consumer. A cloud sets those of its services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(min = 1, max = 16),
        inner(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))
    )]
    pub topics: Vec<String>,
}

impl Notifications {
    /// CEL expression: the service sends notifications.
    pub(crate) const ARE_SENT: &'static str = "has(self.spec.notifications) && (self.spec.notifications.enabled \
                                               || has(self.spec.notifications.topics))";

    /// All topics. Without one, the service sends no notifications.
    pub(crate) fn all_topics(&self) -> Vec<&str> {
        let default = self.enabled.then_some(DEFAULT_TOPIC);
        default.into_iter().chain(self.topics.iter().map(String::as_str)).collect()
    }

    /// Options of oslo.messaging.
    pub(crate) fn options(&self, document: Document) -> Document {
        const SECTION: &str = "oslo_messaging_notifications";
        let topics = self.all_topics();
        if topics.is_empty() {
            return document;
        }
        let document = document.set(SECTION, "driver", "messagingv2");
        if topics == [DEFAULT_TOPIC] {
            return document;
        }
        document.set(SECTION, "topics", topics.join(","))
    }
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
