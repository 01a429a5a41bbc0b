//! Bridges, network namespaces, links, routes and the nftables table of the cluster.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::settings::{Addresses, BRIDGES, HostBefore, NODE_BRIDGE, Node, PROVIDER_BRIDGE, Settings};
use crate::command::{Log, split};

/// The sysctl of the host that enables packet forwarding.
const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";
/// The table on the host; the tables of kube-proxy are in the network namespaces of the nodes.
const TABLE: &str = "openstack_operator_cluster";

/// The directory of named network namespaces.
const NAMESPACES: &str = "/run/netns";

/// The state of the host that `down` restores.
pub(crate) fn host_before() -> Result<HostBefore> {
    let forwarding =
        fs::read_to_string(FORWARDING).with_context(|| format!("failed to read {FORWARDING}"))?;
    let mounts = fs::read_to_string("/proc/self/mounts").context("failed to read /proc/self/mounts")?;
    Ok(HostBefore {
        forwarding: forwarding.trim().to_owned(),
        network_namespaces: mounts.lines().any(|line| line.split(' ').nth(1) == Some(NAMESPACES)),
    })
}

fn set_forwarding(value: &str) -> Result<()> {
    fs::write(FORWARDING, value).with_context(|| format!("failed to write {FORWARDING}"))
}

/// The bridges, and NAT for nodes, pods and VMs. Safe to repeat.
pub(crate) fn ensure_host(addresses: &Addresses, log: &Log) -> Result<()> {
    for bridge in BRIDGES {
        if !link_exists(bridge) {
            log.run(&mut split(&format!("ip link add {bridge} type bridge")))?;
        }
        // A port forwards at once: these bridges have no loops to detect.
        log.run(&mut split(&format!("ip link set {bridge} type bridge forward_delay 0")))?;
        log.run(&mut split(&format!("ip link set {bridge} up")))?;
    }
    let on_host = [
        (NODE_BRIDGE, addresses.host_address(), addresses.node_range),
        (PROVIDER_BRIDGE, addresses.provider_host_address(), addresses.provider_range),
    ];
    for (bridge, address, range) in on_host {
        log.run(&mut split(&format!("ip addr replace {address}/{} dev {bridge}", range.prefix_len())))?;
    }
    set_forwarding("1")?;
    let rules = format!(
        "table ip {TABLE}\ndelete table ip {TABLE}\ntable ip {TABLE} {{\n  chain postrouting {{\n    \
         type nat hook postrouting priority srcnat;\n    \
         ip saddr {{ {}, {}, {} }} oifname != \"osop-*\" masquerade\n  }}\n}}\n",
        addresses.node_range, addresses.pod_range, addresses.provider_range
    );
    let file = log.path().with_extension("nft");
    fs::write(&file, rules).with_context(|| format!("failed to write {}", file.display()))?;
    log.run(Command::new("nft").arg("-f").arg(&file))
}

/// The network namespace of a node with its three interfaces. Safe to repeat.
pub(crate) fn ensure_node(settings: &Settings, node: &Node, log: &Log) -> Result<()> {
    let namespace = node.network_namespace();
    if !namespace_exists(&namespace) {
        log.run(&mut split(&format!("ip netns add {namespace}")))?;
    }
    for interface in 0..BRIDGES.len() {
        let link = node.link(interface);
        if !link_exists(&link) {
            log.run(&mut split(&format!(
                "ip link add {link} type veth peer name eth{interface} netns {namespace}"
            )))?;
        }
        log.run(&mut inside(&namespace, &format!("ip link set eth{interface} up")))?;
    }
    connect_node(node, log)?;
    let addresses = &settings.addresses;
    for line in [
        "ip link set lo up".to_owned(),
        format!("ip addr replace {}/{} dev eth0", node.address, addresses.node_range.prefix_len()),
        format!("ip addr replace {}/{} dev eth1", node.tunnel_address, addresses.tunnel_range.prefix_len()),
        format!("ip route replace default via {}", addresses.host_address()),
        "sysctl -qw net.ipv4.ip_forward=1".to_owned(),
    ] {
        log.run(&mut inside(&namespace, &line))?;
    }
    Ok(())
}

