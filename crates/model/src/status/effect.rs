//! Resources outside of Kubernetes that belong to an object.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::Reference;

/// Resource outside of Kubernetes that belongs to the object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Effect {
    /// Kind of the resource.
    #[serde(rename = "what")]
    pub kind: EffectKind,
    /// Object that hosts the resource, or the administrator's Secret of an existing server.
    pub provider: Reference,
    /// Address of an existing server that no object manages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Region of a catalog entry. Unset for all regions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Domain of an identity user. Unset for the default domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Name of the resource.
    pub name: String,
    /// Whether the resource is kept when the object is deleted.
    #[serde(default)]
    pub retained: bool,
    /// Whether the operator has not confirmed yet that the resource belongs to the object. Until then the object only
    /// uses a resource that does not exist or carries its name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pending: bool,
}

impl Effect {
    /// Whether both are records of the same resource. An older record without a region covers all regions.
    pub fn covers(&self, other: &Self) -> bool {
        let is_in_region = self.region.is_none() || self.region == other.region;
        let is_same_name = self.name == other.name && self.domain == other.domain;
        self.kind == other.kind && self.provider == other.provider && is_same_name && is_in_region
    }

    /// Whether both records are equal, except for their confirmation.
    pub fn matches(&self, other: &Self) -> bool {
        Self { pending: other.pending, ..self.clone() } == *other
    }
}

/// Kinds of resources, in the order in which deletion undoes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum EffectKind {
    Database,
    DatabaseUser,
    MessagingHost,
    MessagingUser,
    /// A service with all its endpoints, named by its type.
    CatalogService,
    IdentityUser,
    /// A domain with everything in it.
    IdentityDomain,
    /// A role that the object needs, possibly with other objects. After domains, whose users may hold it.
    IdentityRole,
}

impl EffectKind {
    /// The kind in messages.
    pub fn title(self) -> &'static str {
        match self {
            Self::Database => "database",
            Self::DatabaseUser => "database user",
            Self::MessagingHost => "virtual host",
            Self::MessagingUser => "message bus user",
            Self::CatalogService => "catalog service",
            Self::IdentityUser => "identity user",
            Self::IdentityDomain => "identity domain",
            Self::IdentityRole => "identity role",
        }
    }
}
