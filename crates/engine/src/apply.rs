//! Applying: sends what differs from what is there, and nothing else.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use kube::core::DynamicObject;
use openstack_operator_model::assess::{self, JobOutcome};
use openstack_operator_model::condition::Progress;
use openstack_operator_model::kind::{JOB, Kind, POD};
use openstack_operator_model::lower::{APPLIED_ANNOTATION, Manifest, TASK_ANNOTATION};
use openstack_operator_model::name;
use serde_json::Value;

use crate::engine::Engine;
use crate::ports::PortResult;

/// For how long a failed Job stays before it is tried again, so that its log can be read.
const KEPT: SignedDuration = SignedDuration::from_mins(5);

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
        if let Some(message) = foreign_owner(manifest, &live) {
            return Ok(Applied::NotYet(Progress::Failed { message }));
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
    /// a migration that is cut short is worse than one that is late. One that cannot even begin has nothing to finish.
    async fn apply_job(
        &self,
        namespace: &str,
        manifest: &Manifest,
        live: DynamicObject,
    ) -> PortResult<Applied> {
        let name = &manifest.name;
        let data = whole(&live);
        let same = annotation(&data, TASK_ANNOTATION) == annotation(&manifest.body, TASK_ANNOTATION);
        let mut progress = Progress::waiting(format!("Job {name} makes room for another"));
        match assess::job_outcome(&data) {
            JobOutcome::Complete if same => return Ok(Applied::Live(Box::new(live))),
            JobOutcome::Running if same && contains(&data, &manifest.body) => {
                return Ok(Applied::Live(Box::new(live)));
            }
            JobOutcome::Running if self.may_work(namespace, name).await? => {
                let message = format!("Job {name} of an earlier change still runs");
                let earlier = Applied::NotYet(Progress::waiting(message));
                return Ok(if same { Applied::Live(Box::new(live)) } else { earlier });
            }
            JobOutcome::Failed if same => {
                progress = assess::assess(JOB, name, &data);
                if failed_at(&data).is_some_and(|at| at.duration_until(self.ports.environment.now()) < KEPT) {
                    return Ok(Applied::NotYet(progress));
                }
            }
            JobOutcome::Complete | JobOutcome::Running | JobOutcome::Failed => {}
        }
        let uid = live.metadata.uid.as_deref().unwrap_or_default();
        self.ports.cluster.delete(JOB, namespace, name, uid).await?;
        Ok(Applied::NotYet(progress))
    }

    /// Whether a Job has or may have begun its work. It has not while it has pods of which no container was started
    /// yet: their image cannot be had, or no node takes them.
    async fn may_work(&self, namespace: &str, job: &str) -> PortResult<bool> {
        let labels = BTreeMap::from([("batch.kubernetes.io/job-name".to_owned(), job.to_owned())]);
        let pods = self.ports.cluster.list(POD, namespace, &labels).await?;
        Ok(pods.is_empty() || pods.iter().any(has_started))
    }
}

fn has_started(pod: &DynamicObject) -> bool {
    let statuses = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let containers = statuses.iter().filter_map(|list| pod.data.pointer(list)?.as_array()).flatten();
    containers.into_iter().any(|container| {
        ["/state/running", "/state/terminated", "/lastState/terminated"]
            .iter()
            .any(|state| container.pointer(state).is_some_and(|state| !state.is_null()))
    })
}

fn failed_at(job: &Value) -> Option<Timestamp> {
    let conditions = job.pointer("/status/conditions")?.as_array()?;
    let failed = conditions.iter().find(|condition| condition["type"] == "Failed")?;
    failed["lastTransitionTime"].as_str()?.parse().ok()
}

/// Whose an object is, where it is not ours: two objects of ours with one name for their parts, or something of a
/// stranger's. Taking it over would make both fight for ever.
fn foreign_owner(manifest: &Manifest, live: &DynamicObject) -> Option<String> {
    let wanted = manifest.body.pointer("/metadata/ownerReferences/0/uid").and_then(Value::as_str)?;
    let owners = live.metadata.owner_references.iter().flatten();
    let other = owners.filter(|owner| owner.controller == Some(true)).find(|owner| owner.uid != wanted)?;
    Some(format!(
        "{} {} belongs to {} {}: rename one of the two",
        manifest.kind.kind, manifest.name, other.kind, other.name
    ))
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
    use openstack_operator_model::kind::SERVICE;
    use openstack_operator_model::lower::Source;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_belongs_to_another_is_not_taken_over() {
        let owned = |uid: &str| {
            json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "x", "ownerReferences": [
                { "apiVersion": "v", "kind": "Thing", "name": "t", "uid": uid, "controller": true }] } })
        };
        let manifest = Manifest { kind: SERVICE, name: "x".into(), body: owned("1"), source: Source::Other };
        let live = |uid: &str| serde_json::from_value::<DynamicObject>(owned(uid)).unwrap();
        assert_eq!(foreign_owner(&manifest, &live("1")), None);
        assert!(foreign_owner(&manifest, &live("2")).unwrap().contains("belongs to Thing t"));
    }

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
