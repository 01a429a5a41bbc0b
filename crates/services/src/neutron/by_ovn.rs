//! Mechanism `ovn`.

use std::borrow::Cow;

use openstack_operator_model::common::Scheduling;
use openstack_operator_model::oslo::Document;
use openstack_operator_model::plan::{Check, Probes, Workload};
use openstack_operator_model::release::{Release, Releases};
use openstack_operator_model::service::{Context, Invalid};
use openstack_operator_model::status::{ComputeServer, NetworkServer};

use super::{Neutron, NeutronTemplate, OvnReference, add_worker, agent};
use crate::program::Program;
use crate::{ovn, shared, switch};

const METADATA: &str = "neutron_ovn_metadata_agent.ini";
pub(super) const FILES: [&str; 1] = [METADATA];
/// Default port of the northbound database.
const NORTHBOUND: u16 = 6641;
/// Interval after which a silent member of OVN's databases is asked for an answer. One without an answer is replaced after
/// twice this time; Neutron's default of a minute would fail requests for two minutes when a node is lost.
const PROBE_MILLISECONDS: u32 = 10_000;
pub(super) const DRIVERS: &str = "ovn";
/// Releases with an option for messages about packets that are too long.
const EMITS_NEED_TO_FRAG: Releases = Releases::until(Release::Epoxy);

/// OVN of an object, with other addresses if set, or an existing OVN, whose nodes are the compute nodes.
pub(super) fn network<'a>(context: &Context<'a, Neutron>) -> Result<Cow<'a, NetworkServer>, Invalid> {
    let OvnReference { cluster_ref, nb_connection, sb_connection, .. } = &context.object.spec.template.ovn;
    let given = match cluster_ref {
        Some(cluster) => {
            Some(context.inputs.network(ovn::KIND, &cluster.name, "spec.ovn.clusterRef.name")?)
        }
        None => None,
    };
    let (Some(northbound), Some(southbound)) = (nb_connection, sb_connection) else {
        let reason = "is incomplete: name an OVNNetwork in clusterRef, or existing databases in nbConnection and \
                      sbConnection";
        return given.map(Cow::Borrowed).ok_or_else(|| Invalid::new("spec.ovn", reason));
    };
    // Clients of OVN do not resolve Services, so they get cluster IPs where known.
    let addresses = |text: &String| {
        let address = |address: &str| match context.inputs.addresses.get(host(address)) {
            Some(number) => address.replace(host(address), number),
            None => address.to_owned(),
        };
        text.split(',').map(address).collect()
    };
    let mut network = given.cloned().unwrap_or_else(|| NetworkServer {
        northbound: Vec::new(),
        southbound: Vec::new(),
        userspace: false,
        physical_networks: Vec::new(),
        node_selector: shared::on_hypervisors(&Scheduling::default()).node_selector,
        leaving: Vec::new(),
    });
    network.northbound = addresses(northbound);
    network.southbound = addresses(southbound);
    Ok(Cow::Owned(network))
}

/// The host of an address such as `tcp:ovn-nb.ovn-system:6641`.
fn host(address: &str) -> &str {
    address.split(':').nth(1).unwrap_or_default()
}

/// Host names of the databases in the spec. Those with a dot may be Services.
pub(super) fn hosts(template: &NeutronTemplate) -> Vec<String> {
    let OvnReference { nb_connection, sb_connection, .. } = &template.ovn;
    let connections = nb_connection.iter().chain(sb_connection).flat_map(|text| text.split(','));
    let names = connections.map(host).filter(|host| host.contains(|c: char| c.is_ascii_alphabetic()));
    names.map(str::to_owned).collect()
}

/// Options without RPC workers: nodes read the southbound database.
pub(super) fn server_options(document: Document) -> Document {
    document.section_of(
        "DEFAULT",
        [
            ("service_plugins", "ovn-router,qos,trunk,port_forwarding"),
            ("rpc_workers", "0"),
            ("rpc_state_report_workers", "0"),
        ],
    )
}

pub(super) fn plugin_options(
    document: Document,
    network: &NetworkServer,
    context: &Context<'_, Neutron>,
) -> Document {
    let template = &context.object.spec.template;
    let document = document
        .set("ovn", "ovn_nb_connection", network.northbound.join(","))
        .set("ovn", "ovn_sb_connection", network.southbound.join(","))
        .set("ovn", "ovsdb_connection_timeout", 180)
        .set("ovn", "ovsdb_probe_interval", PROBE_MILLISECONDS)
        .set("ovn", "ovn_metadata_enabled", template.nova.cluster_ref.is_some())
        .set("ovn", "enable_distributed_floating_ip", false);
    if !EMITS_NEED_TO_FRAG.contains(context.runtime.release) {
        return document;
    }
    // The userspace datapath would treat packets with segmentation offload as too long.
    document.set("ovn", "ovn_emit_need_to_frag", !network.userspace)
}

/// Adds the OVN maintenance worker and the metadata agent.
pub(super) fn extend(
    neutron: &mut Program<'_, Neutron>,
    network: &NetworkServer,
    compute: Option<&ComputeServer>,
) {
    let context = neutron.context;
    let template = &context.object.spec.template;
    let port = network.northbound.first().and_then(|address| address.rsplit(':').next()?.parse().ok());
    let port = port.unwrap_or(NORTHBOUND);
    add_worker(neutron, "ovn-maintenance-worker", &template.ovn_maintenance_worker, port);
    let Some(compute) = compute else { return };
    let configuration = agent::metadata_options(compute)
        .set("ovs", "ovsdb_connection", switch::DATABASE)
        .set("ovn", "ovn_sb_connection", network.southbound.join(","))
        .set("ovn", "ovsdb_probe_interval", PROBE_MILLISECONDS)
        .merge(template.common.extra_config.get(METADATA));
    agent::add_files(&mut neutron.plan, &agent::configuration());
    neutron.plan.files.insert(METADATA.to_owned(), configuration.render().into());
    let agents = vec![metadata_agent(context, network, compute)];
    neutron.plan.workloads.extend(shared::with_leaving(agents, &network.leaving));
}

/// Metadata agent on all compute nodes.
fn metadata_agent(
    context: &Context<'_, Neutron>,
    network: &NetworkServer,
    compute: &ComputeServer,
) -> Workload {
    let template = &context.object.spec.template;
    let settings = &template.metadata_agent;
    let agent = agent::container(context, "metadata-agent", "neutron-metadata-agent", METADATA, settings);
    let mut agent = agent::with_node_access(agent);
    agent.command = agent::command("neutron-ovn-metadata-agent", METADATA);
    agent.environment.push(agent::metadata_secret(compute));
    let socket = Check::Command(shared::command(["test", "-S", "/var/lib/neutron/metadata_proxy"]));
    agent.probes = Probes { readiness: Some(shared::probe(socket, 15, 5, 3)), ..Probes::default() };
    let scheduling = Scheduling {
        node_selector: network.node_selector.clone(),
        ..template.common.pods.scheduling.clone()
    };
    agent::workload("metadata-agent", &scheduling, &network.southbound, vec![agent])
}
