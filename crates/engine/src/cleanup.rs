//! Cleanup: undoes what was recorded before an object goes. It needs no plan, so that a wrong spec cannot block it.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use kube::core::DynamicObject;
use openstack_operator_model::common::Reference;
use openstack_operator_model::status::Status;
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
        status: &Status,
    ) -> PortResult<Outcome> {
        let finalizers = object.metadata.finalizers.clone().unwrap_or_default();
        if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            self.needs.remove(key);
            return Ok(Outcome::Gone);
        }
        if !self.delete_parts(key, object).await? {
            return Ok(Outcome::Waiting { after: None });
        }
        let mut left = Vec::new();
        for effect in &status.effects {
            let own = effect.provider.kind == key.kind.kind && effect.provider.name == key.name;
            if !own && self.undo(&key.namespace, effect).await? == Undone::Unreachable {
                left.push(format!("{:?} {} on {}", effect.what, effect.name, effect.provider.name));
            }
        }
        if !left.is_empty() {
            let since = object.metadata.deletion_timestamp.as_ref().map(|time| time.0);
            let waited = since.map(|since| since.duration_until(self.ports.environment.now()));
            if waited.is_none_or(|waited| waited < PATIENCE) {
                let message = format!("cannot undo yet: {}", left.join(", "));
                return Ok(Outcome::Failed { message });
            }
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

    /// Deletes the objects of ours that this one consists of, each after all that use it. Returns whether all are
    /// gone.
    async fn delete_parts(&self, key: &Key, object: &DynamicObject) -> PortResult<bool> {
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
        let reference =
            |child: &ChildReference| Reference { kind: child.kind.kind.to_owned(), name: child.name.clone() };
        let mut used = BTreeSet::new();
        for (child, live) in &parts {
            match gather::status(&live.data) {
                Ok(status) => used.extend(status.uses),
                // Who knows which of the others it uses.
                Err(_) => used.extend(
                    parts.iter().filter(|(other, _)| other != child).map(|(other, _)| reference(other)),
                ),
            }
        }
        for (child, live) in &parts {
            let reference = reference(child);
            if !used.contains(&reference) && live.metadata.deletion_timestamp.is_none() {
                self.ports.cluster.delete(child.kind, &key.namespace, &child.name, &child.uid).await?;
            }
        }
        Ok(parts.is_empty())
    }
}
