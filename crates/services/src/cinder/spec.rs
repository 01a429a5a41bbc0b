//! Settings of Cinder.

use kube::CustomResource;
use openstack_operator_model::common::{Common, Component, Exposure, Origin, is_default};
use openstack_operator_model::schema;
use openstack_operator_model::status::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::concern::{
    CacheSettings, CephSettings, DatabaseSettings, IdentitySettings, KeyValueSettings, MessagingSettings,
};
use crate::inputs::{self, Input, Inputs, Link, Needed, Role, Scale};
use crate::template::{Notifications, ServiceReference};
use crate::{barbican, glance};

pub use backend::*;
pub use backup::*;
pub use volume_type::*;

mod backend;
mod backup;
mod volume_type;

/// Block storage service.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "openstack.k8s.io",
    version = "v1alpha1",
    kind = "Cinder",
    plural = "cinders",
    namespaced,
    status = "Status",
    shortname = "cin",
    category = "openstack",
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint")
)]
pub struct CinderSpec {
    #[serde(flatten)]
    pub origin: Origin,
    #[serde(flatten)]
    pub template: CinderTemplate,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(oldSelf.backends) || !has(self.backends) || oldSelf.backends.all(old, !has(old.cluster) || self.backends.all(now, now.name != old.name || has(now.cluster) && now.cluster == old.cluster))",
    "message": "cluster of a backend cannot be changed or removed: volumes belong to it",
}]))]
pub struct CinderTemplate {
    /// Number of pods of the API, the scheduler and the backup service without their own `replicas`. Defaults to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub replicas: Option<i32>,
    /// Block storage API.
    #[serde(default)]
    pub api: Component,
    /// Scheduler, which selects backends for volumes.
    #[serde(default)]
    pub scheduler: Component,
    /// Backends, which store volumes. Each has its own volume service, and a volume type of its name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["name"],
    ))]
    pub backends: Vec<Backend>,
    /// Further volume types, besides those of the backends. One with the name of a backend replaces that of the backend.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["name"],
    ))]
    pub volume_types: Vec<VolumeTypeSettings>,
    /// Volume type of volumes without one. Defaults to the type of the first backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255), regex(pattern = TYPE_NAME))]
    pub default_volume_type: Option<String>,
    /// Backup service. Without it, volumes cannot be backed up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<Backup>,
    /// Maximum time for a volume or backup service to complete its operations before it stops. Volumes stay in a transitional
    /// state if it is too short.
    #[serde(default = "ten_minutes")]
    #[schemars(range(min = 60, max = 14400))]
    pub shutdown_seconds: u32,
    /// Removal of the records of deleted volumes from the database.
    #[serde(default)]
    pub purge: Purge,
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
    /// Glance, from whose images volumes are created.
    #[serde(default)]
    pub glance: ServiceReference,
    /// Barbican, which has the keys of encrypted volumes.
    #[serde(default)]
    pub barbican: ServiceReference,
    #[serde(default)]
    pub ceph: CephSettings,
    #[serde(default, skip_serializing_if = "is_default")]
    pub key_value: KeyValueSettings,
    /// Notifications on volumes.
    #[serde(default)]
    pub notifications: Notifications,
    #[serde(flatten)]
    pub common: Common,
}

impl Default for CinderTemplate {
    fn default() -> Self {
        Self {
            replicas: None,
            api: Component::default(),
            scheduler: Component::default(),
            backends: Vec::new(),
            volume_types: Vec::new(),
            default_volume_type: None,
            backup: None,
            shutdown_seconds: ten_minutes(),
            purge: Purge::default(),
            exposure: Exposure::default(),
            database: DatabaseSettings::default(),
            messaging: MessagingSettings::default(),
            cache: CacheSettings::default(),
            keystone: IdentitySettings::default(),
            glance: ServiceReference::default(),
            barbican: ServiceReference::default(),
            ceph: CephSettings::default(),
            key_value: KeyValueSettings::default(),
            notifications: Notifications::default(),
            common: Common::default(),
        }
    }
}

/// CEL expression: several pods share the volumes of a backend.
const HAS_CLUSTER: &str =
    "has(self.spec.backends) && self.spec.backends.exists(backend, has(backend.cluster))";

impl Inputs for CinderTemplate {
    fn inputs(&mut self) -> Vec<Input<'_>> {
        let needed = Needed::Always;
        let service = |field, kind, reference| {
            let link = Link::UsesIfEnabled;
            Input::Service { field, kind, link, reference }
        };
        let mut inputs = vec![
            Input::Replicas { scale: Scale::Stateless, replicas: &mut self.replicas },
            Input::Exposure(&mut self.exposure),
            Input::Database { field: "database", needed, settings: &mut self.database },
            Input::Messaging { field: "messaging", needed, settings: &mut self.messaging },
            Input::Cache(&mut self.cache),
            Input::Identity(&mut self.keystone),
            Input::Storage(&mut self.ceph),
            Input::KeyValue { needed: Needed::When(HAS_CLUSTER), settings: &mut self.key_value },
            Input::Topics { field: "notifications.topics", topics: &mut self.notifications.topics },
            service("glance", glance::KIND, &mut self.glance.cluster_ref),
            service("barbican", barbican::KIND, &mut self.barbican.cluster_ref),
            Input::Component { field: "api", settings: &mut self.api.container },
            Input::Component { field: "scheduler", settings: &mut self.scheduler.container },
        ];
        inputs.extend(self.backends.iter_mut().map(|backend| {
            let settings = &mut backend.volume.container;
            Input::Component { field: "backends[].volume", settings }
        }));
        inputs.extend(self.backup.iter_mut().map(|backup| {
            let settings = &mut backup.component.container;
            Input::Component { field: "backup", settings }
        }));
        inputs.extend(inputs::pods(&mut self.common.pods, Role::Control));
        inputs
    }

    fn declaration() -> Self {
        Self { backends: vec![Backend::default()], backup: Some(Backup::default()), ..Self::default() }
    }
}

fn ten_minutes() -> u32 {
    600
}

/// Removal of the records of deleted volumes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Purge {
    /// Times of the removal as a cron expression in UTC. Names of months and days are in capitals.
    #[serde(default = "daily")]
    #[schemars(length(min = 9, max = 100), regex(pattern = schema::SCHEDULE))]
    pub schedule: String,
    /// Days for which records are kept after the deletion of their volume.
    #[serde(default = "thirty")]
    #[schemars(range(min = 0, max = 3650))]
    pub age_days: u32,
}

impl Default for Purge {
    fn default() -> Self {
        Self { schedule: daily(), age_days: thirty() }
    }
}

fn daily() -> String {
    "45 3 * * *".to_owned()
}

fn thirty() -> u32 {
    30
}
