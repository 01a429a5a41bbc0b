//! Settings that every kind shares.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::image::{Image, Images, Release};
use crate::oslo::Overrides;
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

/// Stops the operator's work on an object while it is `true`; deletion still works.
pub const PAUSE_ANNOTATION: &str = "openstack.k8s.io/pause";

/// Settings of everything that runs as pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSettings {
    #[serde(flatten)]
    pub container: ContainerSettings,
    #[serde(flatten)]
    pub scheduling: Scheduling,
    /// Objects with a condition that must hold before this one is worked on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub depends_on: Vec<Dependency>,
    #[serde(flatten)]
    pub additions: PodAdditions,
}

/// Settings of everything that runs as pods and has configuration files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Common {
    #[serde(flatten)]
    pub pods: PodSettings,
    /// Settings by file, section and option that win over the operator's. An option with several values has one
    /// value a line.
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
    /// Number of pods; that of the service where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub replicas: Option<i32>,
    #[serde(flatten)]
    pub container: ContainerSettings,
}

/// Resources and image: of one component, or of every component of a service that has none of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerSettings {
    /// CPU and memory; for a component those of the service where none are given.
    #[serde(default, skip_serializing_if = "is_default")]
    pub resources: Resources,
    /// Image; for a component that of the service where none is given.
    #[serde(default, skip_serializing_if = "is_default")]
    pub image: Image,
}

/// Which release runs, from which images. A cloud says it once for all its services.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// OpenStack release.
    #[serde(default)]
    pub release: Release,
    /// Where images come from.
    #[serde(default, skip_serializing_if = "is_default")]
    pub images: Images,
}

pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Whether data outlives the object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    #[default]
    Retain,
    Delete,
}

/// Where data is kept.
// A set of pods cannot change its volumes. The rules are not at the fields, where a value that comes or goes would not
// be compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.storageSize) == has(oldSelf.storageSize) && (!has(self.storageSize) || self.storageSize == oldSelf.storageSize)",
        "message": "storageSize cannot be changed yet: grow the claims themselves where their class allows it",
    },
    {
        "rule": "has(self.storageClass) == has(oldSelf.storageClass) && (!has(self.storageClass) || self.storageClass == oldSelf.storageClass)",
        "message": "storageClass cannot be changed: the volumes stay where they are",
    },
]))]
pub struct Storage {
    /// Size of each pod's volume.
    #[serde(default, deserialize_with = "schema::read_optional", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::size")]
    pub storage_size: Option<String>,
    /// Storage class of the volumes; the cluster's default where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub storage_class: Option<String>,
    /// What becomes of the volumes when the object is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}
