//! Nova: servers, from the API down to the cells that have them. Nodes are another object's.

use std::collections::BTreeMap;

use openstack_operator_model::common::{DatabaseSettings, NameReference};
use openstack_operator_model::image::ImageNames;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::name;
use openstack_operator_model::need::Needs;
use openstack_operator_model::oslo::Document;
use openstack_operator_model::plan::{
    Container, Controller, Entry, Plan, Pod, Port, Route, SecretContent, SecretPlan, Task, TaskStage,
    Variable, Workload,
};
use openstack_operator_model::service::{self, Context, Invalid};
use openstack_operator_model::status::{CellServer, ComputeServer, Provides};

use crate::shared::api::{self, Uwsgi};
use crate::shared::{self, Account, Registration};

pub use spec::*;

pub(crate) mod cell;
mod spec;

pub const KIND: Kind = Kind::own("Nova", "novas");
const API: Port = Port { name: "api", number: 8774 };
const METADATA: Port = Port { name: "metadata", number: 8775 };
const CONSOLE: Port = Port { name: "console", number: 6080 };
pub(crate) const USER: i64 = 42436;
pub(crate) const USERNAME: &str = "nova";
pub(crate) const CONFIGURATION: &str = "nova.conf";
/// Program and image that also runs what manages the databases.
const CONDUCTOR: &str = "nova-conductor";
/// Key of what those who ask for metadata share.
pub(crate) const METADATA_KEY: &str = "secret";
/// Services that are spoken to, each with a section of its own; the first vouches for requests of users.
pub(crate) const PEERS: [&str; 5] = ["service_user", "placement", "neutron", "glance", "cinder"];
/// Path of the page that shows a screen.
const SCREEN: &str = "vnc_lite.html";

pub struct Service;

impl service::Service for Service {
    type Object = Nova;
    const KIND: Kind = KIND;
    const NAME: &'static str = "nova";

    fn needs(object: &Nova) -> Needs {
        let template = &object.spec.template;
        let mut needs = Needs::default().after(&template.common.depends_on);
        needs = shared::database_needs(needs, &template.database.cell);
        needs = shared::messaging_needs(needs, &template.messaging);
        needs = shared::cache_needs(needs, &template.cache);
        needs = shared::identity_needs(needs, &template.keystone);
        for cell in &template.cells {
            needs = shared::messaging_needs(shared::database_needs(needs, &cell.database), &cell.messaging);
        }
        for (_, field, user) in template.service_auth.sections() {
            let secret = user.map(|user| user.name.as_str());
            needs = needs.secret(field, secret, &["username", "password"]);
        }
        needs
    }

    fn plan(context: &Context<'_, Nova>) -> Result<Plan, Invalid> {
        let NovaSpec { origin, template } = &context.object.spec;
        shared::check_extra_config(&template.common, &[CONFIGURATION, "uwsgi.ini"])?;
        let (mut plan, internal, public) = api::plan(context, origin, &template.exposure, API.number)?;
        let environment = databases(context, &mut plan)?;
        let registration = Registration {
            service_type: "compute",
            name: USERNAME,
            description: "OpenStack Compute",
            public: format!("{public}/v2.1"),
            internal: format!("{internal}/v2.1"),
        };
        let account = shared::register(context, &mut plan, &template.keystone, &registration)?;
        let cells = cell::cells(context, &mut plan)?;
        let metadata_secret = metadata_secret(context, &mut plan);
        plan.files = files(context, &account)?;
        plan.files.insert("install.sh".to_owned(), include_str!("nova/install.sh").to_owned());
        plan.tasks = tasks(context, &environment, &cells, &plan);
        let environment: Vec<_> = environment.into_iter().chain(logins(template, &account)).collect();
        let shared_secret =
            Variable::secret("OS_NEUTRON__METADATA_PROXY_SHARED_SECRET", &metadata_secret, METADATA_KEY);
        let metadata_environment = environment.iter().cloned().chain([shared_secret]).collect();
        plan.workloads = vec![
            api(context, environment.clone()),
            metadata(context, metadata_environment),
            worker(context, "nova-scheduler", template.scheduler.replicas, environment.clone()),
            worker(context, CONDUCTOR, template.conductor.replicas, environment.clone()),
            console(context, environment.clone()),
        ];
        let conductors = cells.iter().map(|cell| cell::conductor(context, cell, &environment));
        plan.workloads.extend(conductors);
        plan.routes.extend(console_route(template));
        let first =
            CellServer { name: "cell1".to_owned(), messaging_secret: shared::messaging_secret(context.name) };
        plan.provides = Provides {
            compute: Some(ComputeServer {
                url: registration.internal.clone(),
                metadata_host: shared::service_host(context, &name::part(context.name, "metadata")),
                metadata_port: METADATA.number,
                metadata_secret,
                identity_secret: account.secret,
                console_url: console_url(context),
                cells: [first].into_iter().chain(cells.iter().map(cell::server)).collect(),
            }),
            ..Provides::default()
        };
        Ok(plan)
    }
}

