//! What one reconcile has found, what it will say of it, and how it ends.

use std::time::Duration;

use openstack_operator_model::condition::{ConditionType, Findings, Progress};
use openstack_operator_model::lower::Manifest;
use openstack_operator_model::plan::Plan;
use openstack_operator_model::status::{Effect, ServiceStatus, Stage, Status};
use serde_json::Value;

use crate::engine::Outcome;
use crate::gather;

/// What one reconcile has found and will say.
pub(crate) struct Work {
    pub(crate) findings: Findings,
    pub(crate) status: Status,
    /// When something is due by the clock.
    pub(crate) due: Option<Duration>,
    /// The part that is being worked on, which a failed call is a failure of.
    pub(crate) at: ConditionType,
    /// Something was written to the status that the next step relies on: go on at once.
    pub(crate) again: bool,
}

impl Work {
    /// Of what is found twice the one that is further from done stays.
    pub(crate) fn found(&mut self, condition: ConditionType, progress: Progress) {
        match self.findings.parts.iter_mut().find(|(known, _)| *known == condition) {
            Some((_, known)) => *known = known.clone().and(progress),
            None => self.findings.parts.push((condition, progress)),
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.findings.unmet().is_some()
    }

    pub(crate) fn sooner(&mut self, due: Option<Duration>) {
        self.due = [self.due, due].into_iter().flatten().min();
    }

    /// **Invariant:** an effect is in the status before it is made, so that one that was made is always undone.
    pub(crate) fn record_effects(&mut self, wanted: &[Effect]) -> bool {
        let missing: Vec<_> =
            wanted.iter().filter(|effect| !self.status.effects.contains(effect)).cloned().collect();
        if missing.is_empty() {
            return true;
        }
        self.status.effects.extend(missing);
        self.status.effects.sort();
        self.again = true;
        self.found(ConditionType::ConfigReady, Progress::waiting("not started"));
        false
    }

    /// Says how each part of a cloud is, and how far the whole has come.
    pub(crate) fn tell_services(&mut self, plan: &Plan, rows: Vec<Option<(Stage, ServiceStatus)>>) {
        let rows: Vec<(Stage, ServiceStatus)> = rows.into_iter().flatten().collect();
        if rows.is_empty() && plan.skipped.is_empty() {
            return;
        }
        let unready = rows.iter().filter(|(_, row)| !row.ready).map(|(stage, _)| *stage).min();
        self.status.phase = Some(unready.unwrap_or(Stage::Ready));
        self.findings.available = Some(unready.is_none());
        let skipped = plan.skipped.iter().map(|skip| ServiceStatus {
            kind: skip.kind.kind.to_owned(),
            name: skip.name.clone(),
            ready: false,
            waiting_for: Some(format!("left out: {}", skip.reason)),
            endpoint: None,
            extent: None,
        });
        self.status.services = rows.into_iter().map(|(_, row)| row).chain(skipped).collect();
    }

    pub(crate) fn outcome(&self, failure: Option<String>) -> Outcome {
        if let Some(message) = failure {
            return Outcome::Failed { message };
        }
        if self.findings.stall.is_some() {
            return Outcome::Stalled;
        }
        if self.again {
            return Outcome::Waiting { after: Some(Duration::ZERO) };
        }
        let failed = self.findings.parts.iter().find_map(|(_, progress)| match progress {
            Progress::Failed { message } => Some(message.clone()),
            _ => None,
        });
        if let Some(message) = failed {
            return Outcome::Failed { message };
        }
        match self.findings.unmet() {
            None => Outcome::Done { recheck: self.due },
            Some((_, Progress::Waiting { after, .. })) => {
                Outcome::Waiting { after: [*after, self.due].into_iter().flatten().min() }
            }
            Some(_) => Outcome::Waiting { after: self.due },
        }
    }
}

/// How one part of a cloud is.
pub(crate) fn row(
    plan: &Plan,
    manifest: &Manifest,
    live: &Value,
    progress: &Progress,
) -> Option<(Stage, ServiceStatus)> {
    let child = manifest.child(plan)?;
    let waiting_for = match progress {
        Progress::Waiting { message, .. } | Progress::Failed { message } => Some(message.clone()),
        Progress::Degraded { losses } => Some(format!("degraded: {}", losses.join("; "))),
        Progress::Done | Progress::NotReached => None,
    };
    let stage = child.stage?;
    let endpoint = live.pointer("/status/endpoint").and_then(Value::as_str).map(str::to_owned);
    let row = ServiceStatus {
        kind: child.kind.kind.to_owned(),
        name: child.name.clone(),
        ready: progress.is_met(),
        waiting_for,
        endpoint,
        extent: gather::status(live).ok().and_then(|status| status.extent()),
    };
    Some((stage, row))
}
