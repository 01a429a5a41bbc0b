//! Nova: compute API, scheduler, conductors and cells. Compute nodes are a separate kind.

use openstack_operator_model::common::{Component, NameReference};
use openstack_operator_model::image::ImageNames;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::name;
use openstack_operator_model::need::Needs;
use openstack_operator_model::oslo::Document;
use openstack_operator_model::plan::{
    Controller, Entry, Plan, Port, SecretPlan, TaskInput, TaskStage, Variable, Workload,
};
use openstack_operator_model::release::{Families, Release, Releases, Runtime, Varying};
use openstack_operator_model::service::{Context, Invalid};
use openstack_operator_model::status::{ComputeServer, Provides, Stage};

use crate::cloud::{Part, Presence, Wave};
use crate::concern::DatabaseSettings;
use crate::program::{Amounts, Api, Program, Project, Settings, Worker, mount_script};
use crate::shared::api::{self, Uwsgi};
use crate::shared::{self, Account, DatabaseClaim, DatabaseTarget};

pub use spec::*;

mod cell;
mod spec;

pub const KIND: Kind = Kind::own("Nova", "novas");
const API: Port = Port::tcp("api", 8774);
const METADATA: Port = Port::tcp("metadata", 8775);
const CONSOLE: Port = Port::tcp("console", 6080);
const MODULE: Varying<&str> = Varying::same("nova.wsgi.osapi_compute:application");
const METADATA_MODULE: Varying<&str> = Varying::same("nova.wsgi.metadata:application");
/// Time for a worker to stop. The usual programs finish running requests for up to three minutes.
const GRACE_SECONDS: Varying<i64> =
    Varying { usual: 210, exceptions: &[(Releases::until(Release::Epoxy), Families::All, 90)] };
/// Releases whose programs use native threads unless configured otherwise.
const NATIVE_THREADS: Releases = Releases::since(Release::Gazpacho);
pub(crate) const USER: i64 = 42436;
pub(crate) const CONFIGURATION: &str = "nova.conf";
const PROJECT: Project = Project {
    name: "nova",
    user: USER,
    configuration: CONFIGURATION,
    manage: "nova-manage",
    image: image(CONDUCTOR),
    scratch: &[("work", "/var/lib/nova")],
    amounts: Amounts { cpu: "20m", memory: "256Mi", memory_limit: "1Gi" },
};
const API_AMOUNTS: Amounts = Amounts { cpu: "50m", memory: "512Mi", memory_limit: "2Gi" };
/// Program whose image also runs the tasks.
const CONDUCTOR: &str = "nova-conductor";
const INSTALL: &str = "install.sh";
/// Key of the secret that Nova shares with metadata agents.
pub(crate) const METADATA_KEY: &str = "secret";
/// Services that Nova calls, each with its own configuration section. The first is for service tokens.
pub(crate) const PEERS: [&str; 5] = ["service_user", "placement", "neutron", "glance", "cinder"];
/// Path of the noVNC page.
const CONSOLE_PAGE: &str = "vnc_lite.html";

const fn image(kolla: &'static str) -> ImageNames {
    ImageNames { kolla, debian: "nova" }
}

pub struct Service;

impl Part for Service {
    type Object = Nova;
    type Template = NovaTemplate;
    const KIND: Kind = KIND;
    const NAME: &'static str = "nova";
    const STAGE: Stage = Stage::CoreServices;
    const PRESENCE: Presence = Presence::ByDefault;
    const WAVE: Wave = Wave::Compute;

    fn template(object: &Nova) -> &NovaTemplate {
        &object.spec.template
    }

    fn needs(object: &Nova) -> Needs {
        let users = object.spec.template.service_auth.users();
        users.iter().fold(Needs::default(), |needs, user| {
            let secret = user.secret.map(|secret| secret.name.as_str());
            needs.secret(user.field, secret, &["username", "password"])
        })
    }

