//! Applying: sends only manifests that differ from the live object.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::DynamicObject;
use openstack_operator_model::assess::{self, JobOutcome};
use openstack_operator_model::condition::Progress;
use openstack_operator_model::kind::{JOB, POD, SECRET, STATEFUL_SET};
use openstack_operator_model::lower::{
    APPLIED_ANNOTATION, MANAGED_BY_LABEL, MANAGER, Manifest, TASK_ANNOTATION,
};
use openstack_operator_model::name;
use serde_json::{Value, json};

use crate::engine::Engine;
use crate::intent::location;
use crate::ports::PortResult;
use crate::volume::Growth;

/// How long a failed Job is kept for its log before it is retried.
const FAILED_JOB_RETENTION: SignedDuration = SignedDuration::from_mins(5);

/// Result of applying one manifest.
pub(crate) enum Applied {
    Live(Box<DynamicObject>),
    /// Applied, except for a part that needs the user.
    Limited(Box<DynamicObject>, Progress),
    NotYet(Progress),
}

impl Engine {
    /// Applies one manifest, unless the live object already matches it.
    pub(crate) async fn apply(&self, namespace: &str, manifest: &Manifest) -> PortResult<Applied> {
        let live = self.ports.cluster.get(manifest.kind, namespace, &manifest.name).await?;
        self.apply_to(namespace, manifest, live).await
    }

    /// Applies one manifest to the live object, unless it already matches.
    pub(crate) async fn apply_to(
        &self,
        namespace: &str,
        manifest: &Manifest,
        live: Option<DynamicObject>,
    ) -> PortResult<Applied> {
        let Some(live) = live else {
            return self.send(namespace, manifest, None).await;
        };
        if live.metadata.deletion_timestamp.is_some() {
            let message = format!("{} {} is being deleted", manifest.kind.kind, manifest.name);
            return Ok(Applied::NotYet(Progress::waiting(message)));
        }
        if let Some(message) = foreign_owner(manifest, &live) {
            return Ok(Applied::NotYet(Progress::stalled(message)));
        }
        if manifest.kind == JOB {
            return self.apply_job(namespace, manifest, live).await;
        }
        if manifest.kind == STATEFUL_SET {
            return self.apply_stateful_set(namespace, manifest, live).await;
        }
        self.apply_difference(namespace, manifest, live).await
    }

    async fn apply_difference(
        &self,
        namespace: &str,
        manifest: &Manifest,
        live: DynamicObject,
    ) -> PortResult<Applied> {
        if self.is_applied(namespace, manifest, &live) {
            return Ok(Applied::Live(Box::new(live)));
        }
        self.send(namespace, manifest, Some(&live)).await
    }

    /// Kubernetes does not change the claims of a StatefulSet. If volumes cannot get the planned size, everything else
    /// is applied.
    async fn apply_stateful_set(
        &self,
        namespace: &str,
        manifest: &Manifest,
        live: DynamicObject,
    ) -> PortResult<Applied> {
        match self.grow_volumes(namespace, manifest, &live).await? {
            Growth::Complete { kept } => self.apply_difference(namespace, &kept, live).await,
            Growth::Recreating => {
                let message =
                    format!("the operator recreates StatefulSet {} with larger volumes", manifest.name);
                Ok(Applied::NotYet(Progress::waiting(message)))
            }
            Growth::Refused { kept, message } => {
                let applied = self.apply_difference(namespace, &kept, live).await?;
                Ok(match applied {
                    Applied::Live(live) => Applied::Limited(live, Progress::stalled(message)),
                    other => other,
                })
            }
        }
    }

    async fn send(
        &self,
        namespace: &str,
        manifest: &Manifest,
        read: Option<&DynamicObject>,
    ) -> PortResult<Applied> {
        let annotated = annotated(manifest);
        let mut request = annotated.clone();
        // The values of a Secret follow from those that were read, and must not replace newer ones.
        if let Some(read) = read.filter(|_| manifest.kind == SECRET) {
            request.body["metadata"]["resourceVersion"] = json!(read.metadata.resource_version);
        }
        let live = self.ports.cluster.apply(namespace, &request).await?;
        let location = location(namespace, manifest);
        if contains(&to_json(&live), &annotated.body) {
            self.applied.forget(&location);
        } else {
            self.applied.remember(manifest, location, (intent_hash(manifest), generation(&live)));
        }
        Ok(Applied::Live(Box::new(live)))
    }

