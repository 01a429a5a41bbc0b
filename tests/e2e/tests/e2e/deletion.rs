//! Deletion of a cloud removes its objects and keeps the volumes that its policy retains.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service};
use kube::Resource;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use openstack_operator_smoke::Sandbox;
use openstack_operator_smoke::wait::{await_condition, await_deletion, eventually};
use serde_json::json;

use crate::cloud::Cloud;

/// How long deletion may take on a loaded machine.
const END: Duration = Duration::from_mins(10);
/// Retained volumes: MariaDB and RabbitMQ; in whole clouds also Glance and both OVN databases.
pub(crate) const IDENTITY_VOLUMES: usize = 2;
pub(crate) const WITHOUT_OVN_VOLUMES: usize = 3;
pub(crate) const WHOLE_VOLUMES: usize = 5;
/// Three each of MariaDB, RabbitMQ and both OVN databases, and one of Glance.
pub(crate) const AVAILABLE_VOLUMES: usize = 13;
/// Ends of the names of Secrets that retained volumes and databases need.
const KEPT_SECRETS: [&str; 2] = ["-credential", "-cookie"];
const MANAGED: &str = "app.kubernetes.io/managed-by=openstack-operator";

/// Deletes the pods of Keystone so that the operator does not restore them.
pub(crate) async fn loses_keystone(cloud: &Cloud) -> Result<()> {
    let sandbox = &cloud.sandbox;
    let keystone = cloud.part("keystone");
    let pause = json!({ "metadata": { "annotations": { "openstack.k8s.io/pause": "true" } } });
    cloud.keystones().patch(&keystone, &PatchParams::default(), &Patch::Merge(&pause)).await?;
    let paused = |object: &kube::api::DynamicObject| object.data["status"].to_string().contains("Paused");
    await_condition(&cloud.keystones(), &keystone, "to be paused", END, paused).await?;
    let deployment = sandbox.api::<Deployment>();
    let uid = deployment.get(&keystone).await?.metadata.uid;
    deployment.delete(&keystone, &DeleteParams::default()).await?;
    await_deletion(&deployment, &keystone, uid.as_deref(), END).await
}

pub(crate) async fn deletes(cloud: &Cloud, retained_volumes: usize) -> Result<()> {
    let sandbox = &cloud.sandbox;
    delete_control_plane(cloud).await?;
    eventually("all objects to be deleted", END, async || {
        is_empty::<Deployment>(sandbox).await?;
        is_empty::<StatefulSet>(sandbox).await?;
        is_empty::<DaemonSet>(sandbox).await?;
        is_empty::<Job>(sandbox).await?;
        is_empty::<Service>(sandbox).await?;
        is_empty::<ConfigMap>(sandbox).await?;
        let secrets = sandbox.api::<Secret>().list(&ListParams::default().labels(MANAGED)).await?;
        let left: Vec<_> = secrets.items.into_iter().filter_map(|secret| secret.metadata.name).collect();
        // Retained data is useless without its keys.
        let is_kept = |name: &String| KEPT_SECRETS.iter().any(|suffix| name.ends_with(suffix));
        ensure!(left.iter().all(is_kept), "Secrets are left: {left:?}");
        Ok(())
    })
    .await?;
    let volumes = sandbox.api::<PersistentVolumeClaim>().list(&ListParams::default()).await?;
    ensure!(volumes.items.len() == retained_volumes, "not {retained_volumes} volumes: {:?}", volumes.items);
    Ok(())
}

/// Deletes the control plane, if there is one, and waits for its finalizer.
pub(crate) async fn delete_control_plane(cloud: &Cloud) -> Result<()> {
    let (api, name) = (cloud.control_planes(), &cloud.name);
    let Some(object) = api.get_opt(name).await? else { return Ok(()) };
    api.delete(name, &DeleteParams::default()).await?;
    await_deletion(&api, name, object.metadata.uid.as_deref(), END).await.context("the finalizer hangs")
}

async fn is_empty<K>(sandbox: &Sandbox) -> Result<()>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope> + Clone + std::fmt::Debug,
    K: k8s_openapi::serde::de::DeserializeOwned,
    K::DynamicType: Default,
{
    let left = sandbox.api::<K>().list(&ListParams::default().labels(MANAGED)).await?;
    let names: Vec<_> = left.items.iter().filter_map(|object| object.meta().name.as_deref()).collect();
    ensure!(names.is_empty(), "{} are left: {names:?}", K::plural(&K::DynamicType::default()));
    Ok(())
}
