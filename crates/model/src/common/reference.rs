//! References between objects.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::Kind;
use crate::schema;

/// Object of the operator in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Reference {
    /// Kind of the object.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Name of the object.
    #[schemars(length(min = 1, max = 63), regex(pattern = schema::NAME))]
    pub name: String,
}

/// Object in the same namespace. The field determines its kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NameReference {
    /// Name of the object.
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub name: String,
    /// Namespace of the object, in fields whose schema is that of [`ClusterReference`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub namespace: Option<String>,
}

impl NameReference {
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), namespace: None }
    }
}

/// Object in any namespace. The field determines its kind.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it is the schema of fields that are read as a `NameReference`")]
pub struct ClusterReference {
    /// Name of the object.
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    name: String,
    /// Namespace of the object. Defaults to the namespace of the referring object.
    #[schemars(length(min = 1, max = 63), regex(pattern = schema::PLAIN_NAME))]
    namespace: Option<String>,
}

/// A key of a Secret in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretKeyReference {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub name: String,
    /// Key in the Secret.
    #[serde(default = "password")]
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::SECRET_KEY))]
    pub key: String,
}

fn password() -> String {
    "password".to_owned()
}

impl Reference {
    pub fn new(kind: Kind, name: impl Into<String>) -> Self {
        Self { kind: kind.kind.to_owned(), name: name.into() }
    }
}

/// Object of the operator in the same namespace, with a condition that must be True.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Dependency {
    /// Kind of the object.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Name of the object.
    #[schemars(length(min = 1, max = 63), regex(pattern = schema::NAME))]
    pub name: String,
    /// Type of the condition that must be True.
    #[serde(default = "ready")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[A-Za-z]+$"))]
    pub condition: String,
}

fn ready() -> String {
    "Ready".to_owned()
}

impl Dependency {
    pub fn reference(&self) -> Reference {
        Reference { kind: self.kind.clone(), name: self.name.clone() }
    }
}

/// A Secret in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretNameReference {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub secret_name: String,
}
