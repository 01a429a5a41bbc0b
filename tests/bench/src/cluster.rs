//! The cluster of the benchmark: its namespaces, objects of any kind, and other operators.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hyper::Request;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, ServiceAccount};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, ObjectMeta, PostParams};
use kube::config::{Config, KubeConfigOptions};
use kube::core::{ObjectList, PartialObjectMeta};
use kube::{Client, ResourceExt};
use openstack_operator_model::kind::Kind;
use openstack_operator_services::control_plane;
use openstack_operator_smoke::wait::{await_condition, await_deletion, eventually};
use openstack_operator_smoke::{Environment, Sandbox};
use rustls::crypto::ring;

use crate::metrics::Metrics;

/// Label of every namespace of the benchmark, by which the leftovers of a failed run are found.
const OURS: (&str, &str) = ("app.kubernetes.io/managed-by", "openstack-operator-bench");
/// Prefix of every namespace of the benchmark.
pub(crate) const PREFIX: &str = "bench-";
/// The Lease of an operator.
const LEASE: &str = "openstack-operator";
const NAMESPACE_START: Duration = Duration::from_mins(1);
/// A database may take ten minutes to shut down.
const NAMESPACE_END: Duration = Duration::from_mins(15);
const VOLUMES_END: Duration = Duration::from_mins(3);

pub(crate) async fn connect() -> Result<Client> {
    // Requiring the variable keeps a run by hand away from the cluster of the default configuration.
    std::env::var("KUBECONFIG").context("KUBECONFIG is not set: run through cargo xtask bench")?;
    // Several providers may be linked, and then none is the default.
    let _ = ring::default_provider().install_default();
    let config = Config::from_kubeconfig(&KubeConfigOptions::default())
        .await
        .context("failed to read the file that KUBECONFIG names")?;
    Client::try_from(config).context("failed to create a client")
}

/// Objects of a kind in one namespace, or in all.
pub(crate) fn api(client: &Client, kind: Kind, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind.resource()),
        None => Api::all_with(client.clone(), &kind.resource()),
    }
}

/// Metadata of all objects of a kind in namespaces of the benchmark.
pub(crate) async fn our_metadata(
    client: &Client,
    kind: Kind,
) -> Result<Vec<PartialObjectMeta<DynamicObject>>> {
    let list = api(client, kind, None).list_metadata(&ListParams::default()).await;
    let items = list.with_context(|| format!("failed to list {}", kind.plural))?.items;
    Ok(items.into_iter().filter(|object| is_ours(&object.metadata)).collect())
}

pub(crate) fn is_ours(metadata: &ObjectMeta) -> bool {
    metadata.namespace.as_deref().is_some_and(|namespace| namespace.starts_with(PREFIX))
}

/// Fails if another operator or another cloud would distort the measurement.
pub(crate) async fn require_exclusive_use(client: &Client, installed: &str) -> Result<()> {
    let leases: ObjectList<Lease> = Api::all(client.clone()).list(&ListParams::default()).await?;
    let now = Timestamp::now();
    for lease in leases.items.iter().filter(|lease| lease.name_any() == LEASE) {
        let namespace = lease.namespace().unwrap_or_default();
        let ours = namespace == installed || namespace.starts_with(PREFIX);
        ensure!(
            ours || !is_held(lease, now),
            "an operator holds the Lease {LEASE} in namespace {namespace}: end it, and wait until the Lease has run out"
        );
    }
    let clouds = match api(client, control_plane::KIND, None).list_metadata(&ListParams::default()).await {
        Ok(list) => list.items,
        // Without the CRD there are no control planes.
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(error) => return Err(error).context("failed to list the control planes"),
    };
    let others: Vec<String> = clouds
        .iter()
        .filter(|cloud| !is_ours(&cloud.metadata))
        .map(|cloud| format!("{}/{}", cloud.namespace().unwrap_or_default(), cloud.name_any()))
        .collect();
    ensure!(
        others.is_empty(),
        "there are control planes, which would be measured too: delete {} first",
        others.join(", ")
    );
    Ok(())
}

fn is_held(lease: &Lease, now: Timestamp) -> bool {
    let Some(spec) = &lease.spec else { return false };
    let (Some(renewed), Some(duration)) = (&spec.renew_time, spec.lease_duration_seconds) else {
        return false;
    };
    let held = spec.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty());
    held && now.as_second() < renewed.0.as_second() + i64::from(duration)
}

/// The namespaces of the benchmark.
pub(crate) async fn our_namespaces(client: &Client) -> Result<Vec<Namespace>> {
    let ours = ListParams::default().labels(&format!("{}={}", OURS.0, OURS.1));
    let list = Api::<Namespace>::all(client.clone()).list(&ours).await;
    Ok(list.context("failed to list the namespaces")?.items)
}

/// Creates a namespace, and deletes an existing one first.
pub(crate) async fn recreate_namespace(client: &Client, name: &str) -> Result<Sandbox> {
    remove_namespace(client, name).await?;
    let (label, value) = OURS;
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([(label.to_owned(), value.to_owned())].into()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    let namespaces = Api::<Namespace>::all(client.clone());
    let root = namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .with_context(|| format!("failed to create namespace {name}"))?;
    let environment = Environment {
        images: BTreeMap::new(),
        context: None,
        gateway_address: None,
        provider_range: None,
        xtask: None,
    };
    let sandbox = Sandbox { client: client.clone(), environment, namespace: name.to_owned(), root };
    // The API server admits no pod before its service account exists.
    let accounts = sandbox.api::<ServiceAccount>();
    await_condition(&accounts, "default", "to exist", NAMESPACE_START, |_| true).await?;
    Ok(sandbox)
}

/// Deletes a namespace with all its volumes, if it exists.
pub(crate) async fn remove_namespace(client: &Client, name: &str) -> Result<()> {
    let namespaces = Api::<Namespace>::all(client.clone());
    let Some(found) = namespaces.get_opt(name).await? else { return Ok(()) };
    namespaces
        .delete(name, &DeleteParams::default())
        .await
        .with_context(|| format!("failed to delete namespace {name}"))?;
    await_deletion(&namespaces, name, found.metadata.uid.as_deref(), NAMESPACE_END).await?;
    // The next measurement must not include the deletion of volumes.
    let volumes = Api::<PersistentVolume>::all(client.clone());
    eventually("the volumes to be gone", VOLUMES_END, async || {
        let list = volumes.list(&ListParams::default()).await?;
        let claimed = |volume: &&PersistentVolume| {
            let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
            claim.is_some_and(|claim| claim.namespace.as_deref() == Some(name))
        };
        let left: Vec<String> = list.items.iter().filter(claimed).map(ResourceExt::name_any).collect();
        ensure!(left.is_empty(), "volumes are left: {}", left.join(", "));
        Ok(())
    })
    .await
}

/// Metrics of the API server, or of a pod through its proxy.
pub(crate) async fn fetch_metrics(client: &Client, path: &str) -> Result<Metrics> {
    let request = Request::get(path).body(Vec::new())?;
    let text = client.request_text(request).await.with_context(|| format!("failed to get {path}"))?;
    Ok(Metrics::new(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lease_is_held_until_it_expires() {
        let lease = |holder: &str| -> Lease {
            let spec = json!({
                "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z",
            });
            serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap()
        };
        let at = |time: &str| time.parse::<Timestamp>().unwrap();
        assert!(is_held(&lease("a"), at("2026-01-01T00:00:14Z")));
        assert!(!is_held(&lease("a"), at("2026-01-01T00:00:15Z")));
        assert!(!is_held(&lease(""), at("2026-01-01T00:00:01Z")));
    }
}