    pub(crate) fn is_applied(&self, namespace: &str, manifest: &Manifest, live: &DynamicObject) -> bool {
        let annotated = annotated(manifest);
        contains(&to_json(live), &annotated.body)
            || self
                .applied
                .matches(&location(namespace, manifest), &(intent_hash(manifest), generation(live)))
    }

    /// Jobs are immutable. A finished Job with another task is deleted and recreated. A running Job finishes first,
    /// since an interrupted migration is worse than a late one. A Job whose pods have not started is replaced at once.
    async fn apply_job(
        &self,
        namespace: &str,
        manifest: &Manifest,
        live: DynamicObject,
    ) -> PortResult<Applied> {
        let name = &manifest.name;
        let data = to_json(&live);
        let same = is_same_task(&data, &manifest.body);
        let mut progress = Progress::waiting(format!("the operator recreates Job {name}"));
        match assess::job_outcome(&data) {
            JobOutcome::Complete if same => return Ok(Applied::Live(Box::new(live))),
            JobOutcome::Running if same && contains(&data, &manifest.body) => {
                return Ok(Applied::Live(Box::new(live)));
            }
            JobOutcome::Running if self.may_have_started(namespace, name).await? => {
                let message = format!("Job {name} of an earlier change is still running");
                let earlier = Applied::NotYet(Progress::waiting(message));
                return Ok(if same { Applied::Live(Box::new(live)) } else { earlier });
            }
            JobOutcome::Failed if same => {
                progress = assess::assess(JOB, name, &data);
                if ended_at(&data, "Failed")
                    .is_some_and(|at| at.duration_until(self.ports.environment.now()) < FAILED_JOB_RETENTION)
                {
                    return Ok(Applied::NotYet(progress));
                }
            }
            JobOutcome::Complete | JobOutcome::Running | JobOutcome::Failed => {}
        }
        let uid = live.metadata.uid.as_deref().unwrap_or_default();
        self.ports.cluster.delete(JOB, namespace, name, uid).await?;
        Ok(Applied::NotYet(progress))
    }

