//! Assessment of live objects: from their state to their progress.

use serde_json::Value;

use crate::condition::Progress;
use crate::kind::{CHILD_KINDS, DAEMON_SET, DEPLOYMENT, HTTP_ROUTE, JOB, Kind, STATEFUL_SET};
use crate::node::{self, NOT_READY};

/// Progress of one live object. Messages contain no times and no generated names, so they stay the same while nothing
/// changes.
pub fn assess(kind: Kind, name: &str, live: &Value) -> Progress {
    match kind {
        DEPLOYMENT | STATEFUL_SET => rollout(kind, name, live, &LostPods::default()),
        DAEMON_SET => daemon_set(name, live, &[]),
        JOB => job(name, live),
        HTTP_ROUTE => route(name, live),
        // Other child kinds are done when they exist.
        _ if CHILD_KINDS.contains(&kind) => Progress::Done,
        // The operator's own kinds report their state in conditions.
        _ => own(kind, name, live),
    }
}

/// Whether a live workload serves at all. A Job beside workloads counts, because they cannot serve before it
/// completes.
pub fn serves(kind: Kind, live: &Value) -> bool {
    let field = match kind {
        DEPLOYMENT => "/status/availableReplicas",
        STATEFUL_SET => "/status/readyReplicas",
        DAEMON_SET => "/status/numberReady",
        JOB => return job_outcome(live) == JobOutcome::Complete,
        _ => return true,
    };
    number(live, field) > 0
}

fn number(live: &Value, pointer: &str) -> i64 {
    live.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

fn count(nodes: &[String]) -> i64 {
    i64::try_from(nodes.len()).unwrap_or(i64::MAX)
}

fn text<'a>(live: &'a Value, pointer: &str) -> &'a str {
    live.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

/// Pods of a workload on nodes that are not Ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostPods {
    pub count: i64,
    pub nodes: Vec<String>,
    /// How many pods must serve, e.g. a majority.
    pub required: i64,
}

/// Progress of a Deployment or StatefulSet. While enough pods serve, the operator does not wait for pods of lost nodes,
/// because they may never return. A rollout waits for them.
pub fn rollout(kind: Kind, name: &str, live: &Value, lost: &LostPods) -> Progress {
    let counted = if kind == STATEFUL_SET { "/status/readyReplicas" } else { "/status/availableReplicas" };
    let wanted = number(live, "/spec/replicas");
    let updated = number(live, "/status/updatedReplicas");
    let serving = number(live, counted);
    let total = number(live, "/status/replicas");
    let seen = number(live, "/status/observedGeneration") >= number(live, "/metadata/generation");
    if seen && updated == wanted && serving >= wanted && total == wanted {
        return Progress::Done;
    }
    // A StatefulSet does not count the pods that Kubernetes evicts from a lost node, although they run its revision.
    let is_evicting = kind == STATEFUL_SET
        && live.pointer("/status/currentRevision") == live.pointer("/status/updateRevision")
        && wanted - updated <= lost.count;
    let is_rolled_out = seen && total <= wanted && (updated == wanted || is_evicting);
    let is_explained = lost.count > 0 && wanted - serving <= lost.count;
    if is_rolled_out && is_explained && serving >= lost.required.max(1) {
        let losses = lost.nodes.iter().map(|node| node::describe(&[node], NOT_READY)).collect();
        return Progress::Degraded { losses };
    }
    let (state, count) = if seen && updated < wanted {
        ("updated", updated)
    } else if total > wanted {
        return Progress::waiting(format!("{} {name}: waiting for an old pod to stop", kind.kind));
    } else {
        ("ready", serving.min(wanted))
    };
    Progress::waiting(format!("{} {name}: {count} of {wanted} pods {state}", kind.kind))
}

