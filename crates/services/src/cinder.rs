//! Cinder: volumes of instances. Each backend has its own volume service, with a host name that does not depend on its pod.

use openstack_operator_model::image::ImageNames;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::need::Needs;
use openstack_operator_model::plan::{
    Controller, Cron, Mount, Plan, Port, TaskStage, Variable, VolumeTypes, Workload,
};
use openstack_operator_model::release::Varying;
use openstack_operator_model::service::{Context, Invalid};
use openstack_operator_model::status::Stage;

use crate::cloud::{Cloud, Part, Wave};
use crate::control_plane::StorageBackend;
use crate::program::{Amounts, Api, Program, Project, Settings, Worker, mount_script};
use crate::shared::api::Uwsgi;
use crate::shared::{self, Account, DatabaseClaim, MessageBus};

pub use spec::*;

mod backend;
mod backup;
mod spec;
mod volume_type;

pub const KIND: Kind = Kind::own("Cinder", "cinders");
const API: Port = Port::tcp("api", 8776);
const MODULE: Varying<&str> = Varying::same("cinder.wsgi.api:application");
const USER: i64 = 42407;
const CONFIGURATION: &str = "cinder.conf";
const STATE: &str = "/var/lib/cinder";
/// Name of the volume of the state directory.
const WORK: &str = "work";
const PROJECT: Project = Project {
    name: "cinder",
    user: USER,
    configuration: CONFIGURATION,
    manage: "cinder-manage",
    image: image("cinder-api"),
    scratch: &[(WORK, STATE)],
    amounts: Amounts { cpu: "20m", memory: "256Mi", memory_limit: "1Gi" },
};
const API_AMOUNTS: Amounts = Amounts { cpu: "50m", memory: "384Mi", memory_limit: "1Gi" };
/// Volume and backup services have two processes, and convert images or compress backups.
const STORAGE_AMOUNTS: Amounts = Amounts { cpu: "20m", memory: "384Mi", memory_limit: "2Gi" };
const SCHEDULER: &str = "scheduler";
const VOLUME: &str = "volume";
const BACKUP: &str = "backup";
const RECORDS: &str = "records.sh";
const START: &str = "start.sh";
/// Options of services without privileges.
const PRIVSEP: &str = "privsep.conf";
/// Sections of users for other services.
const PEERS: [&str; 2] = ["service_user", "nova"];
/// Time between the end of a service by its own timeout and its end by the kubelet.
const RESERVE_SECONDS: i64 = 30;

const fn image(kolla: &'static str) -> ImageNames {
    ImageNames { kolla, debian: "cinder" }
}

pub struct Service;

impl Part for Service {
    type Object = Cinder;
    type Template = CinderTemplate;
    const KIND: Kind = KIND;
    const NAME: &'static str = "cinder";
    const STAGE: Stage = Stage::CoreServices;
    const WAVE: Wave = Wave::Resources;

    fn template(object: &Cinder) -> &CinderTemplate {
        &object.spec.template
    }

    fn settle(template: &mut CinderTemplate, cloud: &Cloud<'_>) {
        if template.backends.is_empty() && cloud.spec.storage_backend == Some(StorageBackend::Ceph) {
            template.backends.push(Backend { name: "ceph".to_owned(), ..Backend::default() });
        }
    }

    fn needs(object: &Cinder) -> Needs {
        let template = &object.spec.template;
        let needs = template.backends.iter().map(backend::needs).fold(Needs::default(), Needs::and);
        needs.and(template.backup.as_ref().map(backup::needs).unwrap_or_default())
    }

