//! Members: reads what pods report, asks the service what to tell them, and tells them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use kube::core::DynamicObject;
use openstack_operator_model::condition::Progress;
use openstack_operator_model::kind::POD;
use openstack_operator_model::lower::{COMPONENT_LABEL, INSTANCE_LABEL, KIND_LABEL};
use openstack_operator_model::service::{AnyObject, Member};
use serde_json::{Value, json};

use crate::engine::{Engine, Key, Stop, guarded};
use crate::ports::PortResult;

/// How much of a container's last words is told.
const LONGEST_WORDS: usize = 300;

/// What was decided, and how far the members are.
pub(crate) struct Directed {
    pub(crate) memory: BTreeMap<String, String>,
    pub(crate) progress: Progress,
}

impl Engine {
    /// Why pods of an object do not become ready, as far as the kubelet or the scheduler say. It names containers and
    /// no pods, whose names may be generated.
    pub(crate) async fn trouble(&self, key: &Key) -> PortResult<Option<String>> {
        Ok(self.pods(key).await?.iter().find_map(trouble))
    }

    pub(crate) async fn pods(&self, key: &Key) -> PortResult<Vec<DynamicObject>> {
        let labels = BTreeMap::from([
            (INSTANCE_LABEL.to_owned(), key.name.clone()),
            (KIND_LABEL.to_owned(), key.kind.kind.to_owned()),
        ]);
        self.ports.cluster.list(POD, &key.namespace, &labels).await
    }

    /// What setup containers of agents have said, by node.
    pub(crate) async fn findings_of_nodes(&self, key: &Key) -> PortResult<BTreeMap<String, String>> {
        let pods = self.pods(key).await?;
        let found = pods.iter().filter_map(|pod| Some((agent_node(pod)?.to_owned(), finding(pod)?)));
        Ok(found.collect())
    }

    /// **Invariant:** what is decided is remembered in the status before anybody is told, so that an operator that
    /// ends in between decides the same again.
    pub(crate) async fn direct(
        &self,
        key: &Key,
        object: &dyn AnyObject,
        memory: &BTreeMap<String, String>,
    ) -> Result<Directed, Stop> {
        let pods = self.pods(key).await?;
        let members: Vec<Member> = pods.iter().map(member).collect();
        let direction = guarded("directing members", || Ok(object.direct(&members, memory)))?;
        if direction.memory == *memory {
            for order in &direction.orders {
                let metadata = json!({ "uid": order.uid, "annotations": { order.annotation: order.value } });
                self.ports.cluster.patch_metadata(POD, &key.namespace, &order.pod, metadata).await?;
                tracing::info!(
                    pod = order.pod,
                    annotation = order.annotation,
                    value = order.value,
                    "gave an order"
                );
            }
        }
        let progress = direction.waiting.map_or(Progress::Done, Progress::waiting);
        Ok(Directed { memory: direction.memory, progress })
    }
}

fn status(pod: &DynamicObject) -> PodStatus {
    pod.data.get("status").and_then(|status| serde_json::from_value(status.clone()).ok()).unwrap_or_default()
}

/// The node of a pod that is there because of the node.
pub(crate) fn agent_node(pod: &DynamicObject) -> Option<&str> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let is_agent = owners.any(|owner| owner.kind == "DaemonSet");
    pod.data.pointer("/spec/nodeName").and_then(Value::as_str).filter(|_| is_agent)
}

/// What the setup containers of a pod said when they had done their work.
fn finding(pod: &DynamicObject) -> Option<String> {
    let status = status(pod);
    let said = status.init_container_statuses.iter().flatten().filter_map(|container| {
        let ended = container.state.as_ref()?.terminated.as_ref().filter(|ended| ended.exit_code == 0)?;
        let said: String = ended.message.as_ref()?.trim().chars().take(LONGEST_WORDS).collect();
        Some(said).filter(|said| !said.is_empty())
    });
    let said: Vec<String> = said.collect();
    (!said.is_empty()).then(|| said.join("; "))
}

