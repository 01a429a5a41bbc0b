//! Conditions: what a reconcile found, in the words that `kubectl wait`, Flux and Argo CD understand.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Every type of condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionType {
    /// What it needs of others is there.
    InputsReady,
    DatabaseReady,
    MessagingReady,
    /// A key ring is in place; the plan names the condition.
    Keys(&'static str),
    ConfigReady,
    TasksComplete,
    WorkloadsReady,
    /// Members of a group were told what to do, where they need to be.
    MembersReady,
    Exposed,
    Registered,
    /// Data formats that only an earlier image needed are gone.
    Finished,
    /// All objects that this one consists of are Ready.
    ServicesReady,
    /// Every node's agent has registered and is up.
    NodesReady,
    /// What is no longer wanted is gone; said only where it could not be done.
    Pruned,
    /// It serves now.
    Available,
    /// This generation of the spec is fully in place.
    Ready,
    /// The operator is at work, or waits for something that will come by itself.
    Reconciling,
    /// A person must change something.
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
            Self::Reconciling => "Reconciling",
            Self::Stalled => "Stalled",
        }
    }
}

/// How far one part of the work has come.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    Done,
    /// Something else must happen first. A watch wakes the object, or the clock where a time is given.
    Waiting {
        message: String,
        after: Option<Duration>,
    },
    /// Something went wrong that may go right the next time.
    Failed {
        message: String,
    },
    /// An earlier part is not done; what was known of this one still holds.
    NotReached,
}

impl Progress {
    pub fn waiting(message: impl Into<String>) -> Self {
        Self::Waiting { message: message.into(), after: None }
    }

    /// Of two the one that is further from done, so that many can be folded into one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Done, _) | (Self::Waiting { .. }, Self::Failed { .. }) => other,
            _ => self,
        }
    }
}

/// Why nothing more will happen until a person acts.
#[derive(Clone, Debug, PartialEq)]
pub enum Stall {
    InvalidSpec(String),
    Bug(String),
    Paused,
}

/// What one reconcile found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    pub parts: Vec<(ConditionType, Progress)>,
    pub stall: Option<Stall>,
    /// Whether it serves now; not known where the workloads were not looked at.
    pub available: Option<bool>,
    /// Services that were asked for and are left out; they do not keep the rest from being Ready.
    pub remarks: Vec<String>,
}

impl Findings {
    /// The first part that is not done.
    pub fn unmet(&self) -> Option<&(ConditionType, Progress)> {
        self.parts.iter().find(|(_, progress)| *progress != Progress::Done)
    }
}

/// Conditions about all parts together.
const SUMMARY: [ConditionType; 4] =
    [ConditionType::Available, ConditionType::Ready, ConditionType::Reconciling, ConditionType::Stalled];

struct Statement {
    holds: bool,
    reason: &'static str,
    message: String,
}

fn statement(holds: bool, reason: &'static str, message: impl Into<String>) -> Statement {
    Statement { holds, reason, message: message.into() }
}

/// The conditions that follow. Transition times stay where a status stays.
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
                None => statement(false, "Waiting", "not begun"),
            },
            progress => state(progress),
        };
        conditions.push(condition(*kind, statement, generation, found(*kind), now));
    }
    // Where the work did not come to its end, what was known of the rest still holds.
    if findings.stall.is_some() || findings.unmet().is_some() {
        let told: Vec<String> = conditions.iter().map(|condition| condition.type_.clone()).collect();
        let summarized = SUMMARY.map(ConditionType::name);
        let kept = before
            .iter()
            .filter(|known| !told.contains(&known.type_) && !summarized.contains(&known.type_.as_str()));
        conditions.extend(kept.cloned());
    }
    let available =
        findings.available.or_else(|| found(ConditionType::Available).map(|c| c.status == "True"));
    for (kind, statement) in summary(findings, available.unwrap_or(false)) {
        conditions.push(condition(kind, statement, generation, found(kind), now));
    }
    conditions
}

fn state(progress: &Progress) -> Statement {
    match progress {
        Progress::Done => statement(true, "Succeeded", ""),
        Progress::Waiting { message, .. } => statement(false, "Waiting", message),
        Progress::Failed { message } => statement(false, "Unavailable", message),
        Progress::NotReached => statement(false, "Waiting", "not begun"),
    }
}

