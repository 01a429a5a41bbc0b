//! Applying: sends what differs from what is there, and nothing else.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use kube::core::DynamicObject;
use openstack_operator_model::assess::{self, JobOutcome};
use openstack_operator_model::condition::Progress;
use openstack_operator_model::kind::{JOB, Kind};
use openstack_operator_model::lower::{Manifest, TASK_ANNOTATION};
use openstack_operator_model::name;
use serde_json::Value;

use crate::engine::Engine;
use crate::ports::PortResult;

/// Stands for all that the operator said of an object when it last applied it. Another value means that something
/// was said then which is not said any more.
const APPLIED_ANNOTATION: &str = "openstack.k8s.io/applied";

/// What came of applying one manifest.
pub(crate) enum Applied {
    Live(Box<DynamicObject>),
    NotYet(Progress),
}

/// Intents that the API server stored in another form than they were sent in, so that comparing does not help.
#[derive(Default)]
pub(crate) struct AppliedIntents {
    known: Mutex<HashMap<Place, Mark>>,
}

type Place = (Kind, String, String);
/// What was intended, and the state that came of it.
type Mark = (String, String);

impl AppliedIntents {
    fn same(&self, place: &Place, mark: &Mark) -> bool {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(place) == Some(mark)
    }

    fn remember(&self, place: Place, mark: Mark) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(place, mark);
    }

    fn forget(&self, place: &Place) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(place);
    }
}

impl Engine {
    /// Brings one object to what the manifest says. An apply that would change nothing is not sent.
    pub(crate) async fn apply(&self, namespace: &str, manifest: &Manifest) -> PortResult<Applied> {
        let live = self.ports.cluster.get(manifest.kind, namespace, &manifest.name).await?;
        let Some(live) = live else {
            return self.send(namespace, manifest).await;
        };
        if live.metadata.deletion_timestamp.is_some() {
            let message = format!("{} {} is being deleted", manifest.kind.kind, manifest.name);
            return Ok(Applied::NotYet(Progress::waiting(message)));
        }
        if manifest.kind == JOB {
            return self.apply_job(namespace, manifest, live).await;
        }
        if self.is_applied(namespace, manifest, &live) {
            return Ok(Applied::Live(Box::new(live)));
        }
        self.send(namespace, manifest).await
    }

    async fn send(&self, namespace: &str, manifest: &Manifest) -> PortResult<Applied> {
        let marked = marked(manifest);
        let live = self.ports.cluster.apply(namespace, &marked).await?;
        let place = place(namespace, manifest);
        if contains(&whole(&live), &marked.body) {
            self.applied.forget(&place);
        } else {
            self.applied.remember(place, (intent(manifest), state(&live)));
        }
        Ok(Applied::Live(Box::new(live)))
    }

    pub(crate) fn is_applied(&self, namespace: &str, manifest: &Manifest, live: &DynamicObject) -> bool {
        let marked = marked(manifest);
        contains(&whole(live), &marked.body)
            || self.applied.same(&place(namespace, manifest), &(intent(manifest), state(live)))
    }

    /// A Job's work cannot be changed. One that is finished makes room for another; one that runs is let finish, for
    /// a migration that is cut short is worse than one that is late.
    async fn apply_job(
        &self,
        namespace: &str,
        manifest: &Manifest,
        live: DynamicObject,
    ) -> PortResult<Applied> {
        let wanted = annotation(&manifest.body, TASK_ANNOTATION);
        let data = whole(&live);
        let same = annotation(&data, TASK_ANNOTATION) == wanted;
        let outcome = assess::job_outcome(&data);
        if same && outcome != JobOutcome::Failed {
            return Ok(Applied::Live(Box::new(live)));
        }
        if outcome == JobOutcome::Running {
            let message = format!("Job {} of an earlier change still runs", manifest.name);
            return Ok(Applied::NotYet(Progress::waiting(message)));
        }
        let failure = assess::assess(JOB, &manifest.name, &data);
        let uid = live.metadata.uid.as_deref().unwrap_or_default();
        self.ports.cluster.delete(JOB, namespace, &manifest.name, uid).await?;
        // What failed is tried again, each time later, and says meanwhile that it failed.
        Ok(Applied::NotYet(if same {
            failure
        } else {
            Progress::waiting(format!("Job {} makes room for another", manifest.name))
        }))
    }
}

fn place(namespace: &str, manifest: &Manifest) -> Place {
    (manifest.kind, namespace.to_owned(), manifest.name.clone())
}

fn intent(manifest: &Manifest) -> String {
    name::hash(manifest.body.to_string())
}

/// What changes when somebody changes what we applied: the generation, where the kind has one.
fn state(live: &DynamicObject) -> String {
    match live.metadata.generation {
        Some(generation) => generation.to_string(),
        None => live.metadata.resource_version.clone().unwrap_or_default(),
    }
}

fn marked(manifest: &Manifest) -> Manifest {
    let mut marked = manifest.clone();
    if let Some(metadata) = marked.body.get_mut("metadata").and_then(Value::as_object_mut) {
        let annotations =
            metadata.entry("annotations").or_insert_with(|| Value::Object(serde_json::Map::new()));
        annotations[APPLIED_ANNOTATION] = Value::String(intent(manifest));
    }
    marked
}

fn annotation<'a>(body: &'a Value, name: &str) -> Option<&'a str> {
    body.pointer("/metadata/annotations")?.get(name)?.as_str()
}

/// The object as one JSON value.
pub(crate) fn whole(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or(Value::Null)
}

/// Maps that Kubernetes takes as a whole: one label more selects something else.
const WHOLE_MAPS: [&str; 3] = ["selector", "matchLabels", "nodeSelector"];

/// Whether everything that `wanted` says holds in `live`.
fn contains(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => wanted.iter().all(|(field, wanted)| {
            // What is empty is left out by the API server.
            live.get(field).map_or_else(
                || is_empty(wanted),
                |live| {
                    if WHOLE_MAPS.contains(&field.as_str()) { live == wanted } else { contains(live, wanted) }
                },
            )
        }),
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| contains(live, wanted))
        }
        (live, wanted) => live == wanted,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(value) => !value,
        Value::Number(_) | Value::Null => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn more_than_wanted_is_enough_and_less_is_not() {
        let live = json!({ "a": 1, "b": { "c": "x", "d": 2 }, "l": [{ "n": 1, "extra": true }] });
        assert!(contains(&live, &json!({ "b": { "c": "x" }, "l": [{ "n": 1 }] })));
        assert!(!contains(&live, &json!({ "b": { "c": "y" } })));
        assert!(!contains(&live, &json!({ "l": [] })));
        assert!(!contains(&live, &json!({ "new": 1 })));
        assert!(contains(&live, &json!({ "new": {} })));
        let wider = json!({ "selector": { "a": "1", "b": "2" } });
        assert!(!contains(&wider, &json!({ "selector": { "a": "1" } })));
    }
}
