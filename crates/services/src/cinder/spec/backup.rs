//! Settings of the backup service.

use openstack_operator_model::common::{Component, NameReference, is_default};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Backup service, which copies volumes to another storage.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "has(self.s3) == (self.type == 's3')", "message": "set type s3 and s3 together" },
]))]
pub struct Backup {
    /// Storage of backups: `ceph`, `s3` or `swift`.
    #[serde(rename = "type")]
    pub kind: BackupType,
    /// Pool of type `ceph`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ceph: CephBackup,
    /// Bucket of type `s3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Backup>,
    /// Container of type `swift`, in the account of each user.
    #[serde(default, skip_serializing_if = "is_default")]
    pub swift: SwiftBackup,
    #[serde(flatten)]
    pub component: Component,
}

/// Storage of backups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BackupType {
    #[default]
    Ceph,
    S3,
    Swift,
}

/// Pool of the `CephStorage` of `spec.ceph`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CephBackup {
    /// Name of the Ceph pool. Defaults to the pool of backups of the `CephStorage`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub pool: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3Backup {
    /// URL of the object store, e.g. `https://s3.example.com`.
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^https?://\S+$"))]
    pub endpoint: String,
    /// Name of the bucket.
    #[schemars(length(min = 3, max = 63), regex(pattern = r"^[a-z0-9.-]+$"))]
    pub bucket: String,
    /// Secret with `accessKey` and `secretKey`.
    pub secret_ref: NameReference,
}

/// Swift container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SwiftBackup {
    /// Name of the Swift container.
    #[serde(default = "container")]
    #[schemars(length(max = 128), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub container: String,
}

impl Default for SwiftBackup {
    fn default() -> Self {
        Self { container: container() }
    }
}

fn container() -> String {
    "volumebackups".to_owned()
}
