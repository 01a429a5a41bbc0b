//! Glance: images of instances.

use openstack_operator_model::common::{ContainerSettings, DeletionPolicy};
use openstack_operator_model::image::ImageNames;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::name;
use openstack_operator_model::need::Needs;
use openstack_operator_model::oslo::Document;
use openstack_operator_model::plan::{
    Change, Check, Controller, Mount, Plan, Port, Probes, TaskStage, Variable, Volume,
};
use openstack_operator_model::quantity;
use openstack_operator_model::release::{Families, Release, Releases, Varying};
use openstack_operator_model::service::{Context, Invalid};
use openstack_operator_model::status::Stage;

use crate::cloud::{Part, Presence, Wave};
use crate::program::{Amounts, Program, Project, Settings, mount_script};
use crate::shared::api::Uwsgi;
use crate::shared::{self, DatabaseClaim};

pub use spec::*;

mod spec;

pub const KIND: Kind = Kind::own("Glance", "glances");
const API: Port = Port::tcp("api", 9292);
/// Packages of the oldest release do not contain the usual module.
const MODULE: Varying<&str> = Varying {
    usual: "glance.wsgi.api:application",
    exceptions: &[(Releases::until(Release::Epoxy), Families::All, "glance.common.wsgi_app:init_app()")],
};
const PROJECT: Project = Project {
    name: "glance",
    user: 42415,
    configuration: "glance-api.conf",
    manage: "glance-manage",
    image: ImageNames { kolla: "glance-api", debian: "glance" },
    scratch: &[("work", "/var/lib/glance")],
    amounts: Amounts { cpu: "50m", memory: "512Mi", memory_limit: "1536Mi" },
};
/// Configuration section of the store.
const STORE: &str = "store";
const IMAGES: &str = "images";
const CACHE: &str = "/var/lib/glance/image-cache";
const PRUNE: &str = "prune.sh";
/// Nova uploads snapshots in chunks that exceed the default limit of uWSGI.
const LARGEST_CHUNK: u32 = 64 << 20;

pub struct Service;

impl Part for Service {
    type Object = Glance;
    type Template = GlanceTemplate;
    const KIND: Kind = KIND;
    const NAME: &'static str = "glance";
    const STAGE: Stage = Stage::CoreServices;
    const PRESENCE: Presence = Presence::ByDefault;
    const WAVE: Wave = Wave::Resources;

    fn template(object: &Glance) -> &GlanceTemplate {
        &object.spec.template
    }

    fn needs(object: &Glance) -> Needs {
        let template = &object.spec.template;
        match template.backend() {
            StoreBackend::Rbd => {
                let name = object.metadata.name.as_deref().unwrap_or_default();
                let secret = ceph_secret(name, &template.storage.rbd);
                let field = "spec.storage.rbd.cephSecretRef";
                Needs::default().secret(field, Some(&secret), &["ceph.conf"])
            }
            StoreBackend::S3 => {
                let secret = template.storage.s3.as_ref().map(|s3| s3.secret_ref.name.as_str());
                Needs::default().secret("spec.storage.s3.secretRef", secret, &["accessKey", "secretKey"])
            }
            StoreBackend::Pvc | StoreBackend::Swift => Needs::default(),
        }
    }

    fn plan(context: &Context<'_, Glance>) -> Result<Plan, Invalid> {
        let GlanceSpec { origin, template } = &context.object.spec;
        let settings = Settings::from_template(origin, &template.api);
        let mut glance = Program::new(context, &PROJECT, settings, &API, &[])?;
        glance.database(&DatabaseClaim::new(&template.api.database, "glance", "database"))?;
        let cache = shared::cache_servers(context, &template.api.cache)?;
        let registration = glance.registration("image", "OpenStack Image", "");
        glance.register(&template.api.keystone, &[registration], &[], &cache)?;
        let store = store(context)?;
        glance.environment.extend(store.environment);
        glance.change(|document| document.and(store.options));
        configure(&mut glance);
        if template.image_cache.enabled {
            let max_size = quantity::bytes(&template.image_cache.max_size, "spec.imageCache.maxSize")?;
            glance.set("paste_deploy", "flavor", "keystone+cachemanagement");
            glance.set("DEFAULT", "image_cache_dir", CACHE);
            glance.set("DEFAULT", "image_cache_max_size", max_size);
            glance.plan.files.insert(PRUNE.to_owned(), include_str!("glance/prune.sh").into());
        }
        add_tasks(&mut glance);
        add_api(&mut glance, store.mounts);
        if template.backend() == StoreBackend::Pvc {
            let volume = &template.storage.pvc;
            glance.plan.volumes.push(Volume {
                name: IMAGES,
                size: volume.size.clone(),
                class: volume.storage_class.clone(),
                shared: volume.access_mode == AccessMode::ReadWriteMany,
                retained: volume.deletion_policy == DeletionPolicy::Retain,
            });
        }
        glance.finish()
    }
}

