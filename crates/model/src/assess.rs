//! Assessment: from objects as they are to how far they have come.

use serde_json::Value;

use crate::condition::Progress;
use crate::kind::{CHILD_KINDS, DAEMON_SET, DEPLOYMENT, HTTP_ROUTE, JOB, Kind, STATEFUL_SET};
use crate::node::{self, NOT_READY};

/// How far one live object has come. Messages hold no times and no generated names, so that they stay the same
/// while nothing changes.
pub fn assess(kind: Kind, name: &str, live: &Value) -> Progress {
    match kind {
        DEPLOYMENT => rollout(kind, name, live, "availableReplicas"),
        STATEFUL_SET => rollout(kind, name, live, "readyReplicas"),
        DAEMON_SET => daemon_set(name, live, &[]),
        JOB => job(name, live),
        HTTP_ROUTE => route(name, live),
        // What has no work to do is done when it exists.
        _ if CHILD_KINDS.contains(&kind) => Progress::Done,
        // One of the operator's own kinds says itself how it is.
        _ => own(kind, name, live),
    }
}

/// Whether a live workload serves at all. A Job that runs beside workloads gives them what they cannot serve without.
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

fn rollout(kind: Kind, name: &str, live: &Value, counted: &str) -> Progress {
    let wanted = number(live, "/spec/replicas");
    let updated = number(live, "/status/updatedReplicas");
    let serving = number(live, &format!("/status/{counted}"));
    let total = number(live, "/status/replicas");
    let seen = number(live, "/status/observedGeneration") >= number(live, "/metadata/generation");
    if seen && updated == wanted && serving >= wanted && total == wanted {
        return Progress::Done;
    }
    let (what, count) = if seen && updated < wanted {
        ("updated", updated)
    } else if total > wanted {
        return Progress::waiting(format!("{} {name}: an old pod is still to go", kind.kind));
    } else {
        ("ready", serving.min(wanted))
    };
    Progress::waiting(format!("{} {name}: {count} of {wanted} pods {what}", kind.kind))
}

/// How far a set has come that has a pod on every node of some kind. Where no node is of that kind, nobody has decided
/// yet which is. Pods of lost nodes are neither waited for nor updated as long as any pod is ready: there may never be
/// one again.
pub fn daemon_set(name: &str, live: &Value, lost: &[String]) -> Progress {
    let wanted = number(live, "/status/desiredNumberScheduled");
    let updated = number(live, "/status/updatedNumberScheduled");
    let ready = number(live, "/status/numberReady");
    let seen = number(live, "/status/observedGeneration") >= number(live, "/metadata/generation");
    let (what, count) = match (seen, updated < wanted) {
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
    Progress::waiting(format!("DaemonSet {name}: {count} of {wanted} pods {what}"))
}

/// What became of a Job.
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
            Progress::Failed { message: format!("Job {name} failed; kubectl logs job/{name} says why") }
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
        Some(refused) => Progress::waiting(format!(
            "HTTPRoute {name} is not accepted by its Gateway: {}",
            text(refused, "/message")
        )),
        None => Progress::waiting(format!("HTTPRoute {name}: its Gateway has not answered")),
    }
}

fn own(kind: Kind, name: &str, live: &Value) -> Progress {
    let current = number(live, "/status/observedGeneration") == number(live, "/metadata/generation");
    match ready(live) {
        Some((true, _)) if current => match degraded(live) {
            Some(message) => Progress::degraded(format!("{} {name}: {message}", kind.kind)),
            None => Progress::Done,
        },
        Some((false, message)) if current => Progress::waiting(format!("{} {name}: {message}", kind.kind)),
        _ => Progress::waiting(format!("{} {name}: not looked at yet", kind.kind)),
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

/// Whether an object says that it is Ready, and its message.
pub fn ready(live: &Value) -> Option<(bool, &str)> {
    condition(live, "Ready")
}

/// What an object says that it has lost.
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
    fn a_rollout_is_done_when_every_pod_is_new_and_serves() {
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
            Progress::waiting("Deployment x: an old pod is still to go")
        );
    }

    #[test]
    fn what_the_controller_has_not_seen_is_not_done() {
        let live = json!({
            "metadata": { "generation": 3 }, "spec": { "replicas": 1 },
            "status": { "observedGeneration": 2, "updatedReplicas": 1, "readyReplicas": 1, "replicas": 1 }
        });
        assert_ne!(assess(STATEFUL_SET, "x", &live), Progress::Done);
    }

    #[test]
    fn a_set_of_nodes_is_done_when_every_node_has_a_new_pod_that_is_ready() {
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
    fn a_set_of_nodes_is_degraded_when_only_pods_of_lost_nodes_are_missing() {
        let live = |wanted: i64, updated: i64, ready: i64| {
            json!({ "metadata": { "generation": 1 }, "status": { "observedGeneration": 1,
                "desiredNumberScheduled": wanted, "updatedNumberScheduled": updated, "numberReady": ready } })
        };
        let found =
            |wanted, updated, ready| daemon_set("x", &live(wanted, updated, ready), &["b".to_owned()]);
        let degraded = Progress::degraded("node b is not Ready");
        assert_eq!(found(2, 2, 2), Progress::Done);
        assert_eq!(found(2, 2, 1), degraded);
        assert_eq!(found(2, 1, 1), degraded, "nor does a rollout wait for it");
        assert_eq!(found(3, 3, 1), Progress::waiting("DaemonSet x: 1 of 3 pods ready"));
        assert_eq!(found(3, 1, 2), Progress::waiting("DaemonSet x: 1 of 3 pods updated"));
        assert_eq!(found(1, 1, 0), Progress::waiting("DaemonSet x: 0 of 1 pods ready"), "none is left");
        assert_eq!(daemon_set("x", &live(2, 2, 1), &[]), Progress::waiting("DaemonSet x: 1 of 2 pods ready"));
        let mut unseen = live(2, 2, 1);
        unseen["metadata"]["generation"] = json!(2);
        assert!(!daemon_set("x", &unseen, &["b".to_owned()]).is_met());
    }

    #[test]
    fn jobs_end_in_two_ways() {
        let live = |kind: &str| json!({ "status": { "conditions": [{ "type": kind, "status": "True" }] } });
        assert_eq!(assess(JOB, "x", &live("Complete")), Progress::Done);
        assert!(matches!(assess(JOB, "x", &live("Failed")), Progress::Failed { .. }));
        assert_eq!(assess(JOB, "x", &json!({})), Progress::waiting("Job x runs"));
    }

    #[test]
    fn a_route_waits_for_its_gateway() {
        let answered = json!({ "status": { "parents": [{ "conditions": [{ "type": "Accepted", "status": "True" }] }] } });
        assert_eq!(assess(HTTP_ROUTE, "x", &answered), Progress::Done);
        assert_ne!(assess(HTTP_ROUTE, "x", &json!({})), Progress::Done);
    }

    #[test]
    fn what_has_no_life_of_its_own_is_done_when_it_exists() {
        assert_eq!(assess(CONFIG_MAP, "x", &json!({})), Progress::Done);
        let conditions =
            json!({ "status": { "conditions": [{ "type": "DisruptionAllowed", "status": "False" }] } });
        assert_eq!(assess(SERVICE, "x", &conditions), Progress::Done);
        assert_eq!(assess(POD_DISRUPTION_BUDGET, "x", &conditions), Progress::Done);
    }

    #[test]
    fn an_object_of_ours_is_done_when_it_says_so_of_this_generation() {
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
