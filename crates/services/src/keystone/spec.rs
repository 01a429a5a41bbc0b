//! Settings of Keystone.

use kube::CustomResource;
use openstack_operator_model::common::{Common, Exposure, Origin, SecretKeyReference};
use openstack_operator_model::schema;
use openstack_operator_model::status::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::concern::{DatabaseSettings, MessagingSettings, ServiceCacheSettings};
use crate::inputs::{self, Input, Inputs, Needed, Role, Scale};
use crate::template::Notifications;

/// Identity service.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "openstack.k8s.io",
    version = "v1alpha1",
    kind = "Keystone",
    plural = "keystones",
    namespaced,
    status = "Status",
    // Not `ks`, the short name of Kustomizations of Flux.
    shortname = "kst",
    category = "openstack",
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint")
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
    /// Number of API pods. Defaults to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub replicas: Option<i32>,
    #[serde(flatten)]
    pub exposure: Exposure,
    #[serde(default)]
    pub database: DatabaseSettings,
    #[serde(default)]
    pub cache: ServiceCacheSettings,
    /// Message bus that carries notifications.
    #[serde(default)]
    pub messaging: MessagingSettings,
    #[serde(default)]
    pub notifications: Notifications,
    /// Fernet keys that sign tokens.
    #[serde(default)]
    pub fernet: KeyRotation,
    /// Fernet keys that encrypt stored credentials.
    #[serde(default)]
    pub credential_keys: KeyRotation,
    #[serde(default)]
    pub federation: Federation,
    #[serde(default)]
    pub bootstrap: Bootstrap,
    #[serde(flatten)]
    pub common: Common,
}

impl Inputs for KeystoneTemplate {
    fn inputs(&mut self) -> Vec<Input<'_>> {
        let mut inputs = vec![
            Input::Replicas { scale: Scale::Stateless, replicas: &mut self.replicas },
            Input::Exposure(&mut self.exposure),
            Input::Region { field: "bootstrap.region", region: &mut self.bootstrap.region },
            Input::Database { field: "database", needed: Needed::Always, settings: &mut self.database },
            Input::Cache(&mut self.cache.servers),
        ];
        let Notifications { enabled, topics } = &mut self.notifications;
        if *enabled || !topics.is_empty() {
            let needed = Needed::When(Notifications::ARE_SENT);
            inputs.push(Input::Messaging { field: "messaging", needed, settings: &mut self.messaging });
        }
        inputs.push(Input::Topics { field: "notifications.topics", topics });
        inputs.extend(inputs::pods(&mut self.common.pods, Role::Control));
        inputs
    }

    fn declaration() -> Self {
        Self { notifications: Notifications { enabled: true, ..Default::default() }, ..Self::default() }
    }
}

/// Rotation of keys.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyRotation {
    /// Rotation schedule as a cron expression in UTC. Names of months and days are in capitals.
    #[serde(default = "weekly")]
    #[schemars(length(min = 9, max = 100), regex(pattern = schema::SCHEDULE))]
    pub rotation_schedule: String,
    /// Maximum number of keys. A key whose tokens are still valid is kept beyond it.
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

/// Federation with OpenID Connect. The proxy that authenticates users is not part of Keystone.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Federation {
    /// Whether users can log in with OpenID Connect.
    #[serde(default)]
    pub enabled: bool,
    /// URLs of dashboards that can receive tokens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 512)))]
    pub trusted_dashboards: Vec<String>,
    /// Request variable in which the proxy passes the issuer.
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

/// Administrator and region that Keystone is bootstrapped with.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    /// Name of the administrator.
    #[serde(default = "admin")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub admin_user: String,
    /// Secret with the administrator's password. Defaults to a generated Secret `<object>-admin`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_password_secret_ref: Option<SecretKeyReference>,
    /// Name of the region. Defaults to RegionOne.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_.-]+$"))]
    pub region: Option<String>,
}

impl Default for Bootstrap {
    fn default() -> Self {
        Self { admin_user: admin(), admin_password_secret_ref: None, region: None }
    }
}

fn admin() -> String {
    "admin".to_owned()
}
