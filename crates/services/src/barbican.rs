//! Barbican: key manager. It stores secrets in its database, encrypted with keys of the operator.

use openstack_operator_model::common::{Component, DeletionPolicy};
use openstack_operator_model::image::ImageNames;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::name;
use openstack_operator_model::plan::{Controller, Plan, Port, SecretPlan, TaskStage};
use openstack_operator_model::release::{Families, Release, Releases, Varying};
use openstack_operator_model::service::{Context, Invalid};
use openstack_operator_model::status::Stage;

use crate::cloud::{Part, Producers, Subscription};
use crate::keystone;
use crate::program::{Amounts, Api, Program, Project, Settings, Worker, mount_script};
use crate::shared::api::Uwsgi;
use crate::shared::keys::{self, RingClaim};
use crate::shared::{self, DatabaseClaim, MessageBus};

pub use spec::*;

mod spec;

pub const KIND: Kind = Kind::own("Barbican", "barbicans");
const API: Port = Port::tcp("api", 9311);
/// Packages of the oldest release do not contain the usual module.
const MODULE: Varying<&str> = Varying {
    usual: "barbican.wsgi.api:application",
    exceptions: &[(Releases::until(Release::Epoxy), Families::All, "barbican.api.app:get_api_wsgi_script()")],
};
const USER: i64 = 42403;
const PROJECT: Project = Project {
    name: "barbican",
    user: USER,
    // `barbican-manage` reads no other file.
    configuration: "barbican.conf",
    manage: "barbican-manage",
    image: image("barbican-api"),
    scratch: &[],
    amounts: Amounts { cpu: "20m", memory: "192Mi", memory_limit: "512Mi" },
};
/// Topic of Keystone's notifications for the listener.
const TOPIC: &str = "barbican_notifications";
const REWRAP: &str = "rewrap.sh";

const fn image(kolla: &'static str) -> ImageNames {
    ImageNames { kolla, debian: "barbican" }
}

pub struct Service;

impl Part for Service {
    type Object = Barbican;
    type Template = BarbicanTemplate;
    const KIND: Kind = KIND;
    const NAME: &'static str = "barbican";
    const STAGE: Stage = Stage::ExtendedServices;
    const SUBSCRIPTIONS: &'static [Subscription] =
        &[Subscription { topic: TOPIC, producers: Producers::Of(&[keystone::KIND]) }];

    fn template(object: &Barbican) -> &BarbicanTemplate {
        &object.spec.template
    }

    fn plan(context: &Context<'_, Barbican>) -> Result<Plan, Invalid> {
        let BarbicanSpec { origin, template } = &context.object.spec;
        let BarbicanTemplate { common, replicas, exposure, .. } = template;
        let settings = Settings { origin, common, replicas: *replicas, exposure };
        let mut barbican = Program::new(context, &PROJECT, settings, &API, &[])?;
        barbican.database(&DatabaseClaim::new(&template.database, "barbican", "database"))?;
        let bus = barbican.messaging(&template.messaging)?;
        let cache = shared::cache_servers(context, &template.cache)?;
        let registration = barbican.registration("key-manager", "OpenStack Key Manager", "");
        barbican.register(&template.keystone, &[registration], &[], &cache)?;
        let keys = key_encryption_keys(context)?;
        barbican.secret_options.set_keys("simple_crypto_plugin", "kek", &keys.name);
        configure(&mut barbican);
        add_tasks(&mut barbican, &keys.name);
        barbican.plan.secrets.push(keys);
        add_api(&mut barbican);
        add_worker(&mut barbican, &bus);
        add_keystone_listener(&mut barbican, &bus);
        add_retry_scheduler(&mut barbican);
        barbican.finish()
    }
}

/// Keys that encrypt the keys of projects, with which the secrets are encrypted.
fn key_encryption_keys(context: &Context<'_, Barbican>) -> Result<SecretPlan, Invalid> {
    let BarbicanTemplate { key_encryption_keys, database, .. } = &context.object.spec.template;
    let content = keys::ring(
        context,
        RingClaim {
            field: "keyEncryptionKeys",
            condition: "KeyEncryptionKeysReady",
            schedule: &key_encryption_keys.rotation_schedule,
            max_active_keys: key_encryption_keys.max_active_keys,
            // A backup that was made before the last rotation can be restored for this time.
            lifetime_seconds: 86400,
        },
    )?;
    Ok(SecretPlan {
        name: name::part(context.name, "kek"),
        content,
        // Secrets in a retained database can only be decrypted with these keys.
        retained: database.deletion_policy == DeletionPolicy::Retain,
        irreplaceable: true,
    })
}

