//! Mechanism `ovs`: the Open vSwitch agent on all nodes, and the L3, DHCP and metadata agents on some.

use std::borrow::Cow;
use std::collections::BTreeMap;

use openstack_operator_model::common::{ContainerSettings, Reference, Scheduling};
use openstack_operator_model::oslo::Document;
use openstack_operator_model::plan::{Container, NodeAgents, Plan, Registry, Workload};
use openstack_operator_model::service::Context;
use openstack_operator_model::status::ComputeServer;

use super::{API, KIND, NetworkType, Neutron, NeutronSpec, NeutronTemplate, OvsSettings, agent};
use crate::program::Program;
use crate::shared::{self, Account, MessageBus};
use crate::switch::{self, Datapath, Pods};

const OVS: &str = "openvswitch_agent.ini";
const L3: &str = "l3_agent.ini";
const DHCP: &str = "dhcp_agent.ini";
const METADATA: &str = "metadata_agent.ini";
pub(super) const FILES: [&str; 4] = [OVS, L3, DHCP, METADATA];
pub(super) const DRIVERS: &str = "openvswitch,l2population";

pub(super) fn settings(template: &NeutronTemplate) -> Cow<'_, OvsSettings> {
    template.ovs.as_ref().map_or_else(|| Cow::Owned(OvsSettings::default()), Cow::Borrowed)
}

/// Nodes that run Open vSwitch.
pub(super) fn scheduling(settings: &OvsSettings) -> Scheduling {
    shared::on_hypervisors(&settings.scheduling)
}

/// Nodes that run the L3 and DHCP agents.
fn agent_scheduling(settings: &OvsSettings) -> Scheduling {
    let given = &settings.agents.scheduling;
    if given.node_selector.is_empty() {
        return Scheduling { node_selector: scheduling(settings).node_selector, ..given.clone() };
    }
    given.clone()
}

pub(super) fn physical_networks(settings: &OvsSettings) -> Vec<String> {
    switch::physical_networks(&settings.links, settings.overrides.iter())
}

/// Options of the API and the RPC server. Another node takes over the routers of a lost node.
pub(super) fn server_options(document: Document) -> Document {
    document.section_of(
        "DEFAULT",
        [
            ("service_plugins", "router,qos,trunk,port_forwarding"),
            ("rpc_workers", "1"),
            ("rpc_state_report_workers", "1"),
            ("allow_automatic_l3agent_failover", "true"),
            ("dhcp_agents_per_network", "2"),
        ],
    )
}

/// Registry of the agents. Without an administrator the operator cannot query it.
pub(super) fn node_agents(
    context: &Context<'_, Neutron>,
    url: &str,
    account: &Account,
) -> Option<NodeAgents> {
    account.server.secret.as_ref()?;
    Some(NodeAgents {
        provider: Reference::new(KIND, context.name),
        registry: Registry::Network { url: url.to_owned(), identity: account.server.clone() },
        nodes: context.inputs.chosen_nodes(),
    })
}

/// Adds Open vSwitch and the agents.
pub(super) fn extend(
    neutron: &mut Program<'_, Neutron>,
    settings: &OvsSettings,
    compute: Option<&ComputeServer>,
    bus: &MessageBus,
) {
    let context = neutron.context;
    let NeutronSpec { origin, template } = &context.object.spec;
    let plan = &mut neutron.plan;
    add_files(plan, template, settings, compute);
    plan.live_files = switch_settings(context, settings);
    let image = |names| {
        shared::component_image(
            context,
            names,
            &settings.switch.container.image,
            &template.common.pods,
            origin,
        )
    };
    let scheduling = scheduling(settings);
    let resources = &settings.switch.container.resources;
    let mut workloads = switch::workloads(&Pods {
        owner: shared::owner(context, KIND),
        image: &image,
        scheduling: &scheduling,
        resources,
    });
    workloads.push(switch_agent(context, &scheduling, settings, bus));
    let agents = network_agents(context, settings, compute, bus);
    // With its own labels, the workload covers leaving nodes as well.
    if settings.agents.scheduling.node_selector.is_empty() {
        workloads.push(agents);
    } else {
        plan.workloads.push(agents);
    }
    plan.workloads.extend(shared::with_leaving(workloads, &context.inputs.leaving_nodes()));
}

fn switch_settings(context: &Context<'_, Neutron>, settings: &OvsSettings) -> BTreeMap<String, String> {
    let datapath = settings.switch.datapath;
    let nodes = context.inputs.nodes.iter().chain(&context.inputs.leaving);
    let special = nodes.filter_map(|(node, labels)| {
        let change = settings.overrides.iter().find(|change| change.matches(labels))?;
        Some((switch::node_file(node), switch::settings(datapath, &change.apply(&settings.links))))
    });
    let plain = (switch::ALL_NODES.to_owned(), switch::settings(datapath, &settings.links));
    let claimed = (shared::CLAIMED_NODES.to_owned(), shared::claimed_nodes(context));
    [plain, claimed].into_iter().chain(special).collect()
}