/// The databases that every cloud has, with one user, and the message bus.
fn databases(context: &Context<'_, Nova>, plan: &mut Plan) -> Result<Vec<Variable>, Invalid> {
    let NovaTemplate { database, messaging, .. } = &context.object.spec.template;
    let cell = shared::database(context, plan, &database.cell, "nova", "database")?;
    // The other two have the same user, since programs reach `cell0` by a pattern, with the login of `cell1`.
    let credentials = match &database.cell.secret_ref {
        Some(given) => given.name.clone(),
        None => shared::database_secret(context.name),
    };
    let login = NameReference { name: credentials.clone() };
    let settings = DatabaseSettings { secret_ref: Some(login), ..database.cell.clone() };
    let api_database = database.api_database.as_deref().unwrap_or("nova_api");
    let place = ("api-database", "api_database");
    let api = shared::one_database(context, plan, &settings, api_database, place)?;
    shared::claim_database(context, plan, &settings, cell0(database), &credentials)?;
    let bus = shared::messaging(context, plan, messaging, "nova")?;
    Ok(vec![cell, api, bus])
}

fn cell0(database: &NovaDatabase) -> &str {
    database.cell_database.as_deref().unwrap_or("nova_cell0")
}

fn metadata_secret(context: &Context<'_, Nova>, plan: &mut Plan) -> String {
    let secret = name::part(context.name, "metadata");
    let entries = BTreeMap::from([(METADATA_KEY.to_owned(), Entry::Password { length: 32 })]);
    plan.secrets.push(SecretPlan {
        name: secret.clone(),
        content: SecretContent::Entries(entries),
        retained: false,
    });
    secret
}

fn console_url(context: &Context<'_, Nova>) -> String {
    let template = &context.object.spec.template;
    let host = template.exposure.gateway_ref.as_ref().and(template.console.public_hostname.as_ref());
    if let Some(host) = host {
        let scheme = template.exposure.public_scheme.unwrap_or_default().name();
        format!("{scheme}://{host}/{SCREEN}")
    } else {
        let host = shared::service_host(context, &name::part(context.name, "novncproxy"));
        format!("http://{host}:{}/{SCREEN}", CONSOLE.number)
    }
}

fn console_route(template: &NovaTemplate) -> Option<Route> {
    Some(Route {
        hostname: template.console.public_hostname.clone()?,
        gateway: template.exposure.gateway_ref.clone()?,
        suffix: Some("novncproxy".into()),
        port: CONSOLE.number,
    })
}

/// Settings that all of Nova's programs read, those of nodes too.
pub(crate) fn common_options(document: Document, account: &Account<'_>, cache: &[String]) -> Document {
    let mut document = shared::messaging_options(document)
        .set("DEFAULT", "use_stderr", true)
        .set("DEFAULT", "state_path", "/var/lib/nova")
        .set("service_user", "send_service_user_token", true)
        .set("vnc", "enabled", true)
        .set("upgrade_levels", "compute", "auto");
    document = account.authtoken(document, cache);
    for peer in PEERS {
        document = account.client(document, peer);
    }
    document.set("cinder", "catalog_info", "block-storage::internalURL").set(
        "cinder",
        "os_region_name",
        &account.server.region,
    )
}

