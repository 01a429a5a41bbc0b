//! Settings of Glance.

use kube::CustomResource;
use openstack_operator_model::common::{DeletionPolicy, NameReference, Origin};
use openstack_operator_model::schema;
use openstack_operator_model::status::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::inputs::{Input, Inputs};
use crate::template::ApiTemplate;

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
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint")
)]
pub struct GlanceSpec {
    #[serde(flatten)]
    pub origin: Origin,
    #[serde(flatten)]
    pub template: GlanceTemplate,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.replicas) || self.replicas == 1 || has(self.storageType) && self.storageType != 'pvc' || has(self.storage) && (has(self.storage.backend) && self.storage.backend != 'pvc' || has(self.storage.pvc) && has(self.storage.pvc.accessMode) && self.storage.pvc.accessMode == 'ReadWriteMany')",
        "message": "more than one replica requires shared image storage: storage.pvc.accessMode ReadWriteMany, or another storage.backend",
    },
    {
        "rule": "!has(self.storageType) || !has(self.storage) || !has(self.storage.backend)",
        "message": "storageType excludes storage.backend: set one of them",
    },
]))]
pub struct GlanceTemplate {
    #[serde(flatten)]
    pub api: ApiTemplate,
    /// Image storage in short form: `ceph`, `pvc` or `swift`, with the defaults of `storage`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_type: Option<StorageType>,
    /// Image storage.
    #[serde(default)]
    pub storage: ImageStorage,
    /// Image cache of each API pod.
    #[serde(default)]
    pub image_cache: ImageCache,
}

impl GlanceTemplate {
    pub(super) fn backend(&self) -> StoreBackend {
        match self.storage_type {
            Some(StorageType::Ceph) => StoreBackend::Rbd,
            Some(StorageType::Pvc) => StoreBackend::Pvc,
            Some(StorageType::Swift) => StoreBackend::Swift,
            None => self.storage.backend.unwrap_or_default(),
        }
    }

    /// Whether the image volume can be mounted on one node only.
    pub(super) fn is_exclusive(&self) -> bool {
        self.backend() == StoreBackend::Pvc && self.storage.pvc.access_mode == AccessMode::ReadWriteOnce
    }
}

impl Inputs for GlanceTemplate {
    fn inputs(&mut self) -> Vec<Input<'_>> {
        let exclusive = self.is_exclusive();
        let mut inputs = self.api.inputs();
        // A ReadWriteOnce volume cannot serve a second pod, even in a highly available cloud.
        inputs.retain(|input| !exclusive || !matches!(input, Input::Replicas { .. }));
        inputs.push(Input::StorageClass(&mut self.storage.pvc.storage_class));
        inputs
    }
}

/// Image storage in short form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StorageType {
    Ceph,
    Pvc,
    Swift,
}

/// Image storage.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "!has(self.backend) || self.backend != 's3' || has(self.s3)", "message": "backend s3 requires s3.endpoint, s3.bucket and s3.secretRef" },
]))]
pub struct ImageStorage {
    /// Storage backend. Defaults to `pvc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<StoreBackend>,
    /// Volume of backend `pvc`.
    #[serde(default)]
    pub pvc: VolumeStore,
    /// Pool of backend `rbd`.
    #[serde(default)]
    pub rbd: RbdStore,
    /// Container of backend `swift`.
    #[serde(default)]
    pub swift: SwiftStore,
    /// Bucket of backend `s3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Store>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StoreBackend {
    /// Volume.
    #[default]
    Pvc,
    /// Ceph pool.
    Rbd,
    /// Swift of the cloud.
    Swift,
    /// S3-compatible object store.
    S3,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "has(self.size) == has(oldSelf.size) && (!has(self.size) || self.size == oldSelf.size)", "message": "storage.pvc.size cannot be changed yet: resize the PersistentVolumeClaim instead" },
    { "rule": "has(self.accessMode) == has(oldSelf.accessMode) && (!has(self.accessMode) || self.accessMode == oldSelf.accessMode)", "message": "storage.pvc.accessMode cannot be changed: the existing volume keeps its access mode" },
    { "rule": "has(self.storageClass) == has(oldSelf.storageClass) && (!has(self.storageClass) || self.storageClass == oldSelf.storageClass)", "message": "storage.pvc.storageClass cannot be changed: the existing volume keeps its storage class" },
]))]
pub struct VolumeStore {
    /// Size of the volume.
    #[serde(default = "size", deserialize_with = "schema::read")]
    #[schemars(schema_with = "schema::size")]
    pub size: String,
    /// Storage class of the volume. Defaults to the default class of the Kubernetes cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub storage_class: Option<String>,
    /// Access mode of the volume. More than one replica requires `ReadWriteMany`.
    #[serde(default)]
    pub access_mode: AccessMode,
    /// Policy for the images when the object is deleted.
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

/// Ceph pool.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RbdStore {
    /// Name of the Ceph pool.
    #[serde(default = "pool")]
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub pool: String,
    /// Name of the Ceph user without `client.`.
    #[serde(default = "user")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub user: String,
    /// Secret with `ceph.conf` and `ceph.client.<user>.keyring`. Defaults to `<object>-ceph`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceph_secret_ref: Option<NameReference>,
}

impl Default for RbdStore {
    fn default() -> Self {
        Self { pool: pool(), user: user(), ceph_secret_ref: None }
    }
}

fn pool() -> String {
    "images".to_owned()
}

fn user() -> String {
    "glance".to_owned()
}

/// Swift container.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SwiftStore {
    /// Name of the Swift container.
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
    /// URL of the object store, e.g. `https://s3.example.com`.
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^https?://\S+$"))]
    pub endpoint: String,
    /// Name of the bucket.
    #[schemars(length(min = 3, max = 63), regex(pattern = r"^[a-z0-9.-]+$"))]
    pub bucket: String,
    /// Secret with `accessKey` and `secretKey`.
    pub secret_ref: NameReference,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageCache {
    /// Whether API pods cache images.
    #[serde(default)]
    pub enabled: bool,
    /// Maximum size of the cache in each pod.
    #[serde(default = "cache_size", deserialize_with = "schema::read")]
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