fn add_files(
    plan: &mut Plan,
    template: &NeutronTemplate,
    settings: &OvsSettings,
    compute: Option<&ComputeServer>,
) {
    let userspace = settings.switch.datapath == Datapath::Netdev;
    let all = shared::messaging_options(agent::configuration())
        .set("DEFAULT", "interface_driver", "openvswitch")
        // Devices of the userspace datapath disappear with its process.
        .set("DEFAULT", "ovs_use_veth", userspace)
        .set("ovs", "ovsdb_connection", switch::DATABASE)
        .set("ovs", "datapath_type", settings.switch.datapath.name());
    agent::add_files(plan, &all);
    let is_tunnel = |kind: &&NetworkType| matches!(kind, NetworkType::Geneve | NetworkType::Vxlan);
    let tunnels: Vec<&str> =
        template.ml2.type_drivers.iter().filter(is_tunnel).map(|kind| kind.name()).collect();
    let switch = Document::new()
        .set("agent", "tunnel_types", tunnels.join(","))
        .set("agent", "l2_population", true)
        .set("agent", "arp_responder", true)
        .set("agent", "extensions", "qos")
        .set("securitygroup", "firewall_driver", "openvswitch");
    let router = Document::new().set("DEFAULT", "agent_mode", "legacy").set(
        "agent",
        "extensions",
        "port_forwarding,fip_qos",
    );
    // Instances of networks without a router get metadata from here; others can.
    let dhcp = Document::new().set("DEFAULT", "enable_isolated_metadata", compute.is_some()).set(
        "DEFAULT",
        "force_metadata",
        compute.is_some(),
    );
    let metadata = compute.map(|compute| (METADATA, agent::metadata_options(compute)));
    for (file, document) in [(OVS, switch), (L3, router), (DHCP, dhcp)].into_iter().chain(metadata) {
        let document = document.merge(template.common.extra_config.get(file));
        plan.files.insert(file.to_owned(), document.render().into());
    }
    plan.files.insert("switch-agent.sh".to_owned(), include_str!("switch-agent.sh").into());
    plan.files.extend(switch::files());
}

/// Connects an agent to the message bus.
fn connect(mut agent: Container, bus: &MessageBus) -> Container {
    agent.environment.push(bus.variable.clone());
    agent.probes = shared::container_connected_to(bus.port);
    agent
}

/// Peers that agents wait for. The RPC server starts with the API, and an earlier call blocks for a minute.
fn peers(context: &Context<'_, Neutron>) -> [String; 1] {
    [format!("tcp:{}:{}", shared::service_host(context, context.name), API.number)]
}

fn switch_agent(
    context: &Context<'_, Neutron>,
    scheduling: &Scheduling,
    settings: &OvsSettings,
    bus: &MessageBus,
) -> Workload {
    let name = "openvswitch-agent";
    let agent = agent::container(context, name, "neutron-openvswitch-agent", OVS, &settings.agent);
    let mut agent = agent::with_node_access(agent);
    agent.command = shared::script("/etc/openstack/switch-agent.sh");
    agent.environment.push(shared::owner(context, KIND));
    agent.mounts.push(shared::file("switch-agent.sh", "/etc/openstack/switch-agent.sh"));
    agent::workload(name, scheduling, &peers(context), vec![connect(agent, bus)])
}

/// In one pod, because the L3 and DHCP agents forward metadata requests to the metadata agent over a socket.
fn network_agents(
    context: &Context<'_, Neutron>,
    settings: &OvsSettings,
    compute: Option<&ComputeServer>,
    bus: &MessageBus,
) -> Workload {
    let container: &ContainerSettings = &settings.agents.container;
    let agent = |name: &'static str, kolla: &'static str, file: &str| {
        let mut agent = connect(agent::container(context, name, kolla, file, container), bus);
        agent.command = agent::command(kolla, file);
        agent
    };
    let mut agents = vec![
        agent::with_node_access(agent("l3-agent", "neutron-l3-agent", L3)),
        agent::with_node_access(agent("dhcp-agent", "neutron-dhcp-agent", DHCP)),
    ];
    if let Some(compute) = compute {
        let mut metadata = agent("metadata-agent", "neutron-metadata-agent", METADATA);
        metadata.environment.push(agent::metadata_secret(compute));
        agents.push(metadata);
    }
    agent::workload("network-agents", &agent_scheduling(settings), &peers(context), agents)
}