fn configure(barbican: &mut Program<'_, Barbican>) {
    // References to secrets begin with it. They are stored in other services, so they must not depend on the client.
    let public_url = barbican.public_url.clone();
    barbican.set("DEFAULT", "host_href", public_url);
    barbican.set("DEFAULT", "db_auto_create", false);
    barbican.set("secretstore", "enabled_secretstore_plugins", "store_crypto");
    barbican.set("crypto", "enabled_crypto_plugins", "simple_crypto");
    // Otherwise only roles of Barbican itself may store secrets, and not the members of a project.
    barbican.set("oslo_policy", "enforce_new_defaults", true);
    barbican.set("oslo_policy", "enforce_scope", true);
    barbican.set("queue", "enable", true);
    barbican.set("keystone_notifications", "enable", true);
    barbican.set("keystone_notifications", "topic", TOPIC);
    // The deletion of a project must not be missed while the database is down.
    barbican.set("keystone_notifications", "allow_requeue", true);
}

fn add_tasks(barbican: &mut Program<'_, Barbican>, ring: &str) {
    // There are no separate migrations to expand and contract the database.
    let upgrade = || shared::command(["barbican-manage", "db", "upgrade"]);
    barbican.task("db-sync", TaskStage::Install, upgrade());
    barbican.task("db-expand", TaskStage::Expand, upgrade());
    barbican.task("upgrade-check", TaskStage::Migrate, shared::upgrade_check("barbican"));
    barbican.plan.files.insert(REWRAP.to_owned(), include_str!("barbican/rewrap.sh").into());
    let rotated = TaskStage::Rotate { ring: ring.to_owned() };
    let rewrap = barbican.task("rewrap", rotated, shared::script(&shared::script_path(REWRAP)));
    mount_script(&mut rewrap.container, REWRAP);
}

fn add_api(barbican: &mut Program<'_, Barbican>) {
    let workload = barbican.api(Api {
        component: "api",
        image: PROJECT.image,
        settings: &barbican.context.object.spec.template.api,
        amounts: PROJECT.amounts,
        port: API,
        health: "/healthcheck",
        uwsgi: Uwsgi::new(MODULE),
    });
    if let Some(container) = workload.pod.containers.first_mut() {
        container.environment.push(shared::process_name("barbican-api"));
    }
}

fn add_worker(barbican: &mut Program<'_, Barbican>, bus: &MessageBus) {
    barbican.worker(Worker {
        component: "worker",
        image: image("barbican-worker"),
        settings: &barbican.context.object.spec.template.worker,
        command: shared::command(["barbican-worker"]),
        controller: Controller::Deployment,
        probes: shared::connected_to(bus.port, USER),
    });
}

/// Adds the listener, which removes the secrets of deleted projects, if Keystone sends notifications.
fn add_keystone_listener(barbican: &mut Program<'_, Barbican>, bus: &MessageBus) {
    const FIELD: &str = "spec.keystone.clusterRef.name";
    let template = &barbican.context.object.spec.template;
    // An existing Keystone sends notifications to a message bus that the operator does not know.
    let Some(producer) = &template.keystone.cluster_ref else { return };
    let keystone = (keystone::KIND, producer);
    let Ok((url, port)) = shared::notifications(barbican.context, keystone, FIELD, &bus.variable.name) else {
        // A cloud enables the notifications of its Keystone.
        barbican.plan.remarks.push(format!(
            "secrets of deleted projects stay, because Keystone {} sends no notifications: add {TOPIC} to its \
             spec.notifications.topics",
            producer.name
        ));
        return;
    };
    let workload = barbican.worker(Worker {
        component: "keystone-listener",
        image: image("barbican-keystone-listener"),
        settings: &template.keystone_listener,
        command: shared::command(["barbican-keystone-listener"]),
        controller: Controller::Deployment,
        probes: shared::connected_to(port, USER),
    });
    if let Some(container) = workload.pod.containers.first_mut() {
        // It has no option for another message bus than that of the service.
        container.environment.retain(|variable| variable.name != url.name);
        container.environment.push(url);
    }
}

fn add_retry_scheduler(barbican: &mut Program<'_, Barbican>) {
    let template = &barbican.context.object.spec.template;
    // It connects to the message bus only to queue a task, but reads the database all the time.
    let port = shared::database_port(barbican.context, &template.database);
    barbican.worker(Worker {
        component: "retry-scheduler",
        image: image("barbican-worker"),
        // Two of them would queue each task twice.
        settings: &Component { replicas: Some(1), container: template.retry_scheduler.clone() },
        command: shared::command(["barbican-retry"]),
        controller: Controller::Recreate,
        probes: shared::connected_to(port, USER),
    });
}