/// Progress of a DaemonSet. While at least one pod is ready, the operator does not wait for pods of lost nodes,
/// because they may never return.
pub fn daemon_set(name: &str, live: &Value, lost: &[String]) -> Progress {
    let wanted = number(live, "/status/desiredNumberScheduled");
    let updated = number(live, "/status/updatedNumberScheduled");
    let ready = number(live, "/status/numberReady");
    let seen = number(live, "/status/observedGeneration") >= number(live, "/metadata/generation");
    let (state, count) = match (seen, updated < wanted) {
        (true, _) if wanted == 0 => {
            return Progress::waiting(format!(
                "DaemonSet {name}: no node has the labels of its nodeSelector"
            ));
        }
        (true, false) if ready >= wanted => return Progress::Done,
        (true, _) if ready > 0 && (wanted - updated).max(wanted - ready) <= count(lost) => {
            let losses = lost.iter().map(|node| node::describe(&[node], NOT_READY)).collect();
            return Progress::Degraded { losses };
        }
        (true, true) => ("updated", updated),
        _ => ("ready", ready.min(wanted)),
    };
    Progress::waiting(format!("DaemonSet {name}: {count} of {wanted} pods {state}"))
}

/// Outcome of a Job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobOutcome {
    Running,
    Complete,
    Failed,
}

pub fn job_outcome(live: &Value) -> JobOutcome {
    if holds(live, "Complete") {
        JobOutcome::Complete
    } else if holds(live, "Failed") {
        JobOutcome::Failed
    } else {
        JobOutcome::Running
    }
}

fn job(name: &str, live: &Value) -> Progress {
    match job_outcome(live) {
        JobOutcome::Complete => Progress::Done,
        JobOutcome::Running => Progress::waiting(format!("Job {name} runs")),
        JobOutcome::Failed => {
            Progress::Failed { message: format!("Job {name} failed; see kubectl logs job/{name}") }
        }
    }
}

fn route(name: &str, live: &Value) -> Progress {
    let parents = live.pointer("/status/parents").and_then(Value::as_array);
    let verdict = parents.into_iter().flatten().find_map(|parent| {
        let conditions = parent.pointer("/conditions").and_then(Value::as_array)?;
        conditions.iter().find(|condition| text(condition, "/type") == "Accepted")
    });
    match verdict {
        Some(accepted) if text(accepted, "/status") == "True" => Progress::Done,
        Some(undecided) if text(undecided, "/reason") == "Pending" => {
            Progress::waiting(format!("HTTPRoute {name}: its Gateway has not decided yet"))
        }
        Some(rejected) => Progress::stalled(format!(
            "HTTPRoute {name} is rejected by its Gateway: {}; correct the Gateway, or gatewayRef and the hostname of \
             the object",
            text(rejected, "/message")
        )),
        None => Progress::waiting(format!("HTTPRoute {name}: its Gateway has not reported yet")),
    }
}

fn own(kind: Kind, name: &str, live: &Value) -> Progress {
    let current = number(live, "/status/observedGeneration") == number(live, "/metadata/generation");
    match ready(live) {
        Some((true, _)) if current => match degraded(live) {
            Some(message) => Progress::degraded(format!("{} {name}: {message}", kind.kind)),
            None => Progress::Done,
        },
        Some((false, message)) if current => {
            let message = format!("{} {name}: {message}", kind.kind);
            if holds(live, "Stalled") { Progress::stalled(message) } else { Progress::waiting(message) }
        }
        _ => Progress::waiting(format!("{} {name}: not reconciled yet", kind.kind)),
    }
}

/// Whether a condition of an object is True.
pub fn holds(live: &Value, condition: &str) -> bool {
    let conditions = live.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|found| text(found, "/type") == condition && text(found, "/status") == "True")
}

/// Status and message of the Ready condition.
pub fn ready(live: &Value) -> Option<(bool, &str)> {
    condition(live, "Ready")
}

/// Message of the Degraded condition, if it is True.
fn degraded(live: &Value) -> Option<&str> {
    condition(live, "Degraded").filter(|(holds, _)| *holds).map(|(_, message)| message)
}

