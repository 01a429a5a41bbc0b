//! Settings that every kind shares.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::image::{Image, Images, Release};
use crate::oslo::Overrides;
use crate::schema;

/// Stops the operator's work on an object while it is `true`; deletion still works.
pub const PAUSE_ANNOTATION: &str = "openstack.k8s.io/pause";

/// Settings of whatever runs as pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Common {
    /// This component's image.
    #[serde(default, skip_serializing_if = "is_default")]
    pub image: Image,
    /// CPU and memory of the main container.
    #[serde(default, skip_serializing_if = "is_default")]
    pub resources: Resources,
    #[serde(flatten)]
    pub scheduling: Scheduling,
    /// Settings by file, section and option that win over the operator's. An option with several values has one a
    /// line.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::extra_config")]
    pub extra_config: BTreeMap<String, Overrides>,
    /// Objects that must be Ready before this one is worked on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub depends_on: Vec<Reference>,
}

/// Which release runs, from which images. A cloud says it once for all its services.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// OpenStack release.
    #[serde(default)]
    pub release: Release,
    /// Where images come from.
    #[serde(default, skip_serializing_if = "is_default")]
    pub images: Images,
}

pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Where pods may run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scheduling {
    /// Labels of the nodes that may run the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::labels")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the pods tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub tolerations: Vec<Toleration>,
    /// How pods of one component are spread; by node where nothing is given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["topologyKey", "whenUnsatisfiable"],
    ))]
    pub topology_spread: Vec<TopologySpread>,
    /// Priority class of the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub priority_class_name: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "has(self.key) || has(self.operator) && self.operator == 'Exists'", "message": "a toleration needs a key, or operator Exists for all keys" },
    { "rule": "!has(self.value) || !has(self.operator) || self.operator == 'Equal'", "message": "a toleration with operator Exists takes every value: leave value out" },
    { "rule": "!has(self.tolerationSeconds) || has(self.effect) && self.effect == 'NoExecute'", "message": "tolerationSeconds needs effect NoExecute: no other ends" },
]))]
pub struct Toleration {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 316), regex(pattern = schema::LABEL))]
    pub key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<TolerationOperator>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = schema::LABEL_VALUE))]
    pub value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<TaintEffect>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub toleration_seconds: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub enum TolerationOperator {
    Exists,
    Equal,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub enum TaintEffect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

impl TaintEffect {
    pub fn name(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologySpread {
    /// Label of the nodes over whose values pods are spread.
    #[schemars(length(min = 1, max = 316), regex(pattern = schema::LABEL))]
    pub topology_key: String,
    /// How many more pods one value may have than another.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 10))]
    pub max_skew: i32,
    /// Whether a pod that cannot be spread waits.
    #[serde(default)]
    pub when_unsatisfiable: WhenUnsatisfiable,
}

fn one() -> i32 {
    1
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub enum WhenUnsatisfiable {
    #[default]
    ScheduleAnyway,
    DoNotSchedule,
}

/// CPU and memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.requests) || !has(self.requests.cpu) || !has(self.limits) || !has(self.limits.cpu) || quantity(self.requests.cpu).compareTo(quantity(self.limits.cpu)) <= 0",
        "message": "requests.cpu must not be more than limits.cpu",
    },
    {
        "rule": "!has(self.requests) || !has(self.requests.memory) || !has(self.limits) || !has(self.limits.memory) || quantity(self.requests.memory).compareTo(quantity(self.limits.memory)) <= 0",
        "message": "requests.memory must not be more than limits.memory",
    },
]))]
pub struct Resources {
    #[serde(default, skip_serializing_if = "is_default")]
    pub requests: ResourceAmounts,
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: ResourceAmounts,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceAmounts {
    /// CPU, e.g. `500m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::cpu")]
    pub cpu: Option<String>,
    /// Memory, e.g. `1Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::size")]
    pub memory: Option<String>,
}

/// Another object of the operator in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Reference {
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    #[schemars(length(min = 1, max = 63), regex(pattern = schema::NAME))]
    pub name: String,
}

/// An object in the same namespace, of a kind that the field's name says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NameReference {
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub name: String,
}

/// A key of a Secret in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretKeyReference {
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub name: String,
    /// Key whose value is used.
    #[serde(default = "password")]
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::SECRET_KEY))]
    pub key: String,
}

fn password() -> String {
    "password".to_owned()
}

/// A Gateway through which an API is reached from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayReference {
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

/// The database of a service: on a MariaDB object, or on a server that exists already.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "!(has(self.clusterRef) && has(self.host))", "message": "give either a clusterRef or a host, not both" },
    { "rule": "!has(self.host) || has(self.secretRef)", "message": "a host needs a secretRef with username and password" },
]))]
pub struct DatabaseSettings {
    /// MariaDB object on which the database and its user are made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<NameReference>,
    /// Server that exists already; its database and user must too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-zA-Z0-9]([-.a-zA-Z0-9]*[a-zA-Z0-9])?$"))]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// Secret with `username` and `password`. Generated where a `clusterRef` is given and this is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<NameReference>,
    /// Name of the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_]+$"))]
    pub database: Option<String>,
    /// What becomes of the database when the object is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// The message bus of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessagingSettings {
    /// RabbitMQ object on which a virtual host and a user are made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<NameReference>,
}

/// The identity service that a service belongs to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdentitySettings {
    /// Object whose catalog names the service, and which the service's user is made on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<NameReference>,
}

/// The cache of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CacheSettings {
    /// Memcached object whose servers are used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<NameReference>,
    /// Driver of `dogpile.cache`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub backend: Option<String>,
    /// Servers that exist already, as `host:port`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 253)))]
    pub servers: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    #[default]
    Retain,
    Delete,
}

/// Where data is kept.
// A set of pods cannot change its volumes. The rules are not at the fields, where a value that comes or goes would not
// be compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.storageSize) == has(oldSelf.storageSize) && (!has(self.storageSize) || self.storageSize == oldSelf.storageSize)",
        "message": "storageSize cannot be changed yet: grow the claims themselves where their class allows it",
    },
    {
        "rule": "has(self.storageClass) == has(oldSelf.storageClass) && (!has(self.storageClass) || self.storageClass == oldSelf.storageClass)",
        "message": "storageClass cannot be changed: the volumes stay where they are",
    },
]))]
pub struct Storage {
    /// Size of each pod's volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::size")]
    pub storage_size: Option<String>,
    /// Storage class of the volumes; the cluster's default where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub storage_class: Option<String>,
    /// What becomes of the volumes when the object is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}
