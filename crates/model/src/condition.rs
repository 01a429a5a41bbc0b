//! Conditions that report the findings of a reconcile to `kubectl wait`, Flux and Argo CD.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Every type of condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionType {
    /// All inputs from other objects are available.
    InputsReady,
    DatabaseReady,
    MessagingReady,
    /// A key ring exists. The plan names the condition.
    Keys(&'static str),
    ConfigReady,
    TasksComplete,
    WorkloadsReady,
    /// All members of a cluster have the instructions that they need.
    MembersReady,
    Exposed,
    Registered,
    /// Contracting migrations after an upgrade are complete.
    Finished,
    /// All child objects are Ready.
    ServicesReady,
    /// The agents of all nodes have registered and are up.
    NodesReady,
    /// Objects that are no longer wanted are deleted. Reported only if that failed.
    Pruned,
    /// The object serves requests now.
    Available,
    /// This generation of the spec is fully applied, except for losses.
    Ready,
    /// Something is lost, e.g. a node, but the object still serves. No immediate action is required.
    Degraded,
    /// The operator is working, or waits for a change that needs no action of the user.
    Reconciling,
    /// The user must act.
    Stalled,
}

impl ConditionType {
    pub fn name(self) -> &'static str {
        match self {
            Self::InputsReady => "InputsReady",
            Self::DatabaseReady => "DatabaseReady",
            Self::MessagingReady => "MessagingReady",
            Self::Keys(name) => name,
            Self::ConfigReady => "ConfigReady",
            Self::TasksComplete => "TasksComplete",
            Self::WorkloadsReady => "WorkloadsReady",
            Self::MembersReady => "MembersReady",
            Self::Exposed => "Exposed",
            Self::Registered => "Registered",
            Self::Finished => "Finished",
            Self::ServicesReady => "ServicesReady",
            Self::NodesReady => "NodesReady",
            Self::Pruned => "Pruned",
            Self::Available => "Available",
            Self::Ready => "Ready",
            Self::Degraded => "Degraded",
            Self::Reconciling => "Reconciling",
            Self::Stalled => "Stalled",
        }
    }
}

/// Progress of one part of a reconcile.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    Done,
    /// Done, except for losses. The operator does not wait for lost parts, because they may never return.
    Degraded {
        losses: Vec<String>,
    },
    /// Something else must happen first. A watch event triggers the next reconcile, or the timer if a time is given.
    Waiting {
        message: String,
        after: Option<Duration>,
    },
    /// A failure that a retry may resolve.
    Failed {
        message: String,
    },
    /// Only the user can resolve it. The message says how, and what the remedy risks.
    Stalled {
        message: String,
    },
    /// An earlier part is not done. The last known state of this part still applies.
    NotReached,
}

impl Progress {
    pub fn waiting(message: impl Into<String>) -> Self {
        Self::Waiting { message: message.into(), after: None }
    }

    pub fn degraded(loss: impl Into<String>) -> Self {
        Self::Degraded { losses: vec![loss.into()] }
    }

    pub fn stalled(message: impl Into<String>) -> Self {
        Self::Stalled { message: message.into() }
    }

    /// Whether the next part can start.
    pub fn is_met(&self) -> bool {
        matches!(self, Self::Done | Self::Degraded { .. })
    }

    /// The less advanced of two, so that many fold into one. Losses accumulate.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Degraded { losses: mut known }, Self::Degraded { losses }) => {
                known.extend(losses);
                Self::Degraded { losses: unique(known) }
            }
            (stalled @ Self::Stalled { .. }, _) => stalled,
            (Self::Done, other)
            | (_, other @ Self::Stalled { .. })
            | (
                Self::Degraded { .. },
                other @ (Self::Waiting { .. } | Self::Failed { .. } | Self::NotReached),
            )
            | (Self::Waiting { .. }, other @ Self::Failed { .. }) => other,
            (this, _) => this,
        }
    }
}

