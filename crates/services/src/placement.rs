//! Placement: inventory and allocation of resources.

use kube::CustomResource;
use openstack_operator_model::common::Origin;
use openstack_operator_model::image::ImageNames;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::plan::{Plan, Port, TaskStage};
use openstack_operator_model::release::Varying;
use openstack_operator_model::service::{Context, Invalid};
use openstack_operator_model::status::{Stage, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cloud::{Part, Presence, Wave};
use crate::program::{Amounts, Program, Project, Settings};
use crate::shared::api::Uwsgi;
use crate::shared::{self, DatabaseClaim};
use crate::template::ApiTemplate;

pub const KIND: Kind = Kind::own("Placement", "placements");
const API: Port = Port::tcp("api", 8778);
const MODULE: Varying<&str> = Varying::same("placement.wsgi.api:application");
const PROJECT: Project = Project {
    name: "placement",
    user: 42482,
    configuration: "placement.conf",
    manage: "placement-manage",
    image: ImageNames { kolla: "placement-api", debian: "placement" },
    scratch: &[],
    amounts: Amounts { cpu: "20m", memory: "192Mi", memory_limit: "512Mi" },
};

/// Placement service: inventory and allocation of compute resources.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "openstack.k8s.io",
    version = "v1alpha1",
    kind = "Placement",
    plural = "placements",
    namespaced,
    status = "Status",
    shortname = "plc",
    category = "openstack",
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint")
)]
pub struct PlacementSpec {
    #[serde(flatten)]
    pub origin: Origin,
    #[serde(flatten)]
    pub template: ApiTemplate,
}

pub struct Service;

impl Part for Service {
    type Object = Placement;
    type Template = ApiTemplate;
    const KIND: Kind = KIND;
    const NAME: &'static str = "placement";
    const STAGE: Stage = Stage::CoreServices;
    const PRESENCE: Presence = Presence::ByDefault;
    const WAVE: Wave = Wave::Resources;

    fn template(object: &Placement) -> &ApiTemplate {
        &object.spec.template
    }

    fn plan(context: &Context<'_, Placement>) -> Result<Plan, Invalid> {
        let PlacementSpec { origin, template } = &context.object.spec;
        let mut placement =
            Program::new(context, &PROJECT, Settings::from_template(origin, template), &API, &[])?;
        let claim = DatabaseClaim::new(&template.database, "placement", "placement_database");
        placement.database(&claim)?;
        let cache = shared::cache_servers(context, &template.cache)?;
        let registration = placement.registration("placement", "OpenStack Placement", "");
        placement.register(&template.keystone, &[registration], &[], &cache)?;
        let sync = || shared::command(["placement-manage", "db", "sync"]);
        let migrate = shared::command(["placement-manage", "db", "online_data_migrations"]);
        placement.task("db-sync", TaskStage::Install, sync());
        placement.task("db-expand", TaskStage::Expand, sync());
        placement.task("upgrade-check", TaskStage::Migrate, shared::upgrade_check("placement"));
        placement.task("db-contract", TaskStage::Contract, migrate);
        placement.only_api(API, "/", Uwsgi::new(MODULE));
        placement.finish()
    }
}
