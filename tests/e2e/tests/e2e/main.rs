//! Checks on a real node that a cloud comes up, serves, heals, changes as it was planned, and goes.

mod changes;
mod client;
mod cloud;
mod deletion;
mod healing;
mod operator;
mod rotation;
mod servers;

use std::env;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use openstack_operator_smoke::{PodSecurity, Sandbox, notice, with_cluster_alone};
use serde_json::json;

use crate::client::Client;
use crate::cloud::Cloud;
use crate::operator::Operator;
use crate::servers::Servers;

/// How long a cloud may take to become Ready on a loaded machine.
const CLOUD_START: Duration = Duration::from_mins(15);

#[tokio::test]
async fn a_cloud_serves_heals_changes_and_goes() -> Result<()> {
    with_cluster_alone("cloud", PodSecurity::Restricted, async |sandbox| {
        let operator = Operator::install(sandbox).await?;
        let cloud = Cloud::new(sandbox, "cloud");
        cloud.apply(&json!({})).await?;
        cloud.ready(CLOUD_START).await?;
        let client = Client::start(sandbox, &operator, &cloud, None).await?;
        client.uses_the_cloud().await?;
        notice("the cloud serves; now damaging it");
        operator.rests(sandbox, &client).await?;
        healing::heals(sandbox, &cloud, &client).await?;
        notice("the cloud heals; now changing it");
        changes::changes_as_planned(sandbox, &operator, &cloud).await?;
        rotation::rotates(sandbox, &cloud, &client).await?;
        operator.rests(sandbox, &client).await?;
        notice("the cloud changes as planned; now deleting it");
        deletion::goes(sandbox, &cloud, deletion::IDENTITY_VOLUMES).await
    })
    .await
}

async fn first_node(sandbox: &Sandbox) -> Result<String> {
    let nodes = Api::<Node>::all(sandbox.client.clone()).list(&ListParams::default()).await?;
    nodes.items.into_iter().find_map(|node| node.metadata.name).context("the cluster has no node")
}

#[tokio::test]
async fn a_cloud_runs_servers_that_outlive_its_pods() -> Result<()> {
    with_cluster_alone("servers", PodSecurity::Privileged, async |sandbox| {
        let Some(range) = sandbox.environment.provider_range.clone() else {
            notice("skipped: the sample's interfaces are those of the local cluster");
            return Ok(());
        };
        let operator = Operator::install(sandbox).await?;
        let cloud = Cloud::whole(sandbox, "whole");
        // One node is enough to run servers, and three would only be slower.
        let node = json!({ "kubernetes.io/hostname": first_node(sandbox).await? });
        let changes = json!({
            "ovn": { "controller": { "nodeSelector": node } },
            "compute": { "nodeSelector": node },
        });
        cloud.apply(&changes).await?;
        cloud.ready(CLOUD_START).await?;
        let guest = env::var("E2E_GUEST_IMAGE").context("E2E_GUEST_IMAGE is not set")?;
        let client = Client::start(sandbox, &operator, &cloud, Some(guest)).await?;
        client.uses_the_cloud().await?;
        notice("the cloud serves; now making a server");
        let servers = Servers::prepare(sandbox, &cloud, &client, &range).await?;
        let first = servers.create("first").await?;
        servers.is_whole(&first).await?;
        notice("the server serves; now taking pods away under it");
        servers.outlives_pods(&first).await?;
        let second = servers.create("second").await?;
        notice("a second server serves; now deleting both");
        servers.delete(second).await?;
        servers.delete(first).await?;
        operator.rests(sandbox, &client).await?;
        deletion::goes(sandbox, &cloud, deletion::WHOLE_VOLUMES).await
    })
    .await
}

#[tokio::test]
async fn a_cloud_whose_keystone_is_gone_can_be_deleted() -> Result<()> {
    with_cluster_alone("orphan", PodSecurity::Restricted, async |sandbox| {
        Operator::install(sandbox).await?;
        let cloud = Cloud::new(sandbox, "orphan");
        cloud.apply(&json!({ "keystone": { "database": { "deletionPolicy": "Delete" } } })).await?;
        cloud.ready(CLOUD_START).await?;
        deletion::loses_keystone(sandbox, &cloud).await?;
        deletion::goes(sandbox, &cloud, deletion::IDENTITY_VOLUMES).await
    })
    .await
}
