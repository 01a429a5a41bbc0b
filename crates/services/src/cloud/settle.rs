//! Settling: fills in the inputs of a service from its cloud.

use openstack_operator_model::common::{Exposure, NameReference, PodAdditions, Scheduling};
use openstack_operator_model::kind::Kind;
use openstack_operator_model::service::Invalid;

use super::Cloud;
use crate::concern::{CacheSettings, DatabaseSettings, IdentityAddress, IdentitySettings, MessagingSettings};
use crate::control_plane::ComponentSettings;
use crate::inputs::{Input, Link, Needed, Role, Scale};
use crate::{keystone, mariadb, memcached, rabbitmq};

/// Pods of a stateless component in a highly available cloud.
const STATELESS: i32 = 2;
/// Members of a quorum in a highly available cloud.
const QUORUM: i32 = 3;

/// Reason why an input cannot be filled in.
pub(super) enum Unsettled {
    /// The part is skipped; the rest of the cloud is deployed.
    LeftOut(String),
    Invalid(Invalid),
}

type Result = std::result::Result<(), Unsettled>;

/// Fills in one input of the part. Values of the block take precedence.
pub(super) fn settle(input: Input<'_>, cloud: &Cloud<'_>, block: &str) -> Result {
    match input {
        Input::Exposure(exposure) => settle_exposure(exposure, cloud, block),
        Input::Hostname { host, hostname, .. } => {
            hostname.get_or_insert_with(|| format!("{host}.{}", cloud.spec.public_domain));
        }
        Input::Region { region, .. } => {
            region.get_or_insert_with(|| cloud.spec.region.clone());
        }
        Input::Database { settings, needed, .. } => return settle_database(settings, needed, cloud),
        Input::Messaging { settings, needed, .. } => return settle_messaging(settings, needed, cloud),
        Input::Cache(settings) => settle_cache(settings, cloud),
        Input::Identity(settings) => return settle_identity(settings, cloud),
        Input::IdentityAddress(address) => return settle_identity_address(address, cloud),
        Input::Service { kind, link, reference, .. } => return settle_service(kind, link, reference, cloud),
        Input::Scheduling { field, role, scheduling } => {
            return settle_scheduling(&path(block, field), role, scheduling, cloud);
        }
        Input::Component { field, settings } => {
            let wanted = |given: &&ComponentSettings| given.service == block && given.component == field;
            if let Some(given) = cloud.spec.components.iter().find(wanted) {
                *settings = given.settings.clone();
            }
        }
        Input::Replicas { scale, replicas } => {
            if cloud.spec.high_availability {
                replicas.get_or_insert(match scale {
                    Scale::Quorum => QUORUM,
                    Scale::Stateless => STATELESS,
                });
            }
        }
        Input::StorageClass(class) => {
            if class.is_none() {
                class.clone_from(&cloud.spec.storage_class_name);
            }
        }
        Input::Pods { additions, .. } => add_to_pods(additions, cloud, block),
        // Topics are filled in first, because other inputs depend on them.
        Input::Topics { .. } | Input::Users(_) => {}
    }
    Ok(())
}

/// Fills in the topics for which a part produces notifications.
pub(super) fn settle_topics(inputs: Vec<Input<'_>>, cloud: &Cloud<'_>, producer: Kind) {
    for input in inputs {
        if let Input::Topics { topics, .. } = input {
            *topics = cloud.topics(producer);
        }
    }
}

fn path(block: &str, field: &str) -> String {
    let separator = if field.is_empty() { "" } else { "." };
    format!("spec.{block}{separator}{field}")
}

fn settle_exposure(exposure: &mut Exposure, cloud: &Cloud<'_>, block: &str) {
    let hostname = || format!("{block}.{}", cloud.spec.public_domain);
    exposure.public_hostname.get_or_insert_with(hostname);
    if exposure.gateway_ref.is_none() {
        exposure.gateway_ref.clone_from(&cloud.spec.gateway_ref);
    }
    exposure.public_scheme.get_or_insert(cloud.spec.public_scheme);
}

/// Handles an input from a part that the cloud does not have.
fn left_out(kind: Kind, needed: Needed, alternative: &str) -> Result {
    match needed {
        Needed::Always => Err(missing(kind, alternative)),
        Needed::When(_) => Ok(()),
    }
}

fn missing(kind: Kind, alternative: &str) -> Unsettled {
    Unsettled::LeftOut(format!("it requires {}, which is disabled{alternative}", kind.kind))
}

