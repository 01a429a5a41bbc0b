//! Reporting: one status write per reconcile, last and only if it differs; events on transitions only.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::DynamicObject;
use openstack_operator_model::condition::{self, Findings, Stall};
use openstack_operator_model::status::Status;
use serde_json::{Value, json};

use crate::engine::{Engine, Key};
use crate::ports::{Announcement, PortError, PortResult, WriteMode};
use crate::record;

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
        let mut value = serde_json::to_value(&status).unwrap_or(Value::Null);
        if let (Some(stored), Ok(known)) = (object.data.get("status"), serde_json::to_value(before)) {
            record::keep_unknown_fields(stored, &known, &mut value);
        }
        // While the CRD is outdated, a write would change the object twice and store nothing new.
        if condition::has_outdated_crd(&before.conditions) {
            self.write(key, object, &value, WriteMode::DryRun).await?;
        }
        self.write(key, object, &value, WriteMode::Store).await?;
        self.announce(object, &before.conditions, &status.conditions).await;
        Ok(())
    }

    /// Writes a status. If the CRD does not have all its fields, the former status is restored, because a part of a
    /// record is worse than an old one, and the object stalls.
    async fn write(
        &self,
        key: &Key,
        object: &DynamicObject,
        status: &Value,
        mode: WriteMode,
    ) -> PortResult<()> {
        let mut former = object.clone();
        let problem = match self.ports.cluster.write_status(key.kind, object, status, mode).await {
            Ok(written) => {
                let stored = written.data.get("status").unwrap_or(&Value::Null);
                let Some(field) = record::lost_field("status", status, stored) else { return Ok(()) };
                if mode == WriteMode::Store {
                    former.metadata.resource_version = written.metadata.resource_version;
                }
                format!("does not have {field}")
            }
            Err(PortError::Rejected { reason, .. }) => format!("does not accept the status ({reason})"),
            Err(error) => return Err(error),
        };
        let message = format!(
            "the CRD {}.{} is older than the operator: it {problem}; apply the CRDs of this operator version",
            key.kind.plural, key.kind.group
        );
        self.report_stall(key, &former, Stall::OutdatedCrd(message.clone())).await?;
        Err(PortError::Rejected { action: format!("record the status of {key}"), reason: message })
    }

    /// Reports why the operator does nothing. Everything else in the status stays, even what this operator cannot read.
    pub(crate) async fn report_stall(
        &self,
        key: &Key,
        object: &DynamicObject,
        stall: Stall,
    ) -> PortResult<()> {
        let former = object.data.get("status").filter(|status| !status.is_null());
        let former = former.cloned().unwrap_or_else(|| json!({}));
        let before = former.get("conditions").cloned().unwrap_or_else(|| json!([]));
        let (Ok(before), true) = (serde_json::from_value::<Vec<Condition>>(before), former.is_object())
        else {
            return Ok(());
        };
        let generation = object.metadata.generation.unwrap_or_default();
        let findings = Findings { stall: Some(stall), ..Findings::default() };
        let now = self.ports.environment.now();
        let after = condition::conditions(&findings, generation, &before, now);
        let mut status = former.clone();
        status["conditions"] = json!(after);
        status["observedGeneration"] = json!(generation);
        if status == former {
            return Ok(());
        }
        self.ports.cluster.write_status(key.kind, object, &status, WriteMode::Store).await?;
        self.announce(object, &before, &after).await;
        Ok(())
    }

    async fn announce(&self, object: &DynamicObject, before: &[Condition], after: &[Condition]) {
        if let Some(announcement) = transition(before, after)
            && let Err(error) = self.ports.cluster.publish(object, announcement).await
        {
            // A missing Event must not fail the reconcile.
            tracing::warn!(error = &error as &dyn std::error::Error, "failed to publish an Event");
        }
    }
}

/// The Event for a transition: Ready, no longer Ready, Degraded or Stalled.
fn transition(before: &[Condition], after: &[Condition]) -> Option<Announcement> {
    let find = |conditions: &[Condition], kind: &str| {
        conditions.iter().find(|condition| condition.type_ == kind).map(|condition| {
            (condition.status == "True", condition.message.chars().take(MAX_NOTE_CHARS).collect::<String>())
        })
    };
    let stalled = |conditions: &[Condition]| find(conditions, "Stalled").filter(|(is_true, _)| *is_true);
    let ready = |conditions: &[Condition]| find(conditions, "Ready").is_some_and(|(ready, _)| ready);
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
            let degraded =
                |conditions: &[Condition]| find(conditions, "Degraded").filter(|(is_true, _)| *is_true);
            let (_, note) = degraded(after).filter(|_| degraded(before).is_none())?;
            Some(Announcement { warning: true, reason: "Degraded", note })
        }
    }
}
