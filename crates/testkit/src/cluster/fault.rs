//! States of a cluster that other clients cause: CRDs of another version, a second leader, watches that lag behind.

use std::sync::Arc;

use openstack_operator_engine::index::ChildIndex;
use openstack_operator_model::kind::Kind;
use serde_json::Value;

use super::FakeCluster;
use crate::lock;
use crate::store::{Key, Rejection};

/// What the API server does with a field of a status that the CRD does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldCrd {
    /// It drops an unknown field.
    Drops,
    /// It rejects a value that an enumeration does not have.
    Rejects,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    /// Fields of statuses that CRDs do not have.
    old_crds: Vec<(Kind, String, OldCrd)>,
    /// A status that another process writes before the operator's next one.
    competing: Option<(Key, Value)>,
    /// An earlier version of an object, which the next read returns.
    outdated: Option<(Key, Value)>,
    /// Children as watches have reported them, instead of the stored ones.
    pub(super) index: Option<Arc<ChildIndex>>,
}

impl FakeCluster {
    /// The CRD of the kind does not have a field of the status, given as a JSON pointer.
    pub fn install_old_crd(&self, kind: Kind, field: &str, reaction: OldCrd) {
        lock(&self.state).faults.old_crds.push((kind, field.to_owned(), reaction));
    }

    /// The CRDs of all kinds are those of the operator again.
    pub fn update_crds(&self) {
        lock(&self.state).faults.old_crds.clear();
    }

    /// Another process writes this status right before the operator's next write.
    pub fn compete(&self, kind: Kind, namespace: &str, name: &str, status: Value) {
        lock(&self.state).faults.competing = Some((Key::new(kind, namespace, name), status));
    }

    /// The next read of an object returns this earlier version, because the watch has not reported the current one.
    pub fn answer_outdated(&self, kind: Kind, namespace: &str, name: &str, body: Value) {
        lock(&self.state).faults.outdated = Some((Key::new(kind, namespace, name), body));
    }

    /// Children are from now on those that watches have reported to the index.
    pub fn watch_children(&self, index: Arc<ChildIndex>) {
        lock(&self.state).faults.index = Some(index);
    }
}

impl Faults {
    /// The status as the API server stores it.
    pub(super) fn admit(&self, kind: Kind, mut status: Value) -> Result<Value, Rejection> {
        for (_, field, reaction) in self.old_crds.iter().filter(|(old, ..)| *old == kind) {
            let (parent, name) = field.rsplit_once('/').expect("a JSON pointer starts with a slash");
            let Some(parent) = status.pointer_mut(parent).and_then(Value::as_object_mut) else { continue };
            if parent.remove(name).is_some() && *reaction == OldCrd::Rejects {
                return Err(Rejection::Refused(format!("status{field}: Unsupported value")));
            }
        }
        Ok(status)
    }

    pub(super) fn take_outdated(&mut self, key: &Key) -> Option<Value> {
        self.outdated.take_if(|(other, _)| *other == *key).map(|(_, body)| body)
    }

    pub(super) fn take_competing(&mut self, key: &Key) -> Option<Value> {
        self.competing.take_if(|(other, _)| *other == *key).map(|(_, status)| status)
    }
}
