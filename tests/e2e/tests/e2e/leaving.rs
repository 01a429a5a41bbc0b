//! A node that is chosen no more: it is emptied by people, and leaves nothing behind.

use std::time::Duration;

use anyhow::{Result, ensure};
use openstack_operator_smoke::notice;
use openstack_operator_smoke::wait::{await_condition, eventually};
use serde_json::Value;

use crate::client::Client;
use crate::cloud::Cloud;
use crate::nodes::Nodes;
use crate::servers::{Server, Servers};

/// How long each step of a node's way out may take on a loaded machine.
const STEP: Duration = Duration::from_mins(5);

/// Takes a node away from a cloud while it runs these servers.
pub(crate) async fn leaves(
    cloud: &Cloud<'_>,
    client: &Client<'_>,
    servers: &Servers<'_>,
    nodes: &Nodes<'_>,
    node: &str,
    held: Vec<Server>,
) -> Result<()> {
    nodes.release(node).await?;
    let computes = cloud.objects("NovaCompute", "novacomputes");
    let name = cloud.part("compute");
    let row = |object: &kube::api::DynamicObject| {
        let rows =
            object.data.pointer("/status/nodes").and_then(Value::as_array).cloned().unwrap_or_default();
        rows.into_iter().find(|row| row["name"] == node)
    };
    let count = held.len();
    await_condition(&computes, &name, "to say what its node holds", STEP, |object| {
        let row = row(object);
        row.is_some_and(|row| {
            row["state"] == "Leaving" && row["holds"].as_array().map_or(0, Vec::len) == count
        })
    })
    .await?;
    let listed = client.openstack("compute service list --service nova-compute").await?;
    let service = listed.as_array().into_iter().flatten().find(|service| service["Host"] == node);
    ensure!(service.is_some_and(|service| service["Status"] == "disabled"), "{node} gets work: {listed}");
    for server in &held {
        servers.answers(server, STEP).await?;
    }
    notice("the node gets no more servers, and those that it has run on; now deleting them");
    for server in held {
        servers.delete(server).await?;
    }
    await_condition(&computes, &name, "to have let the node go", STEP, |object| row(object).is_none())
        .await?;
    let listed = client.openstack("compute service list --service nova-compute").await?;
    ensure!(!listed.to_string().contains(node), "{node} is still listed: {listed}");
    let providers = client.openstack("resource provider list").await?;
    ensure!(!providers.to_string().contains(node), "{node} still has resources: {providers}");
    cloud.ready(STEP).await
}

/// Neutron has forgotten the agents of a node. With OVN it knows of one that is gone until its API is started anew.
pub(crate) async fn left_no_agents(client: &Client<'_>, node: &str) -> Result<()> {
    eventually("the node's network agents to be gone", STEP, async || {
        let agents = client.openstack("network agent list").await?;
        ensure!(!agents.to_string().contains(node), "{node} still has agents: {agents}");
        Ok(())
    })
    .await
}

/// OVN has forgotten a node.
pub(crate) async fn left_one_chassis(cloud: &Cloud<'_>) -> Result<()> {
    let chassis = cloud.objects("OVNChassis", "ovnchassis");
    eventually("the node's chassis to be gone", STEP, async || {
        let left = chassis.list(&kube::api::ListParams::default()).await?.items;
        ensure!(left.len() == 1, "{} chassis are left", left.len());
        Ok(())
    })
    .await
}
