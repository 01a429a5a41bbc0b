//! Horizon: web dashboard. It has no data of its own: sessions are in Memcached, and users act with their own tokens.

use openstack_operator_model::image::ImageNames;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::name;
use openstack_operator_model::plan::{
    Container, Controller, Entry, Mount, NetworkService, Plan, Pod, Port, Reach, SecretPlan, Variable,
    Workload,
};
use openstack_operator_model::release::Varying;
use openstack_operator_model::service::{Context, Invalid};
use openstack_operator_model::status::Stage;

use crate::cloud::Part;
use crate::program::Amounts;
use crate::shared;
use crate::shared::api::{self, Uwsgi};

pub use spec::*;

mod settings;
mod spec;

pub const KIND: Kind = Kind::own("Horizon", "horizons");
const HTTP: Port = Port::tcp("http", 8080);
const USER: i64 = 42420;
const IMAGE: ImageNames = ImageNames::same("horizon");
const AMOUNTS: Amounts = Amounts { cpu: "20m", memory: "384Mi", memory_limit: "1Gi" };
/// Not all packages contain a module of Horizon itself.
const MODULE: Varying<&str> = Varying::same("django.core.wsgi:get_wsgi_application()");
const SETTINGS_MODULE: &str = "openstack_dashboard.settings";
/// A page that needs neither Keystone nor Memcached, but all templates, styles and settings.
const HEALTH: &str = "/auth/login/";
/// Key of the Secret that signs cookies and links.
const SECRET_KEY: &str = "secret_key";
/// Directory of styles and scripts, which each pod compiles for its theme and dashboards before it starts.
const STATIC_FILES: &str = "/var/lib/openstack-dashboard/static";
const COMPILE: &str =
    "python3 -m django collectstatic --noinput --verbosity=0 && python3 -m django compress --force";
/// Files of the plan with their paths.
const FILES: [(&str, &str, &str); 3] = [
    (
        "local_settings.py",
        "/etc/openstack-dashboard/local_settings.py",
        include_str!("horizon/local_settings.py"),
    ),
    (
        "operator_settings.py",
        "/etc/openstack-dashboard/local_settings.d/_9000_operator.py",
        include_str!("horizon/operator_settings.py"),
    ),
    ("mime.types", "/etc/openstack-dashboard/mime.types", include_str!("horizon/mime.types")),
];
const POLICY_FILE: &str = "policy.yaml";

pub struct Service;

impl Part for Service {
    type Object = Horizon;
    type Template = HorizonTemplate;
    const KIND: Kind = KIND;
    const NAME: &'static str = "horizon";
    const STAGE: Stage = Stage::Dashboards;

    fn template(object: &Horizon) -> &HorizonTemplate {
        &object.spec.template
    }

    fn cloud_rules() -> Vec<(String, String)> {
        let (horizon, memcached) = ("self.spec.horizon", "self.spec.memcached");
        let rule = format!(
            "!has({horizon}) || !has({horizon}.enabled) || !{horizon}.enabled || has(self.spec.cache) || \
             !has({memcached}) || !has({memcached}.enabled) || {memcached}.enabled"
        );
        let message = "spec.memcached is disabled, but spec.horizon keeps sessions in it: enable it, or name existing \
                       servers in spec.cache.servers";
        vec![(rule, message.to_owned())]
    }

    fn plan(context: &Context<'_, Horizon>) -> Result<Plan, Invalid> {
        let HorizonSpec { origin, template } = &context.object.spec;
        let HorizonTemplate { common, exposure, .. } = template;
        shared::check_extra_config(common, &["uwsgi.ini"])?;
        let internal_url =
            shared::internal_endpoint(shared::service_host(context, context.name), &HTTP).url();
        let mut plan = Plan {
            endpoint: Some(api::public_url(exposure).unwrap_or(internal_url)),
            routes: api::routes(exposure, HTTP.number)?,
            pull_secrets: origin.images.pull_secrets.clone(),
            additions: common.pods.additions.clone(),
            ..Plan::default()
        };
        let secret = name::part(context.name, "secret-key");
        let entries = [(SECRET_KEY, Entry::Password { length: 64 })];
        plan.secrets.push(SecretPlan::with_entries(&secret, entries));
        add_files(&mut plan, context)?;
        plan.workloads.push(workload(context, &secret));
        Ok(plan)
    }
}

