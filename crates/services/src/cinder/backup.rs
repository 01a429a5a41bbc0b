//! The backup service, and the storage of backups.

use openstack_operator_model::need::Needs;
use openstack_operator_model::oslo::Document;
use openstack_operator_model::plan::{Mount, Variable};
use openstack_operator_model::service::Invalid;

use super::backend::Clients;
use super::{BACKUP, Backup, BackupType, CephBackup, Cinder, STORAGE_AMOUNTS, SwiftBackup, USER};
use crate::inputs;
use crate::program::{Program, Worker};
use crate::shared::{self, CEPH_CONFIGURATION, CephClient, MessageBus};

/// User of Ceph that writes backups.
const CEPH_USER: &str = "cinder-backup";
/// Pool of Ceph by default.
const POOL: &str = "backups";
/// File with the options of the backup service.
const FILE: &str = "backup.conf";
const SECTION: &str = "DEFAULT";

pub(super) fn needs(backup: &Backup) -> Needs {
    let secret = backup.s3.as_ref().map(|s3| s3.secret_ref.name.as_str());
    Needs::default().secret("spec.backup.s3.secretRef", secret, &["accessKey", "secretKey"])
}

/// Adds the backup service.
pub(super) fn add(
    cinder: &mut Program<'_, Cinder>,
    backup: &Backup,
    clients: &Clients,
    bus: &MessageBus,
) -> Result<(), Invalid> {
    let template = &cinder.context.object.spec.template;
    let Storage { options, environment, client } = storage(cinder, backup)?;
    let mut mounts = vec![cinder.additional_file(FILE, None, options), super::without_privileges()];
    mounts.extend(ceph_mounts(client.as_ref(), clients)?);
    let resources =
        shared::component_resources(&backup.component.container, &template.common.pods, STORAGE_AMOUNTS);
    let workload = cinder.worker(Worker {
        component: BACKUP,
        image: super::image("cinder-backup"),
        settings: &backup.component,
        command: super::start("cinder-backup"),
        controller: super::named_pods(),
        probes: shared::connected_to(bus.port, USER),
    });
    super::complete(workload, template.shutdown_seconds);
    if client.is_some() {
        workload.after = inputs::waits(template);
    }
    if let Some(container) = workload.pod.containers.first_mut() {
        container.resources = resources;
        container.environment.extend(environment);
        container.mounts.extend(mounts);
    }
    Ok(())
}

/// Options and environment of a storage of backups, and its user of Ceph.
struct Storage {
    options: Document,
    environment: Vec<Variable>,
    client: Option<CephClient>,
}

fn storage(cinder: &Program<'_, Cinder>, backup: &Backup) -> Result<Storage, Invalid> {
    let other = [
        ("ceph", BackupType::Ceph, backup.ceph != CephBackup::default()),
        ("swift", BackupType::Swift, backup.swift != SwiftBackup::default()),
    ];
    if let Some((field, ..)) = other.iter().find(|(_, kind, is_set)| *is_set && *kind != backup.kind) {
        let reason = format!("is only for type {field}: remove it, or set type to {field}");
        return Err(Invalid::new(format!("spec.backup.{field}"), reason));
    }
    let options = |driver: &str| {
        Document::new().set(SECTION, "backup_driver", format!("cinder.backup.drivers.{driver}"))
    };
    let plain = |options: Document| Storage { options, environment: Vec::new(), client: None };
    Ok(match backup.kind {
        BackupType::Ceph => {
            let ceph = &cinder.context.object.spec.template.ceph;
            let client = shared::ceph_client(cinder.context, ceph, CEPH_USER)?;
            let pool = backup.ceph.pool.as_deref().or(client.pools.backups.as_deref()).unwrap_or(POOL);
            let options = options("ceph.CephBackupDriver")
                .set(SECTION, "backup_ceph_conf", CEPH_CONFIGURATION)
                .set(SECTION, "backup_ceph_user", &client.user)
                .set(SECTION, "backup_ceph_pool", pool);
            Storage { client: Some(client), ..plain(options) }
        }
        BackupType::Swift => plain(
            options("swift.SwiftBackupDriver")
                .set(SECTION, "swift_catalog_info", "object-store:swift:internalURL")
                .set(SECTION, "backup_swift_container", &backup.swift.container)
                // A long backup outlives the token of its user.
                .set(SECTION, "backup_swift_service_auth", true),
        ),
        BackupType::S3 => {
            let Some(s3) = &backup.s3 else {
                return Err(Invalid::new("spec.backup.s3", "is missing: type s3 needs it"));
            };
            let secret = &s3.secret_ref.name;
            let options = options("s3.S3BackupDriver")
                .set(SECTION, "backup_s3_endpoint_url", &s3.endpoint)
                .set(SECTION, "backup_s3_store_bucket", &s3.bucket);
            let environment = vec![
                Variable::secret("OS_DEFAULT__BACKUP_S3_STORE_ACCESS_KEY", secret, "accessKey"),
                Variable::secret("OS_DEFAULT__BACKUP_S3_STORE_SECRET_KEY", secret, "secretKey"),
            ];
            Storage { environment, ..plain(options) }
        }
    })
}

/// Mounts the keys of the users that write backups and read volumes. All keys are in one directory.
fn ceph_mounts(own: Option<&CephClient>, clients: &Clients) -> Result<Vec<Mount>, Invalid> {
    let mut mounted: Vec<&CephClient> = Vec::new();
    for client in own.into_iter().chain(clients.values()) {
        match mounted.iter().find(|known| known.user == client.user) {
            None => mounted.push(client),
            Some(known) if known.secret == client.secret => {}
            Some(known) => {
                let reason = format!(
                    "Secrets {} and {} are both of Ceph user {}, and the backup service needs both: give one of them \
                     another user in cephClientRef",
                    known.secret, client.secret, client.user
                );
                return Err(Invalid::new("spec.backends[].rbd.cephClientRef.name", reason));
            }
        }
    }
    Ok(shared::ceph_mounts(&mounted))
}
