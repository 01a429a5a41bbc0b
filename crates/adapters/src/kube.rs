//! The cluster, through the Kubernetes API server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::core::{DynamicObject, ObjectMeta, TypeMeta};
use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Client, ResourceExt};
use openstack_operator_engine::index::ChildIndex;
use openstack_operator_engine::ports::{
    Announcement, ChildReference, Cluster, PortError, PortResult, WriteMode,
};
use openstack_operator_engine::recent::{RecentObjects, Request};
use openstack_operator_model::kind::{CHILD_KINDS, Kind};
use openstack_operator_model::lower::{MANAGED_BY_LABEL, MANAGER, Manifest};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::kube::failure::{Failure, within};

mod failure;

/// Requests are short; the client's own timeouts suit watches.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The API server's limit for the note of an Event.
const MAX_NOTE_BYTES: usize = 1024;
const EVENT: Kind = Kind::new("events.k8s.io", "v1", "Event", "events");

/// Called with the verb before each write request.
pub type OnWrite = Arc<dyn Fn(&'static str) + Send + Sync>;

/// Client of the API server.
#[derive(Clone)]
pub struct KubeCluster {
    client: Client,
    source: Source,
    recorder: Recorder,
    on_write: Option<OnWrite>,
}

/// Where children and unchanged objects come from.
#[derive(Clone)]
enum Source {
    /// Watches report every change.
    Watched { children: Arc<ChildIndex>, recent: Arc<RecentObjects> },
    /// Only requests, with these own kinds.
    Requests { own_kinds: Vec<Kind> },
}

impl KubeCluster {
    /// Takes children from an index that watches fill, and objects that have not changed since they were read.
    #[must_use]
    pub fn watched(client: Client, children: Arc<ChildIndex>, recent: Arc<RecentObjects>) -> Self {
        Self::new(client, Source::Watched { children, recent })
    }

    /// Reads objects on each call, and lists children: all child kinds and the operator's own kinds.
    #[must_use]
    pub fn listing(client: Client, own_kinds: Vec<Kind>) -> Self {
        Self::new(client, Source::Requests { own_kinds })
    }

    #[must_use]
    pub fn with_on_write(self, on_write: OnWrite) -> Self {
        Self { on_write: Some(on_write), ..self }
    }

    fn new(client: Client, source: Source) -> Self {
        let recorder = Recorder::new(client.clone(), MANAGER.into());
        Self { client, source, recorder, on_write: None }
    }

    fn recent(&self) -> Option<&RecentObjects> {
        match &self.source {
            Source::Watched { recent, .. } => Some(recent),
            Source::Requests { .. } => None,
        }
    }

    /// Starts a request that reads or changes an object. Without an answer, the object is read again.
    fn request(&self, kind: Kind, namespace: &str, name: &str) -> Option<Request<'_>> {
        self.recent().map(|recent| recent.request(kind, namespace, name))
    }

    fn api(&self, kind: Kind, namespace: &str) -> Api<DynamicObject> {
        if namespace.is_empty() {
            return Api::all_with(self.client.clone(), &kind.resource());
        }
        Api::namespaced_with(self.client.clone(), namespace, &kind.resource())
    }

    fn notify_write(&self, verb: &'static str) {
        if let Some(on_write) = &self.on_write {
            on_write(verb);
        }
    }

    /// Whether the object with this name still has the uid.
    async fn is_same(&self, kind: Kind, namespace: &str, name: &str, uid: &str) -> Result<bool, Failure> {
        let api = self.api(kind, namespace);
        let found = within(TIMEOUT, api.get_metadata_opt(name)).await?;
        Ok(found.is_some_and(|object| object.metadata.uid.as_deref() == Some(uid)))
    }

    async fn delete_with(
        &self,
        parameters: DeleteParams,
        kind: Kind,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> PortResult<()> {
        self.notify_write("delete");
        let _request = self.request(kind, namespace, name);
        let parameters = DeleteParams {
            preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
            ..parameters
        };
        let api = self.api(kind, namespace);
        let action = || format!("delete {}", title(kind, namespace, name));
        match within(TIMEOUT, api.delete(name, &parameters)).await {
            Err(failure) if failure.is_not_found() => Ok(()),
            Err(failure) if failure.is_conflict() => {
                // The response does not reliably distinguish a recreated object from a concurrent change.
                match self.is_same(kind, namespace, name, uid).await {
                    Ok(false) => Ok(()),
                    Ok(true) => Err(PortError::Conflict { action: action() }),
                    Err(failure) => Err(failure.into_port_error(kind, action())),
                }
            }
            Err(failure) => Err(failure.into_port_error(kind, action())),
            Ok(_) => Ok(()),
        }
    }

    async fn list_children(
        &self,
        kind: Kind,
        namespace: &str,
        owner_uid: &str,
    ) -> PortResult<Vec<ChildReference>> {
        let parameters = ListParams::default().labels(&format!("{MANAGED_BY_LABEL}={MANAGER}"));
        let api = self.api(kind, namespace);
        match within(TIMEOUT, api.list_metadata(&parameters)).await {
            Ok(found) => {
                Ok(found.items.iter().filter_map(|object| child(kind, &object.metadata, owner_uid)).collect())
            }
            // A kind that the cluster does not serve has no objects.
            Err(failure) if failure.is_not_found() => Ok(Vec::new()),
            Err(failure) => {
                Err(failure.into_port_error(kind, format!("list {} in {namespace}", kind.plural)))
            }
        }
    }
}

#[async_trait]
impl Cluster for KubeCluster {
    async fn get(&self, kind: Kind, namespace: &str, name: &str) -> PortResult<Option<DynamicObject>> {
        if let Some(object) = self.recent().and_then(|recent| recent.get(kind, namespace, name)) {
            return Ok(Some(object));
        }
        let request = self.request(kind, namespace, name);
        let api = self.api(kind, namespace);
        match within(TIMEOUT, api.get(name)).await {
            Ok(object) => {
                keep(request, &object);
                Ok(Some(object))
            }
            Err(failure) if failure.is_not_found() => Ok(None),
            Err(failure) => {
                Err(failure.into_port_error(kind, format!("read {}", title(kind, namespace, name))))
            }
        }
    }

    async fn list(
        &self,
        kind: Kind,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> PortResult<Vec<DynamicObject>> {
        let selector: Vec<String> = labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
        let parameters = ListParams::default().labels(&selector.join(","));
        let api = self.api(kind, namespace);
        let mut found = within(TIMEOUT, api.list(&parameters)).await.map_err(|failure| {
            failure.into_port_error(kind, format!("list {} in {namespace}", kind.plural))
        })?;
        for object in &mut found.items {
            // Items of a list have no apiVersion and kind.
            object.types = Some(TypeMeta { api_version: kind.api_version(), kind: kind.kind.to_owned() });
        }
        Ok(found.items)
    }

    async fn apply(&self, namespace: &str, manifest: &Manifest) -> PortResult<DynamicObject> {
        self.notify_write("apply");
        let (kind, name) = (manifest.kind, &manifest.name);
        let request = self.request(kind, namespace, name);
        let api = self.api(kind, namespace);
        let patch = Patch::Apply(&manifest.body);
        let parameters = PatchParams::apply(MANAGER).force();
        let applied = within(TIMEOUT, api.patch(name, &parameters, &patch)).await.map_err(|failure| {
            failure.into_port_error(kind, format!("apply {}", title(kind, namespace, name)))
        })?;
        keep(request, &applied);
        Ok(applied)
    }

    async fn delete(&self, kind: Kind, namespace: &str, name: &str, uid: &str) -> PortResult<()> {
        self.delete_with(DeleteParams::background(), kind, namespace, name, uid).await
    }

    async fn delete_and_orphan(&self, kind: Kind, namespace: &str, name: &str, uid: &str) -> PortResult<()> {
        self.delete_with(DeleteParams::orphan(), kind, namespace, name, uid).await
    }

    async fn patch_metadata(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        metadata: Value,
    ) -> PortResult<Option<String>> {
        self.notify_write("patch");
        let _request = self.request(kind, namespace, name);
        let api = self.api(kind, namespace);
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let patched =
            within(TIMEOUT, api.patch_metadata(name, &parameters, &patch)).await.map_err(|failure| {
                failure.into_port_error(kind, format!("patch metadata of {}", title(kind, namespace, name)))
            })?;
        Ok(patched.metadata.resource_version)
    }

    async fn write_status(
        &self,
        kind: Kind,
        object: &DynamicObject,
        status: &Value,
        mode: WriteMode,
    ) -> PortResult<DynamicObject> {
        if mode == WriteMode::Store {
            self.notify_write("status");
        }
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let api = self.api(kind, &namespace);
        // The version protects records from a former leader, whose write arrives late.
        let body = json!({
            "apiVersion": kind.api_version(),
            "kind": kind.kind,
            "metadata": {"name": name, "resourceVersion": object.metadata.resource_version},
            "status": status,
        });
        let parameters =
            PatchParams { dry_run: mode == WriteMode::DryRun, ..PatchParams::apply(MANAGER).force() };
        let request = self.request(kind, &namespace, &name);
        let patch = Patch::Apply(&body);
        let written =
            within(TIMEOUT, api.patch_status(&name, &parameters, &patch)).await.map_err(|failure| {
                let action = format!("write the status of {}", title(kind, &namespace, &name));
                failure.into_port_error(kind, action)
            })?;
        if mode == WriteMode::Store {
            keep(request, &written);
        }
        Ok(written)
    }

    async fn children(&self, namespace: &str, owner_uid: &str) -> PortResult<Vec<ChildReference>> {
        match &self.source {
            Source::Watched { children, .. } => Ok(children.children_of(owner_uid)),
            Source::Requests { own_kinds } => {
                let mut children = Vec::new();
                for kind in CHILD_KINDS.iter().chain(own_kinds) {
                    children.extend(self.list_children(*kind, namespace, owner_uid).await?);
                }
                Ok(children)
            }
        }
    }

    async fn publish(&self, object: &DynamicObject, event: Announcement) -> PortResult<()> {
        self.notify_write("event");
        let reference = reference(object);
        within(TIMEOUT, self.recorder.publish(&kubernetes_event(&event), &reference)).await.map_err(
            |failure| {
                failure.into_port_error(
                    EVENT,
                    format!("publish Event {} for {}", event.reason, object.name_any()),
                )
            },
        )
    }
}

fn keep(request: Option<Request<'_>>, answer: &DynamicObject) {
    if let Some(request) = request {
        request.answered(answer);
    }
}

fn title(kind: Kind, namespace: &str, name: &str) -> String {
    format!("{} {namespace}/{name}", kind.kind)
}

fn child(kind: Kind, metadata: &ObjectMeta, owner_uid: &str) -> Option<ChildReference> {
    let mut owners = metadata.owner_references.iter().flatten();
    let is_owned = owners.any(|owner| owner.uid == owner_uid);
    let (name, uid) = (metadata.name.clone()?, metadata.uid.clone()?);
    is_owned.then_some(ChildReference { kind, name, uid })
}

fn reference(object: &DynamicObject) -> ObjectReference {
    let types = object.types.clone().unwrap_or_default();
    ObjectReference {
        api_version: Some(types.api_version),
        kind: Some(types.kind),
        name: object.metadata.name.clone(),
        namespace: object.metadata.namespace.clone(),
        uid: object.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

fn kubernetes_event(event: &Announcement) -> Event {
    let digest = Sha256::digest(&event.note);
    let note = &event.note[..event.note.floor_char_boundary(MAX_NOTE_BYTES)];
    Event {
        type_: if event.warning { EventType::Warning } else { EventType::Normal },
        reason: event.reason.to_owned(),
        note: Some(note.to_owned()),
        // The recorder merges events that differ only in their note, and keeps the first note. A different action per
        // note prevents that.
        action: format!("Reconcile-{:02x}{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2], digest[3]),
        secondary: None,
    }
}

#[cfg(test)]
mod tests;
