//! A cluster in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use kube::core::DynamicObject;
use openstack_operator_engine::ports::{
    Announcement, ChildReference, Cluster, Environment, PortError, PortResult, WriteMode,
};
use openstack_operator_model::kind::Kind;
use openstack_operator_model::lower::Manifest;
use serde_json::Value;

use crate::environment::FakeEnvironment;
use crate::lock;
use crate::script::{Attempt, Script};
use crate::store::{self, Key, Manager, Rejection, Store};

pub use self::fault::OldCrd;

mod fault;
mod settle;

/// API of the cluster, and other controllers, which act on request.
#[derive(Debug)]
pub struct FakeCluster {
    script: Script,
    environment: Arc<FakeEnvironment>,
    state: Mutex<State>,
}

#[derive(Clone, Debug, Default)]
struct State {
    store: Store,
    /// Objects that no other controller acts on.
    held: BTreeSet<(Kind, String)>,
    failing_jobs: BTreeSet<String>,
    announcements: Vec<Announced>,
    faults: fault::Faults,
}

/// An event and its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub event: Announcement,
}

impl FakeCluster {
    pub fn new(script: Script, environment: Arc<FakeEnvironment>) -> Self {
        Self { script, environment, state: Mutex::default() }
    }

    pub(crate) fn fork(&self, script: Script, environment: Arc<FakeEnvironment>) -> Self {
        Self { script, environment, state: Mutex::new(lock(&self.state).clone()) }
    }

    /// A stored object, without a call of the port.
    pub fn object(&self, kind: Kind, namespace: &str, name: &str) -> Option<Value> {
        lock(&self.state).store.get(&Key::new(kind, namespace, name)).cloned()
    }

    /// All objects of a kind, in all namespaces.
    pub fn objects(&self, kind: Kind) -> Vec<Value> {
        let state = lock(&self.state);
        state.store.objects().filter(|(key, _)| key.kind == kind).map(|(_, body)| body.clone()).collect()
    }

    /// Every event, oldest first.
    pub fn announcements(&self) -> Vec<Announced> {
        lock(&self.state).announcements.clone()
    }

    /// Changes stored objects as another client than the operator, without the script.
    pub(crate) fn with_store<T>(&self, act: impl FnOnce(&mut Store) -> T) -> T {
        act(&mut lock(&self.state).store)
    }

    fn write<T>(
        &self,
        attempt: &Attempt<'_>,
        act: impl FnOnce(&mut State) -> Result<T, Rejection>,
    ) -> PortResult<T> {
        let mut state = lock(&self.state);
        attempt.write()?;
        act(&mut state).map_err(|rejection| rejected(attempt, rejection))
    }
}

#[async_trait]
impl Cluster for FakeCluster {
    async fn get(&self, kind: Kind, namespace: &str, name: &str) -> PortResult<Option<DynamicObject>> {
        let attempt = self.script.begin("get", kind.kind, name)?;
        let outdated = lock(&self.state).faults.take_outdated(&Key::new(kind, namespace, name));
        let body = outdated.or_else(|| self.object(kind, namespace, name));
        body.map(|body| dynamic(&attempt, body)).transpose()
    }

