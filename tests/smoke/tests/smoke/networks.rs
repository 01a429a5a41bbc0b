//! The tunnel network connects the nodes, and the provider network connects them to the host.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Capabilities, Node, PodSpec, SecurityContext, Toleration};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use openstack_operator_smoke::pod::{container, unconfined};
use openstack_operator_smoke::wait::eventually;
use openstack_operator_smoke::{PodSecurity, Sandbox, notice, with_namespace};

const ANSWER: Duration = Duration::from_mins(1);

#[tokio::test]
async fn tunnel_and_provider_networks_forward_packets() -> Result<()> {
    with_namespace("networks", PodSecurity::Privileged, async |sandbox| {
        let Some(range) = sandbox.environment.provider_range.clone() else {
            notice("skipped the networks of nodes: they are known for local clusters only");
            return Ok(());
        };
        let nodes = Api::<Node>::all(sandbox.client.clone());
        let nodes = nodes.list(&ListParams::default()).await.context("failed to list nodes")?;
        let names: Vec<String> = nodes.iter().map(ResourceExt::name_any).collect();
        let mut tunnel_addresses = Vec::new();
        for name in &names {
            sandbox.start(name, on_node(sandbox.image("ovn")?, name)).await?;
            tunnel_addresses.push(tunnel_address(sandbox, name).await?);
        }
        for (position, name) in names.iter().enumerate() {
            let other = &tunnel_addresses[(position + 1) % names.len()];
            // A node does not send requests for its own address: a single node has no neighbour.
            if other != &tunnel_addresses[position] {
                await_neighbour(sandbox, name, "eth1", other).await?;
            }
            await_host(sandbox, name, &range, position).await?;
        }
        Ok(())
    })
    .await
}

/// A pod in the node's network that can set addresses of interfaces.
fn on_node(image: String, node: &str) -> PodSpec {
    let mut main = container("main", image, &["sleep", "infinity"]);
    main.security_context = Some(SecurityContext {
        run_as_user: Some(0),
        capabilities: Some(Capabilities {
            add: Some(vec!["NET_ADMIN".to_owned()]),
            ..Capabilities::default()
        }),
        ..SecurityContext::default()
    });
    PodSpec {
        node_name: Some(node.to_owned()),
        host_network: Some(true),
        tolerations: Some(vec![Toleration { operator: Some("Exists".to_owned()), ..Toleration::default() }]),
        ..unconfined(vec![main])
    }
}

async fn tunnel_address(sandbox: &Sandbox, node: &str) -> Result<String> {
    let text = sandbox.shell(node, "main", "ip -o -4 address show dev eth1").await?;
    let address = text.split_whitespace().find_map(|word| word.split_once('/')).map(|(address, _)| address);
    Ok(address.with_context(|| format!("eth1 of {node} has no address: {text:?}"))?.to_owned())
}

/// Nodes have no address on the provider network, so the node gets a temporary one.
async fn await_host(sandbox: &Sandbox, node: &str, range: &str, position: usize) -> Result<()> {
    let (network, length) = range.split_once('/').context("SMOKE_PROVIDER_RANGE is not a range")?;
    let (prefix, _) = network.rsplit_once('.').context("SMOKE_PROVIDER_RANGE is not a range")?;
    let own = format!("{prefix}.{}/{length}", 200 + position);
    sandbox.shell(node, "main", &format!("ip address add {own} dev eth2")).await?;
    let answered = await_neighbour(sandbox, node, "eth2", &format!("{prefix}.1")).await;
    sandbox.shell(node, "main", &format!("ip address delete {own} dev eth2")).await?;
    answered
}

/// The kernel learns a neighbour's link address only if ARP works both ways.
async fn await_neighbour(sandbox: &Sandbox, node: &str, interface: &str, address: &str) -> Result<()> {
    let ask = format!("echo > /dev/udp/{address}/9; ip neighbour show {address} dev {interface}");
    eventually(&format!("{address} to answer {interface} of {node}"), ANSWER, async || {
        let neighbours = sandbox.shell(node, "main", &ask).await?;
        ensure!(neighbours.contains("lladdr"), "the neighbours are {neighbours:?}");
        Ok(())
    })
    .await
}
