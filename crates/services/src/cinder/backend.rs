//! Backends: the options, files and pods of their volume services.

use std::collections::BTreeMap;

use openstack_operator_model::common::Component;
use openstack_operator_model::name;
use openstack_operator_model::need::Needs;
use openstack_operator_model::oslo::{Document, SecretDocument};
use openstack_operator_model::plan::{
    Controller, Entry, Host, HostPath, Mount, Privilege, SecretKey, SecretPlan, Variable, Workload,
};
use openstack_operator_model::service::{Context, Invalid};
use openstack_operator_model::status::StoragePools;

use super::{
    Backend, BackendType, Cinder, ImageVolumeCache, LVM_DRIVER, LvmBackend, RBD_DRIVER, RbdBackend, STATE,
    STORAGE_AMOUNTS, USER, VOLUME, WORK,
};
use crate::inputs;
use crate::program::{Program, Worker};
use crate::shared::{self, CEPH_CONFIGURATION, CephClient, MessageBus};

/// Host of the volumes of all backends. It does not change with the pod, which volumes would otherwise lose.
const HOST: &str = "cinder";
/// User of Ceph by default.
const CEPH_USER: &str = "cinder";
/// Pool of Ceph by default.
const POOL: &str = "volumes";
const TENANT: &str = "tenant.py";
const LVM: &str = "lvm.conf";
/// Key of the Secret with the options of a backend.
const SECRETS: &str = "backend-secrets.conf";

/// Users of Ceph by the backend that they belong to.
pub(super) type Clients = BTreeMap<String, CephClient>;

pub(super) fn needs(backend: &Backend) -> Needs {
    let field = |rest: &str| format!("spec.backends[{}].{rest}", backend.name);
    let ceph = backend.rbd.ceph_secret_ref.as_ref().filter(|_| backend.kind() == BackendType::Ceph);
    let keyring = shared::keyring(user(backend));
    let needs = Needs::default().secret(
        &field("rbd.cephSecretRef"),
        ceph.map(|secret| secret.name.as_str()),
        &["ceph.conf", &keyring],
    );
    backend.secret_options.iter().fold(needs, |needs, option| {
        let reference = &option.secret_key_ref;
        needs.secret(&field("secretOptions[].secretKeyRef"), Some(&reference.name), &[&reference.key])
    })
}

fn user(backend: &Backend) -> &str {
    backend.rbd.ceph_client_ref.as_ref().map_or(CEPH_USER, |client| client.name.as_str())
}

/// Users of Ceph of all backends.
pub(super) fn clients(context: &Context<'_, Cinder>) -> Result<Clients, Invalid> {
    let template = &context.object.spec.template;
    let backends = template.backends.iter().filter(|backend| backend.kind() == BackendType::Ceph);
    let client = |backend: &Backend| match &backend.rbd.ceph_secret_ref {
        None => shared::ceph_client(context, &template.ceph, CEPH_USER),
        Some(secret) => Ok(CephClient {
            secret: secret.name.clone(),
            user: user(backend).to_owned(),
            uuid: backend.rbd.secret_uuid.clone().unwrap_or_default(),
            pools: StoragePools::default(),
            filesystem: None,
        }),
    };
    backends.map(|backend| Ok((backend.name.clone(), client(backend)?))).collect()
}

fn pool<'a>(backend: &'a Backend, client: &'a CephClient) -> &'a str {
    backend.rbd.pool.as_deref().or(client.pools.volumes.as_deref()).unwrap_or(POOL)
}

/// Adds the volume service of a backend.
pub(super) fn add(
    cinder: &mut Program<'_, Cinder>,
    backend: &Backend,
    clients: &Clients,
    bus: &MessageBus,
) -> Result<(), Invalid> {
    let template = &cinder.context.object.spec.template;
    let mounts = mounts(cinder, backend, clients)?;
    let container = &backend.volume.container;
    let resources = shared::component_resources(container, &template.common.pods, STORAGE_AMOUNTS);
    let workload = cinder.worker(Worker {
        component: VOLUME,
        image: super::image("cinder-volume"),
        settings: &Component { replicas: backend.volume.replicas.or(Some(1)), container: container.clone() },
        command: super::start("cinder-volume"),
        controller: super::named_pods(),
        probes: shared::connected_to(bus.port, USER),
    });
    super::complete(workload, template.shutdown_seconds);
    let component = format!("{VOLUME}-{}", backend.name);
    workload.suffix = Some(component.clone().into());
    workload.component = component.into();
    // Others do not use the cluster of the object.
    if clients.contains_key(&backend.name) && backend.rbd.ceph_secret_ref.is_none() {
        workload.after = inputs::waits(template);
    }
    if let Some(container) = workload.pod.containers.first_mut() {
        container.resources = resources;
        container.mounts.extend(mounts);
        container.environment.extend(environment(backend));
    }
    if let Some(lvm) = lvm(backend) {
        put_on_nodes(workload, lvm, bus);
    }
    Ok(())
}

