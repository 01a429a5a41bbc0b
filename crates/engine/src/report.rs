//! Reporting: one status write per reconcile, last and only if it differs; events on transitions only.

use kube::core::DynamicObject;
use openstack_operator_model::condition::{self, Findings};
use openstack_operator_model::status::Status;
use serde_json::Value;

use crate::engine::{Engine, Key};
use crate::ports::{Announcement, PortResult};

/// Maximum length of the note of an Event.
const MAX_NOTE_CHARS: usize = 1024;

impl Engine {
    /// Writes the status with the conditions for the findings; `status` has the other fields.
    pub(crate) async fn report(
        &self,
        key: &Key,
        object: &DynamicObject,
        before: &Status,
        findings: &Findings,
        mut status: Status,
    ) -> PortResult<()> {
        let generation = object.metadata.generation.unwrap_or_default();
        let now = self.ports.environment.now();
        status.observed_generation = Some(generation);
        status.conditions = condition::conditions(findings, generation, &before.conditions, now);
        if status == *before {
            return Ok(());
        }
        let value = serde_json::to_value(&status).unwrap_or(Value::Null);
        self.ports.cluster.write_status(key.kind, &key.namespace, &key.name, value).await?;
        if let Some(announcement) = transition(before, &status) {
            // A missing Event must not fail the reconcile.
            if let Err(error) = self.ports.cluster.publish(object, announcement).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "failed to publish an Event");
            }
        }
        Ok(())
    }
}

/// The Event for a transition: Ready, no longer Ready, Degraded or Stalled.
fn transition(before: &Status, after: &Status) -> Option<Announcement> {
    let find = |status: &Status, kind: &str| {
        status.conditions.iter().find(|condition| condition.type_ == kind).map(|condition| {
            (condition.status == "True", condition.message.chars().take(MAX_NOTE_CHARS).collect::<String>())
        })
    };
    let stalled = |status: &Status| find(status, "Stalled").filter(|(is_true, _)| *is_true);
    let ready = |status: &Status| find(status, "Ready").is_some_and(|(ready, _)| ready);
    if let Some((_, note)) = stalled(after) {
        let known = stalled(before).is_some_and(|(_, before)| before == note);
        return (!known).then_some(Announcement { warning: true, reason: "Stalled", note });
    }
    match (ready(before), ready(after)) {
        (false, true) => Some(Announcement {
            warning: false,
            reason: "Ready",
            note: "all components are ready".to_owned(),
        }),
        (true, false) => {
            let note = find(after, "Ready").map(|(_, note)| note).unwrap_or_default();
            Some(Announcement { warning: false, reason: "Reconciling", note })
        }
        _ => {
            let degraded = |status: &Status| find(status, "Degraded").filter(|(is_true, _)| *is_true);
            let (_, note) = degraded(after).filter(|_| degraded(before).is_none())?;
            Some(Announcement { warning: true, reason: "Degraded", note })
        }
    }
}