fn summary(findings: &Findings, available: bool) -> [(ConditionType, Statement); 4] {
    let (ready, reconciling, stalled) = match (&findings.stall, findings.unmet()) {
        (Some(stall), _) => {
            let (reason, message) = match stall {
                Stall::InvalidSpec(message) => ("InvalidSpec", message.clone()),
                Stall::Bug(message) => ("Bug", message.clone()),
                Stall::Paused => ("Paused", "paused by annotation".to_owned()),
            };
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
    let serving = if available { "Succeeded" } else { "Waiting" };
    [
        (ConditionType::Available, statement(available, serving, "")),
        (ConditionType::Ready, ready),
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

/// Kubernetes keeps whole seconds; a status with more would never equal what comes back.
pub fn whole_second(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn status<'a>(conditions: &'a [Condition], kind: &str) -> &'a Condition {
        conditions.iter().find(|condition| condition.type_ == kind).unwrap()
    }

    #[test]
    fn done_is_ready_and_nothing_else_is() {
        let done =
            Findings { parts: vec![(ConditionType::ConfigReady, Progress::Done)], ..Findings::default() };
        let found = conditions(&done, 3, &[], at(10));
        assert_eq!(status(&found, "Ready").status, "True");
        assert_eq!(status(&found, "Ready").observed_generation, Some(3));
        let waiting = Findings {
            parts: vec![(ConditionType::ConfigReady, Progress::waiting("x"))],
            ..Findings::default()
        };
        let found = conditions(&waiting, 3, &found, at(20));
        assert_eq!(status(&found, "Ready").status, "False");
        assert_eq!(status(&found, "Ready").message, "x");
        assert_eq!(status(&found, "Reconciling").status, "True");
        assert_eq!(status(&found, "Stalled").status, "False");
    }

    #[test]
    fn a_status_that_stays_keeps_its_time() {
        let done =
            Findings { parts: vec![(ConditionType::ConfigReady, Progress::Done)], ..Findings::default() };
        let first = conditions(&done, 1, &[], at(10));
        let second = conditions(&done, 1, &first, at(20));
        assert_eq!(first, second);
    }

    #[test]
    fn what_is_not_reached_keeps_what_was_known() {
        let kind = ConditionType::WorkloadsReady;
        let done =
            Findings { parts: vec![(kind, Progress::Done)], available: Some(true), ..Findings::default() };
        let first = conditions(&done, 1, &[], at(10));
        let later = Findings {
            parts: vec![(ConditionType::InputsReady, Progress::waiting("x")), (kind, Progress::NotReached)],
            ..Findings::default()
        };
        let second = conditions(&later, 2, &first, at(20));
        assert_eq!(status(&second, "WorkloadsReady"), status(&first, "WorkloadsReady"));
        assert_eq!(status(&second, "Available").status, "True");
        assert_eq!(status(&second, "Ready").status, "False");
    }

    #[test]
    fn work_that_is_cut_short_forgets_nothing_and_work_that_ends_forgets_what_is_no_more() {
        let part = |kind| (kind, Progress::Done);
        let parts = vec![part(ConditionType::ConfigReady), part(ConditionType::Exposed)];
        let first = conditions(&Findings { parts, ..Findings::default() }, 1, &[], at(10));
        let failed = Progress::Failed { message: "x".into() };
        let cut = Findings { parts: vec![(ConditionType::ConfigReady, failed)], ..Findings::default() };
        let second = conditions(&cut, 1, &first, at(20));
        assert_eq!(status(&second, "Exposed"), status(&first, "Exposed"));
        assert_eq!(second.iter().filter(|condition| condition.type_ == "Ready").count(), 1);
        let done = Findings { parts: vec![part(ConditionType::ConfigReady)], ..Findings::default() };
        let third = conditions(&done, 2, &second, at(30));
        assert!(!third.iter().any(|condition| condition.type_ == "Exposed"));
    }

    #[test]
    fn a_wrong_spec_stalls_and_names_the_field() {
        let stalled =
            Findings { stall: Some(Stall::InvalidSpec("spec.x: no".into())), ..Findings::default() };
        let found = conditions(&stalled, 1, &[], at(1));
        assert_eq!(status(&found, "Stalled").status, "True");
        assert_eq!(status(&found, "Ready").reason, "InvalidSpec");
        assert_eq!(status(&found, "Reconciling").status, "False");
    }
}
