//! Glance's settings.

use kube::CustomResource;
use openstack_operator_model::common::{DeletionPolicy, NameReference, Origin};
use openstack_operator_model::schema;
use openstack_operator_model::status::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::template::{self, ApiTemplate};

/// Image service.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "openstack.k8s.io",
    version = "v1alpha1",
    kind = "Glance",
    plural = "glances",
    namespaced,
    status = "Status",
    shortname = "glc",
    category = "openstack",
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint"),
    validation = template::database_rule(),
    validation = template::identity_rule(),
    validation = template::exposure_rule()
)]
pub struct GlanceSpec {
    #[serde(flatten)]
    pub origin: Origin,
    #[serde(flatten)]
    pub template: GlanceTemplate,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.replicas) || self.replicas == 1 || has(self.storage) && (has(self.storage.backend) && self.storage.backend != 'pvc' || has(self.storage.pvc) && has(self.storage.pvc.accessMode) && self.storage.pvc.accessMode == 'ReadWriteMany')",
    "message": "more than one replica needs images that all can reach: storage.pvc.accessMode ReadWriteMany, or another storage.backend",
}]))]
pub struct GlanceTemplate {
    #[serde(flatten)]
    pub api: ApiTemplate,
    /// Where images are kept.
    #[serde(default)]
    pub storage: ImageStorage,
    /// Copies of images that were asked for, near the API.
    #[serde(default)]
    pub image_cache: ImageCache,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "!has(self.backend) || self.backend != 'rbd' || has(self.rbd)", "message": "backend rbd needs rbd.cephSecretRef" },
    { "rule": "!has(self.backend) || self.backend != 's3' || has(self.s3)", "message": "backend s3 needs s3.endpoint, s3.bucket and s3.secretRef" },
]))]
pub struct ImageStorage {
    #[serde(default)]
    pub backend: StoreBackend,
    #[serde(default)]
    pub pvc: VolumeStore,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rbd: Option<RbdStore>,
    #[serde(default)]
    pub swift: SwiftStore,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Store>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StoreBackend {
    /// Files on a volume.
    #[default]
    Pvc,
    /// A pool of a Ceph cluster.
    Rbd,
    /// The cloud's own object store.
    Swift,
    /// Any object store that speaks S3.
    S3,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "has(self.size) == has(oldSelf.size) && (!has(self.size) || self.size == oldSelf.size)", "message": "storage.pvc.size cannot be changed yet: grow the claim itself where its class allows it" },
    { "rule": "has(self.accessMode) == has(oldSelf.accessMode) && (!has(self.accessMode) || self.accessMode == oldSelf.accessMode)", "message": "storage.pvc.accessMode cannot be changed: the volume stays what it is" },
    { "rule": "has(self.storageClass) == has(oldSelf.storageClass) && (!has(self.storageClass) || self.storageClass == oldSelf.storageClass)", "message": "storage.pvc.storageClass cannot be changed: the volume stays where it is" },
]))]
pub struct VolumeStore {
    /// Size of the volume.
    #[serde(default = "size")]
    #[schemars(schema_with = "schema::size")]
    pub size: String,
    /// Storage class of the volume; the cluster's default where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub storage_class: Option<String>,
    #[serde(default)]
    pub access_mode: AccessMode,
    /// What becomes of the images when the object is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

impl Default for VolumeStore {
    fn default() -> Self {
        Self {
            size: size(),
            storage_class: None,
            access_mode: AccessMode::default(),
            deletion_policy: DeletionPolicy::default(),
        }
    }
}

fn size() -> String {
    "20Gi".to_owned()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AccessMode {
    #[default]
    ReadWriteOnce,
    ReadWriteMany,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RbdStore {
    #[serde(default = "pool")]
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub pool: String,
    /// Name of the Ceph user, without `client.`.
    #[serde(default = "user")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub user: String,
    /// Secret with `ceph.conf` and `ceph.client.<user>.keyring`.
    pub ceph_secret_ref: NameReference,
}

fn pool() -> String {
    "images".to_owned()
}

fn user() -> String {
    "glance".to_owned()
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SwiftStore {
    #[serde(default = "container")]
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub container: String,
}

impl Default for SwiftStore {
    fn default() -> Self {
        Self { container: container() }
    }
}

fn container() -> String {
    "glance".to_owned()
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3Store {
    /// Address of the object store, e.g. `https://s3.example.com`.
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^https?://\S+$"))]
    pub endpoint: String,
    #[schemars(length(min = 3, max = 63), regex(pattern = r"^[a-z0-9.-]+$"))]
    pub bucket: String,
    /// Secret with `accessKey` and `secretKey`.
    pub secret_ref: NameReference,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageCache {
    #[serde(default)]
    pub enabled: bool,
    /// How much is kept in each pod.
    #[serde(default = "cache_size")]
    #[schemars(schema_with = "schema::size")]
    pub max_size: String,
}

impl Default for ImageCache {
    fn default() -> Self {
        Self { enabled: false, max_size: cache_size() }
    }
}

fn cache_size() -> String {
    "10Gi".to_owned()
}
