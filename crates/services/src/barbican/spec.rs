//! Settings of Barbican.

use kube::CustomResource;
use openstack_operator_model::common::{Common, Component, ContainerSettings, Exposure, Origin};
use openstack_operator_model::schema;
use openstack_operator_model::status::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::concern::{CacheSettings, DatabaseSettings, IdentitySettings, MessagingSettings};
use crate::inputs::{self, Input, Inputs, Needed, Role, Scale};

/// Key manager service.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "openstack.k8s.io",
    version = "v1alpha1",
    kind = "Barbican",
    plural = "barbicans",
    namespaced,
    status = "Status",
    shortname = "brb",
    category = "openstack",
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint")
)]
pub struct BarbicanSpec {
    #[serde(flatten)]
    pub origin: Origin,
    #[serde(flatten)]
    pub template: BarbicanTemplate,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BarbicanTemplate {
    /// Number of pods of each component without its own `replicas`, except the retry scheduler. Defaults to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub replicas: Option<i32>,
    /// Key manager API.
    #[serde(default)]
    pub api: Component,
    /// Worker, which processes orders.
    #[serde(default)]
    pub worker: Component,
    /// Keystone listener, which removes the secrets of deleted projects. Used if the Keystone object sends notifications.
    #[serde(default)]
    pub keystone_listener: Component,
    /// Retry scheduler, which queues failed tasks again. It has one pod.
    #[serde(default)]
    pub retry_scheduler: ContainerSettings,
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
    /// Keys that encrypt the keys of projects.
    #[serde(default)]
    pub key_encryption_keys: KeyEncryptionKeys,
    #[serde(flatten)]
    pub common: Common,
}

impl Inputs for BarbicanTemplate {
    fn inputs(&mut self) -> Vec<Input<'_>> {
        let needed = Needed::Always;
        let mut inputs = vec![
            Input::Replicas { scale: Scale::Stateless, replicas: &mut self.replicas },
            Input::Exposure(&mut self.exposure),
            Input::Database { field: "database", needed, settings: &mut self.database },
            Input::Messaging { field: "messaging", needed, settings: &mut self.messaging },
            Input::Cache(&mut self.cache),
            Input::Identity(&mut self.keystone),
            Input::Component { field: "api", settings: &mut self.api.container },
            Input::Component { field: "worker", settings: &mut self.worker.container },
            Input::Component { field: "keystoneListener", settings: &mut self.keystone_listener.container },
            Input::Component { field: "retryScheduler", settings: &mut self.retry_scheduler },
        ];
        inputs.extend(inputs::pods(&mut self.common.pods, Role::Control));
        inputs
    }
}

/// Rotation of the keys that encrypt the keys of projects. It restarts the pods one after another.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyEncryptionKeys {
    /// Rotation schedule as a cron expression in UTC. Names of months and days are in capitals.
    #[serde(default = "monthly")]
    #[schemars(length(min = 9, max = 100), regex(pattern = schema::SCHEDULE))]
    pub rotation_schedule: String,
    // A key stays for one more rotation than the keys of all projects need: a pod that stops during a rotation may still
    // encrypt the key of a new project with the former key.
    /// Maximum number of keys. A backup of the database can be decrypted as long as the keys of its time exist.
    #[serde(default = "four")]
    #[schemars(range(min = 4, max = 100))]
    pub max_active_keys: u32,
}

impl Default for KeyEncryptionKeys {
    fn default() -> Self {
        Self { rotation_schedule: monthly(), max_active_keys: four() }
    }
}

fn monthly() -> String {
    "0 0 1 * *".to_owned()
}

fn four() -> u32 {
    4
}