fn ceph_secret(name: &str, rbd: &RbdStore) -> String {
    let given = rbd.ceph_secret_ref.as_ref().map(|secret| secret.name.clone());
    given.unwrap_or_else(|| name::part(name, "ceph"))
}

/// Options, environment and mounts of a store driver.
struct Store {
    options: Document,
    environment: Vec<Variable>,
    mounts: Vec<Mount>,
}

fn store(context: &Context<'_, Glance>) -> Result<Store, Invalid> {
    let template = &context.object.spec.template;
    let storage = &template.storage;
    let options = |driver: &str| {
        Document::new().set("DEFAULT", "enabled_backends", format!("{STORE}:{driver}")).set(
            "glance_store",
            "default_backend",
            STORE,
        )
    };
    let plain = |options: Document| Store { options, environment: Vec::new(), mounts: Vec::new() };
    Ok(match template.backend() {
        StoreBackend::Pvc => {
            let path = "/var/lib/glance/images";
            let mounts = vec![Mount::Volume { name: IMAGES, path: path.to_owned() }];
            Store { mounts, ..plain(options("file").set(STORE, "filesystem_store_datadir", path)) }
        }
        StoreBackend::Rbd => {
            let rbd = &storage.rbd;
            let secret = ceph_secret(context.name, rbd);
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
                // Images belong to the users who upload them, so no store password is needed.
                .set(STORE, "swift_store_multi_tenant", true),
        ),
        StoreBackend::S3 => {
            let Some(s3) = &storage.s3 else {
                return Err(Invalid::new("spec.storage.s3", "is missing: backend s3 needs it"));
            };
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

fn configure(glance: &mut Program<'_, Glance>) {
    glance.set("DEFAULT", "enabled_import_methods", "[glance-direct,web-download]");
    glance.set("os_glance_staging_store", "filesystem_store_datadir", "/var/lib/glance/staging");
    glance.set("os_glance_tasks_store", "filesystem_store_datadir", "/var/lib/glance/tasks");
    glance.set("paste_deploy", "flavor", "keystone");
    glance.set("oslo_concurrency", "lock_path", "/tmp");
}

fn add_tasks(glance: &mut Program<'_, Glance>) {
    let manage = |action: &str| shared::command(["glance-manage", "db", action]);
    glance.task("db-sync", TaskStage::Install, manage("sync"));
    glance.task("db-expand", TaskStage::Expand, manage("expand"));
    glance.task("db-migrate", TaskStage::Migrate, manage("migrate"));
    glance.task("upgrade-check", TaskStage::Migrate, shared::upgrade_check("glance"));
    glance.task("metadefs", TaskStage::Bootstrap, manage("load_metadefs"));
    glance.task("db-contract", TaskStage::Contract, manage("contract"));
}

fn add_api(glance: &mut Program<'_, Glance>, mounts: Vec<Mount>) {
    let template = &glance.context.object.spec.template;
    let pruner = template.image_cache.enabled.then(|| {
        let command = shared::script(&shared::script_path(PRUNE));
        let settings = ContainerSettings::default();
        let mut pruner = glance.container("cache-pruner", PROJECT.image, &settings, PROJECT.amounts, command);
        mount_script(&mut pruner, PRUNE);
        let exists = Check::Command(shared::command(["test", "-d", CACHE]));
        pruner.probes = Probes { readiness: Some(shared::probe(exists, 30, 5, 3)), ..Probes::default() };
        pruner
    });
    // Uploads have no time limit and must not block other requests.
    let uwsgi =
        Uwsgi { processes: 3, longest_request: 0, largest_chunk: Some(LARGEST_CHUNK), ..Uwsgi::new(MODULE) };
    let workload = glance.only_api(API, "/healthcheck", uwsgi);
    // Long uploads can finish.
    workload.pod.grace_seconds = 300;
    if template.is_exclusive() {
        // Pods on two nodes cannot mount the volume at once: a new one would wait for the old one forever.
        workload.controller = Controller::Recreate;
    }
    if let Some(api) = workload.pod.containers.first_mut() {
        api.mounts.extend(mounts);
        // Only the pod that staged an image can import it.
        let address = shared::internal_endpoint("$(POD_IP)", &API).url();
        api.environment.push(Variable::field("POD_IP", "status.podIP"));
        api.environment.push(Variable::text("OS_DEFAULT__WORKER_SELF_REFERENCE_URL", address));
    }
    workload.pod.containers.extend(pruner);
}
