//! Connection details of a storage cluster.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StorageCluster {
    /// Pools by purpose.
    #[serde(default)]
    pub pools: StoragePools,
    /// Users by the name of their service.
    #[serde(default)]
    pub users: BTreeMap<String, StorageUser>,
    /// Shared file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filesystem: Option<String>,
}

/// Names of pools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StoragePools {
    /// Pool of volumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volumes: Option<String>,
    /// Pool of images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<String>,
    /// Pool of the disks of instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ephemeral: Option<String>,
    /// Pool of backups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backups: Option<String>,
}

/// User of the storage cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StorageUser {
    /// Name of the user.
    pub name: String,
    /// Secret with the configuration of a client, and the key of the user.
    pub secret: String,
    /// UUID of the key on hypervisors.
    pub uuid: String,
}