/// Passwords of Nova's own user, or names and passwords of others in its place.
fn logins(template: &NovaTemplate, account: &Account<'_>) -> Vec<Variable> {
    let mut variables = account.passwords(&PEERS);
    for (section, _, user) in template.service_auth.sections() {
        let Some(user) = user else { continue };
        let name = |part: &str| format!("OS_{}__{part}", section.to_uppercase());
        variables.retain(|variable| variable.name != name("PASSWORD"));
        variables.push(Variable::secret(name("USERNAME"), &user.name, "username"));
        variables.push(Variable::secret(name("PASSWORD"), &user.name, "password"));
    }
    variables
}

fn files(context: &Context<'_, Nova>, account: &Account<'_>) -> Result<BTreeMap<String, String>, Invalid> {
    let template = &context.object.spec.template;
    let cache = shared::cache_servers(context, &template.cache)?;
    let mut files = BTreeMap::new();
    let mut document = common_options(Document::new(), account, &cache)
        .set("scheduler", "workers", 1)
        .set("scheduler", "discover_hosts_in_cells_interval", 15)
        .set("conductor", "workers", 1)
        .set("vnc", "novncproxy_host", "0.0.0.0")
        .set("neutron", "service_metadata_proxy", true)
        .set("oslo_middleware", "enable_proxy_headers_parsing", true);
    for section in ["database", "api_database"] {
        document = shared::database_options(document, section);
    }
    document = shared::cache_options(document, &template.cache, &cache);
    let external = &template.scheduler.external_scheduler;
    if let Some(endpoint) = external.endpoint.as_ref().filter(|_| external.enabled) {
        document = document.set("filter_scheduler", "external_scheduler_api_url", endpoint);
    }
    document = api::policy(document, &mut files, &template.exposure);
    let document = document.merge(template.common.extra_config.get(CONFIGURATION));
    files.insert(CONFIGURATION.to_owned(), document.render());
    // A node that is slow to answer must not keep everybody else from being served.
    let settings = Uwsgi { processes: 2, ..Uwsgi::new("nova.wsgi.osapi_compute:application", &API) };
    files.insert("uwsgi.ini".to_owned(), api::uwsgi(&settings, &template.common));
    let settings = Uwsgi::new("nova.wsgi.metadata:application", &METADATA);
    files.insert("uwsgi-metadata.ini".to_owned(), api::uwsgi(&settings, &template.common));
    Ok(files)
}

fn container(
    context: &Context<'_, Nova>,
    name: &'static str,
    image: &'static str,
    command: Vec<String>,
    environment: Vec<Variable>,
) -> Container {
    let NovaSpec { origin, template } = &context.object.spec;
    let names = ImageNames { kolla: image, debian: "nova" };
    let mut mounts = vec![
        shared::file(CONFIGURATION, "/etc/nova/nova.conf"),
        shared::scratch("work", "/var/lib/nova"),
        shared::scratch("tmp", "/tmp"),
    ];
    mounts.extend(api::policy_mount(&template.exposure, "nova"));
    Container {
        name,
        image: shared::image(context, names, &template.common, origin),
        command,
        environment,
        mounts,
        resources: shared::resources(&template.common.resources, ("20m", "256Mi"), "1Gi"),
        ..Container::default()
    }
}

