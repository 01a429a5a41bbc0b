//! Types of volumes, which users choose by name.

use std::collections::BTreeMap;

use crate::status::IdentityServer;

/// Types of volumes in the block storage API of the object. They are in its database, so they need no undoing.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeTypes {
    /// Internal URL of the API with the version.
    pub url: String,
    pub identity: IdentityServer,
    /// All types of the operator. It removes others that it has created, and changes no type of an administrator.
    pub types: Vec<VolumeType>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeType {
    pub name: String,
    pub description: String,
    /// Whether all projects can use it.
    pub public: bool,
    /// Properties by which the scheduler selects a backend.
    pub properties: BTreeMap<String, String>,
    pub encryption: Option<VolumeEncryption>,
}

/// Encryption of the volumes of a type, by the hypervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeEncryption {
    /// Format of encrypted volumes, e.g. `luks`.
    pub provider: &'static str,
    pub cipher: &'static str,
    pub key_size: u32,
}
