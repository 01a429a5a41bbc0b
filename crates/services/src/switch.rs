//! Open vSwitch on nodes, for OVN and for Neutron's agents.

use std::collections::BTreeMap;
use std::fmt::Write;

use openstack_operator_model::common::{Resources, Scheduling};
use openstack_operator_model::image::ImageNames;
use openstack_operator_model::plan::{
    Check, Container, File, FileName, Host, HostPath, Mount, Pod, Privilege, Probes, Variable, Workload,
};

use crate::program::Amounts;
use crate::shared;

pub use spec::*;

mod spec;

/// Address of its database, on loopback only.
pub(crate) const DATABASE: &str = "tcp:127.0.0.1:6640";
const USER: i64 = 42476;
const AMOUNTS: Amounts = Amounts { cpu: "50m", memory: "128Mi", memory_limit: "1Gi" };
const DATABASE_SCRIPT: &str = "switch-database.sh";
const SWITCH_SCRIPT: &str = "switch.sh";

/// Each node has one switch.
pub(crate) const CLAIM: &str = "Open vSwitch";

/// Common settings of the pods.
pub(crate) struct Pods<'a> {
    /// The object that owns the switch.
    pub(crate) owner: Variable,
    /// Reference of the image with these names.
    pub(crate) image: &'a dyn Fn(ImageNames) -> String,
    pub(crate) scheduling: &'a Scheduling,
    pub(crate) resources: &'a Resources,
}

/// Scripts of the pods.
pub(crate) fn files() -> BTreeMap<FileName, File> {
    let scripts = [
        (DATABASE_SCRIPT, include_str!("switch/database.sh")),
        (SWITCH_SCRIPT, include_str!("switch/switch.sh")),
    ];
    scripts.map(|(file, text)| (file.to_owned(), text.into())).into()
}

/// Live file with the settings of nodes without overrides.
pub(crate) const ALL_NODES: &str = "nodes";

/// Live file with the settings of one node.
pub(crate) fn node_file(node: &str) -> FileName {
    format!("node-{node}")
}

/// Settings of Open vSwitch in the format of `switch.sh`.
pub(crate) fn settings(datapath: Datapath, links: &Links) -> String {
    let mut text = format!("datapath {}\n", datapath.name());
    let interface = links.encapsulation.interface.as_deref().unwrap_or_default();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "encapsulation {} {interface}", links.encapsulation.kind.name());
    if let Some(address) = &links.encapsulation.ip {
        let _ = writeln!(text, "address {address}");
    }
    for mapping in &links.bridge_mappings {
        let interface = mapping.interface.as_deref().unwrap_or_default();
        let _ = writeln!(text, "mapping {} {} {interface}", mapping.physical_network, mapping.bridge);
    }
    text
}

/// Physical networks of all nodes, each once.
pub(crate) fn physical_networks<'a>(
    links: &'a Links,
    changes: impl Iterator<Item = &'a LinksOverride>,
) -> Vec<String> {
    let changed = changes.filter_map(|change| change.bridge_mappings.as_ref()).flatten();
    let mut networks: Vec<String> = Vec::new();
    for mapping in links.bridge_mappings.iter().chain(changed) {
        if !networks.contains(&mapping.physical_network) {
            networks.push(mapping.physical_network.clone());
        }
    }
    networks
}

/// Directory of the sockets of Open vSwitch.
pub(crate) fn run_directory() -> Mount {
    shared::host_directory("run-openvswitch", "/run/openvswitch")
}

/// A workload with one container on each node with Open vSwitch.
pub(crate) fn on_nodes(name: &'static str, scheduling: &Scheduling, container: Container) -> Workload {
    let pod = Pod::new(USER, scheduling, vec![container]);
    Workload::on_nodes(name, Pod { host: Host::Network, grace_seconds: 10, ..pod })
}

pub(crate) fn workloads(pods: &Pods<'_>) -> Vec<Workload> {
    vec![database(pods), switch(pods)]
}

fn container(pods: &Pods<'_>, name: &'static str, image: ImageNames, script: &str) -> Container {
    let path = format!("/etc/openstack/{script}");
    Container {
        name,
        image: (pods.image)(image),
        command: shared::script(&path),
        mounts: vec![shared::file(script, &path), run_directory(), shared::scratch("tmp", "/tmp")],
        resources: shared::resources(pods.resources, AMOUNTS),
        ..Container::default()
    }
}

/// Ready while the command succeeds. No liveness probe: a restart would disconnect the instances of the node.
fn answering<const N: usize>(command: [&str; N]) -> Probes {
    let check = || Check::Command(shared::command(command));
    Probes {
        startup: Some(shared::probe(check(), 2, 5, 150)),
        readiness: Some(shared::probe(check(), 15, 5, 3)),
        liveness: None,
    }
}

fn database(pods: &Pods<'_>) -> Workload {
    let names = ImageNames { kolla: "openvswitch-db-server", debian: "ovn" };
    let mut server = container(pods, "ovsdb-server", names, DATABASE_SCRIPT);
    server.mounts.push(shared::host_directory("lib-openvswitch", "/var/lib/openvswitch"));
    server.privilege = Privilege::Root(&[]);
    server.probes = answering(["ovs-vsctl", "--timeout=2", "--no-wait", "show"]);
    on_nodes("ovs-db", pods.scheduling, server)
}

fn switch(pods: &Pods<'_>) -> Workload {
    let names = ImageNames { kolla: "openvswitch-vswitchd", debian: "ovn" };
    let mut switch = container(pods, "ovs-vswitchd", names, SWITCH_SCRIPT);
    switch.environment = vec![
        pods.owner.clone(),
        Variable::field("NODE_NAME", "spec.nodeName"),
        Variable::field("HOST_IP", "status.hostIP"),
    ];
    switch.mounts.extend([
        Mount::LiveFiles { path: "/etc/openstack/live".to_owned() },
        shared::host("tun", "/dev/net/tun", HostPath::Device),
    ]);
    switch.privilege = Privilege::Root(&["NET_ADMIN", "NET_RAW"]);
    let control = "/run/openvswitch/ovs-vswitchd.ctl";
    switch.probes = answering(["ovs-appctl", "-t", control, "version"]);
    on_nodes("ovs-vswitchd", pods.scheduling, switch)
}
