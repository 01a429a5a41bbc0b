//! Glance: images that servers start from.

use std::collections::BTreeMap;

use openstack_operator_model::common::DeletionPolicy;
use openstack_operator_model::image::ImageNames;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::need::Needs;
use openstack_operator_model::oslo::Document;
use openstack_operator_model::plan::{
    Change, Check, Container, Controller, Mount, Plan, Port, Probes, Task, TaskStage, Variable, Volume,
    Workload,
};
use openstack_operator_model::quantity;
use openstack_operator_model::service::{self, Context, Invalid};

use crate::shared::api::{self, Uwsgi};
use crate::shared::{self, Account, Registration};

pub use spec::*;

mod spec;

pub const KIND: Kind = Kind::own("Glance", "glances");
const API: Port = Port { name: "api", number: 9292 };
const USER: i64 = 42415;
const CONFIGURATION: &str = "glance-api.conf";
/// Section of the one store that there is.
const STORE: &str = "store";
const IMAGES: &str = "images";
const CACHE: &str = "/var/lib/glance/image-cache";

pub struct Service;

impl service::Service for Service {
    type Object = Glance;
    const KIND: Kind = KIND;
    const NAME: &'static str = "glance";

    fn needs(object: &Glance) -> Needs {
        let GlanceTemplate { api, storage, .. } = &object.spec.template;
        let mut needs = shared::api_needs(api);
        match storage.backend {
            StoreBackend::Rbd => {
                let secret = storage.rbd.as_ref().map(|rbd| rbd.ceph_secret_ref.name.as_str());
                needs = needs.secret("spec.storage.rbd.cephSecretRef", secret, &["ceph.conf"]);
            }
            StoreBackend::S3 => {
                let secret = storage.s3.as_ref().map(|s3| s3.secret_ref.name.as_str());
                needs = needs.secret("spec.storage.s3.secretRef", secret, &["accessKey", "secretKey"]);
            }
            StoreBackend::Pvc | StoreBackend::Swift => {}
        }
        needs
    }

    fn plan(context: &Context<'_, Glance>) -> Result<Plan, Invalid> {
        let GlanceSpec { origin, template } = &context.object.spec;
        let common = &template.api.common;
        shared::check_extra_config(common, &[CONFIGURATION, "uwsgi.ini"])?;
        let (mut plan, internal, public) = api::plan(context, origin, &template.api.exposure, API.number)?;
        let database = shared::database(context, &mut plan, &template.api.database, "glance", "database")?;
        let registration = Registration {
            service_type: "image",
            name: "glance",
            description: "OpenStack Image",
            public,
            internal,
        };
        let account = shared::register(context, &mut plan, &template.api.keystone, &registration)?;
        let store = store(context)?;
        let mut environment = vec![database];
        environment.extend(account.passwords(&[]));
        environment.extend(store.environment);
        plan.files = files(context, &account, store.options)?;
        plan.tasks = tasks(context, &environment);
        plan.workloads = vec![workload(context, environment, store.mounts)];
        if template.storage.backend == StoreBackend::Pvc {
            let volume = &template.storage.pvc;
            plan.volumes.push(Volume {
                name: IMAGES,
                size: volume.size.clone(),
                class: volume.storage_class.clone(),
                shared: volume.access_mode == AccessMode::ReadWriteMany,
                retained: volume.deletion_policy == DeletionPolicy::Retain,
            });
        }
        Ok(plan)
    }
}

/// How images are kept, in the words of a store's driver.
struct Store {
    options: Document,
    environment: Vec<Variable>,
    mounts: Vec<Mount>,
}

fn store(context: &Context<'_, Glance>) -> Result<Store, Invalid> {
    let storage = &context.object.spec.template.storage;
    let missing =
        |field: &str| Invalid::new(format!("spec.storage.{field}"), "is missing: the backend needs it");
    let options = |driver: &str| {
        Document::new().set("DEFAULT", "enabled_backends", format!("{STORE}:{driver}")).set(
            "glance_store",
            "default_backend",
            STORE,
        )
    };
    let plain = |options: Document| Store { options, environment: Vec::new(), mounts: Vec::new() };
    Ok(match storage.backend {
        StoreBackend::Pvc => {
            let path = "/var/lib/glance/images";
            let mounts = vec![Mount::Volume { name: IMAGES, path: path.to_owned() }];
            Store { mounts, ..plain(options("file").set(STORE, "filesystem_store_datadir", path)) }
        }
        StoreBackend::Rbd => {
            let rbd = storage.rbd.as_ref().ok_or_else(|| missing("rbd"))?;
            let secret = rbd.ceph_secret_ref.name.clone();
            let mounts = vec![Mount::Secret { secret, path: "/etc/ceph".to_owned(), change: Change::Roll }];
            let options = options("rbd")
                .set(STORE, "rbd_store_pool", &rbd.pool)
                .set(STORE, "rbd_store_user", &rbd.user)
                .set(STORE, "rbd_store_ceph_conf", "/etc/ceph/ceph.conf");
            Store { mounts, ..plain(options) }
        }
        StoreBackend::Swift => plain(
            options("swift")
                .set(STORE, "swift_store_container", &storage.swift.container)
                .set(STORE, "swift_store_create_container_on_put", true)
                .set(STORE, "swift_store_endpoint_type", "internalURL")
                // Images are kept by those who upload them, so that no password of the store is needed.
                .set(STORE, "swift_store_multi_tenant", true),
        ),
        StoreBackend::S3 => {
            let s3 = storage.s3.as_ref().ok_or_else(|| missing("s3"))?;
            let secret = &s3.secret_ref.name;
            let options = options("s3")
                .set(STORE, "s3_store_host", &s3.endpoint)
                .set(STORE, "s3_store_bucket", &s3.bucket)
                .set(STORE, "s3_store_create_bucket_on_put", true);
            let environment = vec![
                Variable::secret("OS_STORE__S3_STORE_ACCESS_KEY", secret, "accessKey"),
                Variable::secret("OS_STORE__S3_STORE_SECRET_KEY", secret, "secretKey"),
            ];
            Store { environment, ..plain(options) }
        }
    })
}