fn trouble(pod: &DynamicObject) -> Option<String> {
    let status = status(pod);
    let unschedulable = status.conditions.iter().flatten().find_map(|condition| {
        let stuck = condition.type_ == "PodScheduled" && condition.reason.as_deref() == Some("Unschedulable");
        stuck.then(|| format!("no node takes the pod: {}", condition.message.as_deref().unwrap_or_default()))
    });
    let mut containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    unschedulable.or_else(|| {
        containers.find_map(|container| {
            let state = container.state.as_ref()?;
            let waiting = state.waiting.as_ref().and_then(|waiting| waiting.reason.as_deref());
            let failed = state.terminated.as_ref().filter(|ended| ended.exit_code != 0);
            let reason = match (waiting, failed) {
                // Every pod passes through these.
                (Some("ContainerCreating" | "PodInitializing"), _) | (None, None) => return None,
                (Some(reason), _) => reason,
                (None, Some(ended)) => ended.reason.as_deref().unwrap_or("Error"),
            };
            let said = words(container).or_else(|| last_words(container)).unwrap_or_default();
            let said = last_lines(&said);
            let said = if said.is_empty() { said } else { format!(", it says: {said}") };
            Some(format!("container {}: {reason}{said}", container.name))
        })
    })
}

/// As many lines as may be told, from the last one back: a log ends with what was the matter.
fn last_lines(said: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut length = 0;
    for line in said.lines().rev().map(str::trim).filter(|line| !line.is_empty()) {
        length += line.chars().count();
        if length > LONGEST_WORDS && !kept.is_empty() {
            break;
        }
        kept.push(line);
    }
    kept.reverse();
    kept.join("; ").chars().take(LONGEST_WORDS).collect()
}

fn member(pod: &DynamicObject) -> Member {
    let status = status(pod);
    let main = status.container_statuses.iter().flatten().next();
    let restarts = main.map_or(0, |main| main.restart_count);
    let setup = status.init_container_statuses.iter().flatten().next();
    let ready = status
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let labels = pod.metadata.labels.as_ref();
    Member {
        name: pod.metadata.name.clone().unwrap_or_default(),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        component: labels.and_then(|labels| labels.get(COMPONENT_LABEL)).cloned().unwrap_or_default(),
        ready: ready && pod.metadata.deletion_timestamp.is_none(),
        restarts,
        // Once the main container ran, what the setup container said is out of date.
        report: if restarts > 0 { main.and_then(last_words) } else { setup.and_then(words) },
        annotations: pod.metadata.annotations.clone().unwrap_or_default(),
    }
}

fn words(container: &ContainerStatus) -> Option<String> {
    container.state.as_ref()?.terminated.as_ref()?.message.clone()
}

fn last_words(container: &ContainerStatus) -> Option<String> {
    container.last_state.as_ref()?.terminated.as_ref()?.message.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(status: &Value) -> DynamicObject {
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" }, "status": status });
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn what_a_container_said_before_it_ended_is_told() {
        let ended = json!({ "terminated": { "exitCode": 1, "reason": "Error", "message": "  no disk\n" } });
        let container = |state: &Value, last: &Value| {
            json!({ "containerStatuses": [{
                "name": "server", "ready": false, "restartCount": 3, "image": "i", "imageID": "i",
                "state": state, "lastState": last,
            }] })
        };
        let backing_off = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
        let found = trouble(&pod(&container(&backing_off, &ended)));
        assert_eq!(found.as_deref(), Some("container server: CrashLoopBackOff, it says: no disk"));
        let found = trouble(&pod(&container(&ended, &json!({}))));
        assert_eq!(found.as_deref(), Some("container server: Error, it says: no disk"));
        let found = trouble(&pod(&container(&backing_off, &json!({}))));
        assert_eq!(found.as_deref(), Some("container server: CrashLoopBackOff"));
        let starting = json!({ "waiting": { "reason": "ContainerCreating" } });
        assert_eq!(trouble(&pod(&container(&starting, &ended))), None);
    }

    #[test]
    fn of_a_long_log_the_end_is_told() {
        let log =
            format!("ds of a line\n{}\nTraceback\n\n  ValueError: no disk\n", "x".repeat(LONGEST_WORDS));
        assert_eq!(last_lines(&log), "Traceback; ValueError: no disk");
        assert_eq!(last_lines(&"x".repeat(LONGEST_WORDS + 9)).len(), LONGEST_WORDS);
        assert_eq!(last_lines("  \n"), "");
    }
}
