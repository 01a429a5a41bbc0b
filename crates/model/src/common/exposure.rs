//! How APIs are reached from outside.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// A Gateway through which an API is reached from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayReference {
    /// Name of the Gateway.
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub name: String,
    /// Namespace of the Gateway, where it is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = schema::PLAIN_NAME))]
    pub namespace: Option<String>,
    /// One listener of the Gateway; all that fit where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub listener_name: Option<String>,
}

/// How an API is reached from outside.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Exposure {
    /// Name under which the API is reached from outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub public_hostname: Option<String>,
    /// Gateway that leads to the API. Without one it is reached inside the cluster only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_ref: Option<GatewayReference>,
    /// How clients speak to the Gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_scheme: Option<Scheme>,
    /// Policy rules that win over the service's own, by the rule's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::policy")]
    pub policy: BTreeMap<String, String>,
}

/// How clients speak to a Gateway.
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
