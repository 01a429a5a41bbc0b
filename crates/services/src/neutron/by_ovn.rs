//! Networks that OVN makes.

use openstack_operator_model::common::Scheduling;
use openstack_operator_model::oslo::Document;
use openstack_operator_model::plan::{Check, Plan, Probes, Variable, Workload};
use openstack_operator_model::service::Context;
use openstack_operator_model::status::{ComputeServer, NetworkServer};

use super::{Neutron, NeutronTemplate, agent, worker};
use crate::{shared, switch};

const METADATA: &str = "neutron_ovn_metadata_agent.ini";
pub(super) const FILES: [&str; 1] = [METADATA];
/// Where the northbound database is spoken to.
const NORTHBOUND: u16 = 6641;

/// Nobody asks by RPC: nodes learn of networks from the southbound database.
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
    template: &NeutronTemplate,
) -> Document {
    document
        .set("ml2", "mechanism_drivers", "ovn")
        .set("ovn", "ovn_nb_connection", network.northbound.join(","))
        .set("ovn", "ovn_sb_connection", network.southbound.join(","))
        .set("ovn", "ovsdb_connection_timeout", 180)
        .set("ovn", "ovsdb_probe_interval", 60000)
        .set("ovn", "ovn_metadata_enabled", template.nova.cluster_ref.is_some())
        .set("ovn", "enable_distributed_floating_ip", false)
        // The userspace switch would take packets that are to be cut later for packets that are too long.
        .set("ovn", "ovn_emit_need_to_frag", !network.userspace)
}

/// Adds what OVN needs of Neutron beside its API, and what answers servers on nodes.
pub(super) fn extend(
    context: &Context<'_, Neutron>,
    plan: &mut Plan,
    network: &NetworkServer,
    compute: Option<&ComputeServer>,
    environment: Vec<Variable>,
) {
    plan.workloads.push(worker(context, "ovn-maintenance-worker", NORTHBOUND, environment));
    let Some(compute) = compute else { return };
    let configuration = agent::metadata_options(compute)
        .set("ovs", "ovsdb_connection", switch::DATABASE)
        .set("ovn", "ovn_sb_connection", network.southbound.join(","))
        .set("ovn", "ovsdb_probe_interval", 60000)
        .merge(context.object.spec.template.common.extra_config.get(METADATA));
    agent::add_files(plan, &agent::configuration());
    plan.files.insert(METADATA.to_owned(), configuration.render());
    let agents = vec![metadata_agent(context, network, compute)];
    plan.workloads.extend(shared::with_leaving(agents, &network.leaving));
}

/// Answers servers who ask for their metadata, on every node that may have servers.
fn metadata_agent(
    context: &Context<'_, Neutron>,
    network: &NetworkServer,
    compute: &ComputeServer,
) -> Workload {
    let agent = agent::container(context, "metadata-agent", "neutron-metadata-agent", METADATA);
    let mut agent = agent::of_node(agent);
    agent.command = agent::command("neutron-ovn-metadata-agent", METADATA);
    agent.environment.push(agent::metadata_secret(compute));
    let socket = Check::Command(shared::command(["test", "-S", "/var/lib/neutron/metadata_proxy"]));
    agent.probes = Probes { readiness: Some(shared::probe(socket, 15, 5, 3)), ..Probes::default() };
    let scheduling = Scheduling {
        node_selector: network.node_selector.clone(),
        ..context.object.spec.template.common.scheduling.clone()
    };
    agent::workload("metadata-agent", &scheduling, &network.southbound, vec![agent])
}