    async fn list(
        &self,
        kind: Kind,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> PortResult<Vec<DynamicObject>> {
        let selector: Vec<String> = labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
        let attempt = self.script.begin("list", kind.kind, selector.join(","))?;
        let state = lock(&self.state);
        let is_within = |key: &Key| namespace.is_empty() || key.namespace == namespace;
        let found = state
            .store
            .objects()
            .filter(|(key, body)| key.kind == kind && is_within(key) && has_labels(body, labels));
        found.map(|(_, body)| dynamic(&attempt, body.clone())).collect()
    }

    async fn apply(&self, namespace: &str, manifest: &Manifest) -> PortResult<DynamicObject> {
        let attempt = self.script.begin("apply", manifest.kind.kind, &manifest.name)?;
        let key = Key::new(manifest.kind, namespace, &manifest.name);
        let now = self.environment.now();
        let body =
            self.write(&attempt, |state| state.store.apply(&key, Manager::Operator, &manifest.body, now))?;
        dynamic(&attempt, body)
    }

    async fn delete(&self, kind: Kind, namespace: &str, name: &str, uid: &str) -> PortResult<()> {
        let attempt = self.script.begin("delete", kind.kind, name)?;
        let key = Key::new(kind, namespace, name);
        let now = self.environment.now();
        self.write(&attempt, |state| {
            if state.store.get(&key).is_some_and(|body| body["metadata"]["uid"] == uid) {
                state.store.delete(&key, now);
            }
            Ok(())
        })
    }

    async fn delete_and_orphan(&self, kind: Kind, namespace: &str, name: &str, uid: &str) -> PortResult<()> {
        let attempt = self.script.begin("delete_and_orphan", kind.kind, name)?;
        let key = Key::new(kind, namespace, name);
        let now = self.environment.now();
        self.write(&attempt, |state| {
            if state.store.get(&key).is_some_and(|body| body["metadata"]["uid"] == uid) {
                state.store.orphan_dependents(uid, now)?;
                state.store.delete(&key, now);
            }
            Ok(())
        })
    }

    async fn patch_metadata(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        metadata: Value,
    ) -> PortResult<Option<String>> {
        let attempt = self.script.begin("patch_metadata", kind.kind, name)?;
        let key = Key::new(kind, namespace, name);
        let now = self.environment.now();
        let version = |body: Value| body["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        self.write(&attempt, |state| state.store.patch_metadata(&key, &metadata, now).map(version))
    }

    async fn write_status(
        &self,
        kind: Kind,
        object: &DynamicObject,
        status: &Value,
        mode: WriteMode,
    ) -> PortResult<DynamicObject> {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let key = Key::new(kind, &text(&object.metadata.namespace), &text(&object.metadata.name));
        let version = object.metadata.resource_version.as_deref();
        let now = self.environment.now();
        let write = |state: &mut State| {
            if let Some(competing) = state.faults.take_competing(&key) {
                state.store.set_status(&key, competing, now)?;
            }
            let status = state.faults.admit(kind, status.clone())?;
            state.store.write_status(&key, version, status, now)
        };
        let verb = if mode == WriteMode::Store { "write_status" } else { "try_status" };
        let attempt = self.script.begin(verb, kind.kind, &key.name)?;
        let stored = match mode {
            WriteMode::Store => self.write(&attempt, write),
            WriteMode::DryRun => {
                let mut state = lock(&self.state).clone();
                write(&mut state).map_err(|rejection| rejected(&attempt, rejection))
            }
        };
        dynamic(&attempt, stored?)
    }

    async fn children(&self, namespace: &str, owner_uid: &str) -> PortResult<Vec<ChildReference>> {
        self.script.begin("children", "owner", owner_uid)?;
        let state = lock(&self.state);
        if let Some(index) = &state.faults.index {
            return Ok(index.children_of(owner_uid));
        }
        let owned = state.store.objects().filter(|(key, body)| {
            key.namespace == namespace && store::owners(body).any(|owner| owner == owner_uid)
        });
        let reference = |(key, body): (&Key, &Value)| ChildReference {
            kind: key.kind,
            name: key.name.clone(),
            uid: body["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
        };
        Ok(owned.map(reference).collect())
    }

    async fn publish(&self, object: &DynamicObject, event: Announcement) -> PortResult<()> {
        let announced = Announced {
            kind: object.types.as_ref().map(|types| types.kind.clone()).unwrap_or_default(),
            namespace: object.metadata.namespace.clone().unwrap_or_default(),
            name: object.metadata.name.clone().unwrap_or_default(),
            event,
        };
        let attempt = self.script.begin("publish", &announced.kind, &announced.name)?;
        self.write(&attempt, |state| {
            state.announcements.push(announced);
            Ok(())
        })
    }
}

fn rejected(attempt: &Attempt<'_>, rejection: Rejection) -> PortError {
    match rejection {
        Rejection::Conflict => attempt.conflict(),
        Rejection::Refused(reason) => attempt.refused(reason),
    }
}

fn has_labels(body: &Value, labels: &BTreeMap<String, String>) -> bool {
    labels.iter().all(|(label, value)| body["metadata"]["labels"][label] == value.as_str())
}

fn dynamic(attempt: &Attempt<'_>, body: Value) -> PortResult<DynamicObject> {
    serde_json::from_value(body).map_err(|error| -> PortError { attempt.refused(error.to_string()) })
}

#[cfg(test)]
mod tests {
    use openstack_operator_model::kind::{CONFIG_MAP, JOB, SECRET};
    use openstack_operator_model::lower::Source;
    use serde_json::json;

    use super::*;

    fn cluster() -> (Script, FakeCluster) {
        let script = Script::default();
        (script.clone(), FakeCluster::new(script, Arc::default()))
    }

    fn manifest(kind: Kind, name: &str, metadata: &Value) -> Manifest {
        let mut body = json!({ "apiVersion": kind.api_version(), "kind": kind.kind, "metadata": metadata });
        body["metadata"]["name"] = json!(name);
        Manifest { kind, name: name.to_owned(), body, source: Source::Other }
    }

    #[tokio::test]
    async fn objects_are_found_by_all_their_labels() {
        let (_, cluster) = cluster();
        let both = json!({ "labels": { "a": "1", "b": "2" } });
        cluster.apply("default", &manifest(SECRET, "both", &both)).await.unwrap();
        let one = json!({ "labels": { "a": "1" } });
        cluster.apply("default", &manifest(SECRET, "one", &one)).await.unwrap();
        cluster.apply("other", &manifest(SECRET, "elsewhere", &both)).await.unwrap();
        let names = async |labels: &[(&str, &str)]| -> Vec<String> {
            let labels = labels.iter().map(|&(label, value)| (label.into(), value.into())).collect();
            let found = cluster.list(SECRET, "default", &labels).await.unwrap();
            found.into_iter().filter_map(|object| object.metadata.name).collect()
        };
        assert_eq!(names(&[("a", "1")]).await, ["both", "one"]);
        assert_eq!(names(&[("a", "1"), ("b", "2")]).await, ["both"]);
        assert!(names(&[("a", "2")]).await.is_empty());
    }

    #[tokio::test]
    async fn children_are_listed_by_their_owner() {
        let (_, cluster) = cluster();
        let owner = cluster.apply("default", &manifest(SECRET, "owner", &json!({}))).await.unwrap();
        let uid = owner.metadata.uid.unwrap();
        let reference = json!({ "apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": uid });
        let metadata = json!({ "ownerReferences": [reference] });
        let child = cluster.apply("default", &manifest(JOB, "child", &metadata)).await.unwrap();
        let expected = ChildReference { kind: JOB, name: "child".into(), uid: child.metadata.uid.unwrap() };
        assert_eq!(cluster.children("default", &uid).await.unwrap(), [expected]);
    }

    #[tokio::test]
    async fn only_an_object_with_the_same_uid_is_deleted() {
        let (_, cluster) = cluster();
        let object = cluster.apply("default", &manifest(JOB, "x", &json!({}))).await.unwrap();
        cluster.delete(JOB, "default", "x", "another").await.unwrap();
        assert!(cluster.get(JOB, "default", "x").await.unwrap().is_some());
        cluster.delete(JOB, "default", "x", &object.metadata.uid.unwrap()).await.unwrap();
        assert!(cluster.get(JOB, "default", "x").await.unwrap().is_none());
        cluster.delete(JOB, "default", "x", "gone").await.unwrap();
    }

    #[tokio::test]
    async fn the_last_write_before_a_crash_is_done() {
        let (script, cluster) = cluster();
        script.crash_after_write(1);
        cluster.apply("default", &manifest(CONFIG_MAP, "first", &json!({}))).await.unwrap();
        let second = manifest(CONFIG_MAP, "second", &json!({}));
        assert!(matches!(cluster.apply("default", &second).await, Err(PortError::Unavailable { .. })));
        assert!(cluster.get(CONFIG_MAP, "default", "first").await.is_err());
        script.revive();
        assert!(cluster.get(CONFIG_MAP, "default", "first").await.unwrap().is_some());
        assert!(cluster.get(CONFIG_MAP, "default", "second").await.unwrap().is_none());
        let writes: Vec<String> = script.writes().iter().map(ToString::to_string).collect();
        assert_eq!(writes, ["apply ConfigMap first"]);
    }

    #[tokio::test]
    async fn a_conflict_changes_nothing() {
        let (script, cluster) = cluster();
        script.conflict_on_write(1);
        let object = manifest(CONFIG_MAP, "x", &json!({}));
        assert!(matches!(cluster.apply("default", &object).await, Err(PortError::Conflict { .. })));
        assert_eq!(cluster.object(CONFIG_MAP, "default", "x"), None);
    }

    #[tokio::test]
    async fn events_are_kept_with_their_object() {
        let (script, cluster) = cluster();
        let object = cluster.apply("default", &manifest(JOB, "x", &json!({}))).await.unwrap();
        let event = Announcement { warning: false, reason: "Ready", note: "all is well".into() };
        cluster.publish(&object, event.clone()).await.unwrap();
        let expected = Announced { kind: "Job".into(), namespace: "default".into(), name: "x".into(), event };
        assert_eq!(cluster.announcements(), [expected]);
        assert_eq!(script.writes().len(), 2);
    }
}
