//! Keystone's settings.

use kube::CustomResource;
use openstack_operator_model::common::{
    CacheSettings, Common, DatabaseSettings, Exposure, MessagingSettings, Origin, SecretKeyReference,
};
use openstack_operator_model::schema;
use openstack_operator_model::status::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::template::{self, Notifications, one};

/// Identity service.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "openstack.k8s.io",
    version = "v1alpha1",
    kind = "Keystone",
    plural = "keystones",
    namespaced,
    status = "Status",
    // Not `ks`, which is what Flux calls its Kustomizations.
    shortname = "kst",
    category = "openstack",
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint"),
    validation = template::database_rule(),
    validation = template::exposure_rule(),
    validation = Rule::new("!has(self.spec.notifications) || !self.spec.notifications.enabled || has(self.spec.messaging) && has(self.spec.messaging.clusterRef)")
        .message("spec.notifications needs spec.messaging.clusterRef, the RabbitMQ that carries them")
)]
pub struct KeystoneSpec {
    #[serde(flatten)]
    pub origin: Origin,
    #[serde(flatten)]
    pub template: KeystoneTemplate,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeystoneTemplate {
    /// How many pods serve the API.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 32))]
    pub replicas: i32,
    #[serde(flatten)]
    pub exposure: Exposure,
    #[serde(default)]
    pub database: DatabaseSettings,
    #[serde(default)]
    pub cache: CacheSettings,
    #[serde(default)]
    pub messaging: MessagingSettings,
    #[serde(default)]
    pub notifications: Notifications,
    /// Keys that sign tokens.
    #[serde(default)]
    pub fernet: KeyRotation,
    /// Keys that encrypt stored credentials.
    #[serde(default)]
    pub credential_keys: KeyRotation,
    #[serde(default)]
    pub federation: Federation,
    #[serde(default)]
    pub bootstrap: Bootstrap,
    #[serde(flatten)]
    pub common: Common,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyRotation {
    /// When keys are rotated, as a cron expression in UTC. Names of months and days are in capitals.
    #[serde(default = "weekly")]
    #[schemars(length(min = 9, max = 100), regex(pattern = schema::SCHEDULE))]
    pub rotation_schedule: String,
    /// How many keys are kept. A key whose tokens are still valid is kept in any case.
    #[serde(default = "three")]
    #[schemars(range(min = 3, max = 100))]
    pub max_active_keys: u32,
}

impl Default for KeyRotation {
    fn default() -> Self {
        Self { rotation_schedule: weekly(), max_active_keys: three() }
    }
}

fn weekly() -> String {
    "0 0 * * 0".to_owned()
}

fn three() -> u32 {
    3
}

/// Single sign-on: what Keystone itself must be told. The front that speaks OpenID Connect is not part of it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Federation {
    #[serde(default)]
    pub enabled: bool,
    /// Addresses of dashboards that may receive tokens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 512)))]
    pub trusted_dashboards: Vec<String>,
    /// Variable in which the front passes the issuer.
    #[serde(default = "issuer")]
    #[schemars(length(min = 1, max = 128))]
    pub remote_id_attribute: String,
}

impl Default for Federation {
    fn default() -> Self {
        Self { enabled: false, trusted_dashboards: Vec::new(), remote_id_attribute: issuer() }
    }
}

fn issuer() -> String {
    "HTTP_OIDC_ISS".to_owned()
}

/// The first administrator.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    #[serde(default = "admin")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub admin_user: String,
    /// Secret with the administrator's password. Generated where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_password_secret_ref: Option<SecretKeyReference>,
    #[serde(default = "region")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub region: String,
}

impl Default for Bootstrap {
    fn default() -> Self {
        Self { admin_user: admin(), admin_password_secret_ref: None, region: region() }
    }
}

fn admin() -> String {
    "admin".to_owned()
}

fn region() -> String {
    "RegionOne".to_owned()
}
