//! Ceph clients: users of a Ceph cluster, and their files in containers.

use openstack_operator_model::plan::{Container, Mount, Plan, Variable};
use openstack_operator_model::service::{Context, Invalid};
use openstack_operator_model::status::StoragePools;

use super::{command, file, script_path};
use crate::ceph;
use crate::concern::CephSettings;

/// Directory of the configuration and the keys of clients, which Ceph reads by default.
pub(crate) const CEPH_DIRECTORY: &str = "/etc/ceph";
/// Configuration of clients: key of the Secret of a user, and name of the file in containers.
pub(crate) const CEPH_CONF: &str = "ceph.conf";
/// Its path in containers.
pub(crate) const CEPH_CONFIGURATION: &str = "/etc/ceph/ceph.conf";
/// Key of the Secret of a user with the bare key, for hypervisors.
pub(crate) const CEPH_KEY: &str = "key";

/// Field that names the CephStorage of a service.
const FIELD: &str = "spec.ceph.clusterRef";

/// A user of a Ceph cluster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CephClient {
    /// Secret with `ceph.conf`, the keyring and the key of the user.
    pub(crate) secret: String,
    /// Name without `client.`.
    pub(crate) user: String,
    /// UUID of the key in libvirt.
    pub(crate) uuid: String,
    pub(crate) pools: StoragePools,
    pub(crate) filesystem: Option<String>,
}

/// The user for a service, e.g. `cinder`.
pub(crate) fn ceph_client<K>(
    context: &Context<'_, K>,
    settings: &CephSettings,
    service: &str,
) -> Result<CephClient, Invalid> {
    let Some(cluster) = &settings.cluster_ref else {
        return Err(Invalid::new(FIELD, "is missing: name a CephStorage"));
    };
    let storage = context.inputs.storage(ceph::KIND, &cluster.name, &format!("{FIELD}.name"))?;
    let Some(user) = storage.users.get(service) else {
        let reason =
            format!("CephStorage {:?} has no user for {service}: enable the pool of {service}", cluster.name);
        return Err(Invalid::new(format!("{FIELD}.name"), reason));
    };
    Ok(CephClient {
        secret: user.secret.clone(),
        user: user.name.clone(),
        uuid: user.uuid.clone(),
        pools: storage.pools.clone(),
        filesystem: storage.filesystem.clone(),
    })
}

impl CephClient {
    /// The name of a pool.
    pub(crate) fn pool(
        &self,
        choose: impl FnOnce(&StoragePools) -> Option<&String>,
    ) -> Result<String, Invalid> {
        let missing = || {
            let reason = format!("CephStorage has no pool for user {}: enable the pool", self.user);
            Invalid::new(format!("{FIELD}.name"), reason)
        };
        choose(&self.pools).cloned().ok_or_else(missing)
    }
}

/// Name of the keyring of a user: key of its Secret, and file in containers.
pub(crate) fn keyring(user: &str) -> String {
    format!("ceph.client.{user}.keyring")
}

/// Mounts the configuration of a cluster and the keyrings of these users, which are of the same cluster. A changed key
/// restarts the pods.
pub(crate) fn ceph_mounts(clients: &[&CephClient]) -> Vec<Mount> {
    let file = |client: &CephClient, key: String| Mount::SecretFile {
        secret: client.secret.clone(),
        path: format!("{CEPH_DIRECTORY}/{key}"),
        key,
    };
    let configuration = clients.first().map(|client| file(client, CEPH_CONF.to_owned()));
    configuration
        .into_iter()
        .chain(clients.iter().map(|client| file(client, keyring(&client.user))))
        .collect()
}

const AWAIT: &str = "await-ceph.py";

/// A copy of a container that ends when its user can reach these pools. Programs that start without Ceph may never use it.
pub(crate) fn await_ceph(
    plan: &mut Plan,
    container: &Container,
    (user, mounts): (&str, &[Mount]),
    pools: &[&str],
) -> Container {
    plan.files.insert(AWAIT.to_owned(), include_str!("await-ceph.py").into());
    Container {
        name: "await-ceph",
        image: container.image.clone(),
        command: command(["/usr/bin/python3", &script_path(AWAIT)]),
        environment: vec![Variable::text("CEPH_USER", user), Variable::text("CEPH_POOLS", pools.join(" "))],
        mounts: [&[file(AWAIT, &script_path(AWAIT))], mounts].concat(),
        resources: container.resources.clone(),
        ..Container::default()
    }
}
