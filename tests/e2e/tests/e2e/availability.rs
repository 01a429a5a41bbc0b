//! A highly available cloud runs several pods of every workload.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt};
use openstack_operator_model::status::Stage;
use openstack_operator_services::PARTS;
use openstack_operator_smoke::Sandbox;

const MANAGED: &str = "app.kubernetes.io/managed-by=openstack-operator";
const KIND: &str = "openstack.k8s.io/kind";
/// Members of a quorum, each on its own node.
const QUORUM: i32 = 3;
/// Pods of every other workload.
const STATELESS: i32 = 2;

/// A quorum survives the loss of a node only if each member runs on another node.
pub(crate) async fn has_enough_nodes(sandbox: &Sandbox) -> Result<()> {
    let nodes = Api::<Node>::all(sandbox.client.clone()).list(&ListParams::default()).await?.items.len();
    ensure!(nodes >= usize::try_from(QUORUM)?, "the cluster has only {nodes} nodes");
    Ok(())
}

pub(crate) async fn has_redundant_pods(sandbox: &Sandbox) -> Result<()> {
    let managed = ListParams::default().labels(MANAGED);
    let deployments = sandbox.api::<Deployment>().list(&managed).await?.items;
    ensure!(!deployments.is_empty(), "there are no Deployments");
    for deployment in &deployments {
        let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas);
        has(deployment, ready.unwrap_or_default(), STATELESS)?;
    }
    let sets = sandbox.api::<StatefulSet>().list(&managed).await?.items;
    let mut quorums = 0;
    for set in &sets {
        let wanted = if is_infrastructure(set)? { QUORUM } else { STATELESS };
        quorums += usize::from(wanted == QUORUM);
        let ready = set.status.as_ref().and_then(|status| status.ready_replicas);
        has(set, ready.unwrap_or_default(), wanted)?;
    }
    ensure!(quorums > 0, "there is no quorum among {} StatefulSets", sets.len());
    Ok(())
}

/// Databases, message queues and caches form clusters; other workloads are stateless.
fn is_infrastructure(set: &StatefulSet) -> Result<bool> {
    let kind = set.labels().get(KIND).with_context(|| format!("{} has no kind", set.name_any()))?;
    let mut parts = PARTS.iter();
    Ok(parts.any(|part| part.kind().kind == kind && part.stage() == Stage::Infrastructure))
}

fn has<K: Resource<DynamicType = ()>>(workload: &K, ready: i32, wanted: i32) -> Result<()> {
    let kind = K::kind(&());
    ensure!(ready == wanted, "{kind} {} has {ready} ready pods, not {wanted}", workload.name_any());
    Ok(())
}
