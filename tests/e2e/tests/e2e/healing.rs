//! The operator restores deleted and damaged objects, and nothing else restarts.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::serde::{Serialize, de::DeserializeOwned};
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Resource, ResourceExt};
use openstack_operator_smoke::Sandbox;
use openstack_operator_smoke::wait::{await_condition, eventually};

use crate::client::Client;
use crate::cloud::Cloud;
use crate::operator;

const RETURN: Duration = Duration::from_mins(5);

type Pods = BTreeMap<String, String>;

/// The database, the message bus and the cache return together after all of them are lost.
pub(crate) async fn recreates_infrastructure_pods(cloud: &Cloud) -> Result<()> {
    let before = cloud.pods().await?;
    let pods = ["mariadb-0", "rabbitmq-0", "memcached-0"].map(|pod| cloud.part(pod));
    try_join_all(pods.iter().map(|pod| recreated::<Pod>(&cloud.sandbox, pod))).await?;
    cloud.settles().await?;
    replaces_only(&before, &cloud.pods().await?, &pods)
}

pub(crate) async fn recreates_configuration(cloud: &Cloud) -> Result<()> {
    let before = cloud.pods().await?;
    let file = find_file(cloud, &format!("{}-keystone-conf-", cloud.part("keystone"))).await?;
    recreated::<ConfigMap>(&cloud.sandbox, &file).await?;
    cloud.settles().await?;
    replaces_only(&before, &cloud.pods().await?, &[])
}

/// New passwords reach the servers that check them and the pods that use them.
pub(crate) async fn regenerates_passwords(cloud: &Cloud, client: &Client) -> Result<()> {
    let (sandbox, keystone) = (&cloud.sandbox, cloud.part("keystone"));
    let before = cloud.pods().await?;
    recreated::<Secret>(sandbox, &cloud.part("keystone-database")).await?;
    replaced(cloud, &before, &keystone).await?;
    cloud.settles().await?;
    replaces_only(&before, &cloud.pods().await?, std::slice::from_ref(&keystone))?;
    eventually("Keystone to serve", RETURN, async || client.proves("keystone").await).await?;

    let before = cloud.pods().await?;
    recreated::<Secret>(sandbox, &cloud.part("keystone-admin")).await?;
    eventually("the new password of the administrator to work", RETURN, async || {
        client.log_in().await?;
        client.proves("keystone").await
    })
    .await?;
    cloud.settles().await?;
    replaces_only(&before, &cloud.pods().await?, &[])?;

    recreated::<Secret>(sandbox, &cloud.part("mariadb-root")).await?;
    replaced(cloud, &before, &cloud.part("mariadb-0")).await?;
    cloud.settles().await
}

/// No watch reports changes in Keystone and MariaDB: the operator finds them when it checks for drift.
pub(crate) async fn corrects_drift(cloud: &Cloud, client: &Client) -> Result<()> {
    let before = cloud.pods().await?;
    let list = "endpoint list --service identity --interface internal";
    let endpoints = client.openstack(list).await?;
    let id = endpoints[0]["ID"].as_str().context("there is no internal endpoint")?.to_owned();
    let sql =
        |statement: &str| format!("mariadb --defaults-file=/etc/openstack/mariadb.cnf -N -e \"{statement}\"");
    let (sandbox, server) = (&cloud.sandbox, cloud.part("mariadb-0"));
    client.shell(&format!("openstack endpoint delete {id}")).await?;
    sandbox.shell(&server, "mariadb", &sql("DROP USER keystone")).await?;
    eventually("the database user to be recreated", RETURN, async || {
        let count = sql("SELECT COUNT(*) FROM mysql.user WHERE User = 'keystone'");
        let count = sandbox.shell(&server, "mariadb", &count).await?;
        ensure!(count.trim() == "1", "{} users have the name", count.trim());
        Ok(())
    })
    .await?;
    eventually("the endpoint to be recreated", RETURN, async || {
        let found = client.openstack(list).await?;
        let is_new = found.as_array().is_some_and(|list| list.len() == 1 && list[0]["ID"] != id.as_str());
        ensure!(is_new, "{found}");
        Ok(())
    })
    .await?;
    eventually("Keystone to serve", RETURN, async || client.proves("keystone").await).await?;
    replaces_only(&before, &cloud.pods().await?, &[])
}

/// A new pod of the operator takes over and restores what was deleted meanwhile.
pub(crate) async fn heals_after_the_operator_restarts(cloud: &Cloud) -> Result<()> {
    let before = cloud.pods().await?;
    let pods = Api::<Pod>::namespaced(cloud.sandbox.client.clone(), operator::NAME);
    for pod in pods.list(&ListParams::default()).await? {
        pods.delete(&pod.name_any(), &DeleteParams::default()).await?;
    }
    let file = find_file(cloud, &format!("{}-uwsgi-ini-", cloud.part("keystone"))).await?;
    recreated::<ConfigMap>(&cloud.sandbox, &file).await?;
    cloud.settles().await?;
    replaces_only(&before, &cloud.pods().await?, &[])
}

/// Deletes an object and waits until another one has its name.
async fn recreated<K>(sandbox: &Sandbox, name: &str) -> Result<()>
where
    K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + Send + 'static,
    K: Serialize + DeserializeOwned,
    K::DynamicType: Default,
{
    let api = sandbox.api::<K>();
    let uid = api.get(name).await?.uid();
    api.delete(name, &DeleteParams::default()).await.with_context(|| format!("failed to delete {name}"))?;
    await_condition(&api, name, "to be recreated", RETURN, |object: &K| object.meta().uid != uid).await?;
    Ok(())
}

async fn find_file(cloud: &Cloud, prefix: &str) -> Result<String> {
    let files = cloud.sandbox.api::<ConfigMap>().list(&ListParams::default()).await?;
    let found = files.items.iter().map(ResourceExt::name_any).find(|name| name.starts_with(prefix));
    found.with_context(|| format!("no ConfigMap has the prefix {prefix}"))
}

/// Waits until no pod with this prefix is one of those before.
async fn replaced(cloud: &Cloud, before: &Pods, prefix: &str) -> Result<()> {
    eventually(&format!("{prefix} to be replaced"), RETURN, async || {
        let now = cloud.pods().await?;
        let same = now.iter().any(|(name, uid)| name.starts_with(prefix) && before.get(name) == Some(uid));
        ensure!(!same, "an old pod still runs");
        Ok(())
    })
    .await
}

/// Only pods with one of these prefixes may differ from those before.
fn replaces_only(before: &Pods, after: &Pods, prefixes: &[String]) -> Result<()> {
    for (name, uid) in before {
        if prefixes.iter().any(|prefix| name.starts_with(prefix.as_str())) {
            continue;
        }
        ensure!(after.get(name) == Some(uid), "pod {name} was replaced without a reason: {after:?}");
    }
    Ok(())
}