fn settle_database(settings: &mut DatabaseSettings, needed: Needed, cloud: &Cloud<'_>) -> Result {
    if let Some(existing) = &cloud.spec.database {
        settings.host = Some(existing.host.clone());
        settings.port = existing.port;
        settings.admin_secret_ref = Some(existing.admin_secret_ref.clone());
    } else {
        settings.cluster_ref = cloud.reference(mariadb::KIND);
        if settings.cluster_ref.is_none() {
            return left_out(mariadb::KIND, needed, ", or an existing server in spec.database");
        }
    }
    Ok(())
}

fn settle_messaging(settings: &mut MessagingSettings, needed: Needed, cloud: &Cloud<'_>) -> Result {
    if let Some(existing) = &cloud.spec.messaging {
        settings.hosts.clone_from(&existing.hosts);
        settings.secret_ref = Some(existing.secret_ref.clone());
        settings.virtual_host.clone_from(&existing.virtual_host);
    } else {
        settings.cluster_ref = cloud.reference(rabbitmq::KIND);
        if settings.cluster_ref.is_none() {
            return left_out(rabbitmq::KIND, needed, ", or existing servers in spec.messaging");
        }
    }
    Ok(())
}

fn settle_cache(settings: &mut CacheSettings, cloud: &Cloud<'_>) {
    match &cloud.spec.cache {
        Some(existing) => settings.servers.clone_from(&existing.servers),
        None => settings.cluster_ref = cloud.reference(memcached::KIND),
    }
}

fn settle_identity(settings: &mut IdentitySettings, cloud: &Cloud<'_>) -> Result {
    if let Some(existing) = &cloud.spec.identity {
        settings.auth_url = Some(existing.auth_url.clone());
        settings.region = Some(cloud.spec.region.clone());
        settings.admin_secret_ref = Some(existing.admin_secret_ref.clone());
    } else {
        settings.cluster_ref = Some(identity_reference(cloud)?);
    }
    Ok(())
}

fn settle_identity_address(address: &mut IdentityAddress, cloud: &Cloud<'_>) -> Result {
    if let Some(existing) = &cloud.spec.identity {
        address.auth_url = Some(existing.auth_url.clone());
    } else {
        address.cluster_ref = Some(identity_reference(cloud)?);
    }
    Ok(())
}

fn identity_reference(cloud: &Cloud<'_>) -> std::result::Result<NameReference, Unsettled> {
    let reason = || missing(keystone::KIND, ", or an existing one in spec.identity");
    cloud.reference(keystone::KIND).ok_or_else(reason)
}

fn settle_service(
    kind: Kind,
    link: Link,
    reference: &mut Option<NameReference>,
    cloud: &Cloud<'_>,
) -> Result {
    *reference = cloud.reference(kind);
    match link.needed() {
        Some(needed) if reference.is_none() => left_out(kind, needed, ""),
        _ => Ok(()),
    }
}

/// Applies the topology that the block names, or the default of its role.
fn settle_scheduling(field: &str, role: Role, scheduling: &mut Scheduling, cloud: &Cloud<'_>) -> Result {
    let find = |name: &str| cloud.spec.topologies.iter().find(|topology| topology.name == name);
    let found = match scheduling.topology.take() {
        Some(name) => Some(find(&name).ok_or_else(|| {
            let names: Vec<&str> =
                cloud.spec.topologies.iter().map(|topology| topology.name.as_str()).collect();
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let reason = format!("{name:?} is not in spec.topologies: known topologies are {known}");
            Unsettled::Invalid(Invalid::new(format!("{field}.topology"), reason))
        })?),
        None => match role {
            Role::Control => find("control"),
            // Compute nodes are part of the virtual networks.
            Role::Network => find("network").or_else(|| find("compute")),
            Role::Compute => find("compute"),
        },
    };
    if let Some(topology) = found {
        *scheduling = topology.scheduling.clone();
    }
    Ok(())
}

fn add_to_pods(additions: &mut PodAdditions, cloud: &Cloud<'_>, block: &str) {
    let spec = cloud.spec;
    let mounts = spec
        .extra_mounts
        .iter()
        .filter(|mount| mount.services.is_empty() || mount.services.iter().any(|service| service == block));
    additions.extra_mounts.extend(mounts.map(|mount| mount.mount.clone()));
    additions.pod_labels.extend(spec.pod_labels.clone());
    additions.pod_annotations.extend(spec.pod_annotations.clone());
}
