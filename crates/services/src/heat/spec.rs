//! Settings of Heat.

use kube::CustomResource;
use openstack_operator_model::common::{Common, Component, Exposure, Origin};
use openstack_operator_model::schema;
use openstack_operator_model::status::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::concern::{DatabaseSettings, IdentitySettings, MessagingSettings, ServiceCacheSettings};
use crate::inputs::{self, Input, Inputs, Needed, Role, Scale};

/// Orchestration service.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "openstack.k8s.io",
    version = "v1alpha1",
    kind = "Heat",
    plural = "heats",
    namespaced,
    status = "Status",
    shortname = "hea",
    category = "openstack",
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint"),
    validation = Rule::new("!has(self.spec.keystone) || !has(self.spec.keystone.appCredentialRef)")
        .message("spec.keystone.appCredentialRef: a login with an application credential cannot use the trusts of users; use secretRef")
)]
pub struct HeatSpec {
    #[serde(flatten)]
    pub origin: Origin,
    #[serde(flatten)]
    pub template: HeatTemplate,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeatTemplate {
    /// Number of pods of each component without its own `replicas`. Defaults to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub replicas: Option<i32>,
    /// Orchestration API.
    #[serde(default)]
    pub api: Component,
    /// CloudFormation API, with which instances report to their stacks.
    #[serde(default)]
    pub cfn: Cfn,
    /// Engines, which create, update and delete the resources of stacks.
    #[serde(default)]
    pub engine: Engine,
    /// Maximum number of resources of a stack; -1 means no limit. Defaults to 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1, max = 1_000_000))]
    pub max_resources_per_stack: Option<i32>,
    /// Removal of the records of deleted stacks from the database.
    #[serde(default)]
    pub purge: Purge,
    #[serde(flatten)]
    pub exposure: Exposure,
    #[serde(default)]
    pub database: DatabaseSettings,
    #[serde(default)]
    pub messaging: MessagingSettings,
    #[serde(default)]
    pub cache: ServiceCacheSettings,
    #[serde(default)]
    pub keystone: IdentitySettings,
    #[serde(flatten)]
    pub common: Common,
}

impl Inputs for HeatTemplate {
    fn inputs(&mut self) -> Vec<Input<'_>> {
        let needed = Needed::Always;
        let hostname = &mut self.cfn.public_hostname;
        let mut inputs = vec![
            Input::Replicas { scale: Scale::Stateless, replicas: &mut self.replicas },
            Input::Exposure(&mut self.exposure),
            Input::Hostname { field: "cfn.publicHostname", host: "heat-cfn", hostname },
            Input::Database { field: "database", needed, settings: &mut self.database },
            Input::Messaging { field: "messaging", needed, settings: &mut self.messaging },
            Input::Cache(&mut self.cache.servers),
            Input::Identity(&mut self.keystone),
            Input::Component { field: "api", settings: &mut self.api.container },
            Input::Component { field: "cfn", settings: &mut self.cfn.component.container },
            Input::Component { field: "engine", settings: &mut self.engine.component.container },
        ];
        inputs.extend(inputs::pods(&mut self.common.pods, Role::Control));
        inputs
    }
}

/// CloudFormation API.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cfn {
    #[serde(flatten)]
    pub component: Component,
    /// Public host name of the CloudFormation API, on the same Gateway as the orchestration API. Instances must reach it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::NAME))]
    pub public_hostname: Option<String>,
}

/// Engines.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Engine {
    #[serde(flatten)]
    pub component: Component,
    /// Maximum time for an engine to complete the resources that it works on before it stops. Their stacks stay in progress
    /// if it is too short.
    #[serde(default = "ten_minutes")]
    #[schemars(range(min = 60, max = 14400))]
    pub shutdown_seconds: u32,
}

impl Default for Engine {
    fn default() -> Self {
        Self { component: Component::default(), shutdown_seconds: ten_minutes() }
    }
}

fn ten_minutes() -> u32 {
    600
}

/// Removal of the records of deleted stacks.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Purge {
    /// Times of the removal as a cron expression in UTC. Names of months and days are in capitals.
    #[serde(default = "daily")]
    #[schemars(length(min = 9, max = 100), regex(pattern = schema::SCHEDULE))]
    pub schedule: String,
    /// Days for which records are kept after the deletion of their stack.
    #[serde(default = "thirty")]
    #[schemars(range(min = 0, max = 3650))]
    pub age_days: u32,
}

impl Default for Purge {
    fn default() -> Self {
        Self { schedule: daily(), age_days: thirty() }
    }
}

fn daily() -> String {
    "30 3 * * *".to_owned()
}

fn thirty() -> u32 {
    30
}