fn files(
    context: &Context<'_, Glance>,
    account: &Account<'_>,
    store: Document,
) -> Result<BTreeMap<String, String>, Invalid> {
    let template = &context.object.spec.template;
    let mut files = BTreeMap::new();
    let mut document = store
        .set("DEFAULT", "use_stderr", true)
        .set("DEFAULT", "enabled_import_methods", "[glance-direct,web-download]")
        .set("os_glance_staging_store", "filesystem_store_datadir", "/var/lib/glance/staging")
        .set("os_glance_tasks_store", "filesystem_store_datadir", "/var/lib/glance/tasks")
        .set("paste_deploy", "flavor", "keystone")
        .set("oslo_concurrency", "lock_path", "/tmp")
        .set("oslo_middleware", "enable_proxy_headers_parsing", true);
    if template.image_cache.enabled {
        let most = quantity::bytes(&template.image_cache.max_size, "spec.imageCache.maxSize")?;
        document = document
            .set("paste_deploy", "flavor", "keystone+cachemanagement")
            .set("DEFAULT", "image_cache_dir", CACHE)
            .set("DEFAULT", "image_cache_max_size", most);
        files.insert("prune.sh".to_owned(), include_str!("glance/prune.sh").to_owned());
    }
    document = shared::database_options(document, "database");
    document = account.authtoken(document, &shared::cache_servers(context, &template.api.cache)?);
    document = api::policy(document, &mut files, &template.api.exposure);
    let document = document.merge(template.api.common.extra_config.get(CONFIGURATION));
    files.insert(CONFIGURATION.to_owned(), document.render());
    // An upload takes as long as it takes, and must leave room for others.
    let settings =
        Uwsgi { processes: 3, longest_request: 0, ..Uwsgi::new("glance.common.wsgi_app:init_app()", &API) };
    files.insert("uwsgi.ini".to_owned(), api::uwsgi(&settings, &template.api.common));
    Ok(files)
}

fn container(
    context: &Context<'_, Glance>,
    name: &'static str,
    command: Vec<String>,
    environment: Vec<Variable>,
) -> Container {
    let GlanceSpec { origin, template } = &context.object.spec;
    let names = ImageNames { kolla: "glance-api", debian: "glance" };
    let common = &template.api.common;
    let mut mounts = vec![
        shared::file(CONFIGURATION, "/etc/glance/glance-api.conf"),
        shared::scratch("work", "/var/lib/glance"),
        shared::scratch("tmp", "/tmp"),
    ];
    mounts.extend(api::policy_mount(&template.api.exposure, "glance"));
    Container {
        name,
        image: shared::image(context, names, common, origin),
        command,
        environment,
        mounts,
        resources: shared::resources(&common.resources, ("50m", "512Mi"), "1536Mi"),
        ..Container::default()
    }
}

fn tasks(context: &Context<'_, Glance>, environment: &[Variable]) -> Vec<Task> {
    let task = |name: &'static str, stage: TaskStage, command: Vec<String>| Task {
        name,
        stage,
        user: USER,
        container: container(context, "glance-manage", command, environment.to_vec()),
        repeat_on: Vec::new(),
    };
    let manage = |action: &str| shared::command(["glance-manage", "db", action]);
    vec![
        task("db-sync", TaskStage::Install, manage("sync")),
        task("db-expand", TaskStage::Expand, manage("expand")),
        task("db-migrate", TaskStage::Migrate, manage("migrate")),
        task("upgrade-check", TaskStage::Migrate, shared::upgrade_check("glance")),
        task("metadefs", TaskStage::Bootstrap, manage("load_metadefs")),
        task("db-contract", TaskStage::Contract, manage("contract")),
    ]
}

fn workload(context: &Context<'_, Glance>, environment: Vec<Variable>, mounts: Vec<Mount>) -> Workload {
    let GlanceTemplate { api: settings, storage, image_cache } = &context.object.spec.template;
    let mut api = container(context, "api", shared::uwsgi_command("glance"), environment.clone());
    api.mounts.push(shared::file("uwsgi.ini", "/etc/glance/uwsgi.ini"));
    api.mounts.extend(mounts);
    // What one pod has staged only this pod can import.
    let address = format!("http://$(POD_IP):{}", API.number);
    api.environment.push(Variable::field("POD_IP", "status.podIP"));
    api.environment.push(Variable::text("OS_DEFAULT__WORKER_SELF_REFERENCE_URL", address));
    let api = api::serving(api, API, "/healthcheck");
    let mut workload = api::workload(USER, settings.replicas, &settings.common, api);
    // A long upload is let finish.
    workload.pod.grace_seconds = 300;
    if storage.backend == StoreBackend::Pvc && storage.pvc.access_mode == AccessMode::ReadWriteOnce {
        // Pods of two nodes cannot have the volume at once: a new one would wait for the old for ever.
        workload.controller = Controller::Alone;
    }
    if image_cache.enabled {
        let mut pruner =
            container(context, "cache-pruner", shared::script("/etc/openstack/prune.sh"), environment);
        pruner.mounts.push(shared::file("prune.sh", "/etc/openstack/prune.sh"));
        let there = Check::Command(shared::command(["test", "-d", CACHE]));
        pruner.probes = Probes { readiness: Some(shared::probe(there, 30, 5, 3)), ..Probes::default() };
        workload.pod.containers.push(pruner);
    }
    workload
}