fn add_files(plan: &mut Plan, context: &Context<'_, Horizon>) -> Result<(), Invalid> {
    let HorizonTemplate { common, exposure, .. } = &context.object.spec.template;
    for (file, _, text) in FILES {
        plan.files.insert(file.to_owned(), text.into());
    }
    plan.files.insert(settings::FILE.to_owned(), settings::render(context)?.into());
    plan.files.extend(api::policy_file(exposure).map(|text| (POLICY_FILE.to_owned(), text)));
    let uwsgi = Uwsgi {
        processes: 2,
        // Users upload images through the dashboard.
        longest_request: 600,
        options: &[
            // A page waits for many APIs.
            ("threads", "8"),
            ("static-map", "/static=/var/lib/openstack-dashboard/static"),
            // Without it, not every image knows the types, and browsers ignore styles without one.
            ("mime-file", "/etc/openstack-dashboard/mime.types"),
        ],
        ..Uwsgi::new(MODULE)
    };
    plan.files.insert("uwsgi.ini".to_owned(), api::uwsgi(&uwsgi, context.runtime, &HTTP, common).into());
    Ok(())
}

fn workload(context: &Context<'_, Horizon>, secret: &str) -> Workload {
    let HorizonTemplate { common, replicas, .. } = &context.object.spec.template;
    let compile = container(context, "static-files", shared::command(["bash", "-c", COMPILE]), secret);
    let mut server = container(context, "dashboard", shared::uwsgi_command("openstack-dashboard"), secret);
    server.mounts.push(shared::file("uwsgi.ini", "/etc/openstack-dashboard/uwsgi.ini"));
    let server = api::serving(server, HTTP, HEALTH);
    let service = NetworkService { suffix: None, ports: server.ports.clone(), reach: Reach::Cluster };
    let pod = Pod::new(USER, &common.pods.scheduling, vec![server]);
    Workload {
        component: "dashboard".into(),
        suffix: None,
        controller: Controller::Deployment,
        replicas: replicas.unwrap_or(1),
        pod: Pod { setup: vec![compile], grace_seconds: api::GRACE_SECONDS, ..pod },
        services: vec![service],
        after: Vec::new(),
    }
}

/// A container with the settings of Horizon.
fn container(
    context: &Context<'_, Horizon>,
    name: &'static str,
    command: Vec<String>,
    secret: &str,
) -> Container {
    let HorizonSpec { origin, template } = &context.object.spec;
    let HorizonTemplate { common, exposure, .. } = template;
    let own = &common.pods.container;
    let mut mounts: Vec<Mount> = FILES.iter().map(|(file, path, _)| shared::file(file, path)).collect();
    mounts.push(shared::file(settings::FILE, settings::PATH));
    if !exposure.policy.is_empty() {
        mounts.push(shared::file(POLICY_FILE, "/etc/openstack-dashboard/policy.d/policy.yaml"));
    }
    mounts.push(shared::scratch("static-files", STATIC_FILES));
    mounts.push(shared::scratch("tmp", "/tmp"));
    Container {
        name,
        image: shared::component_image(context, IMAGE, &own.image, &common.pods, origin),
        command,
        environment: vec![
            Variable::text("DJANGO_SETTINGS_MODULE", SETTINGS_MODULE),
            Variable::secret("SECRET_KEY", secret, SECRET_KEY),
            Variable::field("POD_IP", "status.podIP"),
        ],
        mounts,
        resources: shared::component_resources(own, &common.pods, AMOUNTS),
        ..Container::default()
    }
}