fn lvm(backend: &Backend) -> Option<&LvmBackend> {
    backend.lvm.as_ref().filter(|_| backend.kind() == BackendType::Lvm)
}

/// Files of a backend.
fn mounts(
    cinder: &mut Program<'_, Cinder>,
    backend: &Backend,
    clients: &Clients,
) -> Result<Vec<Mount>, Invalid> {
    let options = options(backend, clients, &cinder.context.object.spec.template.backends)?;
    let file = format!("backend-{}.conf", backend.name);
    let mut mounts = vec![cinder.additional_file(&file, Some(&backend.name), options)];
    mounts.extend(add_secret_options(cinder, backend)?);
    mounts.extend(clients.get(&backend.name).into_iter().flat_map(|client| shared::ceph_mounts(&[client])));
    let mut add = |file: &str, text: &str, path: &str| {
        cinder.plan.files.insert(file.to_owned(), text.into());
        shared::file(file, path)
    };
    if backend.image_volume_cache.is_some() {
        mounts.push(add(TENANT, include_str!("tenant.py"), &shared::script_path(TENANT)));
    }
    mounts.push(match lvm(backend) {
        Some(_) => add(LVM, include_str!("lvm.conf"), "/etc/cinder/lvm.conf"),
        None => super::without_privileges(),
    });
    Ok(mounts)
}

fn environment(backend: &Backend) -> Vec<Variable> {
    let mut variables = vec![Variable::text("OS_DEFAULT__ENABLED_BACKENDS", &backend.name)];
    if let Some(cluster) = &backend.cluster {
        variables.push(Variable::text("OS_DEFAULT__CLUSTER", cluster));
        variables.push(Variable::text("FIRST_HOST", HOST));
    }
    variables
        .extend(backend.image_volume_cache.as_ref().map(|_| Variable::text("IMAGE_VOLUME_CACHE", "true")));
    variables
}

/// Runs the volume service of LVM on its nodes, with access to their devices and iSCSI targets.
fn put_on_nodes(workload: &mut Workload, lvm: &LvmBackend, bus: &MessageBus) {
    workload.controller = Controller::DaemonSet;
    workload.replicas = 1;
    workload.pod.host = Host::Network;
    workload.pod.scheduling.node_selector.clone_from(&lvm.node_selector);
    let Some(container) = workload.pod.containers.first_mut() else { return };
    container.privilege = Privilege::NodeRoot;
    container.probes = shared::container_connected_to(bus.port);
    container.environment.extend([
        Variable::field("NODE_NAME", "spec.nodeName"),
        Variable::field("HOST_IP", "status.hostIP"),
        Variable::text("OS_DEFAULT__HOST", "$(NODE_NAME)"),
        Variable::text("OS_DEFAULT__MY_IP", "$(HOST_IP)"),
    ]);
    // Definitions of targets stay on the node.
    container.mounts.retain(|mount| !matches!(mount, Mount::Scratch { name, .. } if *name == WORK));
    container.mounts.extend([
        Mount::Host {
            name: WORK,
            path: STATE,
            on_host: "/var/lib/openstack/cinder".to_owned(),
            kind: HostPath::Directory,
        },
        shared::host("dev", "/dev", HostPath::Existing),
        shared::host("run", "/run", HostPath::HostToContainer),
        shared::host("modules", "/lib/modules", HostPath::Existing),
        shared::host("configfs", "/sys/kernel/config", HostPath::Existing),
        shared::host_directory("targets", "/etc/target"),
    ]);
}

/// Options of a backend, in a file that only its pods read.
fn options(backend: &Backend, clients: &Clients, all: &[Backend]) -> Result<Document, Invalid> {
    let section = backend.name.as_str();
    let kind = backend.kind();
    let driver = driver(backend)?;
    let mut document =
        Document::new().set(section, "volume_driver", driver).set(section, "volume_backend_name", section);
    // Members of a cluster have different hosts, and the host of a node is its name.
    if backend.cluster.is_none() && kind != BackendType::Lvm {
        document = document.set(section, "backend_host", HOST);
    }
    if let Some(client) = clients.get(section) {
        document = ceph_options(document, backend, client, is_shared(backend, clients, all));
    }
    if let Some(LvmBackend { volume_group, target_helper, .. }) = lvm(backend) {
        document = document
            .set(section, "volume_group", volume_group)
            .set(section, "target_helper", target_helper.name())
            .set(section, "target_protocol", "iscsi");
    }
    Ok(cache_options(document, section, backend.image_volume_cache.as_ref()))
}

