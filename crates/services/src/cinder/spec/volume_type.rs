//! Settings of volume types.

use std::collections::BTreeMap;

use openstack_operator_model::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Pattern of the names of volume types.
pub(super) const TYPE_NAME: &str = r"^\S(.*\S)?$";

/// Volume type, which users choose by name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeTypeSettings {
    /// Name of the volume type.
    #[schemars(length(max = 255), regex(pattern = TYPE_NAME))]
    pub name: String,
    /// Description for users.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 255))]
    pub description: String,
    /// Backend of its volumes. Defaults to any backend that has the properties.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 20))]
    pub backend: Option<String>,
    /// Whether all projects can use it. An administrator gives access to another one.
    #[serde(default = "yes")]
    pub public: bool,
    /// Extra specs, e.g. `multiattach: "<is> True"`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::properties")]
    pub properties: BTreeMap<String, String>,
    /// Encryption of its volumes by hypervisors. It requires Barbican.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Encryption>,
}

fn yes() -> bool {
    true
}

/// Encryption of volumes with LUKS, by AES in XTS mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Encryption {
    /// Length of the key in bits.
    #[serde(default = "key_size")]
    #[schemars(range(min = 128, max = 512))]
    pub key_size: u32,
}

fn key_size() -> u32 {
    256
}
