//! Public access to APIs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Gateway that exposes an API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayReference {
    /// Name of the Gateway.
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub name: String,
    /// Namespace of the Gateway. Defaults to the namespace of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = schema::PLAIN_NAME))]
    pub namespace: Option<String>,
    /// Listener of the Gateway. Defaults to all listeners that match the host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub listener_name: Option<String>,
}

/// Public access to an API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Exposure {
    /// Public host name of the API.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub public_hostname: Option<String>,
    /// Gateway that exposes the API. Without it, the API is reachable only inside the Kubernetes cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_ref: Option<GatewayReference>,
    /// Scheme of public URLs. Defaults to `https`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_scheme: Option<Scheme>,
    /// Policy rules by name. They override the service's defaults.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::policy")]
    pub policy: BTreeMap<String, String>,
}

/// Scheme of public URLs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    #[default]
    Https,
    Http,
}

impl Scheme {
    pub fn name(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
        }
    }
}
