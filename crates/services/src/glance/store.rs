//! Image stores of Glance.

use openstack_operator_model::common::DeletionPolicy;
use openstack_operator_model::name;
use openstack_operator_model::need::Needs;
use openstack_operator_model::oslo::Document;
use openstack_operator_model::plan::{Change, Mount, Variable, Volume};
use openstack_operator_model::service::{Context, Invalid};

use super::spec::{
    AccessMode, Glance, GlanceTemplate, ImageStorage, RbdStore, S3Store, StoreBackend, SwiftStore,
    VolumeStore,
};
use crate::shared;

/// Suffix of the name of the volume.
const IMAGES: &str = "images";
/// Service whose user of a CephStorage stores images.
const CEPH_SERVICE: &str = "glance";

/// Secrets of users that the stores need.
pub(super) fn needs(glance: &str, template: &GlanceTemplate) -> Needs {
    let ImageStorage { rbd, s3, .. } = &template.storage;
    let backends = template.backends();
    let mut needs = Needs::default();
    if backends.contains(&StoreBackend::Rbd) && !is_on_storage(template) {
        let secret = ceph_secret(glance, rbd);
        needs = needs.secret("spec.storage.rbd.cephSecretRef", Some(&secret), &[shared::CEPH_CONF]);
    }
    if backends.contains(&StoreBackend::S3) {
        let secret = s3.as_ref().map(|s3| s3.secret_ref.name.as_str());
        needs = needs.secret("spec.storage.s3.secretRef", secret, &["accessKey", "secretKey"]);
    }
    needs
}

/// Whether pool and user are those of a CephStorage.
fn is_on_storage(template: &GlanceTemplate) -> bool {
    template.uses_storage() && template.ceph.cluster_ref.is_some()
}

fn ceph_secret(glance: &str, rbd: &RbdStore) -> String {
    let given = rbd.ceph_secret_ref.as_ref().map(|secret| secret.name.clone());
    given.unwrap_or_else(|| name::part(glance, "ceph"))
}

/// What the pods need for all stores.
#[derive(Default)]
pub(super) struct Stores {
    pub(super) options: Document,
    pub(super) environment: Vec<Variable>,
    pub(super) mounts: Vec<Mount>,
    /// Ceph, which must answer before Glance starts: a store that fails then stays disabled.
    pub(super) ceph: Option<Ceph>,
    pub(super) volume: Option<Volume>,
}

/// A user of a Ceph cluster, and the pool of images.
pub(super) struct Ceph {
    pub(super) user: String,
    pub(super) pool: String,
    pub(super) mounts: Vec<Mount>,
}

/// Plans all stores. Locations of images contain the names of their stores, which are those of the backends.
pub(super) fn plan(context: &Context<'_, Glance>) -> Result<Stores, Invalid> {
    let template = &context.object.spec.template;
    let backends = template.backends();
    let default = template.default_store.unwrap_or(template.backend());
    if !backends.contains(&default) {
        let known: Vec<&str> = backends.iter().map(|backend| backend.name()).collect();
        let reason =
            format!("{} is not a store: add it to stores, or use {}", default.name(), known.join(" or "));
        return Err(Invalid::new("spec.defaultStore", reason));
    }
    let mut stores = Stores::default();
    for backend in &backends {
        match backend {
            StoreBackend::Pvc => stores.add_volume(&template.storage.pvc),
            StoreBackend::Rbd => stores.add_rbd(ceph(context)?),
            StoreBackend::Swift => stores.add_swift(&template.storage.swift),
            StoreBackend::S3 => stores.add_s3(template.storage.s3.as_ref())?,
        }
    }
    let enabled: Vec<String> =
        backends.iter().map(|backend| format!("{}:{}", backend.name(), backend.driver())).collect();
    stores.set("DEFAULT", "enabled_backends", enabled.join(","));
    stores.set("glance_store", "default_backend", default.name());
    if backends.len() > 1 {
        // Of an image in several stores, clients get the location in the default store.
        stores.set(default.name(), "weight", 1);
    }
    Ok(stores)
}

