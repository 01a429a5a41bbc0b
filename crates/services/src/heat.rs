//! Heat: stacks of resources from templates. Engines share the work by the message bus and the database.

use openstack_operator_model::common::DeletionPolicy;
use openstack_operator_model::image::ImageNames;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::name;
use openstack_operator_model::plan::{
    Controller, Cron, Entry, Plan, Port, SecretPlan, TaskStage, Variable, Workload,
};
use openstack_operator_model::release::{Release, Releases, Varying};
use openstack_operator_model::service::{Context, Invalid};
use openstack_operator_model::status::{LoginMethod, Stage};

use crate::cloud::Part;
use crate::program::{Amounts, Api, Program, Project, Settings, Urls, Worker, mount_script};
use crate::shared::api::Uwsgi;
use crate::shared::{self, Account, DatabaseClaim, DomainClaim};

pub use spec::*;

mod spec;

pub const KIND: Kind = Kind::own("Heat", "heats");
const API: Port = Port::tcp("api", 8004);
const CFN: Port = Port::tcp("cfn", 8000);
const MODULE: Varying<&str> = Varying::same("heat.wsgi.api:application");
const CFN_MODULE: Varying<&str> = Varying::same("heat.wsgi.cfn:application");
const HEALTH: &str = "/healthcheck";
const PROJECT: Project = Project {
    name: "heat",
    user: 42418,
    configuration: "heat.conf",
    manage: "heat-manage",
    image: image("heat-engine"),
    scratch: &[("work", "/var/lib/heat")],
    amounts: Amounts { cpu: "20m", memory: "256Mi", memory_limit: "1Gi" },
};
const API_AMOUNTS: Amounts = Amounts { cpu: "20m", memory: "192Mi", memory_limit: "512Mi" };
/// Component of the CFN API.
const CFN_COMPONENT: &str = "cfn";
const ENGINE: &str = "engine";
const CLEAN: &str = "clean.sh";
/// Domain of the users and projects that stacks create, and its administrator.
const DOMAIN: &str = "heat";
const DOMAIN_ADMINISTRATOR: &str = "heat_domain_admin";
/// Roles of users who own stacks, and of users that stacks create.
const ROLES: [&str; 2] = ["heat_stack_owner", "heat_stack_user"];
/// Key of the Secret that encrypts data in the database.
const ENCRYPTION_KEY: &str = "auth_encryption_key";
/// Section of the user whom the owners of stacks trust.
const TRUSTEE: &str = "trustee";
/// Section of the client that checks signatures of instances.
const SIGNATURES: &str = "ec2authtoken";
/// Releases whose packages may check signatures without a login.
const CHECKS_WITHOUT_LOGIN: Releases = Releases::until(Release::Epoxy);
/// Time between the end of an engine by its own timeout and its end by the kubelet.
const RESERVE_SECONDS: i64 = 30;

const fn image(kolla: &'static str) -> ImageNames {
    ImageNames { kolla, debian: "heat" }
}

pub struct Service;

impl Part for Service {
    type Object = Heat;
    type Template = HeatTemplate;
    const KIND: Kind = KIND;
    const NAME: &'static str = "heat";
    const STAGE: Stage = Stage::ExtendedServices;

    fn template(object: &Heat) -> &HeatTemplate {
        &object.spec.template
    }

