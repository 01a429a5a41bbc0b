//! Common parts of the agents on nodes.

use openstack_operator_model::common::{ContainerSettings, Scheduling};
use openstack_operator_model::image::ImageNames;
use openstack_operator_model::oslo::Document;
use openstack_operator_model::plan::{Container, Host, HostPath, Plan, Pod, Privilege, Variable, Workload};
use openstack_operator_model::service::Context;
use openstack_operator_model::status::ComputeServer;

use super::{Neutron, NeutronSpec, PROJECT};
use crate::{nova, shared, switch};

/// Configuration file that all agents read first.
const CONFIGURATION: &str = "agent.conf";

/// Common configuration of agents, including commands that run as root.
pub(super) fn configuration() -> Document {
    Document::new()
        .set("DEFAULT", "use_stderr", true)
        .set("DEFAULT", "state_path", "/var/lib/neutron")
        .set("oslo_concurrency", "lock_path", "/tmp")
        .set("agent", "root_helper", "sudo neutron-rootwrap /etc/neutron/rootwrap.conf")
        .set("privsep", "helper_command", "sudo neutron-rootwrap /etc/neutron/rootwrap.conf privsep-helper")
}

/// Options of metadata agents for the metadata API.
pub(super) fn metadata_options(compute: &ComputeServer) -> Document {
    Document::new()
        .set("DEFAULT", "nova_metadata_host", &compute.metadata_host)
        .set("DEFAULT", "nova_metadata_port", compute.metadata_port)
        .set("DEFAULT", "metadata_workers", 1)
}

/// Secret that metadata agents share with Nova.
pub(super) fn metadata_secret(compute: &ComputeServer) -> Variable {
    Variable::secret("OS_DEFAULT__METADATA_PROXY_SHARED_SECRET", &compute.metadata_secret, nova::METADATA_KEY)
}

/// Adds the files that all agents need.
pub(super) fn add_files(plan: &mut Plan, configuration: &Document) {
    plan.files.insert(CONFIGURATION.to_owned(), configuration.render().into());
    plan.files.insert("wait.sh".to_owned(), include_str!("wait.sh").into());
}

/// Command of an agent with its own configuration file after the common one.
pub(super) fn command(program: &str, file: &str) -> Vec<String> {
    let own = format!("/etc/neutron/{file}");
    shared::command([
        "dumb-init",
        "--",
        program,
        "--config-file",
        "/etc/neutron/neutron.conf",
        "--config-file",
        &own,
    ])
}

/// Container of an agent on the host network.
pub(super) fn container(
    context: &Context<'_, Neutron>,
    name: &'static str,
    kolla: &'static str,
    file: &str,
    settings: &ContainerSettings,
) -> Container {
    let NeutronSpec { origin, template } = &context.object.spec;
    let names = ImageNames { kolla, debian: "neutron" };
    Container {
        name,
        image: shared::component_image(context, names, &settings.image, &template.common.pods, origin),
        environment: vec![
            Variable::field("NODE_NAME", "spec.nodeName"),
            Variable::text("OS_DEFAULT__HOST", "$(NODE_NAME)"),
        ],
        mounts: vec![
            shared::file(CONFIGURATION, "/etc/neutron/neutron.conf"),
            shared::file(file, &format!("/etc/neutron/{file}")),
            shared::scratch("work", "/var/lib/neutron"),
            shared::scratch("tmp", "/tmp"),
        ],
        resources: shared::component_resources(settings, &template.common.pods, PROJECT.amounts),
        ..Container::default()
    }
}

/// Gives an agent access to network namespaces and devices of the node.
pub(super) fn with_node_access(mut agent: Container) -> Container {
    let namespaces = shared::host("run-netns", "/run/netns", HostPath::Bidirectional);
    agent.mounts.extend([switch::run_directory(), namespaces]);
    agent.privilege = Privilege::Node;
    agent
}

/// Workload of agents that waits for Open vSwitch and for a peer. Agents would hang forever without the former, and
/// for a minute without the latter.
pub(super) fn workload(
    component: &'static str,
    scheduling: &Scheduling,
    peers: &[String],
    agents: Vec<Container>,
) -> Workload {
    let wait = agents.first().map(|agent| Container {
        name: "wait",
        image: agent.image.clone(),
        command: shared::script("/etc/openstack/wait.sh"),
        environment: vec![Variable::text("PEERS", peers.join(" "))],
        mounts: vec![shared::file("wait.sh", "/etc/openstack/wait.sh"), shared::scratch("tmp", "/tmp")],
        resources: agent.resources.clone(),
        ..Container::default()
    });
    let setup = wait.into_iter().collect();
    Workload::on_nodes(
        component,
        Pod { setup, host: Host::Network, ..Pod::new(PROJECT.user, scheduling, agents) },
    )
}
