//! Services that a service uses: objects of the operator, or existing servers.

use openstack_operator_model::common::{DeletionPolicy, NameReference, SecretNameReference};
use openstack_operator_model::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Database of the service, on a MariaDB object or on an existing server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "!has(self.clusterRef) || !has(self.host) && !has(self.adminSecretRef)", "message": "clusterRef excludes host and adminSecretRef: set clusterRef for a MariaDB object, or the others for an existing server" },
    { "rule": "!has(self.host) || has(self.secretRef) || has(self.adminSecretRef)", "message": "host requires secretRef with username and password, or adminSecretRef to create the database and its user" },
    { "rule": "!has(self.adminSecretRef) || has(self.host)", "message": "adminSecretRef requires host" },
]))]
pub struct DatabaseSettings {
    /// MariaDB object on which the operator creates the database and its user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<NameReference>,
    /// Host of an existing server. Without `host` and `clusterRef`, the Secret in `secretRef` must contain `host`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::HOST))]
    pub host: Option<String>,
    /// Port of the existing server. Defaults to 3306.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// Secret with `username` and `password`, and with `host` if no other field sets it. Generated if the operator
    /// creates the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<NameReference>,
    /// Secret with `username` and `password` of an administrator of the existing server. The operator uses it to
    /// create the database and its user; without it both must exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_secret_ref: Option<NameReference>,
    /// Name of the database. Defaults to the name of the service, for a cell of Nova to `nova_<cell>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_]+$"))]
    pub database: Option<String>,
    /// Policy for the database when the object is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// Message bus of the service, on a RabbitMQ object or on existing servers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "!has(self.clusterRef) || !has(self.hosts)", "message": "clusterRef excludes hosts: set clusterRef for a RabbitMQ object, or hosts for existing servers" },
    { "rule": "has(self.hosts) == has(self.secretRef)", "message": "set hosts and secretRef together: the Secret contains username and password" },
    { "rule": "!has(self.virtualHost) || has(self.hosts)", "message": "virtualHost requires hosts: on a RabbitMQ object each service has its own virtual host" },
]))]
pub struct MessagingSettings {
    /// RabbitMQ object on which the operator creates a virtual host and a user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<NameReference>,
    /// Existing servers as `host:port`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 253), regex(pattern = schema::HOST_PORT)))]
    pub hosts: Vec<String>,
    /// Secret with `username` and `password` of a user of the existing servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<NameReference>,
    /// Virtual host on the existing servers. Defaults to `/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub virtual_host: Option<String>,
}

/// Identity service: a Keystone object or an existing Keystone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "!has(self.clusterRef) || !has(self.authUrl)", "message": "clusterRef excludes authUrl: set clusterRef for a Keystone object, or authUrl for an existing Keystone" },
    { "rule": "has(self.authUrl) == (has(self.appCredentialRef) || has(self.secretRef) || has(self.adminSecretRef))", "message": "set authUrl together with appCredentialRef, secretRef or adminSecretRef" },
    { "rule": "!has(self.appCredentialRef) || !has(self.secretRef)", "message": "appCredentialRef excludes secretRef: set one of them" },
    { "rule": "!has(self.region) || has(self.authUrl)", "message": "region requires authUrl: a Keystone object has its own region" },
]))]
pub struct IdentitySettings {
    /// Keystone object in which the operator registers the service and its user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<NameReference>,
    /// URL of an existing Keystone with the version, e.g. `https://keystone.example.com:5000/v3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^https?://\S+/v3$"))]
    pub auth_url: Option<String>,
    /// Region of the existing Keystone. Defaults to RegionOne.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub region: Option<String>,
    /// Secret with `application_credential_id` and `application_credential_secret` of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_credential_ref: Option<SecretNameReference>,
    /// Secret with `username` and `password` of the service user, in project `service` of the default domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<NameReference>,
    /// Secret with `username` and `password` of an administrator of the existing Keystone. The operator uses it to
    /// register the service in the catalog and, without other credentials, to create its user. Without it, register
    /// the service yourself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_secret_ref: Option<NameReference>,
}

/// Identity service of a service that has no user of its own: a Keystone object or an existing Keystone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "!has(self.clusterRef) || !has(self.authUrl)", "message": "clusterRef excludes authUrl: set clusterRef for a Keystone object, or authUrl for an existing Keystone" },
]))]
pub struct IdentityAddress {
    /// Keystone object to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<NameReference>,
    /// URL of an existing Keystone with the version, e.g. `https://keystone.example.com:5000/v3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^https?://\S+/v3$"))]
    pub auth_url: Option<String>,
}

/// Memcached servers that cache validated tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "!has(self.clusterRef) || !has(self.servers)", "message": "clusterRef excludes servers: set clusterRef for a Memcached object, or servers for existing servers" },
]))]
pub struct CacheSettings {
    /// Memcached object to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<NameReference>,
    /// Existing servers as `host:port`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), inner(length(min = 1, max = 253), regex(pattern = schema::HOST_PORT)))]
    pub servers: Vec<String>,
}

/// Memcached servers that cache tokens and other data of the service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceCacheSettings {
    #[serde(flatten)]
    pub servers: CacheSettings,
    /// Cache driver of `dogpile.cache`. Defaults to `oslo_cache.memcache_pool`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub backend: Option<String>,
}
