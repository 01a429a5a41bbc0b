//! Layout of a cloud on a Ceph cluster: pools, file systems and users with their capabilities.

use std::collections::BTreeMap;

use openstack_operator_model::status::StoragePools;
use serde::Serialize;

use super::spec::{CephStorageTemplate, Compression, FilesystemSettings, PoolSettings};

const GIB: u64 = 1 << 30;

/// Everything that the operator ensures in the cluster.
pub(super) struct Layout {
    pub(super) pools: Vec<Pool>,
    pub(super) filesystems: Vec<Filesystem>,
    pub(super) users: Vec<User>,
    /// Names of the block pools by purpose.
    pub(super) names: StoragePools,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Pool {
    pub(super) name: String,
    size: u8,
    compression: Compression,
    /// Bytes, or 0.
    quota: u64,
    /// Whether it holds block devices.
    block: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Filesystem {
    pub(super) name: String,
    metadata: String,
    data: String,
}

/// A user of a service, with the least capabilities that the service needs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct User {
    #[serde(skip)]
    pub(super) service: &'static str,
    pub(super) name: String,
    pub(super) caps: BTreeMap<&'static str, String>,
}

impl Layout {
    pub(super) fn new(template: &CephStorageTemplate) -> Self {
        let CephStorageTemplate { volume_pool, image_pool, ephemeral_pool, backup_pool, .. } = template;
        let prefix = template.prefix.as_deref().unwrap_or_default();
        let mut layout = Self {
            pools: Vec::new(),
            filesystems: Vec::new(),
            users: Vec::new(),
            names: StoragePools::default(),
        };
        let mut add = |settings, default: &Defaults| {
            let pool = pool(prefix, settings, default)?;
            layout.pools.push(pool);
            layout.pools.last().map(|pool| pool.name.clone())
        };
        layout.names = StoragePools {
            volumes: add(volume_pool, &Defaults::of("volumes")),
            images: add(image_pool, &Defaults::of("images")),
            ephemeral: add(
                ephemeral_pool,
                &Defaults { name: "vms", replication: 2, compression: Compression::None },
            ),
            backups: add(backup_pool, &Defaults::of("backups")),
        };
        layout.add_block_users(prefix);
        layout.add_filesystem(prefix, &template.filesystem);
        layout
    }

    fn add_block_users(&mut self, prefix: &str) {
        let StoragePools { volumes, images, ephemeral, backups } = &self.names;
        // Instances and volumes are copy-on-write clones of images.
        let clones = images.as_ref();
        let users = [
            ("glance", images, None),
            ("cinder", volumes, clones),
            ("nova", ephemeral, clones),
            ("cinder-backup", backups, None),
        ];
        let users = users.into_iter().filter_map(|(service, pool, read)| {
            let caps = block_capabilities(pool.as_ref()?, read.map(String::as_str));
            Some(User { service, name: format!("{prefix}{service}"), caps })
        });
        self.users.extend(users);
    }

    fn add_filesystem(&mut self, prefix: &str, settings: &FilesystemSettings) {
        if !settings.enabled {
            return;
        }
        let name = format!("{prefix}{}", settings.name.as_deref().unwrap_or("cephfs"));
        let (metadata, data) = (format!("{name}-metadata"), format!("{name}-data"));
        let pool = |name: &String, size| Pool {
            name: name.clone(),
            size,
            compression: Compression::None,
            quota: 0,
            block: false,
        };
        self.pools.push(pool(&metadata, settings.metadata_pool_replication));
        self.pools.push(pool(&data, settings.data_pool_replication));
        self.filesystems.push(Filesystem { name, metadata, data });
        let caps = [("mon", "allow r"), ("mgr", "allow rw")].map(|(service, cap)| (service, cap.to_owned()));
        self.users.push(User { service: "manila", name: format!("{prefix}manila"), caps: caps.into() });
    }
}

/// Settings of a pool that the user does not set.
struct Defaults {
    name: &'static str,
    replication: u8,
    compression: Compression,
}

impl Defaults {
    fn of(name: &'static str) -> Self {
        Self { name, replication: 3, compression: Compression::Aggressive }
    }
}

fn pool(prefix: &str, settings: &PoolSettings, default: &Defaults) -> Option<Pool> {
    settings.enabled.then(|| Pool {
        name: format!("{prefix}{}", settings.name.as_deref().unwrap_or(default.name)),
        size: settings.replication.unwrap_or(default.replication),
        compression: settings.compression.unwrap_or(default.compression),
        quota: settings.quota_gb * GIB,
        block: true,
    })
}

/// Capabilities of a user of one pool, who may also read another one.
fn block_capabilities(pool: &str, read: Option<&str>) -> BTreeMap<&'static str, String> {
    let write = format!("profile rbd pool={pool}");
    let read = read.map(|pool| format!(", profile rbd-read-only pool={pool}")).unwrap_or_default();
    BTreeMap::from([("mon", "profile rbd".to_owned()), ("osd", format!("{write}{read}")), ("mgr", write)])
}
