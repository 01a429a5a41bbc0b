//! Checks on a real node that a cloud comes up, serves, heals, changes as it was planned, and goes.

mod availability;
mod changes;
mod client;
mod cloud;
mod deletion;
mod existing;
mod group;
mod healing;
mod leaving;
mod nodes;
mod operator;
mod rotation;
mod servers;
mod snapshots;

use std::env;
use std::time::Duration;

use anyhow::{Context, Result};
use openstack_operator_smoke::power::power_cycle;
use openstack_operator_smoke::{PodSecurity, notice, with_cluster_alone};
use serde_json::json;

use crate::client::Client;
use crate::cloud::Cloud;
use crate::group::Group;
use crate::nodes::Nodes;
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

#[tokio::test]
#[ignore = "takes six minutes, a cloud of its own: cargo xtask test --only e2e --long"]
async fn services_of_another_namespace_use_what_a_cloud_has() -> Result<()> {
    with_cluster_alone("cloud", PodSecurity::Restricted, async |sandbox| {
        let operator = Operator::install(sandbox).await?;
        let cloud = Cloud::new(sandbox, "cloud");
        cloud.apply(&json!({})).await?;
        cloud.ready(CLOUD_START).await?;
        let client = Client::start(sandbox, &operator, &cloud, None).await?;
        existing::serves_another_namespace(sandbox, &cloud, &client).await?;
        operator.rests(sandbox, &client).await?;
        deletion::goes(sandbox, &cloud, deletion::IDENTITY_VOLUMES).await
    })
    .await
}

#[tokio::test]
async fn a_cloud_runs_servers_that_outlive_its_pods() -> Result<()> {
    with_cluster_alone("servers", PodSecurity::Privileged, async |sandbox| {
        let (Some(range), Some(xtask)) = (&sandbox.environment.provider_range, &sandbox.environment.xtask)
        else {
            notice("skipped: the sample's interfaces are those of the local cluster");
            return Ok(());
        };
        let operator = Operator::install(sandbox).await?;
        let cloud = Cloud::whole(sandbox, "whole");
        let nodes = Nodes::new(sandbox);
        let [one, other] = nodes.take().await?;
        cloud.apply(&nodes.topologies()).await?;
        cloud.ready(CLOUD_START).await?;
        let guest = env::var("E2E_GUEST_IMAGE").context("E2E_GUEST_IMAGE is not set")?;
        let client = Client::start(sandbox, &operator, &cloud, Some(guest)).await?;
        client.uses_the_cloud().await?;
        notice("the cloud serves; now making servers");
        let servers = Servers::prepare(sandbox, &cloud, &client, range).await?;
        let first = servers.create("first", &one).await?;
        servers.is_whole(&first).await?;
        servers.ends_by_itself(&first).await?;
        servers.starts_from_a_snapshot(&first, &one).await?;
        notice("an instance started from a snapshot; now making one on another node");
        let second = servers.create("second", &other).await?;
        servers.reaches(&first, &second).await?;
        servers.outlives_a_move(&first, &other).await?;
        notice("servers of two nodes reach each other; now taking pods away under them");
        servers.outlives_pods(&first, &servers::PODS).await?;
        let third = servers.create("third", &other).await?;
        notice("a new server serves; now taking a node's power away");
        servers.keeps(&first, &sandbox.namespace).await?;
        power_cycle(sandbox, xtask, &one).await?;
        servers.pods_are_ready().await?;
        cloud.ready(CLOUD_START).await?;
        servers.starts_again(&first, &sandbox.namespace).await?;
        notice("the server is back with its disk; now taking the other node out");
        leaving::leaves(&cloud, &client, &servers, &nodes, &other, vec![second, third]).await?;
        leaving::left_one_chassis(&cloud).await?;
        servers.delete(first).await?;
        servers.left_nothing().await?;
        servers.left_no_device().await?;
        operator.rests(sandbox, &client).await?;
        deletion::goes(sandbox, &cloud, deletion::WHOLE_VOLUMES).await?;
        nodes.release(&one).await
    })
    .await
}

#[tokio::test]
#[ignore = "it takes as long as the test of servers with OVN: cargo xtask test --only e2e --long"]
async fn a_cloud_without_ovn_runs_servers() -> Result<()> {
    with_cluster_alone("agents", PodSecurity::Privileged, async |sandbox| {
        let Some(range) = &sandbox.environment.provider_range else {
            notice("skipped: the sample's interfaces are those of the local cluster");
            return Ok(());
        };
        let operator = Operator::install(sandbox).await?;
        let cloud = Cloud::without_ovn(sandbox, "agents");
        let nodes = Nodes::new(sandbox);
        let [one, other] = nodes.take().await?;
        cloud.apply(&nodes.topologies()).await?;
        cloud.ready(CLOUD_START).await?;
        let guest = env::var("E2E_GUEST_IMAGE").context("E2E_GUEST_IMAGE is not set")?;
        let client = Client::start(sandbox, &operator, &cloud, Some(guest)).await?;
        notice("the cloud serves; now making servers");
        let servers = Servers::prepare(sandbox, &cloud, &client, range).await?;
        let first = servers.create("first", &one).await?;
        servers.is_whole(&first).await?;
        let second = servers.create("second", &other).await?;
        servers.reaches(&first, &second).await?;
        notice("servers of two nodes reach each other; now taking pods away under them");
        servers.outlives_pods(&first, &servers::AGENTS).await?;
        leaving::leaves(&cloud, &client, &servers, &nodes, &other, vec![second]).await?;
        leaving::left_no_agents(&client, &other).await?;
        servers.answers(&first, CLOUD_START).await?;
        servers.delete(first).await?;
        servers.left_nothing().await?;
        deletion::goes(sandbox, &cloud, deletion::WITHOUT_OVN_VOLUMES).await?;
        nodes.release(&one).await
    })
    .await
}

#[tokio::test]
#[ignore = "it runs two or three pods of everything: cargo xtask test --only e2e --long"]
async fn a_highly_available_cloud_has_pods_to_spare() -> Result<()> {
    with_cluster_alone("available", PodSecurity::Privileged, async |sandbox| {
        if sandbox.environment.provider_range.is_none() {
            notice("skipped: the sample's interfaces are those of the local cluster");
            return Ok(());
        }
        availability::has_enough_nodes(sandbox).await?;
        let operator = Operator::install(sandbox).await?;
        let cloud = Cloud::highly_available(sandbox, "available");
        cloud.apply(&json!({ "publicScheme": "http" })).await?;
        cloud.ready(2 * CLOUD_START).await?;
        availability::has_pods_to_spare(sandbox).await?;
        let client = Client::start(sandbox, &operator, &cloud, None).await?;
        client.uses_the_cloud().await?;
        deletion::goes(sandbox, &cloud, deletion::AVAILABLE_VOLUMES).await
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

#[tokio::test]
async fn a_group_of_databases_grows_loses_a_volume_and_shrinks() -> Result<()> {
    with_cluster_alone("group", PodSecurity::Restricted, async |sandbox| {
        Operator::install(sandbox).await?;
        let group = Group::new(sandbox, "networks");
        group.has(1).await?;
        group.remembers("of-one").await?;
        group.has(3).await?;
        group.remembers("of-three").await?;
        group.loses_a_volume(3).await?;
        group.has(1).await?;
        group.still_knows(&["of-one", "of-three"]).await?;
        // What has left may come back.
        group.has(3).await?;
        group.still_knows(&["of-one", "of-three"]).await
    })
    .await
}
