//! Members of clustered services: reads the reports of pods, and passes on the orders that the service decides on.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition, PodStatus};
use kube::core::DynamicObject;
use openstack_operator_model::condition::Progress;
use openstack_operator_model::kind::POD;
use openstack_operator_model::lower::{COMPONENT_LABEL, INSTANCE_LABEL, KIND_LABEL, SCHEDULE_COMPONENT};
use openstack_operator_model::plan::MemberProtocol;
use openstack_operator_model::service::{Member, Order};
use serde_json::{Value, json};

use crate::engine::{Engine, Key, Stop, catch_panic};
use crate::phase::Planned;
use crate::ports::PortResult;

/// Maximum length of a termination message in a condition.
const MAX_MESSAGE_CHARS: usize = 300;

/// The service's decision, and the progress of the members.
pub(crate) struct Directed {
    pub(crate) memory: BTreeMap<String, String>,
    pub(crate) progress: Progress,
    pub(crate) remarks: Vec<String>,
    pub(crate) poll: Option<Duration>,
}

impl Engine {
    /// Why pods of an object are not ready, according to kubelet and scheduler. It names containers, not pods, whose
    /// names may be generated.
    pub(crate) async fn pod_problem(&self, key: &Key) -> PortResult<Option<String>> {
        let pods = self.pods(key).await?;
        // A run on a schedule that fails is not why others wait.
        Ok(pods.iter().filter(|pod| !is_scheduled_run(pod)).find_map(problem))
    }

    pub(crate) async fn pods(&self, key: &Key) -> PortResult<Vec<DynamicObject>> {
        let labels = BTreeMap::from([
            (INSTANCE_LABEL.to_owned(), key.name.clone()),
            (KIND_LABEL.to_owned(), key.kind.kind.to_owned()),
        ]);
        self.ports.cluster.list(POD, &key.namespace, &labels).await
    }

    /// Termination messages of the setup containers of agents, by node.
    pub(crate) async fn setup_messages_by_node(&self, key: &Key) -> PortResult<BTreeMap<String, String>> {
        let pods = self.pods(key).await?;
        let found = pods.iter().filter_map(|pod| Some((agent_node(pod)?.to_owned(), setup_message(pod)?)));
        Ok(found.collect())
    }

    /// **Invariant:** the status records a decision before any pod gets an order, so that an operator that restarts in
    /// between decides the same.
    pub(crate) async fn direct(
        &self,
        planned: &Planned<'_>,
        memory: &BTreeMap<String, String>,
    ) -> Result<Directed, Stop> {
        let Planned { key, object, plan, .. } = *planned;
        let protocol = plan.member_protocol.as_ref();
        let pods = self.pods(key).await?;
        let members = self.members(&key.namespace, protocol, &pods).await?;
        let direction = catch_panic("directing members", || Ok(object.direct(&members, memory)))?;
        if direction.memory == *memory {
            for order in &direction.orders {
                let metadata = json!({ "uid": order.uid, "annotations": { order.annotation: order.value } });
                self.ports.cluster.patch_metadata(POD, &key.namespace, &order.pod, metadata).await?;
                let Order { pod, annotation, value, .. } = order;
                tracing::info!(pod, annotation, value, "sent an order to a member");
            }
            for command in &direction.commands {
                self.command(key, protocol, &pods, command).await?;
            }
        }
        let waiting = direction.waiting.map_or(Progress::Done, Progress::waiting);
        Ok(Directed {
            memory: direction.memory,
            progress: direction.stalled.map_or(Progress::Done, Progress::stalled).and(waiting),
            remarks: direction.remarks,
            poll: direction.poll,
        })
    }

    async fn members(
        &self,
        namespace: &str,
        protocol: Option<&MemberProtocol>,
        pods: &[DynamicObject],
    ) -> PortResult<Vec<Member>> {
        let views = self.views(namespace, protocol, pods).await?;
        let mut members = Vec::new();
        for (pod, view) in pods.iter().zip(views) {
            let mut member = Member { view, ..member(pod) };
            if !member.ready {
                member.stranded = match &member.node {
                    Some(node) => self.node(node).await?.is_none_or(|node| !node.ready),
                    None => is_unschedulable(pod),
                };
            }
            members.push(member);
        }
        Ok(members)
    }
}

fn status(pod: &DynamicObject) -> PodStatus {
    pod.data.get("status").and_then(|status| serde_json::from_value(status.clone()).ok()).unwrap_or_default()
}

/// The node of a pod, if it is scheduled.
pub(crate) fn node(pod: &DynamicObject) -> Option<&str> {
    pod.data.pointer("/spec/nodeName").and_then(Value::as_str)
}

/// The node of a `DaemonSet` pod.
pub(crate) fn agent_node(pod: &DynamicObject) -> Option<&str> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let is_agent = owners.any(|owner| owner.kind == "DaemonSet");
    node(pod).filter(|_| is_agent)
}

/// Termination messages of the successful setup containers of a pod.
fn setup_message(pod: &DynamicObject) -> Option<String> {
    let status = status(pod);
    let messages = status.init_container_statuses.iter().flatten().filter_map(|container| {
        let ended = container.state.as_ref()?.terminated.as_ref().filter(|ended| ended.exit_code == 0)?;
        let message: String = ended.message.as_ref()?.trim().chars().take(MAX_MESSAGE_CHARS).collect();
        Some(message).filter(|message| !message.is_empty())
    });
    let messages: Vec<String> = messages.collect();
    (!messages.is_empty()).then(|| messages.join("; "))
}

