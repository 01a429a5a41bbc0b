//! Settings of Ceph storage.

use kube::CustomResource;
use openstack_operator_model::common::{DeletionPolicy, NameReference, Origin, PodSettings};
use openstack_operator_model::schema;
use openstack_operator_model::status::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::inputs::{self, Input, Inputs, Role};

pub(super) const MISSING: &str =
    "spec.external is missing: name the Secret of an existing Ceph cluster in spec.external.secretRef";

/// CEL rule that names stay. It is not in the block of a cloud, whose schema must stay small.
fn names_rule() -> String {
    let prefix = |spec: &str| format!("(has({spec}.prefix) ? {spec}.prefix : '')");
    let name = |spec: &str, pool: &str| {
        format!("(has({spec}.{pool}) && has({spec}.{pool}.name) ? {spec}.{pool}.name : '')")
    };
    let pools = ["volumePool", "imagePool", "ephemeralPool", "backupPool", "filesystem"];
    let pools = pools.map(|pool| format!("{} == {}", name("self.spec", pool), name("oldSelf.spec", pool)));
    let prefix = format!("{} == {}", prefix("self.spec"), prefix("oldSelf.spec"));
    [prefix].into_iter().chain(pools).collect::<Vec<_>>().join(" && ")
}

/// Pools and users of a cloud on a Ceph cluster.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "openstack.k8s.io",
    version = "v1alpha1",
    kind = "CephStorage",
    plural = "cephstorages",
    namespaced,
    status = "Status",
    shortname = "cephs",
    category = "openstack",
    validation = Rule::new("has(self.spec.external)").message(MISSING),
    validation = Rule::new(names_rule()).message(
        "spec.prefix and the names of pools and of the file system cannot be changed: services would use other, empty ones"
    )
)]
pub struct CephStorageSpec {
    #[serde(flatten)]
    pub origin: Origin,
    #[serde(flatten)]
    pub template: CephStorageTemplate,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CephStorageTemplate {
    /// Existing Ceph cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalCluster>,
    /// Start of the names of pools, users and the file system, e.g. `east-`. It lets several clouds use one Ceph cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 40), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub prefix: Option<String>,
    /// Pool of volumes, by default `volumes`. Its user is `cinder`.
    #[serde(default)]
    pub volume_pool: PoolSettings,
    /// Pool of images, by default `images`. Its user is `glance`.
    #[serde(default)]
    pub image_pool: PoolSettings,
    /// Pool of the disks of instances, by default `vms`. Its user is `nova`.
    #[serde(default)]
    pub ephemeral_pool: PoolSettings,
    /// Pool of backups of volumes, by default `backups`. Its user is `cinder-backup`.
    #[serde(default)]
    pub backup_pool: PoolSettings,
    /// File system for shares. Its user is `manila`.
    #[serde(default)]
    pub filesystem: FilesystemSettings,
    /// Schedule as a cron expression in UTC, at which the operator corrects changes that others made to pools and users.
    #[serde(default = "hourly")]
    #[schemars(length(min = 9, max = 100), regex(pattern = schema::SCHEDULE))]
    pub reconcile_schedule: String,
    /// Policy for pools with their data, users and the file system when the object is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    #[serde(flatten)]
    pub pods: PodSettings,
}

pub(super) fn hourly() -> String {
    "23 * * * *".to_owned()
}

impl Inputs for CephStorageTemplate {
    fn inputs(&mut self) -> Vec<Input<'_>> {
        inputs::pods(&mut self.pods, Role::Control).into()
    }
}

/// Existing Ceph cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalCluster {
    /// Secret with `monitors` as in option `mon_host`, `fsid`, and `username` and `key` of a user who may create pools
    /// and users. The name of the user is without `client.`.
    pub secret_ref: NameReference,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolSettings {
    /// Whether the operator creates the pool and its user. An existing pool stays if this becomes false.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Name of the pool, without `prefix`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub name: Option<String>,
    /// Number of copies of each object. Defaults to 3, for `ephemeralPool` to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 5))]
    pub replication: Option<u8>,
    /// Compression mode. Defaults to `aggressive`, for `ephemeralPool` to `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
    /// Maximum size of the data in GiB. 0 is unlimited.
    #[serde(default, rename = "quotaGB")]
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub quota_gb: u64,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self { enabled: true, name: None, replication: None, compression: None, quota_gb: 0 }
    }
}

fn yes() -> bool {
    true
}

/// Compression mode of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    None,
    Passive,
    Aggressive,
    Force,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FilesystemSettings {
    /// Whether the operator creates the file system and its user. An existing file system stays if this becomes false.
    /// The Ceph cluster must run a metadata server.
    #[serde(default)]
    pub enabled: bool,
    /// Name of the file system, without `prefix`. Defaults to `cephfs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub name: Option<String>,
    /// Number of copies of each object of the data pool.
    #[serde(default = "three")]
    #[schemars(range(min = 1, max = 5))]
    pub data_pool_replication: u8,
    /// Number of copies of each object of the metadata pool.
    #[serde(default = "three")]
    #[schemars(range(min = 1, max = 5))]
    pub metadata_pool_replication: u8,
}

impl Default for FilesystemSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            name: None,
            data_pool_replication: three(),
            metadata_pool_replication: three(),
        }
    }
}

fn three() -> u8 {
    3
}
