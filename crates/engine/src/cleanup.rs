//! Cleanup: undoes recorded effects before an object is deleted, without a plan: an invalid spec cannot block deletion.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::DynamicObject;
use openstack_operator_model::common::Reference;
use openstack_operator_model::condition::{ConditionType, Findings, Progress, whole_second};
use openstack_operator_model::status::{Effect, Status, Unreachable};
use serde_json::json;

use crate::engine::{Engine, FINALIZER, Key, Outcome};
use crate::gather;
use crate::ports::{Announcement, ChildReference, PortResult};
use crate::undo::UndoOutcome;

/// How long deletion waits for an unreachable server. Leftovers there are better than an object that cannot be deleted.
const UNREACHABLE_TIMEOUT: SignedDuration = SignedDuration::from_secs(300);

impl Engine {
    pub(crate) async fn cleanup(
        &self,
        key: &Key,
        object: &DynamicObject,
        before: &Status,
    ) -> PortResult<Outcome> {
        let finalizers = object.metadata.finalizers.clone().unwrap_or_default();
        if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            self.needs.remove(key);
            return Ok(Outcome::Gone);
        }
        let parts = self.delete_parts(key, object).await?;
        if !parts.is_empty() {
            let parts: Vec<String> = parts.iter().map(title).collect();
            let message = format!("waiting for deletion of {}", parts.join(", "));
            self.report_waiting(key, object, before, before.clone(), message).await?;
            return Ok(Outcome::Waiting { after: None });
        }
        let left = self.undo_all(key, &before.effects).await?;
        let now = self.ports.environment.now();
        let unreachable = unreachable(&left, &before.unreachable, now);
        let awaited: Vec<&Unreachable> = unreachable
            .iter()
            .filter(|server| server.since.0.duration_until(now) < UNREACHABLE_TIMEOUT)
            .collect();
        if !awaited.is_empty() {
            let message = waiting_message(&awaited, &left);
            // Undone effects leave the record, so that a server that fails later is not asked for them again.
            let status = Status { effects: left, unreachable, ..before.clone() };
            self.report_waiting(key, object, before, status, message.clone()).await?;
            return Ok(Outcome::Failed { message });
        }
        if !left.is_empty() {
            let left: Vec<String> = left
                .iter()
                .map(|effect| format!("{} on {}", describe(effect), title(&effect.provider)))
                .collect();
            let note = format!("remove by hand, the server did not answer: {}", left.join(", "));
            let announcement = Announcement { warning: true, reason: "LeftBehind", note };
            // A missing Event must not keep the object.
            if let Err(error) = self.ports.cluster.publish(object, announcement).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "failed to publish an Event");
            }
        }
        let rest: Vec<&String> = finalizers.iter().filter(|finalizer| *finalizer != FINALIZER).collect();
        let metadata = json!({ "finalizers": rest, "resourceVersion": object.metadata.resource_version });
        self.ports.cluster.patch_metadata(key.kind, &key.namespace, &key.name, metadata).await?;
        self.needs.remove(key);
        tracing::info!("deleted");
        Ok(Outcome::Gone)
    }

    /// Reports what blocks the deletion.
    async fn report_waiting(
        &self,
        key: &Key,
        object: &DynamicObject,
        before: &Status,
        status: Status,
        message: String,
    ) -> PortResult<()> {
        let parts = vec![(ConditionType::Pruned, Progress::waiting(message))];
        self.report(key, object, before, &Findings { parts, ..Findings::default() }, status).await
    }

    /// Undoes all effects it can, and returns the others.
    async fn undo_all(&self, key: &Key, effects: &[Effect]) -> PortResult<Vec<Effect>> {
        let mut left = Vec::new();
        for effect in effects {
            if !key.matches(&effect.provider) && self.undo(key, effect).await? == UndoOutcome::Unreachable {
                left.push(effect.clone());
            }
        }
        Ok(left)
    }

    /// Deletes the objects that this one consists of, each after all its users. Returns those that still exist.
    async fn delete_parts(&self, key: &Key, object: &DynamicObject) -> PortResult<Vec<Reference>> {
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        let kinds = self.kinds();
        let mut parts = Vec::new();
        for child in self.ports.cluster.children(&key.namespace, uid).await? {
            if kinds.contains(&child.kind)
                && let Some(live) = self.ports.cluster.get(child.kind, &key.namespace, &child.name).await?
            {
                parts.push((child, live));
            }
        }
        let all: Vec<Reference> = parts.iter().map(|(child, _)| reference(child)).collect();
        let uses = parts.iter().map(|(_, live)| gather::status(&live.data).ok().map(|status| status.uses));
        let used = parts_in_use(&all.iter().cloned().zip(uses).collect());
        for (part, (child, live)) in all.iter().zip(&parts) {
            if !used.contains(part) && live.metadata.deletion_timestamp.is_none() {
                self.ports.cluster.delete(child.kind, &key.namespace, &child.name, &child.uid).await?;
            }
        }
        Ok(all)
    }
}

