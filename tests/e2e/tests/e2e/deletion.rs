//! A cloud that is deleted goes, with all that was made for it, and leaves what its policy says.

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

const END: Duration = Duration::from_mins(4);
/// Volumes that stay: of the database and the bus, and of a whole cloud also of the images and the networks' databases.
pub(crate) const IDENTITY_VOLUMES: usize = 2;
pub(crate) const WITHOUT_OVN_VOLUMES: usize = 3;
pub(crate) const WHOLE_VOLUMES: usize = 5;
/// Three each of the database, the bus and both of the networks' databases, and the one of the images.
pub(crate) const AVAILABLE_VOLUMES: usize = 13;
const MANAGED: &str = "app.kubernetes.io/managed-by=openstack-operator";

/// Takes Keystone away in a way that the operator does not mend.
pub(crate) async fn loses_keystone(sandbox: &Sandbox, cloud: &Cloud<'_>) -> Result<()> {
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

pub(crate) async fn goes(sandbox: &Sandbox, cloud: &Cloud<'_>, volumes_kept: usize) -> Result<()> {
    let object = cloud.control_planes().get(cloud.name).await?;
    cloud.control_planes().delete(cloud.name, &DeleteParams::default()).await?;
    await_deletion(&cloud.control_planes(), cloud.name, object.metadata.uid.as_deref(), END)
        .await
        .context("a finalizer hangs")?;
    eventually("everything to be gone", END, async || {
        is_empty::<Deployment>(sandbox).await?;
        is_empty::<StatefulSet>(sandbox).await?;
        is_empty::<DaemonSet>(sandbox).await?;
        is_empty::<Job>(sandbox).await?;
        is_empty::<Service>(sandbox).await?;
        is_empty::<ConfigMap>(sandbox).await?;
        let secrets = sandbox.api::<Secret>().list(&ListParams::default().labels(MANAGED)).await?;
        let left: Vec<_> = secrets.items.into_iter().filter_map(|secret| secret.metadata.name).collect();
        // Keys of data that stays must stay too.
        ensure!(left.iter().all(|name| name.ends_with("-credential")), "Secrets are left: {left:?}");
        Ok(())
    })
    .await?;
    let volumes = sandbox.api::<PersistentVolumeClaim>().list(&ListParams::default()).await?;
    ensure!(volumes.items.len() == volumes_kept, "{volumes_kept} volumes should stay: {:?}", volumes.items);
    Ok(())
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
