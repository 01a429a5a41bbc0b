//! Every node is ready, resolves its own name, and has interfaces for tunnels and the provider network.

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Node, PodSpec, Toleration};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use openstack_operator_smoke::pod::{container, unconfined};
use openstack_operator_smoke::wait::is_node_ready;
use openstack_operator_smoke::{PodSecurity, Sandbox, notice, with_namespace};

/// Interfaces of local clusters for tunnels and the provider network.
const INTERFACES: [&str; 2] = ["eth1", "eth2"];

#[tokio::test]
async fn nodes_are_ready_and_have_all_interfaces() -> Result<()> {
    with_namespace("nodes", PodSecurity::Privileged, async |sandbox| {
        if !sandbox.environment.is_local() {
            notice("skipped the interfaces of nodes: their names are known for local clusters only");
        }
        let nodes = Api::<Node>::all(sandbox.client.clone());
        let nodes = nodes.list(&ListParams::default()).await.context("failed to list nodes")?;
        ensure!(!nodes.items.is_empty(), "the cluster has no nodes");
        try_join_all(nodes.iter().map(|node| inspect(sandbox, node))).await.map(drop)
    })
    .await
}

async fn inspect(sandbox: &Sandbox, node: &Node) -> Result<()> {
    let name = node.name_any();
    ensure!(is_node_ready(node), "node {name} is not ready");

    // libvirt and sudo resolve the node's name often, and hang if that fails.
    let script = "getent hosts \"$1\" || echo unresolved; cat /proc/net/dev";
    let command = ["sh", "-c", script, "sh", &name];
    let spec = PodSpec {
        node_name: Some(name.clone()),
        host_network: Some(true),
        dns_policy: Some("Default".to_owned()),
        tolerations: Some(vec![Toleration { operator: Some("Exists".to_owned()), ..Toleration::default() }]),
        ..unconfined(vec![container("main", sandbox.image("base")?, &command)])
    };
    let log = sandbox.run(&format!("inspect-{name}"), spec).await?;
    ensure!(!log.starts_with("unresolved"), "node {name} cannot resolve its own name");
    if sandbox.environment.is_local() {
        let interfaces: Vec<&str> = log
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(interface, _)| interface.trim())
            .collect();
        for interface in INTERFACES {
            ensure!(interfaces.contains(&interface), "node {name} has no {interface}: {interfaces:?}");
        }
    }
    Ok(())
}
