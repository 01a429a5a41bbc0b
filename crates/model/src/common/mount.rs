//! Volumes, labels and annotations that a user adds to the pods of an object.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::is_default;
use crate::schema;

/// Additions of the user to pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodAdditions {
    /// Extra volumes of pods, e.g. CA bundles or vendor drivers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["name"],
    ))]
    pub extra_mounts: Vec<ExtraMount>,
    /// Extra labels of pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::pod_labels")]
    pub pod_labels: BTreeMap<String, String>,
    /// Extra annotations of pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::pod_annotations")]
    pub pod_annotations: BTreeMap<String, String>,
}

/// Volume with its mount path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtraMount {
    /// Name of the volume.
    #[schemars(length(min = 1, max = 40), regex(pattern = schema::PLAIN_NAME))]
    pub name: String,
    /// Components whose pods mount the volume, by their label `app.kubernetes.io/component`. Defaults to all pods,
    /// including those of Jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 63), regex(pattern = schema::PLAIN_NAME)))]
    pub components: Vec<String>,
    /// Mount path in the containers.
    #[schemars(length(min = 2, max = 255), regex(pattern = schema::ABSOLUTE_PATH))]
    pub mount_path: String,
    /// File or directory of the volume to mount. Defaults to the whole volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = r"^[^/].*$"))]
    pub sub_path: Option<String>,
    /// Whether the mount is read-only.
    #[serde(default = "yes")]
    pub read_only: bool,
    /// Source of the volume. Set exactly one field.
    pub volume: ExtraVolume,
}

fn yes() -> bool {
    true
}

/// Source of a volume: exactly one of the fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub struct ExtraVolume {
    /// ConfigMap in the same namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<super::NameReference>,
    /// Secret in the same namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<super::SecretNameReference>,
    /// PersistentVolumeClaim in the same namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimReference>,
    /// Path on the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<NodePath>,
    /// Directory on an NFS server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nfs: Option<NfsDirectory>,
    /// Inline volume of a CSI driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csi: Option<CsiVolume>,
    /// Files of a container image.
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

/// Path on the node that runs the pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodePath {
    /// Path on the node. It must exist.
    #[schemars(length(min = 2, max = 255), regex(pattern = schema::ABSOLUTE_PATH))]
    pub path: String,
}

/// Directory on an NFS server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NfsDirectory {
    /// Host name or address of the server.
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::HOST))]
    pub server: String,
    /// Exported directory.
    #[schemars(length(min = 1, max = 255), regex(pattern = schema::ABSOLUTE_PATH))]
    pub path: String,
}

/// Inline volume of a CSI driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CsiVolume {
    /// Name of the driver.
    #[schemars(length(min = 1, max = 63))]
    pub driver: String,
    /// Attributes that the driver receives.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(schema_with = "schema::pod_annotations")]
    pub volume_attributes: BTreeMap<String, String>,
}

/// Files of a container image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImageVolume {
    /// Image reference with a tag or digest.
    #[schemars(length(min = 1, max = 384))]
    pub reference: String,
}
