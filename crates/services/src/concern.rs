//! What services take from others, either from an object of the operator or from something that exists already.

use openstack_operator_model::common::{DeletionPolicy, NameReference, SecretNameReference};
use openstack_operator_model::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The database of a service: on a MariaDB object, or on a server that exists already.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "!has(self.clusterRef) || !has(self.host) && !has(self.adminSecretRef)", "message": "clusterRef names a MariaDB of the operator, host and adminSecretRef an existing server: leave one of them out" },
    { "rule": "!has(self.host) || has(self.secretRef) || has(self.adminSecretRef)", "message": "host needs a secretRef with username and password, or an adminSecretRef with which the database and its user are made" },
    { "rule": "!has(self.adminSecretRef) || has(self.host)", "message": "adminSecretRef needs the host of the server" },
]))]
pub struct DatabaseSettings {
    /// MariaDB object on which the database and its user are created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<NameReference>,
    /// Existing server. Without it, and without a `clusterRef`, the Secret of `secretRef` holds the `host`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::HOST))]
    pub host: Option<String>,
    /// Port of the existing server; 3306 where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// Secret with `username` and `password`, and `host` where no other field names the server. Generated where the
    /// operator creates the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<NameReference>,
    /// Secret with `username` and `password` of an administrator of the existing server, who creates the database and
    /// its user. Without it both must exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_secret_ref: Option<NameReference>,
    /// Name of the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_]+$"))]
    pub database: Option<String>,
    /// Whether the database outlives the object.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// The message bus of a service: on a RabbitMQ object, or on servers that exist already.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "!has(self.clusterRef) || !has(self.hosts)", "message": "clusterRef names a RabbitMQ of the operator, hosts an existing one: leave one of them out" },
    { "rule": "has(self.hosts) == has(self.secretRef)", "message": "hosts and secretRef need each other: the Secret holds username and password" },
    { "rule": "!has(self.virtualHost) || has(self.hosts)", "message": "virtualHost needs hosts: on a clusterRef every service has a virtual host of its own" },
]))]
pub struct MessagingSettings {
    /// RabbitMQ object on which a virtual host and a user are created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<NameReference>,
    /// Existing servers, as `host:port`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 253), regex(pattern = schema::HOST_PORT)))]
    pub hosts: Vec<String>,
    /// Secret with `username` and `password` of a user of the existing servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<NameReference>,
    /// Virtual host on the existing servers; `/` where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub virtual_host: Option<String>,
}

/// The identity service of a service: a Keystone object, or a Keystone that exists already.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "!has(self.clusterRef) || !has(self.authUrl)", "message": "clusterRef names a Keystone of the operator, authUrl an existing one: leave one of them out" },
    { "rule": "has(self.authUrl) == (has(self.appCredentialRef) || has(self.secretRef) || has(self.adminSecretRef))", "message": "authUrl and credentials need each other: give appCredentialRef, secretRef or adminSecretRef" },
    { "rule": "!has(self.appCredentialRef) || !has(self.secretRef)", "message": "appCredentialRef and secretRef are two ways to log in: leave one of them out" },
    { "rule": "!has(self.region) || has(self.authUrl)", "message": "region needs authUrl: a Keystone object has a region of its own" },
]))]
pub struct IdentitySettings {
    /// Keystone object whose catalog lists the service, and on which the service's user is created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<NameReference>,
    /// Address of an existing Keystone, with the version, e.g. `https://keystone.example.com:5000/v3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^https?://\S+/v3$"))]
    pub auth_url: Option<String>,
    /// Region of the existing Keystone; RegionOne where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub region: Option<String>,
    /// Secret with `application_credential_id` and `application_credential_secret`, with which the service logs in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_credential_ref: Option<SecretNameReference>,
    /// Secret with `username` and `password` of the service's user in project `service` of the default domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<NameReference>,
    /// Secret with `username` and `password` of an administrator of the existing Keystone, who registers the service
    /// in the catalog and, where no other credentials are given, creates its user. Without it somebody else does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_secret_ref: Option<NameReference>,
}

/// The cache of a service, in which it keeps tokens that it has checked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "!has(self.clusterRef) || !has(self.servers)", "message": "clusterRef names a Memcached of the operator, servers existing ones: leave one of them out" },
]))]
pub struct CacheSettings {
    /// Memcached object whose servers are used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<NameReference>,
    /// Existing servers, as `host:port`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), inner(length(min = 1, max = 253), regex(pattern = schema::HOST_PORT)))]
    pub servers: Vec<String>,
}

/// The cache of a service that keeps more in it than tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceCacheSettings {
    #[serde(flatten)]
    pub servers: CacheSettings,
    /// Driver of `dogpile.cache`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub backend: Option<String>,
}