/// Parts that other parts still use. A part with an unreadable status counts as a user of every part, except of its own
/// direct and indirect users.
fn parts_in_use(uses: &BTreeMap<Reference, Option<Vec<Reference>>>) -> BTreeSet<Reference> {
    let mut used: BTreeSet<Reference> = uses.values().flatten().flatten().cloned().collect();
    for (part, _) in uses.iter().filter(|(_, known)| known.is_none()) {
        let mut users = BTreeSet::from([part]);
        loop {
            let before = users.len();
            for (other, known) in uses {
                if known.iter().flatten().any(|used| users.contains(used)) {
                    users.insert(other);
                }
            }
            if users.len() == before {
                break;
            }
        }
        used.extend(uses.keys().filter(|other| !users.contains(other)).cloned());
    }
    used
}

fn reference(child: &ChildReference) -> Reference {
    Reference { kind: child.kind.kind.to_owned(), name: child.name.clone() }
}

fn title(reference: &Reference) -> String {
    format!("{} {}", reference.kind, reference.name)
}

/// Since when each server with remaining effects has not answered. The status keeps the time of the first failed
/// attempt: it survives a restart of the operator, and time before it does not count.
fn unreachable(left: &[Effect], known: &[Unreachable], now: Timestamp) -> Vec<Unreachable> {
    let providers: BTreeSet<&Reference> = left.iter().map(|effect| &effect.provider).collect();
    let since = |provider: &Reference| {
        let known = known.iter().find(|known| known.provider == *provider);
        known.map_or_else(|| Time(whole_second(now)), |known| known.since.clone())
    };
    providers
        .into_iter()
        .map(|provider| Unreachable { provider: provider.clone(), since: since(provider) })
        .collect()
}

fn waiting_message(awaited: &[&Unreachable], left: &[Effect]) -> String {
    let pending = |provider: &Reference| {
        let effects: Vec<String> =
            left.iter().filter(|effect| effect.provider == *provider).map(describe).collect();
        format!("{} to remove {}", title(provider), effects.join(" and "))
    };
    let providers: Vec<String> = awaited.iter().map(|server| pending(&server.provider)).collect();
    format!("waiting for {}", providers.join("; "))
}

fn describe(effect: &Effect) -> String {
    format!("{} {}", effect.kind.title(), effect.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_part_is_deleted_after_its_users_and_before_all_others() {
        let part = |name: &str| Reference { kind: "Part".to_owned(), name: name.to_owned() };
        let uses = |names: &[&str]| Some(names.iter().map(|name| part(name)).collect());
        let mut parts = BTreeMap::from([
            (part("agent"), uses(&["server"])),
            (part("server"), uses(&["identity"])),
            (part("identity"), None),
            (part("database"), uses(&[])),
            (part("cache"), uses(&[])),
        ]);
        let free = |parts: &BTreeMap<Reference, Option<Vec<Reference>>>| -> Vec<String> {
            let used = parts_in_use(parts);
            parts.keys().filter(|part| !used.contains(part)).map(|part| part.name.clone()).collect()
        };
        for next in ["agent", "server", "identity"] {
            assert_eq!(free(&parts), [next]);
            parts.remove(&part(next));
        }
        assert_eq!(free(&parts), ["cache", "database"]);
    }
}
