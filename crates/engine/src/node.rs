//! Nodes: reads them, finds those that are not Ready, and deletes pods that remain on a leaving node.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::DynamicObject;
use openstack_operator_model::assess;
use openstack_operator_model::condition::Progress;
use openstack_operator_model::kind::{DAEMON_SET, NODE, POD};
use openstack_operator_model::lower::{COMPONENT_LABEL, Manifest};
use openstack_operator_model::need::Labels;
use openstack_operator_model::node::Node;
use openstack_operator_model::plan::{Plan, Pod};
use serde_json::Value;

use crate::engine::Engine;
use crate::gather::Gathered;
use crate::member;
use crate::phase::Planned;
use crate::ports::PortResult;
use crate::work::Work;

impl Engine {
    /// Nodes with these labels, by name.
    pub(crate) async fn nodes(&self, labels: &Labels) -> PortResult<BTreeMap<String, Node>> {
        let found = self.ports.cluster.list(NODE, "", labels).await?;
        Ok(found
            .into_iter()
            .map(|node| (node.metadata.name.clone().unwrap_or_default(), read(node)))
            .collect())
    }

    /// A node by name, if it exists.
    pub(crate) async fn node(&self, name: &str) -> PortResult<Option<Node>> {
        Ok(self.ports.cluster.get(NODE, "", name).await?.map(read))
    }

    /// Progress of a `DaemonSet` without its nodes that are not Ready. The progress of other kinds is unchanged.
    pub(crate) async fn without_lost_nodes(
        &self,
        plan: &Plan,
        manifest: &Manifest,
        live: &Value,
        progress: Progress,
    ) -> PortResult<Progress> {
        let workload = manifest.workload(plan).filter(|_| manifest.kind == DAEMON_SET);
        let Some(workload) = workload.filter(|_| !progress.is_met() && assess::serves(DAEMON_SET, live))
        else {
            return Ok(progress);
        };
        Ok(assess::daemon_set(&manifest.name, live, &self.lost_nodes(&workload.pod).await?))
    }

    /// Nodes that a `DaemonSet` with this pod counts and that are not Ready.
    async fn lost_nodes(&self, pod: &Pod) -> PortResult<Vec<String>> {
        let mut nodes = BTreeMap::new();
        if pod.only_on.is_empty() {
            nodes = self.nodes(&pod.scheduling.node_selector).await?;
        }
        for name in &pod.only_on {
            nodes.extend(self.node(name).await?.map(|node| (name.clone(), node)));
        }
        let tolerations = &pod.scheduling.tolerations;
        let lost = nodes.into_iter().filter(|(_, node)| !node.ready && node.is_counted(tolerations));
        Ok(lost.map(|(name, _)| name).collect())
    }

    /// Whether a node is not Ready, or does not exist.
    pub(crate) async fn is_lost(&self, gathered: &Gathered, name: &str) -> PortResult<bool> {
        if gathered.resolved.nodes.contains_key(name) {
            return Ok(gathered.lost_nodes.contains(name));
        }
        Ok(self.node(name).await?.is_none_or(|node| !node.ready))
    }

    /// Deletes `DaemonSet` pods on leaving nodes whose taint they do not tolerate. A `NoSchedule` taint does not evict
    /// them, so they would run beside, and outlive, the pods of the `-leaving` workload.
    pub(crate) async fn delete_stray_pods(&self, planned: &Planned<'_>, work: &Work) -> PortResult<()> {
        let kept = planned.plan.workloads.iter().flat_map(|workload| &workload.pod.only_on);
        let leaving_rows = work.status.nodes.iter().filter(|row| !row.state.is_chosen()).map(|row| &row.name);
        let leaving: BTreeSet<&String> = kept
            .chain(leaving_rows)
            .filter(|name| !planned.gathered.resolved.nodes.contains_key(*name))
            .collect();
        if leaving.is_empty() {
            return Ok(());
        }
        let pods = self.pods(planned.key).await?;
        for name in leaving {
            let Some(node) = self.node(name).await? else { continue };
            let local = pods.iter().filter(|pod| member::agent_node(pod) == Some(name));
            for pod in local.filter(|pod| is_stray(planned.plan, &node, pod)) {
                let uid = pod.metadata.uid.as_deref().unwrap_or_default();
                let pod = pod.metadata.name.as_deref().unwrap_or_default();
                self.ports.cluster.delete(POD, &planned.key.namespace, pod, uid).await?;
                tracing::info!(node = name, pod, "deleted a pod that does not tolerate a taint of its node");
            }
        }
        Ok(())
    }
}

fn read(node: DynamicObject) -> Node {
    Node::new(node.metadata.labels.unwrap_or_default(), &node.data)
}

/// Whether the `DaemonSet` of a pod would not recreate it on its node.
fn is_stray(plan: &Plan, node: &Node, pod: &DynamicObject) -> bool {
    let component = pod.metadata.labels.as_ref().and_then(|labels| labels.get(COMPONENT_LABEL));
    let workload = plan
        .workloads
        .iter()
        .find(|workload| Some(workload.component.as_ref()) == component.map(String::as_str));
    pod.metadata.deletion_timestamp.is_none()
        && workload.is_some_and(|workload| !node.admits(&workload.pod.scheduling.tolerations))
}