fn unschedulable(status: &PodStatus) -> Option<&PodCondition> {
    status.conditions.iter().flatten().find(|condition| {
        condition.type_ == "PodScheduled" && condition.reason.as_deref() == Some("Unschedulable")
    })
}

fn is_unschedulable(pod: &DynamicObject) -> bool {
    unschedulable(&status(pod)).is_some()
}

fn problem(pod: &DynamicObject) -> Option<String> {
    let status = status(pod);
    let unschedulable = unschedulable(&status).map(|condition| {
        format!("the pod is unschedulable: {}", condition.message.as_deref().unwrap_or_default())
    });
    let mut containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    unschedulable.or_else(|| {
        containers.find_map(|container| {
            let state = container.state.as_ref()?;
            let waiting = state.waiting.as_ref().and_then(|waiting| waiting.reason.as_deref());
            let failed = state.terminated.as_ref().filter(|ended| ended.exit_code != 0);
            let reason = match (waiting, failed) {
                // Normal states of a starting pod.
                (Some("ContainerCreating" | "PodInitializing"), _) | (None, None) => return None,
                (Some(reason), _) => reason,
                (None, Some(ended)) => ended.reason.as_deref().unwrap_or("Error"),
            };
            let message = termination_message(container).or_else(|| last_termination_message(container));
            let message = last_lines(&message.unwrap_or_default());
            let message = if message.is_empty() { message } else { format!(": {message}") };
            Some(format!("container {}: {reason}{message}", container.name))
        })
    })
}

/// The last lines of a log, which name the error.
fn last_lines(log: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut length = 0;
    for line in log.lines().rev().map(str::trim).filter(|line| !line.is_empty()) {
        length += line.chars().count();
        if length > MAX_MESSAGE_CHARS && !kept.is_empty() {
            break;
        }
        kept.push(line);
    }
    kept.reverse();
    kept.join("; ").chars().take(MAX_MESSAGE_CHARS).collect()
}

fn member(pod: &DynamicObject) -> Member {
    let status = status(pod);
    let main = status.container_statuses.iter().flatten().next();
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
        node: pod.data.pointer("/spec/nodeName").and_then(Value::as_str).map(str::to_owned),
        stranded: false,
        ready: ready && pod.metadata.deletion_timestamp.is_none(),
        started: main.is_some_and(|main| main.started == Some(true)),
        restarts: main.map_or(0, |main| main.restart_count),
        report: last_report(setup, main),
        annotations: pod.metadata.annotations.clone().unwrap_or_default(),
        view: None,
    }
}

/// The message of the container that ended last. The main container runs after the setup container, except after a
/// restart of the node, which runs both again.
fn last_report(setup: Option<&ContainerStatus>, main: Option<&ContainerStatus>) -> Option<String> {
    let setup = setup.and_then(|setup| setup.state.as_ref()?.terminated.as_ref());
    let main = main.and_then(|main| main.last_state.as_ref()?.terminated.as_ref());
    let last = match (setup, main) {
        (Some(setup), Some(main)) if setup.finished_at <= main.finished_at => main,
        (Some(setup), _) => setup,
        (None, main) => main?,
    };
    last.message.clone()
}

fn is_scheduled_run(pod: &DynamicObject) -> bool {
    let component = pod.metadata.labels.as_ref().and_then(|all| all.get(COMPONENT_LABEL));
    component.is_some_and(|component| component.starts_with(SCHEDULE_COMPONENT))
}

fn termination_message(container: &ContainerStatus) -> Option<String> {
    container.state.as_ref()?.terminated.as_ref()?.message.clone()
}

fn last_termination_message(container: &ContainerStatus) -> Option<String> {
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
    fn a_failed_container_is_reported_with_its_termination_message() {
        let ended = json!({ "terminated": { "exitCode": 1, "reason": "Error", "message": "  no disk\n" } });
        let container = |state: &Value, last: &Value| {
            json!({ "containerStatuses": [{
                "name": "server", "ready": false, "restartCount": 3, "image": "i", "imageID": "i",
                "state": state, "lastState": last,
            }] })
        };
        let backing_off = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
        let found = problem(&pod(&container(&backing_off, &ended)));
        assert_eq!(found.as_deref(), Some("container server: CrashLoopBackOff: no disk"));
        let found = problem(&pod(&container(&ended, &json!({}))));
        assert_eq!(found.as_deref(), Some("container server: Error: no disk"));
        let found = problem(&pod(&container(&backing_off, &json!({}))));
        assert_eq!(found.as_deref(), Some("container server: CrashLoopBackOff"));
        let starting = json!({ "waiting": { "reason": "ContainerCreating" } });
        assert_eq!(problem(&pod(&container(&starting, &ended))), None);
    }

    #[test]
    fn a_long_log_is_cut_to_its_last_lines() {
        let log =
            format!("ds of a line\n{}\nTraceback\n\n  ValueError: no disk\n", "x".repeat(MAX_MESSAGE_CHARS));
        assert_eq!(last_lines(&log), "Traceback; ValueError: no disk");
        assert_eq!(last_lines(&"x".repeat(MAX_MESSAGE_CHARS + 9)).len(), MAX_MESSAGE_CHARS);
        assert_eq!(last_lines("  \n"), "");
    }
}
