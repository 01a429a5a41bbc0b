//! Settings that every kind shares.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::image::{Image, Images};
use crate::oslo::Overrides;
use crate::release::Release;
use crate::schema;

mod exposure;
mod mount;
mod reference;
mod resources;
mod scheduling;

pub use exposure::*;
pub use mount::*;
pub use reference::*;
pub use resources::*;
pub use scheduling::*;

/// While it is `true`, the operator does not reconcile the object. Deletion still works.
pub const PAUSE_ANNOTATION: &str = "openstack.k8s.io/pause";

/// Names, separated by commas, of Secrets and databases of the object whose content is lost and that the operator may
/// create again. The operator removes the annotation afterwards.
pub const ACCEPT_LOSS_ANNOTATION: &str = "openstack.k8s.io/accept-loss";

/// Names, separated by commas, of existing databases, users, virtual hosts and catalog entries on other servers that the
/// object may take over. The operator removes the annotation afterwards.
pub const ADOPT_ANNOTATION: &str = "openstack.k8s.io/adopt";

/// Settings of kinds that run pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSettings {
    #[serde(flatten)]
    pub container: ContainerSettings,
    #[serde(flatten)]
    pub scheduling: Scheduling,
    /// Objects with a condition that must be True before the operator works on this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub depends_on: Vec<Dependency>,
    #[serde(flatten)]
    pub additions: PodAdditions,
}

/// Settings of kinds that run pods and have configuration files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Common {
    #[serde(flatten)]
    pub pods: PodSettings,
    /// Options by configuration file, section and name. They override the operator's; write each value of a
    /// multi-valued option on its own line.
    #[serde(
        default,
        deserialize_with = "schema::read_extra_config",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    #[schemars(schema_with = "schema::extra_config")]
    pub extra_config: BTreeMap<String, Overrides>,
}

/// Replicas, resources and image of one component of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Component {
    /// Number of pods. Defaults to the `replicas` of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub replicas: Option<i32>,
    #[serde(flatten)]
    pub container: ContainerSettings,
}

/// Resources and image of a component, or of all components without their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerSettings {
    /// Resource requests and limits. A component without them uses those of the service.
    #[serde(default, skip_serializing_if = "is_default")]
    pub resources: Resources,
    /// Container image. A component without one uses that of the service.
    #[serde(default, skip_serializing_if = "is_default")]
    pub image: Image,
}

/// Release and images. A cloud sets them once for all its services.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// OpenStack release.
    #[serde(default)]
    pub release: Release,
    /// Source of container images.
    #[serde(default, skip_serializing_if = "is_default")]
    pub images: Images,
}

pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Policy for data when its object is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    #[default]
    Retain,
    Delete,
}

/// Volumes of a StatefulSet.
// The rules are on the object, because a rule on a field does not run when the field is added or removed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(oldSelf.storageSize) || has(self.storageSize) && quantity(string(self.storageSize)).compareTo(quantity(string(oldSelf.storageSize))) >= 0",
        "message": "storageSize cannot be reduced: volumes only grow",
    },
    {
        "rule": "has(self.storageClass) == has(oldSelf.storageClass) && (!has(self.storageClass) || self.storageClass == oldSelf.storageClass)",
        "message": "storageClass cannot be changed: existing volumes keep their storage class",
    },
]))]
pub struct Storage {
    /// Size of each pod's volume. Defaults to 10Gi for databases and to 5Gi for message buses. It can grow if the storage
    /// class allows volume expansion.
    #[serde(default, deserialize_with = "schema::read_optional", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::size")]
    pub storage_size: Option<String>,
    /// Storage class of the volumes. Defaults to the default class of the Kubernetes cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub storage_class: Option<String>,
    /// Policy for the volumes when the object is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}