/// Reason why the operator does nothing until the user acts.
#[derive(Clone, Debug, PartialEq)]
pub enum Stall {
    InvalidSpec(String),
    Bug(String),
    Paused,
    /// The CRD does not have all fields of the status, so the operator cannot record what it does.
    OutdatedCrd(String),
    /// A newer operator has written the status.
    UnreadableStatus(String),
}

/// Findings of one reconcile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    pub parts: Vec<(ConditionType, Progress)>,
    pub stall: Option<Stall>,
    /// Whether the object serves now. Unknown if the reconcile did not reach the workloads.
    pub available: Option<bool>,
    /// Remarks, e.g. on skipped services. They do not prevent Ready.
    pub remarks: Vec<String>,
}

impl Findings {
    /// The first part that is not done.
    pub fn unmet(&self) -> Option<&(ConditionType, Progress)> {
        self.parts.iter().find(|(_, progress)| !progress.is_met())
    }

    /// What the user must do, even if an earlier part only waits.
    fn required_action(&self) -> Option<&str> {
        self.parts.iter().find_map(|(_, progress)| match progress {
            Progress::Stalled { message } => Some(message.as_str()),
            _ => None,
        })
    }
}

/// Conditions that summarize all parts.
const SUMMARY: [ConditionType; 5] = [
    ConditionType::Available,
    ConditionType::Ready,
    ConditionType::Degraded,
    ConditionType::Reconciling,
    ConditionType::Stalled,
];

/// Reason of a part that is done except for losses.
const DEGRADED: &str = "Degraded";
/// Reason of a part that only the user can resolve.
const ACTION_REQUIRED: &str = "ActionRequired";
/// Reason of an object whose CRD is older than the operator.
const OUTDATED_CRD: &str = "OutdatedCRD";
/// Maximum number of losses in a message.
const MOST_LOSSES: usize = 5;

struct Statement {
    holds: bool,
    reason: &'static str,
    message: String,
}

fn statement(holds: bool, reason: &'static str, message: impl Into<String>) -> Statement {
    Statement { holds, reason, message: message.into() }
}

/// The conditions that follow from findings. An unchanged status keeps its transition time.
pub fn conditions(
    findings: &Findings,
    generation: i64,
    before: &[Condition],
    now: Timestamp,
) -> Vec<Condition> {
    let found = |kind: ConditionType| before.iter().find(|condition| condition.type_ == kind.name());
    let mut conditions = Vec::new();
    for (kind, progress) in &findings.parts {
        let statement = match progress {
            Progress::NotReached => match found(*kind) {
                Some(known) => {
                    conditions.push(known.clone());
                    continue;
                }
                None => statement(false, "Waiting", "not started"),
            },
            progress => state(progress),
        };
        conditions.push(condition(*kind, statement, generation, found(*kind), now));
    }
    // If the reconcile stopped early, the last known conditions of the other parts still apply.
    if findings.stall.is_some() || findings.unmet().is_some() {
        let reported: Vec<String> = conditions.iter().map(|condition| condition.type_.clone()).collect();
        let summarized = SUMMARY.map(ConditionType::name);
        let kept = before
            .iter()
            .filter(|known| !reported.contains(&known.type_) && !summarized.contains(&known.type_.as_str()));
        conditions.extend(kept.cloned());
    }
    let available =
        findings.available.or_else(|| found(ConditionType::Available).map(|c| c.status == "True"));
    let losses = losses(&conditions);
    for (kind, statement) in summary(findings, available.unwrap_or(false), &losses) {
        conditions.push(condition(kind, statement, generation, found(kind), now));
    }
    conditions
}

/// Whether the last reconcile found that the CRD is older than the operator.
pub fn has_outdated_crd(conditions: &[Condition]) -> bool {
    let stalled = ConditionType::Stalled.name();
    conditions
        .iter()
        .any(|known| known.type_ == stalled && known.status == "True" && known.reason == OUTDATED_CRD)
}