    fn plan(context: &Context<'_, Cinder>) -> Result<Plan, Invalid> {
        let CinderSpec { origin, template } = &context.object.spec;
        let CinderTemplate { common, replicas, exposure, .. } = template;
        let settings = Settings { origin, common, replicas: *replicas, exposure };
        let mut cinder = Program::new(context, &PROJECT, settings, &API, &[])?;
        cinder.database(&DatabaseClaim::new(&template.database, "cinder", "database"))?;
        let bus = cinder.messaging(&template.messaging)?;
        add_tasks(&mut cinder)?;
        if !template.notifications.all_topics().is_empty() {
            cinder.notify(&template.notifications, &bus);
        }
        let account = register(&mut cinder)?;
        configure(&mut cinder, &account);
        cinder.coordination(&template.key_value)?;
        add_volume_types(&mut cinder, &account)?;
        add_api(&mut cinder);
        add_scheduler(&mut cinder, &bus);
        add_storage(&mut cinder, &bus)?;
        cinder.finish()
    }
}

fn register(cinder: &mut Program<'_, Cinder>) -> Result<Account, Invalid> {
    let template = &cinder.context.object.spec.template;
    let cache = shared::cache_servers(cinder.context, &template.cache)?;
    let registrations = [
        cinder.registration("block-storage", "OpenStack Block Storage", "/v3"),
        // Clients that do not know the type above.
        cinder.registration("volumev3", "OpenStack Block Storage", "/v3/%(project_id)s"),
    ];
    cinder.register(&template.keystone, &registrations, &PEERS, &cache)
}

fn configure(cinder: &mut Program<'_, Cinder>, account: &Account) {
    let template = &cinder.context.object.spec.template;
    let public_url = cinder.public_url.clone();
    cinder.set("DEFAULT", "state_path", STATE);
    // Links to further pages of lists begin with it.
    cinder.set("DEFAULT", "public_endpoint", public_url);
    cinder.set("DEFAULT", "os_region_name", &account.server.region);
    for peer in PEERS {
        cinder.change(|document| account.session(document, peer));
    }
    cinder.set("service_user", "send_service_user_token", true);
    cinder.set("nova", "interface", "internal");
    if template.glance.cluster_ref.is_some() {
        cinder.set("DEFAULT", "glance_catalog_info", "image:glance:internalURL");
    }
    if template.barbican.cluster_ref.is_some() {
        cinder.change(|document| account.key_manager(document));
    }
    if let Some(name) = volume_type::default_type(template) {
        cinder.set("DEFAULT", "default_volume_type", name);
    }
}

fn add_tasks(cinder: &mut Program<'_, Cinder>) -> Result<(), Invalid> {
    let Purge { schedule, age_days } = &cinder.context.object.spec.template.purge;
    let sync = || shared::command(["cinder-manage", "db", "sync"]);
    cinder.task("db-sync", TaskStage::Install, sync());
    cinder.task("db-expand", TaskStage::Expand, sync());
    cinder.task("upgrade-check", TaskStage::Migrate, shared::upgrade_check("cinder"));
    let migrate = shared::command(["cinder-manage", "db", "online_data_migrations"]);
    cinder.task("db-contract", TaskStage::Contract, migrate);
    cinder.plan.files.insert(RECORDS.to_owned(), include_str!("cinder/records.sh").into());
    let removed = TaskStage::ScaleDown { components: &[SCHEDULER, VOLUME, BACKUP] };
    let remove = cinder.task("service-records", removed, shared::script(&shared::script_path(RECORDS)));
    mount_script(&mut remove.container, RECORDS);
    let cron = Cron::new(schedule).map_err(|reason| Invalid::new("spec.purge.schedule", reason))?;
    let age = age_days.to_string();
    cinder.schedule("purge", cron, shared::command(["cinder-manage", "db", "purge", &age]));
    Ok(())
}