/// Class of the driver. Settings of another type of backend are refused, because they would have no effect.
fn driver(backend: &Backend) -> Result<&str, Invalid> {
    let Backend { name, driver, rbd, cluster, .. } = backend;
    let refuse = |field: &str, reason: &str| {
        Err(Invalid::new(format!("spec.backends[{name}].{field}"), reason.to_owned()))
    };
    let kind = backend.kind();
    if kind != BackendType::Ceph && *rbd != RbdBackend::default() {
        return refuse("rbd", "is only for type ceph: remove it, or set type to ceph");
    }
    if kind == BackendType::Lvm && cluster.is_some() {
        return refuse(
            "cluster",
            "cannot be used with LVM, because each node has its own volumes: remove it",
        );
    }
    match (kind, driver.as_deref()) {
        (BackendType::Ceph, None | Some(RBD_DRIVER)) => Ok(RBD_DRIVER),
        (BackendType::Lvm, None | Some(LVM_DRIVER)) => Ok(LVM_DRIVER),
        (BackendType::Custom, Some(driver)) => Ok(driver),
        (BackendType::Custom, None) => {
            refuse("driver", "is missing: type custom needs the class of the volume driver")
        }
        (BackendType::Ceph | BackendType::Lvm, Some(_)) => {
            refuse("driver", "is not the driver of the type: remove it, or set type to custom")
        }
    }
}

/// Who uses a pool.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Users {
    OneBackend,
    SeveralBackends,
}

fn is_shared(backend: &Backend, clients: &Clients, all: &[Backend]) -> Users {
    let place = |backend: &Backend| {
        let client = clients.get(&backend.name)?;
        Some((client.secret.clone(), pool(backend, client).to_owned()))
    };
    let (own, same) = (place(backend), all.iter().map(place));
    if same.filter(|one| *one == own).count() > 1 { Users::SeveralBackends } else { Users::OneBackend }
}

fn ceph_options(document: Document, backend: &Backend, client: &CephClient, users: Users) -> Document {
    let section = backend.name.as_str();
    let document = document
        .set(section, "rbd_pool", pool(backend, client))
        .set(section, "rbd_user", &client.user)
        .set(section, "rbd_ceph_conf", CEPH_CONFIGURATION)
        .set(section, "report_discard_supported", true);
    let document = match client.uuid.as_str() {
        "" => document,
        uuid => document.set(section, "rbd_secret_uuid", uuid),
    };
    match users {
        Users::OneBackend => document,
        // Otherwise it counts the volumes of the other backend as its own.
        Users::SeveralBackends => document.set(section, "rbd_exclusive_cinder_pool", false),
    }
}

fn cache_options(document: Document, section: &str, cache: Option<&ImageVolumeCache>) -> Document {
    let Some(cache) = cache else { return document };
    let document = document.set(section, "image_volume_cache_enabled", true);
    let limits = [
        ("image_volume_cache_max_size_gb", cache.max_size_gb),
        ("image_volume_cache_max_count", cache.max_count),
    ];
    limits.into_iter().fold(document, |document, (option, limit)| match limit {
        Some(limit) => document.set(section, option, limit),
        None => document,
    })
}

/// Adds the Secret with options of a backend, and returns its mount.
fn add_secret_options(cinder: &mut Program<'_, Cinder>, backend: &Backend) -> Result<Option<Mount>, Invalid> {
    let mut options = SecretDocument::default();
    for option in &backend.secret_options {
        let reference = &option.secret_key_ref;
        options.set(&backend.name, &option.option, &[SecretKey::new(&reference.name, &reference.key)]);
    }
    if options.is_empty() {
        return Ok(None);
    }
    shared::check_overrides(&cinder.context.object.spec.template.common, &cinder.plan, &options)?;
    let secret = name::part(cinder.context.name, &format!("backend-{}", backend.name));
    let entry = Entry::Template(options.template());
    cinder.plan.secrets.push(SecretPlan::with_entries(&secret, [(SECRETS, entry)]));
    let path = super::additional(SECRETS);
    Ok(Some(Mount::SecretFile { secret, key: SECRETS.to_owned(), path }))
}
