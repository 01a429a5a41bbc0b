//! Settings of a cluster: number of nodes, addresses and names.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::directories::Directories;

/// The number of nodes for which the ranges have addresses.
pub(crate) const MOST_NODES: u8 = 9;

/// Links on the host. A name has at most fifteen bytes.
pub(crate) const NODE_BRIDGE: &str = "osop-nodes";
pub(crate) const TUNNEL_BRIDGE: &str = "osop-tunnel";
pub(crate) const PROVIDER_BRIDGE: &str = "osop-provider";
/// By the number of the interface of a node that is connected to it.
pub(crate) const BRIDGES: [&str; 3] = [NODE_BRIDGE, TUNNEL_BRIDGE, PROVIDER_BRIDGE];

/// The addresses and ports of a cluster, which cannot change later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Args)]
pub(crate) struct Addresses {
    /// Range of the nodes; the host has its first address.
    #[arg(long, default_value = "10.100.0.0/24", value_name = "CIDR")]
    pub(crate) node_range: Ipv4Net,
    /// Range of the second interface of the nodes, for tunnels between virtual networks.
    #[arg(long, default_value = "10.101.0.0/24", value_name = "CIDR")]
    pub(crate) tunnel_range: Ipv4Net,
    /// Range of the provider network behind the third interface of the nodes, for floating IPs.
    #[arg(long, default_value = "172.24.4.0/24", value_name = "CIDR")]
    pub(crate) provider_range: Ipv4Net,
    /// Range of the pods; each node gets a /24 of it.
    #[arg(long, default_value = "10.244.0.0/16", value_name = "CIDR")]
    pub(crate) pod_range: Ipv4Net,
    /// Range of the Services.
    #[arg(long, default_value = "10.96.0.0/16", value_name = "CIDR")]
    pub(crate) service_range: Ipv4Net,
    /// Port of the API server.
    #[arg(long, default_value_t = 6443, value_name = "PORT")]
    pub(crate) api_port: u16,
    /// Port of the local registry.
    #[arg(long, default_value_t = 5000, value_name = "PORT")]
    pub(crate) registry_port: u16,
    /// Port of etcd on the loopback address; its peer port is the next.
    #[arg(long, default_value_t = 2379, value_name = "PORT")]
    pub(crate) etcd_port: u16,
    /// Domain that the cluster's DNS resolves to the Gateway, with a certificate for it.
    #[arg(long, default_value = "openstack.test", value_name = "NAME")]
    pub(crate) domain: String,
}

/// The settings of a cluster. They are saved before anything is created, so that `down` can remove everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) nodes: u8,
    pub(crate) addresses: Addresses,
    /// The state of the host that `down` restores.
    pub(crate) host_before: HostBefore,
}

/// The state of the host that a cluster changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostBefore {
    /// The value of the sysctl for packet forwarding.
    pub(crate) forwarding: String,
    /// Whether /run/netns was a mount point: the first named network namespace makes it one.
    pub(crate) network_namespaces: bool,
}

#[derive(clap::Parser)]
struct Options {
    #[command(flatten)]
    addresses: Addresses,
}

impl Addresses {
    /// The defaults of the options.
    pub(crate) fn usual() -> Self {
        <Options as clap::Parser>::parse_from(std::iter::once("xtask")).addresses
    }

    /// Address number `index` of a range; `check` ensures that it exists.
    fn host(range: Ipv4Net, index: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(range.network()) + index)
    }

    /// The address of the host on the node network, where API server and registry listen.
    pub(crate) fn host_address(&self) -> Ipv4Addr {
        Self::host(self.node_range, 1)
    }

    pub(crate) fn provider_host_address(&self) -> Ipv4Addr {
        Self::host(self.provider_range, 1)
    }

    /// The address of the `kubernetes` Service, which is always the first.
    pub(crate) fn kubernetes_service(&self) -> Ipv4Addr {
        Self::host(self.service_range, 1)
    }

    pub(crate) fn dns_service(&self) -> Ipv4Addr {
        Self::host(self.service_range, 10)
    }

    /// The fixed Service address of the Gateway, which outlives the node of its pod.
    pub(crate) fn gateway_service(&self) -> Ipv4Addr {
        Self::host(self.service_range, 80)
    }

    pub(crate) fn api_server(&self) -> String {
        format!("https://{}", SocketAddr::new(IpAddr::V4(self.host_address()), self.api_port))
    }

    pub(crate) fn registry(&self) -> String {
        format!("{}:{}", self.host_address(), self.registry_port)
    }

    pub(crate) fn ranges(&self) -> [(&'static str, Ipv4Net); 5] {
        [
            ("--node-range", self.node_range),
            ("--tunnel-range", self.tunnel_range),
            ("--provider-range", self.provider_range),
            ("--pod-range", self.pod_range),
            ("--service-range", self.service_range),
        ]
    }

    pub(crate) fn ports(&self) -> [(&'static str, u16, &'static str); 4] {
        [
            ("--api-port", self.api_port, "apiserver"),
            ("--registry-port", self.registry_port, "registry"),
            ("--etcd-port", self.etcd_port, "etcd"),
            ("--etcd-port", self.etcd_port.saturating_add(1), "etcd"),
        ]
    }

    /// A range for the network of a project. A VM could not answer an address that its own network contains.
    pub(crate) fn project_range(&self) -> Result<Ipv4Net> {
        let mut candidates =
            (200..=255).map(|number| Ipv4Net::new_assert(Ipv4Addr::new(10, number, 0, 0), 24));
        let is_free =
            |candidate: &Ipv4Net| self.ranges().iter().all(|(_, range)| !overlap(*candidate, *range));
        candidates.find(is_free).context("the ranges of the cluster leave none for the networks of projects")
    }

    /// Rejects ranges that are too small or overlap.
    pub(crate) fn check(&self) -> Result<()> {
        let ranges = self.ranges();
        for (option, range) in ranges {
            let (longest, why) = match option {
                "--pod-range" => (20, "each of up to nine nodes needs a /24 of it"),
                _ => (24, "the cluster uses its first 80 addresses"),
            };
            if range.prefix_len() > longest {
                bail!("{option} {range} is too small: pass a /{longest} or larger, because {why}");
            }
        }
        for (index, (option, range)) in ranges.iter().enumerate() {
            for (other_option, other) in &ranges[index + 1..] {
                if overlap(*range, *other) {
                    bail!("{option} {range} and {other_option} {other} overlap: change one of them");
                }
            }
        }
        Ok(())
    }
}

