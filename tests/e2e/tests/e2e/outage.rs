//! Services survive that the database, the message bus or Keystone is away for a minute.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use openstack_operator_e2e::runner::{Check, Stage};
use openstack_operator_model::common::PAUSE_ANNOTATION;
use openstack_operator_services::PARTS;
use openstack_operator_smoke::wait::eventually;
use serde_json::{Value, json};

use crate::cloud::{Cloud, LASTING_PODS, RECOVERY};
use crate::suite::{PROOF, Suite};

/// How long the part is away.
const OUTAGE: Duration = Duration::from_mins(1);
/// Parts that others depend on.
const SHARED: [&str; 3] = ["mariadb", "rabbitmq", "keystone"];

/// One check for each part that others depend on. After the outage the proofs of these services pass.
pub(crate) fn stages(needed: &str, services: &[&'static str]) -> Vec<Stage<Suite>> {
    let stages = SHARED.map(|part| {
        let services = services.to_vec();
        let check = Check::new(format!("{PROOF}after_an_outage_of_{part}"), move |suite: &Suite| {
            let services = services.clone();
            async move { survives(suite, part, &services).await }.boxed_local()
        });
        vec![check.after(needed).long()]
    });
    stages.into()
}

async fn survives(suite: &Suite, part: &str, services: &[&str]) -> Result<()> {
    let cloud = &suite.cloud;
    let before = restarts(cloud, part).await?;
    pause(cloud, part, &json!("true")).await?;
    let stopped = stop(cloud, part).await;
    if stopped.is_ok() {
        tokio::time::sleep(OUTAGE).await;
    }
    pause(cloud, part, &Value::Null).await?;
    stopped?;
    cloud.ready(RECOVERY).await?;
    for service in services {
        // Clients connect to the message bus again after a delay.
        let description = format!("{service} to work again");
        eventually(&description, RECOVERY, async || suite.client.proves(service).await).await?;
    }
    let after = restarts(cloud, part).await?;
    ensure!(before == after, "containers restarted: {before:?} before, {after:?} after the outage");
    Ok(())
}

/// Makes the operator ignore the part, so that it does not repair the outage.
async fn pause(cloud: &Cloud, part: &str, value: &Value) -> Result<()> {
    let kind = PARTS.iter().find(|known| known.field() == part).context("there is no such part")?.kind();
    let change = json!({ "metadata": { "annotations": { PAUSE_ANNOTATION: value } } });
    let objects = cloud.objects(kind.kind, kind.plural);
    objects.patch(&cloud.part(part), &PatchParams::default(), &Patch::Merge(&change)).await?;
    Ok(())
}

/// Stops the pods of the part, and waits until they are gone.
async fn stop(cloud: &Cloud, part: &str) -> Result<()> {
    let (client, name) = (cloud.sandbox.client.clone(), cloud.part(part));
    let none = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
    let stateful: Api<StatefulSet> = Api::namespaced(client.clone(), &cloud.namespace);
    if stateful.get_opt(&name).await?.is_some() {
        stateful.patch_scale(&name, &PatchParams::default(), &none).await?;
    } else {
        let stateless: Api<Deployment> = Api::namespaced(client, &cloud.namespace);
        stateless.patch_scale(&name, &PatchParams::default(), &none).await?;
    }
    eventually("the pods to stop", RECOVERY, async || {
        let pods = pods(cloud).await?;
        let left: Vec<String> =
            pods.iter().map(ResourceExt::name_any).filter(|pod| is_of(pod, &name)).collect();
        ensure!(left.is_empty(), "{} still exist", left.join(", "));
        Ok(())
    })
    .await
}

/// Restarts of containers by the UID of their pods, except those of the part itself.
async fn restarts(cloud: &Cloud, part: &str) -> Result<BTreeMap<(String, String), i32>> {
    let own = cloud.part(part);
    let mut restarts = BTreeMap::new();
    for pod in pods(cloud).await?.into_iter().filter(|pod| !is_of(&pod.name_any(), &own)) {
        let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        let count = containers.map(|container| container.restart_count).sum();
        restarts.insert((pod.name_any(), pod.uid().unwrap_or_default()), count);
    }
    Ok(restarts)
}

async fn pods(cloud: &Cloud) -> Result<Vec<Pod>> {
    let pods: Api<Pod> = Api::namespaced(cloud.sandbox.client.clone(), &cloud.namespace);
    Ok(pods.list(&ListParams::default().labels(LASTING_PODS)).await?.items)
}

/// Whether a pod belongs to the workload of this name.
fn is_of(pod: &str, workload: &str) -> bool {
    pod.strip_prefix(workload).is_some_and(|rest| rest.starts_with('-'))
}