fn condition<'a>(live: &'a Value, type_: &str) -> Option<(bool, &'a str)> {
    let conditions = live.pointer("/status/conditions").and_then(Value::as_array)?;
    let found = conditions.iter().find(|condition| text(condition, "/type") == type_)?;
    Some((text(found, "/status") == "True", text(found, "/message")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kind::{CONFIG_MAP, POD_DISRUPTION_BUDGET, SERVICE};

    #[test]
    fn a_rollout_is_done_when_all_pods_are_updated_and_ready() {
        let live = |updated: i64, available: i64, total: i64| {
            json!({
                "metadata": { "generation": 2 }, "spec": { "replicas": 2 },
                "status": { "observedGeneration": 2, "updatedReplicas": updated, "availableReplicas": available,
                            "replicas": total }
            })
        };
        assert_eq!(assess(DEPLOYMENT, "x", &live(2, 2, 2)), Progress::Done);
        assert_eq!(
            assess(DEPLOYMENT, "x", &live(1, 2, 3)),
            Progress::waiting("Deployment x: 1 of 2 pods updated")
        );
        assert_eq!(
            assess(DEPLOYMENT, "x", &live(2, 1, 2)),
            Progress::waiting("Deployment x: 1 of 2 pods ready")
        );
        assert_eq!(
            assess(DEPLOYMENT, "x", &live(2, 2, 3)),
            Progress::waiting("Deployment x: waiting for an old pod to stop")
        );
    }

    #[test]
    fn a_rollout_is_degraded_when_only_pods_of_lost_nodes_are_missing() {
        let live = |updated: i64, ready: i64| {
            json!({ "metadata": { "generation": 1 }, "spec": { "replicas": 3 }, "status": {
                "observedGeneration": 1, "updatedReplicas": updated, "readyReplicas": ready,
                "availableReplicas": ready, "replicas": 3, "currentRevision": "a", "updateRevision": "a" } })
        };
        let lost = |count, required| LostPods { count, nodes: vec!["b".to_owned()], required };
        let degraded = Progress::degraded("node b is not Ready");
        assert_eq!(rollout(STATEFUL_SET, "x", &live(3, 3), &lost(1, 2)), Progress::Done);
        assert_eq!(rollout(STATEFUL_SET, "x", &live(3, 2), &lost(1, 2)), degraded);
        assert_eq!(rollout(STATEFUL_SET, "x", &live(2, 2), &lost(1, 2)), degraded, "its pod is evicted");
        assert_eq!(rollout(DEPLOYMENT, "x", &live(3, 1), &lost(2, 1)), degraded);
        for (kind, updated, ready, lost, why) in [
            (STATEFUL_SET, 3, 1, lost(2, 2), "it has no majority"),
            (STATEFUL_SET, 3, 1, lost(1, 1), "another pod is missing"),
            (STATEFUL_SET, 1, 2, lost(1, 2), "a rollout is running"),
            (DEPLOYMENT, 2, 2, lost(1, 1), "a rollout is running"),
            (DEPLOYMENT, 3, 0, lost(3, 0), "it does not serve"),
            (DEPLOYMENT, 3, 2, LostPods::default(), "no node is lost"),
        ] {
            assert!(!rollout(kind, "x", &live(updated, ready), &lost).is_met(), "{why}");
        }
        let mut rolling = live(2, 2);
        rolling["status"]["updateRevision"] = json!("b");
        assert!(!rollout(STATEFUL_SET, "x", &rolling, &lost(1, 2)).is_met());
    }

    #[test]
    fn a_generation_that_the_controller_has_not_observed_is_not_done() {
        let live = json!({
            "metadata": { "generation": 3 }, "spec": { "replicas": 1 },
            "status": { "observedGeneration": 2, "updatedReplicas": 1, "readyReplicas": 1, "replicas": 1 }
        });
        assert_ne!(assess(STATEFUL_SET, "x", &live), Progress::Done);
    }

    #[test]
    fn a_daemon_set_is_done_when_all_pods_are_updated_and_ready() {
        let live = |wanted: i64, updated: i64, ready: i64| {
            json!({ "metadata": { "generation": 1 }, "status": { "observedGeneration": 1,
                "desiredNumberScheduled": wanted, "updatedNumberScheduled": updated, "numberReady": ready } })
        };
        let message = |wanted, updated, ready| match assess(DAEMON_SET, "x", &live(wanted, updated, ready)) {
            Progress::Waiting { message, .. } => message,
            _ => String::new(),
        };
        assert_eq!(assess(DAEMON_SET, "x", &live(2, 2, 2)), Progress::Done);
        assert_eq!(message(2, 1, 2), "DaemonSet x: 1 of 2 pods updated");
        assert_eq!(message(2, 2, 1), "DaemonSet x: 1 of 2 pods ready");
        assert!(message(0, 0, 0).contains("no node has the labels"));
        assert_ne!(assess(DAEMON_SET, "x", &json!({ "metadata": { "generation": 1 } })), Progress::Done);
    }

    #[test]
    fn a_daemon_set_is_degraded_when_only_pods_of_lost_nodes_are_missing() {
        let live = |wanted: i64, updated: i64, ready: i64| {
            json!({ "metadata": { "generation": 1 }, "status": { "observedGeneration": 1,
                "desiredNumberScheduled": wanted, "updatedNumberScheduled": updated, "numberReady": ready } })
        };
        let found =
            |wanted, updated, ready| daemon_set("x", &live(wanted, updated, ready), &["b".to_owned()]);
        let degraded = Progress::degraded("node b is not Ready");
        assert_eq!(found(2, 2, 2), Progress::Done);
        assert_eq!(found(2, 2, 1), degraded);
        assert_eq!(found(2, 1, 1), degraded, "a rollout does not wait for it");
        assert_eq!(found(3, 3, 1), Progress::waiting("DaemonSet x: 1 of 3 pods ready"));
        assert_eq!(found(3, 1, 2), Progress::waiting("DaemonSet x: 1 of 3 pods updated"));
        assert_eq!(found(1, 1, 0), Progress::waiting("DaemonSet x: 0 of 1 pods ready"), "none is left");
        assert_eq!(daemon_set("x", &live(2, 2, 1), &[]), Progress::waiting("DaemonSet x: 1 of 2 pods ready"));
        let mut unobserved = live(2, 2, 1);
        unobserved["metadata"]["generation"] = json!(2);
        assert!(!daemon_set("x", &unobserved, &["b".to_owned()]).is_met());
    }

    #[test]
    fn jobs_complete_or_fail() {
        let live = |kind: &str| json!({ "status": { "conditions": [{ "type": kind, "status": "True" }] } });
        assert_eq!(assess(JOB, "x", &live("Complete")), Progress::Done);
        assert!(matches!(assess(JOB, "x", &live("Failed")), Progress::Failed { .. }));
        assert_eq!(assess(JOB, "x", &json!({})), Progress::waiting("Job x runs"));
    }

    #[test]
    fn a_route_waits_for_its_gateway_and_stalls_if_it_is_rejected() {
        let answered = json!({ "status": { "parents": [{ "conditions": [{ "type": "Accepted", "status": "True" }] }] } });
        assert_eq!(assess(HTTP_ROUTE, "x", &answered), Progress::Done);
        assert!(matches!(assess(HTTP_ROUTE, "x", &json!({})), Progress::Waiting { .. }));
        let mut rejected = answered;
        let verdict = &mut rejected["status"]["parents"][0]["conditions"][0];
        *verdict = json!({ "type": "Accepted", "status": "False", "message": "no listener" });
        assert!(matches!(assess(HTTP_ROUTE, "x", &rejected), Progress::Stalled { .. }));
        rejected["status"]["parents"][0]["conditions"][0]["reason"] = json!("Pending");
        assert!(matches!(assess(HTTP_ROUTE, "x", &rejected), Progress::Waiting { .. }));
    }

    #[test]
    fn objects_without_progress_are_done_when_they_exist() {
        assert_eq!(assess(CONFIG_MAP, "x", &json!({})), Progress::Done);
        let conditions =
            json!({ "status": { "conditions": [{ "type": "DisruptionAllowed", "status": "False" }] } });
        assert_eq!(assess(SERVICE, "x", &conditions), Progress::Done);
        assert_eq!(assess(POD_DISRUPTION_BUDGET, "x", &conditions), Progress::Done);
    }

    #[test]
    fn an_own_object_is_done_when_it_is_ready_at_its_current_generation() {
        let live = |observed: i64| {
            json!({ "metadata": { "generation": 2 }, "status": { "observedGeneration": observed,
                    "conditions": [{ "type": "Ready", "status": "True", "message": "" }] } })
        };
        let kind = Kind::own("Thing", "things");
        assert_eq!(assess(kind, "x", &live(2)), Progress::Done);
        assert_ne!(assess(kind, "x", &live(1)), Progress::Done);
        let mut lost = live(2);
        let degraded = json!({ "type": "Degraded", "status": "True", "message": "node b is not Ready" });
        lost["status"]["conditions"].as_array_mut().unwrap().push(degraded);
        assert_eq!(assess(kind, "x", &lost), Progress::degraded("Thing x: node b is not Ready"));
        lost["status"]["conditions"][0]["status"] = json!("False");
        assert!(!assess(kind, "x", &lost).is_met());
    }
}