    fn plan(context: &Context<'_, Nova>) -> Result<Plan, Invalid> {
        let NovaSpec { origin, template } = &context.object.spec;
        let NovaTemplate { common, replicas, exposure, .. } = template;
        let settings = Settings { origin, common, replicas: *replicas, exposure };
        let mut nova = Program::new(context, &PROJECT, settings, &API, &[])?;
        add_databases(&mut nova)?;
        let bus = nova.messaging(&template.messaging)?;
        let cells = cell::cells(context, &mut nova.plan)?;
        let metadata_secret = name::part(context.name, "metadata");
        let shared_secret = [(METADATA_KEY, Entry::Password { length: 32 })];
        nova.plan.secrets.push(SecretPlan::with_entries(&metadata_secret, shared_secret));
        nova.plan.files.insert(INSTALL.to_owned(), include_str!("nova/install.sh").into());
        add_tasks(&mut nova, &cells, bus.hosts);
        let cache = shared::cache_servers(context, &template.cache.servers)?;
        let registration = nova.registration("compute", "OpenStack Compute", "/v2.1");
        let url = registration.internal.clone();
        let account = nova.register(&template.keystone, &[registration], &PEERS, &cache)?;
        replace_users(&mut nova.environment, &template.service_auth);
        configure(&mut nova, &account, &cache);
        add_api(&mut nova);
        add_metadata(&mut nova, &metadata_secret);
        let scheduler = add_worker(&mut nova, "nova-scheduler", &template.scheduler.component, bus.port);
        keep_eventlet(scheduler, context.runtime);
        add_worker(&mut nova, CONDUCTOR, &template.conductor, bus.port);
        let console_url = add_console(&mut nova);
        for cell in &cells {
            cell::add_conductor(&mut nova, cell);
        }
        let compute = ComputeServer {
            url,
            metadata_host: shared::service_host(context, &name::part(context.name, "metadata")),
            metadata_port: METADATA.number,
            metadata_secret,
            identity_secret: account.secret,
            identity_username: account.username,
            identity_method: account.method,
            console_url,
            cells: cell::servers(context, &bus, &cells),
        };
        nova.plan.provides = Provides { compute: Some(compute), ..Provides::default() };
        nova.finish()
    }
}

/// Adds the databases of the API, `cell0` and `cell1`, with one user.
fn add_databases(nova: &mut Program<'_, Nova>) -> Result<(), Invalid> {
    let NovaDatabase { cell, api_database, .. } = &nova.context.object.spec.template.database;
    let claim = DatabaseClaim::new(cell, "nova", "database");
    nova.database(&claim)?;
    // All three share one user, because programs reach `cell0` by a template URL with the login of `cell1`.
    let credentials = shared::database_credentials(nova.context, &claim);
    let secret_ref = Some(NameReference::new(&credentials));
    let settings = DatabaseSettings { secret_ref, ..cell.clone() };
    nova.database(&DatabaseClaim {
        settings: &settings,
        database: api_database.as_deref().unwrap_or("nova_api"),
        suffix: "api-database",
        section: "api_database",
        charset: claim.charset,
    })?;
    let database = cell0(&nova.context.object.spec.template.database);
    let target = DatabaseTarget { database, credentials: &credentials, charset: claim.charset };
    shared::claim_database(nova.context, &mut nova.plan, &settings, &target)?;
    Ok(())
}

fn cell0(database: &NovaDatabase) -> &str {
    database.cell_database.as_deref().unwrap_or("nova_cell0")
}

/// Options of all Nova programs, including nova-compute.
pub(crate) fn common_options(document: Document, account: &Account) -> Document {
    let mut document = document
        .set("DEFAULT", "state_path", "/var/lib/nova")
        .set("service_user", "send_service_user_token", true)
        .set("vnc", "enabled", true)
        .set("upgrade_levels", "compute", "auto");
    for peer in PEERS {
        document = account.client(document, peer);
    }
    document.set("cinder", "catalog_info", "block-storage::internalURL").set(
        "cinder",
        "os_region_name",
        &account.server.region,
    )
}

/// Replaces the credentials of the Nova user by those of other users.
fn replace_users(environment: &mut Vec<Variable>, service_auth: &ServiceAuth) {
    for ServiceUser { section, secret, .. } in service_auth.users() {
        let Some(secret) = secret else { continue };
        let prefix = format!("OS_{}__", section.to_uppercase());
        environment.retain(|variable| !variable.name.starts_with(&prefix));
        for key in ["username", "password"] {
            let name = format!("{prefix}{}", key.to_uppercase());
            environment.push(Variable::secret(name, &secret.name, key));
        }
    }
}

fn configure(nova: &mut Program<'_, Nova>, account: &Account, cache: &[String]) {
    let template = &nova.context.object.spec.template;
    nova.change(|document| common_options(document, account));
    nova.change(|document| shared::cache_options(document, &template.cache, cache));
    nova.set("scheduler", "workers", 1);
    nova.set("scheduler", "discover_hosts_in_cells_interval", 5);
    // The first discovery of hosts would otherwise wait for up to a minute.
    nova.set("DEFAULT", "periodic_fuzzy_delay", 0);
    nova.set("conductor", "workers", 1);
    nova.set("vnc", "novncproxy_host", "0.0.0.0");
    nova.set("neutron", "service_metadata_proxy", true);
    let external = &template.scheduler.external_scheduler;
    if let Some(endpoint) = external.endpoint.as_ref().filter(|_| external.enabled) {
        nova.set("filter_scheduler", "external_scheduler_api_url", endpoint);
    }
    for user in template.service_auth.users().iter().filter(|user| user.secret.is_some()) {
        // These users authenticate with a password, even if Nova does not.
        nova.set(user.section, "auth_type", "password");
    }
}

