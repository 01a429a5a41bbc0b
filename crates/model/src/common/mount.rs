//! What a user adds to the pods of an object: volumes, labels and annotations.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::is_default;
use crate::schema;

/// What a user adds to pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodAdditions {
    /// Volumes for pods, e.g. with CA bundles or vendor drivers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["name"],
    ))]
    pub extra_mounts: Vec<ExtraMount>,
    /// Labels of pods, besides the operator's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::pod_labels")]
    pub pod_labels: BTreeMap<String, String>,
    /// Annotations of pods, besides the operator's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::pod_annotations")]
    pub pod_annotations: BTreeMap<String, String>,
}

/// A volume, and where containers see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtraMount {
    /// Name of the volume.
    #[schemars(length(min = 1, max = 40), regex(pattern = schema::PLAIN_NAME))]
    pub name: String,
    /// Components whose pods have it, by their label `app.kubernetes.io/component`; all, tasks too, where none is
    /// given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 63), regex(pattern = schema::PLAIN_NAME)))]
    pub components: Vec<String>,
    /// Path in the containers.
    #[schemars(length(min = 2, max = 255), regex(pattern = schema::ABSOLUTE_PATH))]
    pub mount_path: String,
    /// One file or directory of the volume instead of all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = r"^[^/].*$"))]
    pub sub_path: Option<String>,
    /// Whether containers cannot write to it.
    #[serde(default = "yes")]
    pub read_only: bool,
    /// What the volume is.
    pub volume: ExtraVolume,
}

fn yes() -> bool {
    true
}

/// A source of a volume: exactly one of the fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub struct ExtraVolume {
    /// A ConfigMap in the same namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<super::NameReference>,
    /// A Secret in the same namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<super::SecretNameReference>,
    /// A PersistentVolumeClaim in the same namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimReference>,
    /// A path of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<NodePath>,
    /// A directory of an NFS server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nfs: Option<NfsDirectory>,
    /// An inline volume of a CSI driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csi: Option<CsiVolume>,
    /// The files of an image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageVolume>,
}

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimReference {
    /// Name of the claim.
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub claim_name: String,
}

/// A path of the node that a pod runs on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodePath {
    /// The path, which must exist.
    #[schemars(length(min = 2, max = 255), regex(pattern = schema::ABSOLUTE_PATH))]
    pub path: String,
}

/// A directory of an NFS server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NfsDirectory {
    /// Name or address of the server.
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::HOST))]
    pub server: String,
    /// The directory.
    #[schemars(length(min = 1, max = 255), regex(pattern = schema::ABSOLUTE_PATH))]
    pub path: String,
}

/// An inline volume of a CSI driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CsiVolume {
    /// Name of the driver.
    #[schemars(length(min = 1, max = 63))]
    pub driver: String,
    /// What the driver wants to know.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(schema_with = "schema::pod_annotations")]
    pub volume_attributes: BTreeMap<String, String>,
}

/// The files of an image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImageVolume {
    /// Reference of the image, with its tag or digest.
    #[schemars(length(min = 1, max = 384))]
    pub reference: String,
}