/// Adds the volume types. The operator maintains them through the API, as it does catalog entries: it restores them after
/// changes by others, and reports why it cannot change one, which a Job could not.
fn add_volume_types(cinder: &mut Program<'_, Cinder>, account: &Account) -> Result<(), Invalid> {
    let types = volume_type::types(&cinder.context.object.spec.template)?;
    if account.server.secret.is_none() {
        let names: Vec<&str> = types.iter().map(|one| one.name.as_str()).collect();
        cinder.plan.remarks.extend((!names.is_empty()).then(|| {
            let names = names.join(", ");
            format!("create the volume types {names}, or set spec.keystone.adminSecretRef, with which the operator does")
        }));
        return Ok(());
    }
    let url = format!("{}/v3", cinder.internal_url);
    cinder.plan.volume_types = Some(VolumeTypes { url, identity: account.server.clone(), types });
    Ok(())
}

fn add_api(cinder: &mut Program<'_, Cinder>) {
    let workload = cinder.api(Api {
        component: "api",
        image: PROJECT.image,
        settings: &cinder.context.object.spec.template.api,
        amounts: API_AMOUNTS,
        port: API,
        health: "/healthcheck",
        // A slow volume service must not block all other requests.
        uwsgi: Uwsgi { processes: 2, ..Uwsgi::new(MODULE) },
    });
    if let Some(container) = workload.pod.containers.first_mut() {
        container.environment.push(shared::process_name("cinder-api"));
    }
}

/// Stable pod names: new names would leave stale entries in the list of services.
fn named_pods() -> Controller {
    Controller::StatefulSet { claims: Vec::new(), volumes_deleted: false }
}

fn add_scheduler(cinder: &mut Program<'_, Cinder>, bus: &MessageBus) {
    cinder.worker(Worker {
        component: SCHEDULER,
        image: image("cinder-scheduler"),
        settings: &cinder.context.object.spec.template.scheduler,
        command: shared::command(["cinder-scheduler", "--config-file", "/etc/cinder/cinder.conf"]),
        controller: named_pods(),
        probes: shared::connected_to(bus.port, USER),
    });
}

/// Adds the volume services of all backends, and the backup service.
fn add_storage(cinder: &mut Program<'_, Cinder>, bus: &MessageBus) -> Result<(), Invalid> {
    let template = &cinder.context.object.spec.template;
    if template.backends.is_empty() {
        cinder.plan.remarks.push("no volume can be created: add a backend to spec.backends".to_owned());
    }
    cinder.plan.files.insert(START.to_owned(), include_str!("cinder/start.sh").into());
    cinder.plan.files.insert(PRIVSEP.to_owned(), include_str!("cinder/privsep.conf").into());
    let clients = backend::clients(cinder.context)?;
    for backend in &template.backends {
        backend::add(cinder, backend, &clients, bus)?;
    }
    template.backup.as_ref().map_or(Ok(()), |backup| backup::add(cinder, backup, &clients, bus))
}

/// Command that starts a program without root. Some commands of these programs use sudo, which the script replaces. Only the
/// parent process gets the signal to stop: it sends it to its child, and a child that gets it twice ends at once.
fn start(program: &str) -> Vec<String> {
    let script = shared::script_path(START);
    let configuration = "/etc/cinder/cinder.conf";
    shared::command([
        "dumb-init",
        "--single-child",
        "--",
        "bash",
        &script,
        program,
        "--config-file",
        configuration,
    ])
}

/// Path of an additional configuration file.
fn additional(file: &str) -> String {
    format!("/etc/cinder/{CONFIGURATION}.d/{file}")
}

/// Completes a service that runs commands as its own user: its script, and time for its operations.
fn complete(workload: &mut Workload, shutdown_seconds: u32) {
    workload.pod.grace_seconds = i64::from(shutdown_seconds) + RESERVE_SECONDS;
    if let Some(container) = workload.pod.containers.first_mut() {
        mount_script(container, START);
        let timeout = Variable::text("OS_DEFAULT__GRACEFUL_SHUTDOWN_TIMEOUT", shutdown_seconds.to_string());
        container.environment.push(timeout);
    }
}

/// Options for a service without privileges.
fn without_privileges() -> Mount {
    shared::file(PRIVSEP, &additional(PRIVSEP))
}
