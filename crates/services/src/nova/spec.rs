//! Nova's settings.

use kube::CustomResource;
use openstack_operator_model::common::{
    CacheSettings, Common, DatabaseSettings, Exposure, IdentitySettings, MessagingSettings, NameReference,
    Origin, is_default,
};
use openstack_operator_model::schema;
use openstack_operator_model::status::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::template::{self, Replicas, one};

/// Compute service.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "openstack.k8s.io",
    version = "v1alpha1",
    kind = "Nova",
    plural = "novas",
    namespaced,
    status = "Status",
    shortname = "nov",
    category = "openstack",
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint"),
    validation = template::database_rule(),
    validation = template::messaging_rule(),
    validation = template::identity_rule(),
    validation = template::exposure_rule()
)]
pub struct NovaSpec {
    #[serde(flatten)]
    pub origin: Origin,
    #[serde(flatten)]
    pub template: NovaTemplate,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NovaTemplate {
    #[serde(default)]
    pub api: Replicas,
    /// What servers ask who they are.
    #[serde(default)]
    pub metadata: Replicas,
    #[serde(default)]
    pub scheduler: Scheduler,
    #[serde(default)]
    pub conductor: Replicas,
    /// Screens of servers, in a browser.
    #[serde(default)]
    pub console: Console,
    #[serde(flatten)]
    pub exposure: Exposure,
    #[serde(default)]
    pub database: NovaDatabase,
    #[serde(default)]
    pub messaging: MessagingSettings,
    #[serde(default)]
    pub cache: CacheSettings,
    #[serde(default)]
    pub keystone: IdentitySettings,
    /// Users with which other services are spoken to, where Nova's own is not to be taken.
    #[serde(default, skip_serializing_if = "is_default")]
    pub service_auth: ServiceAuth,
    /// Cells besides `cell0` and `cell1`, which every cloud has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["name"],
    ))]
    pub cells: Vec<Cell>,
    #[serde(flatten)]
    pub common: Common,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scheduler {
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 32))]
    pub replicas: i32,
    #[serde(default)]
    pub external_scheduler: ExternalScheduler,
}

impl Default for Scheduler {
    fn default() -> Self {
        Self { replicas: 1, external_scheduler: ExternalScheduler::default() }
    }
}

/// Somebody else who is asked where a server shall run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.enabled) || !self.enabled || has(self.endpoint)",
    "message": "externalScheduler needs an endpoint where it is enabled",
}]))]
pub struct ExternalScheduler {
    #[serde(default)]
    pub enabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^https?://\S+$"))]
    pub endpoint: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Console {
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 32))]
    pub replicas: i32,
    /// Name under which screens are reached from outside, through the same Gateway as the API.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub public_hostname: Option<String>,
}

impl Default for Console {
    fn default() -> Self {
        Self { replicas: 1, public_hostname: None }
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NovaDatabase {
    /// Where `cell1` keeps its servers.
    #[serde(flatten)]
    pub cell: DatabaseSettings,
    /// Database of what all cells share.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_]+$"))]
    pub api_database: Option<String>,
    /// Database of servers that were never placed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-zA-Z0-9_]+$"))]
    pub cell_database: Option<String>,
}

/// Secrets with `username` and `password`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAuth {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement_service_user_ref: Option<NameReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neutron_service_user_ref: Option<NameReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub glance_service_user_ref: Option<NameReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cinder_service_user_ref: Option<NameReference>,
}

impl ServiceAuth {
    /// Sections of the configuration, and whose user each has.
    pub(super) fn sections(&self) -> [(&'static str, &'static str, Option<&NameReference>); 4] {
        [
            (
                "placement",
                "spec.serviceAuth.placementServiceUserRef",
                self.placement_service_user_ref.as_ref(),
            ),
            ("neutron", "spec.serviceAuth.neutronServiceUserRef", self.neutron_service_user_ref.as_ref()),
            ("glance", "spec.serviceAuth.glanceServiceUserRef", self.glance_service_user_ref.as_ref()),
            ("cinder", "spec.serviceAuth.cinderServiceUserRef", self.cinder_service_user_ref.as_ref()),
        ]
    }
}

/// A group of nodes with a database and a message bus of its own.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cell {
    #[schemars(length(min = 1, max = 10), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"), extend(
        "x-kubernetes-validations" = [{
            "rule": "self != 'cell0' && self != 'cell1'", "message": "every cloud has cell0 and cell1 already",
        }]
    ))]
    pub name: String,
    #[serde(default)]
    pub database: DatabaseSettings,
    #[serde(default)]
    pub messaging: MessagingSettings,
    #[serde(default)]
    pub conductor: Replicas,
}
