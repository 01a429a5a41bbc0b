//! Assessment of live objects: from their state to their progress.

use serde_json::Value;

use crate::condition::Progress;
use crate::kind::{
    CHILD_KINDS, CRON_JOB, DAEMON_SET, DEPLOYMENT, HTTP_ROUTE, JOB, Kind, SERVICE, STATEFUL_SET,
};
use crate::node::{self, NOT_READY};

/// Progress of one live object. Messages contain no times and no generated names, so they stay the same while nothing
/// changes.
pub fn assess(kind: Kind, name: &str, live: &Value) -> Progress {
    match kind {
        DEPLOYMENT | STATEFUL_SET => rollout(kind, name, live, &LostPods::default()),
        DAEMON_SET => daemon_set(name, live, &[]),
        JOB => job(name, live),
        HTTP_ROUTE => route(name, live),
        SERVICE => service(name, live),
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

/// Remark on a CronJob whose last run failed. A run that has ended is no longer active.
pub fn failed_schedule(kind: Kind, name: &str, live: &Value) -> Option<String> {
    let is_active =
        live.pointer("/status/active").and_then(Value::as_array).is_some_and(|jobs| !jobs.is_empty());
    let (scheduled, succeeded) =
        (text(live, "/status/lastScheduleTime"), text(live, "/status/lastSuccessfulTime"));
    // Times in UTC with seconds compare as text.
    let has_failed = kind == CRON_JOB && !is_active && succeeded < scheduled;
    has_failed.then(|| format!("the last run of CronJob {name} failed; see the logs of its last Job"))
}

/// A Service for clients outside the cluster is done when it has an address for them.
fn service(name: &str, live: &Value) -> Progress {
    let addresses = live.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
    if text(live, "/spec/type") == "LoadBalancer" && addresses.is_none_or(Vec::is_empty) {
        return Progress::waiting(format!("Service {name}: no load balancer has given it an address"));
    }
    Progress::Done
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
mod tests;
