//! Placement: what resources there are, and who has them.

use std::collections::BTreeMap;

use kube::CustomResource;
use openstack_operator_model::common::Origin;
use openstack_operator_model::image::ImageNames;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::need::Needs;
use openstack_operator_model::oslo::Document;
use openstack_operator_model::plan::{Container, Plan, Port, Task, TaskStage, Variable};
use openstack_operator_model::service::{self, Context, Invalid};
use openstack_operator_model::status::Status;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shared::api::{self, Uwsgi};
use crate::shared::{self, Account, Registration};
use crate::template::{self, ApiTemplate};

pub const KIND: Kind = Kind::own("Placement", "placements");
const API: Port = Port { name: "api", number: 8778 };
const USER: i64 = 42482;
const CONFIGURATION: &str = "placement.conf";

/// Inventory of resources.
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
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint"),
    validation = template::database_rule(),
    validation = template::identity_rule(),
    validation = template::exposure_rule()
)]
pub struct PlacementSpec {
    #[serde(flatten)]
    pub origin: Origin,
    #[serde(flatten)]
    pub template: ApiTemplate,
}

pub struct Service;

impl service::Service for Service {
    type Object = Placement;
    const KIND: Kind = KIND;
    const NAME: &'static str = "placement";

    fn needs(object: &Placement) -> Needs {
        shared::api_needs(&object.spec.template)
    }

    fn plan(context: &Context<'_, Placement>) -> Result<Plan, Invalid> {
        let PlacementSpec { origin, template } = &context.object.spec;
        shared::check_extra_config(&template.common, &[CONFIGURATION, "uwsgi.ini"])?;
        let (mut plan, internal, public) = api::plan(context, origin, &template.exposure, API.number)?;
        let database =
            shared::database(context, &mut plan, &template.database, "placement", "placement_database")?;
        let registration = Registration {
            service_type: "placement",
            name: "placement",
            description: "OpenStack Placement",
            public,
            internal,
        };
        let account = shared::register(context, &mut plan, &template.keystone, &registration)?;
        let environment: Vec<_> = [database].into_iter().chain(account.passwords(&[])).collect();
        plan.files = files(context, &account)?;
        plan.tasks = tasks(context, &environment);
        let mut api = container(context, "api", shared::uwsgi_command("placement"), environment);
        api.mounts.push(shared::file("uwsgi.ini", "/etc/placement/uwsgi.ini"));
        let api = api::serving(api, API, "/");
        plan.workloads = vec![api::workload(USER, template.replicas, &template.common, api)];
        Ok(plan)
    }
}

fn files(
    context: &Context<'_, Placement>,
    account: &Account<'_>,
) -> Result<BTreeMap<String, String>, Invalid> {
    let template = &context.object.spec.template;
    let mut files = BTreeMap::new();
    let mut document = Document::new().set("DEFAULT", "use_stderr", true).set(
        "oslo_middleware",
        "enable_proxy_headers_parsing",
        true,
    );
    document = shared::database_options(document, "placement_database");
    document = account.authtoken(document, &shared::cache_servers(context, &template.cache)?);
    document = api::policy(document, &mut files, &template.exposure);
    let document = document.merge(template.common.extra_config.get(CONFIGURATION));
    files.insert(CONFIGURATION.to_owned(), document.render());
    let uwsgi = api::uwsgi(&Uwsgi::new("placement.wsgi.api:application", &API), &template.common);
    files.insert("uwsgi.ini".to_owned(), uwsgi);
    Ok(files)
}

fn container(
    context: &Context<'_, Placement>,
    name: &'static str,
    command: Vec<String>,
    environment: Vec<Variable>,
) -> Container {
    let PlacementSpec { origin, template } = &context.object.spec;
    let names = ImageNames { kolla: "placement-api", debian: "placement" };
    let mut mounts =
        vec![shared::file(CONFIGURATION, "/etc/placement/placement.conf"), shared::scratch("tmp", "/tmp")];
    mounts.extend(api::policy_mount(&template.exposure, "placement"));
    Container {
        name,
        image: shared::image(context, names, &template.common, origin),
        command,
        environment,
        mounts,
        resources: shared::resources(&template.common.resources, ("20m", "192Mi"), "512Mi"),
        ..Container::default()
    }
}

fn tasks(context: &Context<'_, Placement>, environment: &[Variable]) -> Vec<Task> {
    let task = |name: &'static str, stage: TaskStage, command: Vec<String>| Task {
        name,
        stage,
        user: USER,
        container: container(context, "placement-manage", command, environment.to_vec()),
        repeat_on: Vec::new(),
    };
    let sync = || shared::command(["placement-manage", "db", "sync"]);
    vec![
        task("db-sync", TaskStage::Install, sync()),
        task("db-expand", TaskStage::Expand, sync()),
        task("upgrade-check", TaskStage::Migrate, shared::upgrade_check("placement")),
        task(
            "db-contract",
            TaskStage::Contract,
            shared::command(["placement-manage", "db", "online_data_migrations"]),
        ),
    ]
}
