//! What a cluster looks like: how many nodes, which addresses, which names.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::directories::Directories;

/// Nodes that the address plan has room for.
pub(crate) const MOST_NODES: u8 = 9;

/// Links on the host. A name is at most fifteen bytes long.
pub(crate) const NODE_BRIDGE: &str = "osop-nodes";
pub(crate) const TUNNEL_BRIDGE: &str = "osop-tunnel";
pub(crate) const PROVIDER_BRIDGE: &str = "osop-provider";
pub(crate) const BRIDGES: [&str; 3] = [NODE_BRIDGE, TUNNEL_BRIDGE, PROVIDER_BRIDGE];

/// The addresses and ports of a cluster. They are fixed when the cluster is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Args)]
pub(crate) struct Addresses {
    /// Range of the nodes and of the host's side of their network.
    #[arg(long, default_value = "10.100.0.0/24", value_name = "CIDR")]
    pub(crate) node_range: Ipv4Net,
    /// Range of the nodes' second interface, for tunnels between virtual networks.
    #[arg(long, default_value = "10.101.0.0/24", value_name = "CIDR")]
    pub(crate) tunnel_range: Ipv4Net,
    /// Range of the provider network behind the nodes' third interface, for floating addresses.
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
    /// Port of etcd on the loopback address; its peer port is the next one.
    #[arg(long, default_value_t = 2379, value_name = "PORT")]
    pub(crate) etcd_port: u16,
    /// Domain that the cluster's DNS resolves to the Gateway, with a certificate for it.
    #[arg(long, default_value = "openstack.test", value_name = "NAME")]
    pub(crate) domain: String,
}

/// A cluster as it was asked for. Written before anything is made, so that whatever exists can be named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) nodes: u8,
    pub(crate) addresses: Addresses,
    /// How the host was before the cluster came, and is again when it goes.
    pub(crate) host_before: HostBefore,
}

/// What a cluster changes on the host that is not its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostBefore {
    /// The switch for forwarding packets.
    pub(crate) forwarding: String,
    /// Whether named network namespaces had been used: the first one makes /run/netns a mount point.
    pub(crate) network_namespaces: bool,
}

#[derive(clap::Parser)]
struct Options {
    #[command(flatten)]
    addresses: Addresses,
}

impl Addresses {
    /// What the options say when none is given.
    pub(crate) fn usual() -> Self {
        <Options as clap::Parser>::parse_from(std::iter::once("xtask")).addresses
    }

    /// Address number `index` of a range; ranges are checked to be large enough.
    fn host(range: Ipv4Net, index: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(range.network()) + index)
    }

    /// The host's address on the node network: API server and registry listen here.
    pub(crate) fn host_address(&self) -> Ipv4Addr {
        Self::host(self.node_range, 1)
    }

    pub(crate) fn provider_host_address(&self) -> Ipv4Addr {
        Self::host(self.provider_range, 1)
    }

    /// The address of the `kubernetes` Service: always the first.
    pub(crate) fn kubernetes_service(&self) -> Ipv4Addr {
        Self::host(self.service_range, 1)
    }

    pub(crate) fn dns_service(&self) -> Ipv4Addr {
        Self::host(self.service_range, 10)
    }

    /// The Gateway has a fixed Service address, so that it outlives the node it runs on.
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

    /// Ranges that are too small or overlap can never work.
    pub(crate) fn check(&self) -> Result<()> {
        let ranges = self.ranges();
        for (option, range) in ranges {
            let (longest, why) = match option {
                "--pod-range" => (20, "each of up to nine nodes needs a /24 of it"),
                _ => (24, "the cluster numbers up to 80 addresses in it"),
            };
            if range.prefix_len() > longest {
                bail!("{option} {range} is too small: give a /{longest} or larger, since {why}");
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

/// One node's names and addresses.
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

    /// The host's end of the node's interface `ethN`.
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

    /// The node of that name, or an error that lists the names there are.
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

    /// The settings of the cluster that exists, or nothing.
    pub(crate) fn load(directories: &Directories) -> Result<Option<Self>> {
        let path = Self::file(directories);
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
        serde_json::from_str(&text).map(Some).with_context(|| {
            format!("{} is not readable: cargo xtask cluster down removes the cluster", path.display())
        })
    }

    /// Everything that any cluster could have made, for removing one whose own settings cannot be read.
    /// Names do not depend on settings; the host's switches stay as they are.
    pub(crate) fn of_any_cluster(host_before: HostBefore) -> Self {
        Self { nodes: MOST_NODES, addresses: Addresses::usual(), host_before }
    }

    /// Like `load`, for commands that make no sense without a cluster.
    pub(crate) fn require(directories: &Directories) -> Result<Self> {
        Self::load(directories)?.context("there is no cluster: make one with cargo xtask cluster up")
    }

    pub(crate) fn save(&self, directories: &Directories) -> Result<()> {
        let path = Self::file(directories);
        // Keys are below it, and the disks of the nodes: they are root's alone.
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
    fn the_defaults_fit_together() -> Result<()> {
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
    fn overlapping_and_small_ranges_are_refused() {
        let overlapping = addresses(&["--pod-range", "10.96.0.0/15"]).check();
        assert!(overlapping.is_err_and(|error| error.to_string().contains("--service-range")));
        let small = addresses(&["--provider-range", "172.24.4.0/28"]).check();
        assert!(small.is_err_and(|error| error.to_string().contains("/24 or larger")));
    }

    #[test]
    fn an_unknown_node_is_named_with_those_there_are() {
        let host_before = HostBefore { forwarding: "0".to_owned(), network_namespaces: true };
        let settings = Settings { nodes: 2, addresses: addresses(&[]), host_before };
        let error = settings.node("node7").err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(error, "there is no node \"node7\" in this cluster: it has node1, node2");
    }
}
