//! Cleanup: undoes what was recorded before an object goes. It needs no plan, so that a wrong spec cannot block it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::DynamicObject;
use openstack_operator_model::common::Reference;
use openstack_operator_model::condition::{ConditionType, Findings, Progress, whole_second};
use openstack_operator_model::status::{Effect, EffectKind, Status, Unreachable};
use serde_json::json;

use crate::claim::Undone;
use crate::engine::{Engine, FINALIZER, Key, Outcome};
use crate::gather;
use crate::ports::{Announcement, ChildReference, PortResult};

/// For how long cleanup waits for a server that does not answer. Something left behind there is better than an
/// object that never goes.
const PATIENCE: SignedDuration = SignedDuration::from_secs(300);

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
            let message = format!("waits for {} to be deleted", parts.join(", "));
            self.say(key, object, before, before.clone(), message).await?;
            return Ok(Outcome::Waiting { after: None });
        }
        let left = self.undo_all(key, &before.effects).await?;
        let now = self.ports.environment.now();
        let unreachable = unreachable(&left, &before.unreachable, now);
        let awaited: Vec<&Unreachable> =
            unreachable.iter().filter(|one| one.since.0.duration_until(now) < PATIENCE).collect();
        if !awaited.is_empty() {
            let message = waiting(&awaited, &left);
            // What is undone is off the record, so that a server that goes away later is not asked for it again.
            let status = Status { effects: left, unreachable, ..before.clone() };
            self.say(key, object, before, status, message.clone()).await?;
            return Ok(Outcome::Failed { message });
        }
        if !left.is_empty() {
            let left: Vec<String> = left
                .iter()
                .map(|effect| format!("{} on {}", what(effect), title(&effect.provider)))
                .collect();
            let note = format!("left behind, for what it was made on does not answer: {}", left.join(", "));
            let announcement = Announcement { warning: true, reason: "LeftBehind", note };
            self.ports.cluster.publish(object, announcement).await?;
        }
        let rest: Vec<&String> = finalizers.iter().filter(|finalizer| *finalizer != FINALIZER).collect();
        let metadata = json!({ "finalizers": rest, "resourceVersion": object.metadata.resource_version });
        self.ports.cluster.patch_metadata(key.kind, &key.namespace, &key.name, metadata).await?;
        self.needs.remove(key);
        tracing::info!("cleaned up");
        Ok(Outcome::Gone)
    }

    /// Says what keeps the object from going.
    async fn say(
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

    /// Undoes all it can, and returns what it cannot undo now.
    async fn undo_all(&self, key: &Key, effects: &[Effect]) -> PortResult<Vec<Effect>> {
        let mut left = Vec::new();
        for effect in effects {
            if !key.is(&effect.provider) && self.undo(&key.namespace, effect).await? == Undone::Unreachable {
                left.push(effect.clone());
            }
        }
        Ok(left)
    }

    /// Deletes the objects of ours that this one consists of, each after all that use it. Returns those that are
    /// still there.
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
        let used = used(&all.iter().cloned().zip(uses).collect());
        for (part, (child, live)) in all.iter().zip(&parts) {
            if !used.contains(part) && live.metadata.deletion_timestamp.is_none() {
                self.ports.cluster.delete(child.kind, &key.namespace, &child.name, &child.uid).await?;
            }
        }
        Ok(all)
    }
}

/// Parts that others use. One of which it cannot be read may use all but those that use it, be it through others.
fn used(uses: &BTreeMap<Reference, Option<Vec<Reference>>>) -> BTreeSet<Reference> {
    let mut used: BTreeSet<Reference> = uses.values().flatten().flatten().cloned().collect();
    for (part, _) in uses.iter().filter(|(_, known)| known.is_none()) {
        let mut users = BTreeSet::from([part]);
        loop {
            let before = users.len();
            for (other, known) in uses {
                if known.iter().flatten().any(|one| users.contains(one)) {
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

/// Since when each object that something is left on has not answered. It is remembered, so that neither a late start
/// of the operator nor a restart of it counts as time in which the object was asked.
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

fn waiting(awaited: &[&Unreachable], left: &[Effect]) -> String {
    let of = |provider: &Reference| {
        let effects: Vec<String> =
            left.iter().filter(|effect| effect.provider == *provider).map(what).collect();
        format!("{} to drop {}", title(provider), effects.join(" and "))
    };
    let providers: Vec<String> = awaited.iter().map(|one| of(&one.provider)).collect();
    format!("waits for {}", providers.join("; "))
}

fn what(effect: &Effect) -> String {
    let what = match effect.kind {
        EffectKind::Database => "database",
        EffectKind::DatabaseUser => "database user",
        EffectKind::MessagingHost => "virtual host",
        EffectKind::MessagingUser => "message bus user",
        EffectKind::CatalogService => "catalog service",
        EffectKind::IdentityUser => "identity user",
    };
    format!("{what} {}", effect.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_goes_after_those_that_use_it_and_before_all_others() {
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
            let used = used(parts);
            parts.keys().filter(|part| !used.contains(part)).map(|part| part.name.clone()).collect()
        };
        for next in ["agent", "server", "identity"] {
            assert_eq!(free(&parts), [next]);
            parts.remove(&part(next));
        }
        assert_eq!(free(&parts), ["cache", "database"]);
    }
}
