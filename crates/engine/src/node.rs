//! Nodes: reads them, finds those that are not Ready, and deletes pods that remain on a leaving node.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::DynamicObject;
use openstack_operator_model::assess::{self, LostPods};
use openstack_operator_model::condition::Progress;
use openstack_operator_model::kind::{CONTROLLERS, DAEMON_SET, NODE, POD};
use openstack_operator_model::lower::{COMPONENT_LABEL, Manifest};
use openstack_operator_model::need::Labels;
use openstack_operator_model::node::Node;
use openstack_operator_model::plan::{Controller, Plan, Pod, Workload};
use serde_json::Value;

use crate::engine::{Engine, Key};
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

    /// Progress of a workload without its pods on nodes that are not Ready.
    pub(crate) async fn without_lost_nodes(
        &self,
        planned: &Planned<'_>,
        manifest: &Manifest,
        live: &Value,
        progress: Progress,
    ) -> PortResult<Progress> {
        let kind = manifest.kind;
        let workload = manifest.workload(planned.plan).filter(|_| CONTROLLERS.contains(&kind));
        let Some(workload) = workload.filter(|_| !progress.is_met() && assess::serves(kind, live)) else {
            return Ok(progress);
        };
        if kind == DAEMON_SET {
            return Ok(assess::daemon_set(&manifest.name, live, &self.lost_nodes(&workload.pod).await?));
        }
        let lost = self.lost_pods(planned.key, workload).await?;
        Ok(if lost.count == 0 { progress } else { assess::rollout(kind, &manifest.name, live, &lost) })
    }

    /// Pods of a workload on nodes that are not Ready or do not exist.
    async fn lost_pods(&self, key: &Key, workload: &Workload) -> PortResult<LostPods> {
        let pods = self.pods(key).await?;
        let own: Vec<&DynamicObject> =
            pods.iter().filter(|pod| component(pod) == Some(workload.component.as_ref())).collect();
        let mut lost = LostPods { required: required_pods(workload), ..LostPods::default() };
        for name in own.iter().filter_map(|pod| member::node(pod)).collect::<BTreeSet<&str>>() {
            if self.node(name).await?.is_none_or(|node| !node.ready) {
                lost.nodes.push(name.to_owned());
            }
        }
        let on_lost = |pod: &&&DynamicObject| {
            member::node(pod).is_some_and(|name| lost.nodes.iter().any(|lost| lost == name))
        };
        let (evicted, staying): (Vec<&DynamicObject>, Vec<&DynamicObject>) =
            own.iter().filter(on_lost).copied().partition(|pod| pod.metadata.deletion_timestamp.is_some());
        // A StatefulSet does not replace an evicted pod. A Deployment does, but the new pod may find no node.
        let is_replaced = !matches!(workload.controller, Controller::StatefulSet { .. });
        let unscheduled = own.iter().filter(|pod| member::node(pod).is_none()).count();
        let missing = if is_replaced { evicted.len().min(unscheduled) } else { evicted.len() };
        lost.count = i64::try_from(staying.len() + missing).unwrap_or(i64::MAX);
        Ok(lost)
    }

    /// Names pods with data that share a node, because the loss of that node stops all of them.
    pub(crate) async fn shared_nodes(&self, planned: &Planned<'_>) -> PortResult<Vec<String>> {
        let sets: Vec<&Workload> =
            planned.plan.workloads.iter().filter(|set| has_data(set) && set.replicas > 1).collect();
        let pods = if sets.is_empty() { Vec::new() } else { self.pods(planned.key).await? };
        let mut remarks = Vec::new();
        for set in sets {
            let mut by_node: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
            let stays = |pod: &&DynamicObject| pod.metadata.deletion_timestamp.is_none();
            for pod in pods.iter().filter(|pod| component(pod) == Some(set.component.as_ref())).filter(stays)
            {
                if let (Some(node), Some(name)) = (member::node(pod), pod.metadata.name.as_deref()) {
                    by_node.entry(node).or_default().insert(name);
                }
            }
            remarks.extend(by_node.into_iter().filter(|(_, names)| names.len() > 1).map(|(node, names)| {
                let names: Vec<&str> = names.into_iter().collect();
                format!("pods {} share node {node}, whose loss stops all of them", names.join(" and "))
            }));
        }
        Ok(remarks)
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

/// How many pods of a workload must be ready: a majority if they have data, since clusters need a quorum.
fn required_pods(workload: &Workload) -> i64 {
    if has_data(workload) { i64::from(workload.replicas) / 2 + 1 } else { 1 }
}

/// Whether each pod of a workload has its own volumes.
fn has_data(workload: &Workload) -> bool {
    matches!(&workload.controller, Controller::StatefulSet { claims, .. } if !claims.is_empty())
}

fn component(pod: &DynamicObject) -> Option<&str> {
    pod.metadata.labels.as_ref()?.get(COMPONENT_LABEL).map(String::as_str)
}

fn read(node: DynamicObject) -> Node {
    Node::new(node.metadata.labels.unwrap_or_default(), &node.data)
}

/// Whether the `DaemonSet` of a pod would not recreate it on its node.
fn is_stray(plan: &Plan, node: &Node, pod: &DynamicObject) -> bool {
    let component = component(pod);
    let workload = plan.workloads.iter().find(|workload| Some(workload.component.as_ref()) == component);
    pod.metadata.deletion_timestamp.is_none()
        && workload.is_some_and(|workload| !node.admits(&workload.pod.scheduling.tolerations))
}