    /// Whether a Job has, or may have, started its work. It has not if it has pods and none of their containers ever
    /// started, because the image cannot be pulled or the pods cannot be scheduled.
    async fn may_have_started(&self, namespace: &str, job: &str) -> PortResult<bool> {
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

/// When a Job was completed.
pub(crate) fn completed_at(job: &Value) -> Option<Timestamp> {
    ended_at(job, "Complete")
}

fn ended_at(job: &Value, outcome: &str) -> Option<Timestamp> {
    let conditions = job.pointer("/status/conditions")?.as_array()?;
    let ended = conditions.iter().find(|condition| condition["type"] == outcome)?;
    ended["lastTransitionTime"].as_str()?.parse().ok()
}

/// Error message if the object belongs to another controller, or to the user. Two objects whose children share a name would
/// overwrite each other forever.
fn foreign_owner(manifest: &Manifest, live: &DynamicObject) -> Option<String> {
    let owner = manifest.body.pointer("/metadata/ownerReferences/0/uid").and_then(Value::as_str);
    let title = format!("{} {}", manifest.kind.kind, manifest.name);
    let other = controller(live).filter(|controller| owner.is_some_and(|owner| controller.uid != owner));
    match other {
        Some(other) => {
            Some(format!("{title} belongs to {} {}; rename one of the two objects", other.kind, other.name))
        }
        None if is_managed(live, owner) => None,
        None => Some(format!(
            "{title} exists and was not created by the operator: rename or delete it, or {}",
            hand_over_remedy()
        )),
    }
}

fn controller(live: &DynamicObject) -> Option<&OwnerReference> {
    live.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// Whether the operator created the object for this owner, or the user handed it over. Retained objects have no owner.
fn is_managed(live: &DynamicObject, owner: Option<&str>) -> bool {
    let is_labelled = live.metadata.labels.as_ref().and_then(|all| all.get(MANAGED_BY_LABEL));
    let mut owners = live.metadata.owner_references.iter().flatten();
    is_labelled.is_some_and(|manager| manager == MANAGER) || owners.any(|one| Some(one.uid.as_str()) == owner)
}

/// Whether the object belongs to the user: the operator did not create it, and no controller owns it.
pub(crate) fn is_of_user(live: &DynamicObject, owner: &str) -> bool {
    controller(live).is_none() && !is_managed(live, Some(owner))
}

/// How the user lets the operator manage an existing object.
pub(crate) fn hand_over_remedy() -> String {
    format!(
        "label it {MANAGED_BY_LABEL}={MANAGER} to let the operator change it and delete it with its owner"
    )
}

fn intent_hash(manifest: &Manifest) -> String {
    name::hash(manifest.body.to_string())
}

/// Changes whenever the applied fields change: the generation, or the resource version for kinds without one.
fn generation(live: &DynamicObject) -> String {
    match live.metadata.generation {
        Some(generation) => generation.to_string(),
        None => live.metadata.resource_version.clone().unwrap_or_default(),
    }
}

fn annotated(manifest: &Manifest) -> Manifest {
    let mut annotated = manifest.clone();
    if let Some(metadata) = annotated.body.get_mut("metadata").and_then(Value::as_object_mut) {
        let annotations =
            metadata.entry("annotations").or_insert_with(|| Value::Object(serde_json::Map::new()));
        annotations[APPLIED_ANNOTATION] = Value::String(intent_hash(manifest));
    }
    annotated
}

fn annotation<'a>(body: &'a Value, name: &str) -> Option<&'a str> {
    body.pointer("/metadata/annotations")?.get(name)?.as_str()
}

/// Whether two Jobs run the same task.
pub(crate) fn is_same_task(one: &Value, other: &Value) -> bool {
    annotation(one, TASK_ANNOTATION) == annotation(other, TASK_ANNOTATION)
}

/// The object as one JSON value.
pub(crate) fn to_json(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or(Value::Null)
}

/// Maps that must match exactly: an additional label selects other objects.
const WHOLE_MAPS: [&str; 3] = ["selector", "matchLabels", "nodeSelector"];

/// Whether `live` contains every field of `wanted`.
fn contains(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => wanted.iter().all(|(field, wanted)| {
            // The API server omits empty fields.
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

pub(crate) fn is_empty(value: &Value) -> bool {
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
    use super::*;
    use openstack_operator_model::kind::SERVICE;
    use openstack_operator_model::lower::Source;

    #[test]
    fn an_object_of_another_controller_is_not_overwritten() {
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
    fn an_object_of_the_user_is_not_overwritten_until_it_is_handed_over() {
        let metadata = |labels: Value, owners: Value| {
            json!({ "apiVersion": "v1", "kind": "Service",
                    "metadata": { "name": "x", "labels": labels, "ownerReferences": owners } })
        };
        let owner = json!([{ "apiVersion": "v", "kind": "Thing", "name": "t", "uid": "1" }]);
        let ours = json!({ MANAGED_BY_LABEL: MANAGER });
        let live = |labels: &Value, owners: &Value| {
            serde_json::from_value::<DynamicObject>(metadata(labels.clone(), owners.clone())).unwrap()
        };
        // A retained object has no owner.
        for owners in [&owner, &json!([])] {
            let body = metadata(ours.clone(), owners.clone());
            let manifest = Manifest { kind: SERVICE, name: "x".into(), body, source: Source::Other };
            for labels in [json!({}), json!({ MANAGED_BY_LABEL: "Helm" })] {
                let message = foreign_owner(&manifest, &live(&labels, &json!([]))).unwrap();
                let expected = "Service x exists and was not created by the operator: rename or delete it, or label it \
                                app.kubernetes.io/managed-by=openstack-operator to let the operator change it and \
                                delete it with its owner";
                assert_eq!(message, expected);
            }
            assert_eq!(foreign_owner(&manifest, &live(&ours, &json!([]))), None);
        }
        let body = metadata(ours.clone(), owner.clone());
        let manifest = Manifest { kind: SERVICE, name: "x".into(), body, source: Source::Other };
        assert_eq!(foreign_owner(&manifest, &live(&json!({}), &owner)), None, "it lost only its label");
    }

    #[test]
    fn additional_fields_match_and_missing_fields_do_not() {
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