fn add_tasks(nova: &mut Program<'_, Nova>, cells: &[cell::Extra], bus_hosts: usize) {
    let secrets: Vec<TaskInput> =
        cells.iter().flat_map(cell::Extra::secrets).map(TaskInput::Secret).collect();
    let database = &nova.context.object.spec.template.database;
    for (name, stage) in [("db-sync", TaskStage::Install), ("db-expand", TaskStage::Expand)] {
        let task = nova.task(name, stage, shared::script(&shared::script_path(INSTALL)));
        mount_script(&mut task.container, INSTALL);
        task.container.environment.extend(cell::patterns(cell0(database), bus_hosts));
        task.container.environment.extend(cell::variables(cells));
    }
    nova.task("upgrade-check", TaskStage::Migrate, shared::upgrade_check("nova"));
    let migrate = shared::command(["nova-manage", "db", "online_data_migrations"]);
    nova.task("db-contract", TaskStage::Contract, migrate);
    for task in &mut nova.plan.tasks {
        task.repeat_on.clone_from(&secrets);
    }
}

fn add_api(nova: &mut Program<'_, Nova>) {
    let runtime = nova.context.runtime;
    let workload = nova.api(Api {
        component: "api",
        image: image("nova-api"),
        settings: &nova.context.object.spec.template.api,
        amounts: API_AMOUNTS,
        port: API,
        health: "/",
        // A slow compute node must not block all other requests.
        uwsgi: Uwsgi { processes: 2, ..Uwsgi::new(MODULE) },
    });
    add_environment(workload, [shared::process_name("nova-api")]);
    keep_eventlet(workload, runtime);
}

fn add_metadata(nova: &mut Program<'_, Nova>, secret: &str) {
    let runtime = nova.context.runtime;
    let workload = nova.api(Api {
        component: "metadata",
        image: image("nova-api"),
        settings: &nova.context.object.spec.template.metadata,
        amounts: PROJECT.amounts,
        port: METADATA,
        health: "/",
        uwsgi: Uwsgi::new(METADATA_MODULE),
    });
    let shared_secret = Variable::secret("OS_NEUTRON__METADATA_PROXY_SHARED_SECRET", secret, METADATA_KEY);
    add_environment(workload, [shared_secret, shared::process_name("nova-metadata")]);
    keep_eventlet(workload, runtime);
}

/// Keeps the threading model of the former release, because programs of both work together during an upgrade.
fn keep_eventlet(workload: &mut Workload, runtime: Runtime) {
    if NATIVE_THREADS.contains(runtime.release) {
        add_environment(workload, [Variable::text("OS_NOVA_DISABLE_EVENTLET_PATCHING", "false")]);
    }
}

fn add_environment<const N: usize>(workload: &mut Workload, variables: [Variable; N]) {
    if let Some(container) = workload.pod.containers.first_mut() {
        container.environment.extend(variables);
    }
}

fn add_worker<'a>(
    nova: &'a mut Program<'_, Nova>,
    program: &'static str,
    settings: &Component,
    bus_port: u16,
) -> &'a mut Workload {
    let runtime = nova.context.runtime;
    let workload = nova.worker(Worker {
        component: program.trim_start_matches("nova-"),
        image: image(program),
        settings,
        command: shared::command([program, "--config-file", "/etc/nova/nova.conf"]),
        // Stable pod names: new names would leave stale entries in the compute service list.
        controller: Controller::StatefulSet { claims: Vec::new(), volumes_deleted: false },
        probes: shared::connected_to(bus_port, USER),
    });
    workload.pod.grace_seconds = GRACE_SECONDS.of(runtime);
    workload
}

/// Adds the noVNC proxy and returns its public URL.
fn add_console(nova: &mut Program<'_, Nova>) -> String {
    let template = &nova.context.object.spec.template;
    let settings = &template.console.component;
    let command = shared::command([
        "nova-novncproxy",
        "--config-file",
        "/etc/nova/nova.conf",
        "--web",
        "/usr/share/novnc",
    ]);
    let image = image("nova-novncproxy");
    let proxy = nova.container("novncproxy", image, &settings.container, PROJECT.amounts, command);
    nova.serve("novncproxy", settings, api::serving(proxy, CONSOLE, "/vnc_lite.html"));
    let urls = nova.expose("novncproxy", &CONSOLE, template.console.public_hostname.as_ref());
    format!("{}/{CONSOLE_PAGE}", urls.public)
}