    fn plan(context: &Context<'_, Heat>) -> Result<Plan, Invalid> {
        let HeatSpec { origin, template } = &context.object.spec;
        let HeatTemplate { common, replicas, exposure, .. } = template;
        let settings = Settings { origin, common, replicas: *replicas, exposure };
        let mut heat = Program::new(context, &PROJECT, settings, &API, &[])?;
        heat.database(&DatabaseClaim::new(&template.database, "heat", "database"))?;
        let bus = heat.messaging(&template.messaging)?;
        add_database_tasks(&mut heat);
        add_purge(&mut heat)?;
        let cache = shared::cache_servers(context, &template.cache.servers)?;
        let cfn = heat.expose(CFN_COMPONENT, &CFN, template.cfn.public_hostname.as_ref());
        let account = register(&mut heat, &cfn, &cache)?;
        heat.change(|document| shared::cache_options(document, &template.cache, &cache));
        configure(&mut heat, &account, &cfn);
        add_apis(&mut heat);
        // The APIs are exposed to users, and work without what follows.
        add_trustee(&mut heat, &account);
        add_encryption_key(&mut heat);
        add_engine(&mut heat, bus.port);
        heat.finish()
    }
}

/// Adds the key of passwords, trusts and hidden parameters in the database.
fn add_encryption_key(heat: &mut Program<'_, Heat>) {
    let template = &heat.context.object.spec.template;
    let secret = name::part(heat.context.name, "encryption");
    let entries = [(ENCRYPTION_KEY, Entry::Password { length: 32 })];
    heat.plan.secrets.push(SecretPlan {
        // Data in a retained database can only be decrypted with this key.
        retained: template.database.deletion_policy == DeletionPolicy::Retain,
        irreplaceable: true,
        ..SecretPlan::with_entries(&secret, entries)
    });
    heat.environment.push(Variable::secret("OS_DEFAULT__AUTH_ENCRYPTION_KEY", secret, ENCRYPTION_KEY));
}

fn register(heat: &mut Program<'_, Heat>, cfn: &Urls, cache: &[String]) -> Result<Account, Invalid> {
    let template = &heat.context.object.spec.template;
    let registrations = [
        heat.registration("orchestration", "OpenStack Orchestration", "/v1/%(project_id)s"),
        cfn.registration("heat-cfn", "cloudformation", "OpenStack CloudFormation", "/v1"),
    ];
    let account = heat.register(&template.keystone, &registrations, &[SIGNATURES], cache)?;
    if account.method == LoginMethod::ApplicationCredential {
        return Err(Invalid::new(
            "spec.keystone.appCredentialRef",
            "cannot be used, because a login with an application credential cannot use the trusts of users: use secretRef",
        ));
    }
    heat.roles(&account, &ROLES);
    Ok(account)
}

/// Adds the logins of the user whom the owners of stacks trust, and of the administrator of the domain of stacks.
fn add_trustee(heat: &mut Program<'_, Heat>, account: &Account) {
    let mut variables = account.credentials(&[TRUSTEE]);
    variables.retain(|variable| !heat.environment.contains(variable));
    heat.environment.extend(variables);
    let claim = DomainClaim {
        name: DOMAIN,
        administrator: DOMAIN_ADMINISTRATOR,
        suffix: "domain",
        deletion_policy: heat.context.object.spec.template.database.deletion_policy,
    };
    heat.domain(account, &claim, ("DEFAULT", "stack_domain_admin_password"));
}

fn configure(heat: &mut Program<'_, Heat>, account: &Account, cfn: &Urls) {
    let template = &heat.context.object.spec.template;
    let release = heat.context.runtime.release;
    let identity = &account.server.internal_url;
    heat.change(|document| account.trustee(document, TRUSTEE));
    heat.change(|document| account.client(document, SIGNATURES));
    // The client appends the version, which the catalog entry of the identity service has already.
    heat.set(SIGNATURES, "endpoint_override", identity.trim_end_matches("/v3"));
    if CHECKS_WITHOUT_LOGIN.contains(release) {
        heat.set(SIGNATURES, "auth_uri", identity);
    }
    heat.set("DEFAULT", "stack_user_domain_name", DOMAIN);
    heat.set("DEFAULT", "stack_domain_admin", DOMAIN_ADMINISTRATOR);
    heat.set("DEFAULT", "region_name_for_services", &account.server.region);
    // Engines scale by pods.
    heat.set("DEFAULT", "num_engine_workers", 1);
    heat.set("DEFAULT", "graceful_shutdown_timeout", template.engine.shutdown_seconds);
    if let Some(most) = template.max_resources_per_stack {
        heat.set("DEFAULT", "max_resources_per_stack", most);
    }
    // Services call each other through internal endpoints. Instances know only public ones, and get those of Heat and
    // Keystone from it.
    heat.set("clients", "endpoint_type", "internalURL");
    heat.set("clients_keystone", "auth_uri", identity);
    heat.set("clients_heat", "endpoint_type", "publicURL");
    heat.set("DEFAULT", "server_keystone_endpoint_type", "public");
    heat.set("DEFAULT", "heat_metadata_server_url", &cfn.public);
    heat.set("DEFAULT", "heat_waitcondition_server_url", format!("{}/v1/waitcondition", cfn.public));
}

