//! Removal of a compute node: it gets no new instances, and leaves the cloud when its instances are deleted.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use openstack_operator_smoke::notice;
use openstack_operator_smoke::wait::{await_condition, eventually};
use serde_json::Value;

use crate::client::Client;
use crate::cloud::Cloud;
use crate::instances::Instances;
use crate::nodes::Nodes;

/// How long each step may take on a loaded machine.
const STEP: Duration = Duration::from_mins(5);

/// Removes a node that runs these instances from a cloud.
pub(crate) async fn removes_a_node(
    cloud: &Cloud,
    client: &Client,
    instances: &Instances,
    nodes: &Nodes,
    node: &str,
    held: &[&'static str],
) -> Result<()> {
    nodes.release(node).await?;
    let computes = cloud.objects("NovaCompute", "novacomputes");
    let name = cloud.part("compute");
    let status = |object: &kube::api::DynamicObject| {
        let nodes = object.data.pointer("/status/nodes").and_then(Value::as_array).cloned();
        nodes.unwrap_or_default().into_iter().find(|status| status["name"] == node)
    };
    await_condition(&computes, &name, "to report the instances of the leaving node", STEP, |object| {
        status(object).is_some_and(|status| {
            status["state"] == "Leaving" && status["holds"].as_array().map_or(0, Vec::len) == held.len()
        })
    })
    .await?;
    let listed = client.openstack("compute service list --service nova-compute").await?;
    let service = listed.as_array().into_iter().flatten().find(|service| service["Host"] == node);
    ensure!(
        service.is_some_and(|service| service["Status"] == "disabled"),
        "nova-compute on {node} is not disabled: {listed}"
    );
    try_join_all(held.iter().map(|instance| instances.answers(instance, STEP))).await?;
    notice("the leaving node is disabled and its instances run; deleting them");
    try_join_all(held.iter().map(|instance| instances.delete(instance))).await?;
    await_condition(&computes, &name, "to release the node", STEP, |object| status(object).is_none()).await?;
    let listed = client.openstack("compute service list --service nova-compute").await?;
    ensure!(!listed.to_string().contains(node), "{node} is still listed: {listed}");
    let providers = client.openstack("resource provider list").await?;
    ensure!(!providers.to_string().contains(node), "{node} still has a resource provider: {providers}");
    cloud.ready(STEP).await
}

/// Neutron lists no agents of the node. With OVN it lists deleted agents until its API restarts.
pub(crate) async fn removes_agents(client: &Client, node: &str) -> Result<()> {
    eventually("the node's network agents to be deleted", STEP, async || {
        let agents = client.openstack("network agent list").await?;
        ensure!(!agents.to_string().contains(node), "{node} still has agents: {agents}");
        Ok(())
    })
    .await
}

/// OVN has the chassis of the other node only.
pub(crate) async fn removes_the_chassis(cloud: &Cloud) -> Result<()> {
    let chassis = cloud.objects("OVNChassis", "ovnchassis");
    eventually("the node's chassis to be deleted", STEP, async || {
        let left = chassis.list(&kube::api::ListParams::default()).await?.items;
        ensure!(left.len() == 1, "{} chassis are left", left.len());
        Ok(())
    })
    .await
}