impl Stores {
    fn set(&mut self, section: &str, option: &str, value: impl std::fmt::Display) {
        self.options = std::mem::take(&mut self.options).set(section, option, value);
    }

    fn add_volume(&mut self, settings: &VolumeStore) {
        const PATH: &str = "/var/lib/glance/images";
        let VolumeStore { size, storage_class, access_mode, deletion_policy } = settings;
        self.volume = Some(Volume {
            name: IMAGES,
            size: size.clone(),
            class: storage_class.clone(),
            shared: *access_mode == AccessMode::ReadWriteMany,
            retained: *deletion_policy == DeletionPolicy::Retain,
        });
        self.mounts.push(Mount::Volume { name: IMAGES, path: PATH.to_owned() });
        self.set(StoreBackend::Pvc.name(), "filesystem_store_datadir", PATH);
    }

    fn add_rbd(&mut self, ceph: Ceph) {
        let store = StoreBackend::Rbd.name();
        self.set(store, "rbd_store_pool", &ceph.pool);
        self.set(store, "rbd_store_user", &ceph.user);
        self.set(store, "rbd_store_ceph_conf", shared::CEPH_CONFIGURATION);
        // Nova and Cinder clone images, and find them by their location.
        self.set("DEFAULT", "show_image_direct_url", true);
        self.mounts.extend(ceph.mounts.iter().cloned());
        self.ceph = Some(ceph);
    }

    fn add_swift(&mut self, settings: &SwiftStore) {
        let store = StoreBackend::Swift.name();
        self.set(store, "swift_store_container", &settings.container);
        self.set(store, "swift_store_create_container_on_put", true);
        self.set(store, "swift_store_endpoint_type", "internalURL");
        // Images belong to the users who upload them, so no store password is needed.
        self.set(store, "swift_store_multi_tenant", true);
    }

    fn add_s3(&mut self, settings: Option<&S3Store>) -> Result<(), Invalid> {
        let Some(s3) = settings else {
            return Err(Invalid::new("spec.storage.s3", "is missing: backend s3 needs it"));
        };
        let store = StoreBackend::S3.name();
        self.set(store, "s3_store_host", &s3.endpoint);
        self.set(store, "s3_store_bucket", &s3.bucket);
        self.set(store, "s3_store_create_bucket_on_put", true);
        let secret = &s3.secret_ref.name;
        self.environment.extend([
            Variable::secret("OS_S3__S3_STORE_ACCESS_KEY", secret, "accessKey"),
            Variable::secret("OS_S3__S3_STORE_SECRET_KEY", secret, "secretKey"),
        ]);
        Ok(())
    }
}

/// User, pool and files of the store on Ceph.
fn ceph(context: &Context<'_, Glance>) -> Result<Ceph, Invalid> {
    let template = &context.object.spec.template;
    let rbd = &template.storage.rbd;
    if is_on_storage(template) {
        if rbd.pool.is_some() || rbd.user.is_some() {
            let reason =
                "sets the pool or the user of a CephStorage: remove them, or name a Secret in cephSecretRef";
            return Err(Invalid::new("spec.storage.rbd", reason));
        }
        let client = shared::ceph_client(context, &template.ceph, CEPH_SERVICE)?;
        let pool = client.pool(|pools| pools.images.as_ref())?;
        return Ok(Ceph { pool, mounts: shared::ceph_mounts(&[&client]), user: client.user });
    }
    let secret = ceph_secret(context.name, rbd);
    let mount = Mount::Secret { secret, path: shared::CEPH_DIRECTORY.to_owned(), change: Change::Roll };
    let (user, pool) = (rbd.user.as_deref().unwrap_or(CEPH_SERVICE), rbd.pool.as_deref().unwrap_or(IMAGES));
    Ok(Ceph { user: user.to_owned(), pool: pool.to_owned(), mounts: vec![mount] })
}
