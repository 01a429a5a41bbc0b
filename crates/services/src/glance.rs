//! Glance: images of instances.

use openstack_operator_model::common::ContainerSettings;
use openstack_operator_model::image::ImageNames;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::need::Needs;
use openstack_operator_model::plan::{Check, Controller, Plan, Port, Probes, TaskStage, Variable};
use openstack_operator_model::quantity;
use openstack_operator_model::release::{Families, Release, Releases, Varying};
use openstack_operator_model::service::{Context, Invalid};
use openstack_operator_model::status::Stage;

use crate::cloud::{Cloud, Part, Presence, Wave};
use crate::control_plane::StorageBackend;
use crate::inputs;
use crate::program::{Amounts, Program, Project, Settings, mount_script};
use crate::shared::api::Uwsgi;
use crate::shared::{self, DatabaseClaim};

pub use spec::*;
use store::Stores;

mod spec;
mod store;

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

    fn cloud_rules() -> Vec<(String, String)> {
        cloud_rules()
    }

    fn settle(template: &mut GlanceTemplate, cloud: &Cloud<'_>) {
        if cloud.spec.storage_backend == Some(StorageBackend::Ceph) && template.storage_type.is_none() {
            template.storage.backend.get_or_insert(StoreBackend::Rbd);
        }
    }

    fn needs(object: &Glance) -> Needs {
        store::needs(object.metadata.name.as_deref().unwrap_or_default(), &object.spec.template)
    }

    fn plan(context: &Context<'_, Glance>) -> Result<Plan, Invalid> {
        let GlanceSpec { origin, template } = &context.object.spec;
        let settings = Settings::from_template(origin, &template.api);
        let mut glance = Program::new(context, &PROJECT, settings, &API, &[])?;
        glance.database(&DatabaseClaim::new(&template.api.database, "glance", "database"))?;
        let cache = shared::cache_servers(context, &template.api.cache)?;
        let registration = glance.registration("image", "OpenStack Image", "");
        glance.register(&template.api.keystone, &[registration], &[], &cache)?;
        configure(&mut glance);
        let mut stores = store::plan(context)?;
        glance.environment.append(&mut stores.environment);
        let options = std::mem::take(&mut stores.options);
        glance.change(|document| document.and(options));
        if template.image_cache.enabled {
            let max_size = quantity::bytes(&template.image_cache.max_size, "spec.imageCache.maxSize")?;
            glance.set("paste_deploy", "flavor", "keystone+cachemanagement");
            glance.set("DEFAULT", "image_cache_dir", CACHE);
            glance.set("DEFAULT", "image_cache_max_size", max_size);
            glance.plan.files.insert(PRUNE.to_owned(), include_str!("glance/prune.sh").into());
        }
        add_tasks(&mut glance);
        add_api(&mut glance, stores);
        glance.finish()
    }
}

fn configure(glance: &mut Program<'_, Glance>) {
    glance.set("DEFAULT", "enabled_import_methods", "[glance-direct,web-download,copy-image]");
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

fn add_api(glance: &mut Program<'_, Glance>, stores: Stores) {
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
    let await_ceph = stores.ceph.map(|ceph| {
        let settings = ContainerSettings::default();
        let pattern = glance.container("api", PROJECT.image, &settings, PROJECT.amounts, Vec::new());
        shared::await_ceph(&mut glance.plan, &pattern, (&ceph.user, &ceph.mounts), &[&ceph.pool])
    });
    glance.plan.volumes.extend(stores.volume);
    // Uploads have no time limit and must not block other requests.
    let uwsgi =
        Uwsgi { processes: 3, longest_request: 0, largest_chunk: Some(LARGEST_CHUNK), ..Uwsgi::new(MODULE) };
    let workload = glance.only_api(API, "/healthcheck", uwsgi);
    workload.after = inputs::waits(template);
    workload.pod.setup.extend(await_ceph);
    // Long uploads can finish.
    workload.pod.grace_seconds = 300;
    if template.is_exclusive() {
        // Pods on two nodes cannot mount the volume at once: a new one would wait for the old one forever.
        workload.controller = Controller::Recreate;
    }
    if let Some(api) = workload.pod.containers.first_mut() {
        api.mounts.extend(stores.mounts);
        // Only the pod that staged an image can import it.
        let address = shared::internal_endpoint("$(POD_IP)", &API).url();
        api.environment.push(Variable::field("POD_IP", "status.podIP"));
        api.environment.push(Variable::text("OS_DEFAULT__WORKER_SELF_REFERENCE_URL", address));
    }
    workload.pod.containers.extend(pruner);
}
