//! What is deleted or damaged comes back by itself, and nothing else changes.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{Api, DeleteParams, ListParams};
use kube::runtime::wait::{Condition, conditions::is_deployment_completed};
use kube::{Resource, ResourceExt};
use openstack_operator_smoke::Sandbox;
use openstack_operator_smoke::wait::{await_condition, eventually};

use crate::client::Client;
use crate::cloud::{Cloud, is_ready};

const RETURN: Duration = Duration::from_mins(5);
const OPERATOR: &str = "openstack-operator";

pub(crate) async fn heals(sandbox: &Sandbox, cloud: &Cloud<'_>, client: &Client<'_>) -> Result<()> {
    let keystone = cloud.part("keystone");
    let deployments = sandbox.api::<Deployment>();
    for pod in ["mariadb-0", "rabbitmq-0", "memcached-0"] {
        let before = cloud.pods().await?;
        delete::<Pod>(sandbox, &cloud.part(pod)).await?;
        settles(cloud, &deployments).await?;
        changed(&before, &cloud.pods().await?, &[&cloud.part(pod)])?;
    }

    let before = cloud.pods().await?;
    let file = find_file(sandbox, &format!("{keystone}-keystone-conf-")).await?;
    delete::<ConfigMap>(sandbox, &file).await?;
    settles(cloud, &deployments).await?;
    changed(&before, &cloud.pods().await?, &[])?;

    // The new password must reach the database and the pods.
    delete::<Secret>(sandbox, &cloud.part("keystone-database")).await?;
    replaced(cloud, &before, &keystone).await?;
    settles(cloud, &deployments).await?;
    changed(&before, &cloud.pods().await?, &[&keystone])?;
    eventually("Keystone to answer", RETURN, async || client.uses_the_cloud().await).await?;

    // The new password must reach Keystone.
    let before = cloud.pods().await?;
    delete::<Secret>(sandbox, &cloud.part("keystone-admin")).await?;
    eventually("the new password to work", RETURN, async || {
        client.log_in().await?;
        client.uses_the_cloud().await
    })
    .await?;
    settles(cloud, &deployments).await?;
    changed(&before, &cloud.pods().await?, &[])?;

    // The new password must reach the server itself.
    delete::<Secret>(sandbox, &cloud.part("mariadb-root")).await?;
    replaced(cloud, &before, &cloud.part("mariadb-0")).await?;
    settles(cloud, &deployments).await?;

    drifts(sandbox, cloud, client).await?;
    operator_returns(sandbox, cloud, &deployments).await
}

/// What no watch can see is found by looking.
async fn drifts(sandbox: &Sandbox, cloud: &Cloud<'_>, client: &Client<'_>) -> Result<()> {
    let before = cloud.pods().await?;
    let count = "endpoint list --service identity --interface internal";
    let endpoints = client.openstack(count).await?;
    let id = endpoints[0]["ID"].as_str().context("no internal endpoint")?.to_owned();
    client.shell(&format!("openstack endpoint delete {id}")).await?;
    eventually("the endpoint to come back", RETURN, async || {
        let found = client.openstack(count).await?;
        ensure!(
            found.as_array().is_some_and(|list| list.len() == 1 && list[0]["ID"] != id.as_str()),
            "{found}"
        );
        Ok(())
    })
    .await?;

    let server = cloud.part("mariadb-0");
    let sql =
        |statement: &str| format!("mariadb --defaults-file=/etc/openstack/mariadb.cnf -N -e \"{statement}\"");
    sandbox.shell(&server, "mariadb", &sql("DROP USER keystone")).await?;
    eventually("the database user to come back", RETURN, async || {
        let found = sandbox
            .shell(&server, "mariadb", &sql("SELECT COUNT(*) FROM mysql.user WHERE User = 'keystone'"))
            .await?;
        ensure!(found.trim() == "1", "there are {} such users", found.trim());
        Ok(())
    })
    .await?;
    eventually("Keystone to answer", RETURN, async || client.uses_the_cloud().await).await?;
    changed(&before, &cloud.pods().await?, &[])
}

/// The operator itself may go: another pod takes over, and heals as the one before.
async fn operator_returns(sandbox: &Sandbox, cloud: &Cloud<'_>, deployments: &Api<Deployment>) -> Result<()> {
    let before = cloud.pods().await?;
    let pods = Api::<Pod>::namespaced(sandbox.client.clone(), OPERATOR);
    for pod in pods.list(&ListParams::default()).await? {
        pods.delete(&pod.name_any(), &DeleteParams::default()).await?;
    }
    let file = find_file(sandbox, &format!("{}-uwsgi-ini-", cloud.part("keystone"))).await?;
    delete::<ConfigMap>(sandbox, &file).await?;
    settles(cloud, deployments).await?;
    changed(&before, &cloud.pods().await?, &[])
}

/// Deletes an object and waits until another of the same name exists.
async fn delete<K>(sandbox: &Sandbox, name: &str) -> Result<()>
where
    K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Send + 'static,
    K: k8s_openapi::serde::Serialize,
    K::DynamicType: Default,
{
    let api = sandbox.api::<K>();
    let uid = api.get(name).await?.uid();
    api.delete(name, &DeleteParams::default()).await.with_context(|| format!("failed to delete {name}"))?;
    await_condition(&api, name, "to come back", RETURN, |object: &K| object.meta().uid != uid).await?;
    Ok(())
}

async fn find_file(sandbox: &Sandbox, prefix: &str) -> Result<String> {
    let files = sandbox.api::<ConfigMap>().list(&ListParams::default()).await?;
    let found = files.items.iter().map(ResourceExt::name_any).find(|name| name.starts_with(prefix));
    found.with_context(|| format!("no ConfigMap begins with {prefix}"))
}

/// Waits until pods whose names begin with `prefix` are others than before.
async fn replaced(cloud: &Cloud<'_>, before: &BTreeMap<String, String>, prefix: &str) -> Result<()> {
    eventually(&format!("{prefix} to be replaced"), RETURN, async || {
        let now = cloud.pods().await?;
        let same = now.iter().any(|(name, uid)| name.starts_with(prefix) && before.get(name) == Some(uid));
        ensure!(!same, "an old pod still runs");
        Ok(())
    })
    .await
}

/// Waits until the operator has seen everything and everything has rolled out.
async fn settles(cloud: &Cloud<'_>, deployments: &Api<Deployment>) -> Result<()> {
    let keystone = cloud.part("keystone");
    eventually("everything to be Ready again", RETURN, async || {
        for (kind, plural, name) in [
            ("MariaDB", "mariadbs", "mariadb"),
            ("RabbitMQ", "rabbitmqs", "rabbitmq"),
            ("Memcached", "memcacheds", "memcached"),
            ("Keystone", "keystones", "keystone"),
        ] {
            let object = cloud.objects(kind, plural).get(&cloud.part(name)).await?;
            ensure!(is_ready(&object), "{kind}: {}", object.data["status"]["conditions"]);
        }
        let deployment = deployments.get(&keystone).await?;
        ensure!(is_deployment_completed().matches_object(Some(&deployment)), "{keystone} rolls");
        ensure!(is_ready(&cloud.control_planes().get(cloud.name).await?), "the control plane is not Ready");
        Ok(())
    })
    .await
}

/// Only pods whose names begin with one of `expected` may be others than before.
fn changed(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
    expected: &[&String],
) -> Result<()> {
    for (name, uid) in before {
        if expected.iter().any(|prefix| name.starts_with(prefix.as_str())) {
            continue;
        }
        ensure!(after.get(name) == Some(uid), "pod {name} was replaced for no reason: {after:?}");
    }
    Ok(())
}
