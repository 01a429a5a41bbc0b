//! Ceph on compute nodes: keys for libvirt, and disks of instances.

use openstack_operator_model::oslo::Document;
use openstack_operator_model::plan::{Check, Mount};
use openstack_operator_model::service::{Context, Invalid};

use super::spec::{EphemeralBackend, NovaCompute};
use crate::shared::{self, CephClient};

pub(super) const SCRIPT: (&str, &str) = ("keys.sh", include_str!("keys.sh"));

/// Service whose user owns the disks of instances.
const DISKS: &str = "nova";
/// Services whose users instances get disks from.
const SERVICES: [&str; 2] = [DISKS, "cinder"];

/// Users of a Ceph cluster on compute nodes.
#[derive(Default)]
pub(super) struct Ceph {
    /// Users whose keys libvirt needs.
    keys: Vec<CephClient>,
    /// User and pool of the disks of instances, unless these are files.
    disks: Option<(CephClient, String)>,
}

impl Ceph {
    pub(super) fn new(context: &Context<'_, NovaCompute>) -> Result<Self, Invalid> {
        let template = &context.object.spec.template;
        let disks = match template.ephemeral.backend.unwrap_or_default() {
            EphemeralBackend::Local => None,
            EphemeralBackend::Rbd => {
                let client = shared::ceph_client(context, &template.ceph, DISKS)?;
                let pool = client.pool(|pools| pools.ephemeral.as_ref())?;
                Some((client, pool))
            }
        };
        // The cluster may have no volumes, or no disks of instances.
        let known = SERVICES.iter().map(|service| shared::ceph_client(context, &template.ceph, service));
        Ok(Self { keys: known.filter_map(Result::ok).collect(), disks })
    }

    pub(super) fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Options of nova-compute.
    pub(super) fn options(&self, document: Document) -> Document {
        let Some((client, pool)) = &self.disks else { return document };
        document
            .section_of(
                "libvirt",
                [
                    ("images_type", "rbd"),
                    ("images_rbd_ceph_conf", shared::CEPH_CONFIGURATION),
                    ("disk_cachemodes", "network=writeback"),
                    ("hw_disk_discard", "unmap"),
                ],
            )
            .set("libvirt", "images_rbd_pool", pool)
            .set("libvirt", "rbd_user", &client.user)
            .set("libvirt", "rbd_secret_uuid", &client.uuid)
    }

    /// Name of the backend of the disks, for scripts.
    pub(super) fn backend(&self) -> &'static str {
        if self.disks.is_some() { "rbd" } else { "local" }
    }

    /// Files of nova-compute.
    pub(super) fn agent_mounts(&self) -> Vec<Mount> {
        self.disks.as_ref().map(|(client, _)| shared::ceph_mounts(&[client])).unwrap_or_default()
    }

    /// Keys for libvirt, as files that are named by their UUIDs.
    pub(super) fn libvirt_mounts(&self) -> Vec<Mount> {
        let (script, _) = SCRIPT;
        let script = self.has_keys().then(|| shared::file(script, &shared::script_path(script)));
        let keys = self.keys.iter().map(|client| Mount::SecretFile {
            secret: client.secret.clone(),
            key: shared::CEPH_KEY.to_owned(),
            path: shared::script_path(&format!("ceph-keys/{}", client.uuid)),
        });
        keys.chain(script).collect()
    }

    /// Check that libvirt answers and has all keys.
    pub(super) fn check(&self) -> Check {
        let answers = ["virsh", "-c", "qemu:///system", "version", "--daemon"];
        if !self.has_keys() {
            return Check::Command(shared::command(answers));
        }
        let script = format!("{} && [ -e /run/openstack-ceph-keys ]", answers.join(" "));
        Check::Command(shared::command(["bash", "-c", &script]))
    }
}