/// Routes to the pods of running nodes, on the host and on the nodes, and to the Services through one node. Safe to
/// repeat; called whenever the power of a node changes.
pub(crate) fn ensure_routes(settings: &Settings, on: &[Node], log: &Log) -> Result<()> {
    for node in on {
        let route = format!("ip route replace {} via {}", node.pod_range, node.address);
        log.run(&mut split(&route))?;
        for other in on.iter().filter(|other| other.number != node.number) {
            log.run(&mut inside(&other.network_namespace(), &route))?;
        }
    }
    if let Some(node) = on.first() {
        let range = settings.addresses.service_range;
        log.run(&mut split(&format!("ip route replace {range} via {}", node.address)))?;
    }
    Ok(())
}

/// Connects the links of a node to their bridges, and changes nothing else. Safe to repeat.
pub(crate) fn connect_node(node: &Node, log: &Log) -> Result<()> {
    for (interface, bridge) in BRIDGES.into_iter().enumerate() {
        log.run(&mut split(&format!("ip link set {} master {bridge} up", node.link(interface))))?;
    }
    Ok(())
}

/// Disconnects a node from all bridges. Its links stay up, so that packets vanish as in a failed switch.
pub(crate) fn isolate_node(node: &Node, log: &Log) -> Result<()> {
    for interface in 0..BRIDGES.len() {
        log.run(&mut split(&format!("ip link set {} nomaster", node.link(interface))))?;
    }
    Ok(())
}

/// Removes the links and the network namespace of a node.
pub(crate) fn remove_node(node: &Node, log: &Log) -> Result<()> {
    let namespace = node.network_namespace();
    for interface in 0..BRIDGES.len() {
        let link = node.link(interface);
        if link_exists(&link) {
            log.run(&mut split(&format!("ip link delete {link}")))?;
        }
    }
    if namespace_exists(&namespace) {
        log.run(&mut split(&format!("ip netns delete {namespace}")))?;
    }
    Ok(())
}

/// Reverts `ensure_host`; the kernel removes routes with their bridge.
pub(crate) fn remove_host(settings: &Settings, log: &Log) -> Result<()> {
    for bridge in BRIDGES {
        if link_exists(bridge) {
            log.run(&mut split(&format!("ip link delete {bridge}")))?;
        }
    }
    // The first line creates a missing table, because deleting one fails.
    let file = log.path().with_extension("nft");
    fs::write(&file, format!("table ip {TABLE}\ndelete table ip {TABLE}\n"))
        .with_context(|| format!("failed to write {}", file.display()))?;
    log.run(Command::new("nft").arg("-f").arg(&file))?;
    let before = &settings.host_before;
    if !before.network_namespaces {
        remove_namespace_mount()?;
    }
    set_forwarding(&before.forwarding)
}

/// Reverts the mount of the first `ip netns add`, unless other namespaces exist.
fn remove_namespace_mount() -> Result<()> {
    // The directory must be closed before it is unmounted.
    if !fs::read_dir(NAMESPACES).is_ok_and(|mut namespaces| namespaces.next().is_none()) {
        return Ok(());
    }
    // After an interruption it may not be a mount point.
    match nix::mount::umount(NAMESPACES) {
        Ok(()) | Err(nix::errno::Errno::EINVAL) => {}
        Err(error) => return Err(error).with_context(|| format!("failed to unmount {NAMESPACES}")),
    }
    fs::remove_dir(NAMESPACES).with_context(|| format!("failed to remove {NAMESPACES}"))
}

pub(crate) fn link_exists(name: &str) -> bool {
    Path::new("/sys/class/net").join(name).exists()
}

pub(crate) fn namespace_exists(name: &str) -> bool {
    Path::new(NAMESPACES).join(name).exists()
}

/// A command in a network namespace. `ip netns exec` would also mount another /sys.
fn inside(namespace: &str, line: &str) -> Command {
    split(&format!("nsenter --net={NAMESPACES}/{namespace} {line}"))
}