fn tasks(
    context: &Context<'_, Nova>,
    environment: &[Variable],
    cells: &[cell::Extra],
    plan: &Plan,
) -> Vec<Task> {
    let template = &context.object.spec.template;
    let secrets: Vec<String> = cells.iter().flat_map(cell::Extra::secrets).collect();
    let task = |name: &'static str, stage: TaskStage, command: Vec<String>| Task {
        name,
        stage,
        user: USER,
        container: container(context, "nova-manage", CONDUCTOR, command, environment.to_vec()),
        repeat_on: secrets.clone(),
    };
    let install = |name: &'static str, stage: TaskStage| {
        let mut task = task(name, stage, shared::script("/etc/openstack/install.sh"));
        task.container.mounts.push(shared::file("install.sh", "/etc/openstack/install.sh"));
        let hosts = plan.messaging.first().map_or(1, |bus| bus.server.hosts.len());
        task.container.environment.extend(cell::patterns(cell0(&template.database), hosts));
        task.container.environment.extend(cell::variables(cells));
        task
    };
    let manage = |words: [&str; 2]| shared::command(["nova-manage", words[0], words[1]]);
    vec![
        install("db-sync", TaskStage::Install),
        install("db-expand", TaskStage::Expand),
        task("upgrade-check", TaskStage::Migrate, shared::upgrade_check("nova")),
        task("db-contract", TaskStage::Contract, manage(["db", "online_data_migrations"])),
    ]
}

fn api(context: &Context<'_, Nova>, mut environment: Vec<Variable>) -> Workload {
    let template = &context.object.spec.template;
    environment.push(shared::process_name("nova-api"));
    let mut api = container(context, "api", "nova-api", shared::uwsgi_command("nova"), environment);
    api.mounts.push(shared::file("uwsgi.ini", "/etc/nova/uwsgi.ini"));
    api.resources = shared::resources(&template.common.resources, ("50m", "512Mi"), "2Gi");
    let api = api::serving(api, API, "/");
    api::workload(USER, template.api.replicas, &template.common, api)
}

fn metadata(context: &Context<'_, Nova>, mut environment: Vec<Variable>) -> Workload {
    let template = &context.object.spec.template;
    environment.push(shared::process_name("nova-metadata"));
    let mut metadata = container(context, "metadata", "nova-api", shared::uwsgi_command("nova"), environment);
    metadata.mounts.push(shared::file("uwsgi-metadata.ini", "/etc/nova/uwsgi.ini"));
    let metadata = api::serving(metadata, METADATA, "/");
    let workload = api::workload(USER, template.metadata.replicas, &template.common, metadata);
    named(workload, "metadata")
}

/// A workload beside the API, with an address of its own.
fn named(mut workload: Workload, name: &'static str) -> Workload {
    workload.component = name.into();
    workload.suffix = Some(name.into());
    for service in &mut workload.services {
        service.suffix = Some(name.into());
    }
    workload
}

fn worker(
    context: &Context<'_, Nova>,
    program: &'static str,
    replicas: i32,
    environment: Vec<Variable>,
) -> Workload {
    let component = program.trim_start_matches("nova-");
    let command = shared::command([program, "--config-file", "/etc/nova/nova.conf"]);
    let mut worker = container(context, component, program, command, environment);
    worker.probes = shared::speaking(shared::BUS_PORT, USER);
    let scheduling = &context.object.spec.template.common.scheduling;
    // Each is known by its name for ever: pods with new names would leave old ones behind in the list of services.
    let set = Controller::StatefulSet { claims: Vec::new(), volumes_deleted: false };
    let pod = Pod { grace_seconds: 90, ..Pod::new(USER, scheduling, vec![worker]) };
    Workload::part(component, set, replicas, pod)
}

fn console(context: &Context<'_, Nova>, environment: Vec<Variable>) -> Workload {
    let template = &context.object.spec.template;
    let command = shared::command([
        "nova-novncproxy",
        "--config-file",
        "/etc/nova/nova.conf",
        "--web",
        "/usr/share/novnc",
    ]);
    let proxy = container(context, "novncproxy", "nova-novncproxy", command, environment);
    let proxy = api::serving(proxy, CONSOLE, "/vnc_lite.html");
    named(api::workload(USER, template.console.replicas, &template.common, proxy), "novncproxy")
}