pub(crate) fn overlap(one: Ipv4Net, other: Ipv4Net) -> bool {
    one.contains(&other.network()) || other.contains(&one.network())
}

/// The names and addresses of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) number: u8,
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
    pub(crate) tunnel_address: Ipv4Addr,
    pub(crate) pod_range: Ipv4Net,
}

impl Node {
    pub(crate) fn numbered(addresses: &Addresses, number: u8) -> Self {
        let pods = Addresses::host(addresses.pod_range, u32::from(number) << 8);
        Self {
            number,
            name: format!("node{number}"),
            address: Addresses::host(addresses.node_range, 10 + u32::from(number)),
            tunnel_address: Addresses::host(addresses.tunnel_range, 10 + u32::from(number)),
            pod_range: Ipv4Net::new_assert(pods, 24),
        }
    }

    pub(crate) fn network_namespace(&self) -> String {
        format!("osop-{}", self.name)
    }

    /// The host's end of the interface `ethN` of the node.
    pub(crate) fn link(&self, interface: usize) -> String {
        format!("osop-n{}-eth{interface}", self.number)
    }

    pub(crate) fn directory(&self, directories: &Directories) -> PathBuf {
        directories.cluster().join("nodes").join(&self.name)
    }
}

impl Settings {
    pub(crate) fn node_list(&self) -> Vec<Node> {
        (1..=self.nodes).map(|number| Node::numbered(&self.addresses, number)).collect()
    }

    /// The node of that name, or an error that lists all names.
    pub(crate) fn node(&self, name: &str) -> Result<Node> {
        let nodes = self.node_list();
        let names = nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>().join(", ");
        nodes
            .into_iter()
            .find(|node| node.name == name)
            .with_context(|| format!("there is no node {name:?} in this cluster: it has {names}"))
    }

    fn file(directories: &Directories) -> PathBuf {
        directories.cluster().join("settings.json")
    }

    /// The settings of the existing cluster.
    pub(crate) fn load(directories: &Directories) -> Result<Option<Self>> {
        let path = Self::file(directories);
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
        serde_json::from_str(&text).map(Some).with_context(|| {
            format!("{} cannot be parsed: remove the cluster with cargo xtask down", path.display())
        })
    }

    /// The largest cluster, for removal of a cluster whose settings cannot be read: names do not depend on settings.
    pub(crate) fn largest(host_before: HostBefore) -> Self {
        Self { nodes: MOST_NODES, addresses: Addresses::usual(), host_before }
    }

    /// Like `load`, for commands that need a cluster.
    pub(crate) fn require(directories: &Directories) -> Result<Self> {
        Self::load(directories)?.context("there is no cluster: create one with cargo xtask cluster up")
    }

    pub(crate) fn save(&self, directories: &Directories) -> Result<()> {
        let path = Self::file(directories);
        // It contains keys and the disks of the nodes.
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directories.cluster())
            .with_context(|| format!("failed to create {}", directories.cluster().display()))?;
        let unfinished = path.with_extension("unfinished");
        fs::write(&unfinished, serde_json::to_string_pretty(self)?)
            .and_then(|()| fs::rename(&unfinished, &path))
            .with_context(|| format!("failed to write {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn addresses(arguments: &[&str]) -> Addresses {
        Options::parse_from(std::iter::once(&"x").chain(arguments)).addresses
    }

    #[test]
    fn the_defaults_are_consistent() -> Result<()> {
        let addresses = addresses(&[]);
        addresses.check()?;
        let node = Node::numbered(&addresses, 2);
        assert_eq!(node.address.to_string(), "10.100.0.12");
        assert_eq!(node.pod_range.to_string(), "10.244.2.0/24");
        assert!(node.link(2).len() <= 15 && PROVIDER_BRIDGE.len() <= 15);
        Ok(())
    }

    #[test]
    fn the_network_of_a_project_avoids_those_of_the_cluster() -> Result<()> {
        let addresses = addresses(&["--node-range", "10.200.0.0/24", "--pod-range", "10.201.0.0/16"]);
        assert_eq!(addresses.project_range()?.to_string(), "10.202.0.0/24");
        Ok(())
    }

    #[test]
    fn overlapping_and_small_ranges_are_rejected() {
        let overlapping = addresses(&["--pod-range", "10.96.0.0/15"]).check();
        assert!(overlapping.is_err_and(|error| error.to_string().contains("--service-range")));
        let small = addresses(&["--provider-range", "172.24.4.0/28"]).check();
        assert!(small.is_err_and(|error| error.to_string().contains("/24 or larger")));
    }

    #[test]
    fn an_unknown_node_is_reported_with_the_known_ones() {
        let host_before = HostBefore { forwarding: "0".to_owned(), network_namespaces: true };
        let settings = Settings { nodes: 2, addresses: addresses(&[]), host_before };
        let error = settings.node("node7").err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(error, "there is no node \"node7\" in this cluster: it has node1, node2");
    }
}