fn state(progress: &Progress) -> Statement {
    match progress {
        Progress::Done => statement(true, "Succeeded", ""),
        Progress::Degraded { losses } => statement(true, DEGRADED, join_losses(losses)),
        Progress::Waiting { message, .. } => statement(false, "Waiting", message),
        Progress::Failed { message } => statement(false, "Unavailable", message),
        Progress::Stalled { message } => statement(false, ACTION_REQUIRED, message),
        Progress::NotReached => statement(false, "Waiting", "not started"),
    }
}

/// Losses of all parts, including those that this reconcile did not reach.
fn losses(conditions: &[Condition]) -> String {
    let degraded = conditions.iter().filter(|part| part.status == "True" && part.reason == DEGRADED);
    join_losses(&unique(degraded.map(|part| part.message.clone()).collect()))
}

fn join_losses(losses: &[String]) -> String {
    let more = losses.len().saturating_sub(MOST_LOSSES);
    let shown = losses[..losses.len() - more].join("; ");
    if more == 0 { shown } else { format!("{shown}; and {more} more") }
}

fn unique(mut losses: Vec<String>) -> Vec<String> {
    let mut known = BTreeSet::new();
    losses.retain(|loss| known.insert(loss.clone()));
    losses
}

fn summary(findings: &Findings, available: bool, losses: &str) -> [(ConditionType, Statement); 5] {
    let stall = match (&findings.stall, findings.required_action()) {
        (Some(Stall::InvalidSpec(message)), _) => Some(("InvalidSpec", message.clone())),
        (Some(Stall::Bug(message)), _) => Some(("Bug", message.clone())),
        (Some(Stall::Paused), _) => Some(("Paused", "paused by annotation".to_owned())),
        (Some(Stall::OutdatedCrd(message)), _) => Some((OUTDATED_CRD, message.clone())),
        (Some(Stall::UnreadableStatus(message)), _) => Some(("UnreadableStatus", message.clone())),
        (None, Some(message)) => Some((ACTION_REQUIRED, message.to_owned())),
        (None, None) => None,
    };
    let (ready, reconciling, stalled) = match (stall, findings.unmet()) {
        (Some((reason, message)), _) => {
            let idle = statement(false, reason, "");
            (statement(false, reason, message.clone()), idle, statement(true, reason, message))
        }
        (None, None) => (
            statement(true, "Succeeded", findings.remarks.join("; ")),
            statement(false, "Succeeded", ""),
            statement(false, "Succeeded", ""),
        ),
        (None, Some((_, progress))) => {
            let Statement { reason, message, .. } = state(progress);
            let calm = statement(false, reason, "");
            (statement(false, reason, message.clone()), statement(true, reason, message), calm)
        }
    };
    let is_degraded = !losses.is_empty();
    let degraded = statement(is_degraded, if is_degraded { "Degraded" } else { "Succeeded" }, losses);
    let serving = if available { "Succeeded" } else { "Waiting" };
    [
        (ConditionType::Available, statement(available, serving, "")),
        (ConditionType::Ready, ready),
        (ConditionType::Degraded, degraded),
        (ConditionType::Reconciling, reconciling),
        (ConditionType::Stalled, stalled),
    ]
}

fn condition(
    kind: ConditionType,
    statement: Statement,
    generation: i64,
    before: Option<&Condition>,
    now: Timestamp,
) -> Condition {
    let status = if statement.holds { "True" } else { "False" };
    let since = before.filter(|before| before.status == status).map(|before| before.last_transition_time.0);
    Condition {
        type_: kind.name().to_owned(),
        status: status.to_owned(),
        reason: statement.reason.to_owned(),
        message: statement.message,
        observed_generation: Some(generation),
        last_transition_time: Time(since.unwrap_or_else(|| whole_second(now))),
    }
}

/// Kubernetes stores whole seconds; a status with fractions would never equal the stored one.
pub fn whole_second(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

#[cfg(test)]
mod tests;