fn add_database_tasks(heat: &mut Program<'_, Heat>) {
    let sync = || shared::command(["heat-manage", "db_sync"]);
    heat.task("db-sync", TaskStage::Install, sync());
    heat.task("db-expand", TaskStage::Expand, sync());
    heat.task("upgrade-check", TaskStage::Migrate, shared::upgrade_check("heat"));
    // An engine that was killed leaves its record.
    heat.plan.files.insert(CLEAN.to_owned(), include_str!("heat/clean.sh").into());
    let removed = TaskStage::ScaleDown { component: ENGINE };
    let clean = heat.task("service-clean", removed, shared::script(&shared::script_path(CLEAN)));
    mount_script(&mut clean.container, CLEAN);
}

/// Adds the schedule that removes records of deleted stacks.
fn add_purge(heat: &mut Program<'_, Heat>) -> Result<(), Invalid> {
    let Purge { schedule, age_days } = &heat.context.object.spec.template.purge;
    let cron = Cron::new(schedule).map_err(|reason| Invalid::new("spec.purge.schedule", reason))?;
    let age = age_days.to_string();
    heat.schedule("purge", cron, shared::command(["heat-manage", "purge_deleted", "-g", "days", &age]));
    Ok(())
}

fn add_apis(heat: &mut Program<'_, Heat>) {
    let template = &heat.context.object.spec.template;
    let api = heat.api(Api {
        component: "api",
        image: image("heat-api"),
        settings: &template.api,
        amounts: API_AMOUNTS,
        port: API,
        health: HEALTH,
        // A request that waits for an engine must not block all others.
        uwsgi: Uwsgi { processes: 2, ..Uwsgi::new(MODULE) },
    });
    name_process(api, "heat-api");
    let cfn = heat.api(Api {
        component: CFN_COMPONENT,
        image: image("heat-api-cfn"),
        settings: &template.cfn.component,
        amounts: API_AMOUNTS,
        port: CFN,
        health: HEALTH,
        uwsgi: Uwsgi::new(CFN_MODULE),
    });
    name_process(cfn, "heat-api-cfn");
}

fn name_process(workload: &mut Workload, name: &str) {
    if let Some(container) = workload.pod.containers.first_mut() {
        container.environment.push(shared::process_name(name));
    }
}

fn add_engine(heat: &mut Program<'_, Heat>, bus_port: u16) {
    let settings = &heat.context.object.spec.template.engine;
    let engine = heat.worker(Worker {
        component: ENGINE,
        image: PROJECT.image,
        settings: &settings.component,
        command: shared::command(["heat-engine", "--config-file", "/etc/heat/heat.conf"]),
        // Stable pod names: an engine removes the records that its predecessor of the same name left.
        controller: Controller::StatefulSet { claims: Vec::new(), volumes_deleted: false },
        probes: shared::connected_to(bus_port, PROJECT.user),
    });
    // No other engine continues the resources that one leaves behind: their stacks would stay in progress.
    engine.pod.grace_seconds = i64::from(settings.shutdown_seconds) + RESERVE_SECONDS;
}
