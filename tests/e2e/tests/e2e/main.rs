//! Checks on a real node that a cloud comes up, serves, heals, changes as it was planned, and goes.

mod changes;
mod client;
mod cloud;
mod deletion;
mod healing;
mod operator;
mod rotation;

use std::time::Duration;

use anyhow::Result;
use openstack_operator_smoke::{PodSecurity, notice, with_cluster_alone};
use serde_json::json;

use crate::client::Client;
use crate::cloud::Cloud;
use crate::operator::Operator;

/// How long a cloud may take to become Ready on a loaded machine.
const CLOUD_START: Duration = Duration::from_mins(10);

#[tokio::test]
async fn a_cloud_serves_heals_changes_and_goes() -> Result<()> {
    with_cluster_alone("cloud", PodSecurity::Restricted, async |sandbox| {
        let operator = Operator::install(sandbox).await?;
        let cloud = Cloud::new(sandbox, "cloud");
        cloud.apply(&json!({})).await?;
        cloud.ready(CLOUD_START).await?;
        let client = Client::start(sandbox, &operator, &cloud).await?;
        client.uses_the_cloud().await?;
        notice("the cloud serves; now damaging it");
        operator.rests(sandbox, &client).await?;
        healing::heals(sandbox, &cloud, &client).await?;
        notice("the cloud heals; now changing it");
        changes::changes_as_planned(sandbox, &operator, &cloud).await?;
        rotation::rotates(sandbox, &cloud, &client).await?;
        operator.rests(sandbox, &client).await?;
        notice("the cloud changes as planned; now deleting it");
        deletion::goes(sandbox, &cloud).await
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
        deletion::goes(sandbox, &cloud).await
    })
    .await
}
