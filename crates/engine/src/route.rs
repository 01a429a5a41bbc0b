//! Routing: from a watch event to the objects it affects.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use kube::core::{ObjectMeta, PartialObjectMeta};
use kube::runtime::watcher::Event;
use openstack_operator_model::kind::{Kind, NODE, SECRET};
use openstack_operator_model::lower::{INSTANCE_LABEL, KIND_LABEL, MANAGED_BY_LABEL, MANAGER};
use openstack_operator_model::need::{Needs, ObjectNeed};

use crate::engine::{FINALIZER, Key};
use crate::index::ChildIndex;
use crate::ports::ChildReference;
use crate::recent::RecentObjects;

type Location = (Kind, String, String);

/// Represents all nodes: an object that selects nodes must also see nodes that start to match.
fn any_node() -> Location {
    (NODE, String::new(), String::new())
}

/// Represents all objects of a kind in a namespace.
fn any_object(kind: Kind, namespace: &str) -> Location {
    (kind, namespace.to_owned(), String::new())
}

/// Dependencies between objects, so that a change triggers the dependents.
#[derive(Debug, Default)]
pub struct NeedIndex {
    state: RwLock<NeedState>,
}

#[derive(Debug, Default)]
struct NeedState {
    needed_by: HashMap<Location, BTreeSet<Key>>,
    needs_of: HashMap<Key, Vec<Location>>,
}

impl NeedIndex {
    /// Replaces the needs of an object.
    pub fn set(&self, key: &Key, needs: &Needs, kinds: &[Kind]) {
        let location = |kind: Kind, name: &String| (kind, key.namespace.clone(), name.clone());
        let object = |need: &ObjectNeed| {
            (need.kind, need.namespace.clone().unwrap_or_else(|| key.namespace.clone()), need.name.clone())
        };
        let mut locations: Vec<Location> = needs.objects.iter().map(object).collect();
        locations.extend(needs.secrets.iter().map(|need| location(SECRET, &need.name)));
        let after = needs.after.iter().map(|dependency| (&dependency.kind, &dependency.name));
        let later =
            needs.later.iter().chain(&needs.before_tasks).map(|reference| (&reference.kind, &reference.name));
        locations.extend(after.chain(later).filter_map(|(kind, name)| {
            let kind = kinds.iter().find(|known| known.kind == *kind)?;
            Some(location(*kind, name))
        }));
        locations.extend(needs.peers.iter().map(|kind| any_object(*kind, &key.namespace)));
        locations.extend(needs.nodes.is_some().then(any_node));
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if state.needs_of.get(key) == Some(&locations) {
            return;
        }
        state.remove(key);
        for location in &locations {
            state.needed_by.entry(location.clone()).or_default().insert(key.clone());
        }
        state.needs_of.insert(key.clone(), locations);
    }

    pub fn remove(&self, key: &Key) {
        self.state.write().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    fn needed_by(&self, location: &Location) -> Vec<Key> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.needed_by.get(location).into_iter().flatten().cloned().collect()
    }
}

impl NeedState {
    fn remove(&mut self, key: &Key) {
        for location in self.needs_of.remove(key).into_iter().flatten() {
            if let Some(keys) = self.needed_by.get_mut(&location) {
                keys.remove(key);
                if keys.is_empty() {
                    self.needed_by.remove(&location);
                }
            }
        }
    }
}

/// Known metadata of an object, to route its deletion and to ignore its status writes.
struct Known {
    owner_uid: Option<String>,
    owner: Option<Key>,
    uid: String,
    /// All metadata that a change of spec, annotations or deletion affects, but a status write does not.
    fingerprint: String,
}

/// Turns the events of one kind's watch into keys.
pub struct Router {
    kind: Kind,
    kinds: Arc<[Kind]>,
    known: HashMap<(String, String), Known>,
    /// Objects in the current relist so far.
    listed: HashSet<(String, String)>,
    children: Arc<ChildIndex>,
    recent: Arc<RecentObjects>,
}

impl Router {
    pub fn new(
        kind: Kind,
        kinds: Arc<[Kind]>,
        children: Arc<ChildIndex>,
        recent: Arc<RecentObjects>,
    ) -> Self {
        Self { kind, kinds, known: HashMap::new(), listed: HashSet::new(), children, recent }
    }

    /// Objects that an event affects.
    pub fn route<K>(&mut self, event: Event<PartialObjectMeta<K>>, needs: &NeedIndex) -> Vec<Key> {
        match event {
            Event::Init => {
                self.recent.forget_kind(self.kind);
                self.listed.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                self.listed.insert(location_of(&object.metadata));
                self.changed(&object.metadata, needs)
            }
            Event::Apply(object) => self.changed(&object.metadata, needs),
            Event::Delete(object) => self.deleted(&location_of(&object.metadata), needs),
            // Objects missing from the relist were deleted while the watch was interrupted.
            Event::InitDone => {
                let gone: Vec<_> =
                    self.known.keys().filter(|location| !self.listed.contains(*location)).cloned().collect();
                self.listed = HashSet::new();
                gone.iter().flat_map(|location| self.deleted(location, needs)).collect()
            }
        }
    }

    fn changed(&mut self, metadata: &ObjectMeta, needs: &NeedIndex) -> Vec<Key> {
        let location = location_of(metadata);
        self.recent.changed(self.kind, &location.0, &location.1, metadata.resource_version.as_deref());
        if self.kind == NODE {
            return self.node_changed(location, metadata, needs);
        }
        let mut keys = needs.needed_by(&(self.kind, location.0.clone(), location.1.clone()));
        let is_own_kind = self.kinds.contains(&self.kind);
        let managed = metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY_LABEL));
        if !is_own_kind && managed.is_none_or(|manager| manager != MANAGER) {
            return keys;
        }
        let known = self.known(metadata);
        keys.extend(known.owner.clone());
        if is_own_kind
            && self.known.get(&location).is_none_or(|before| before.fingerprint != known.fingerprint)
        {
            keys.push(Key { kind: self.kind, namespace: location.0.clone(), name: location.1.clone() });
            keys.extend(needs.needed_by(&any_object(self.kind, &location.0)));
        }
        if let Some(owner_uid) = &known.owner_uid {
            self.children.insert(owner_uid, self.child(&location, &known.uid));
        }
        if let Some(before) = self.known.insert(location.clone(), known) {
            self.forget_former_owner(&location, &before);
        }
        keys
    }

    /// Nodes send heartbeats all the time; only a change of labels triggers a reconcile here. When a node gets a taint
    /// or its readiness changes, the readiness of its pods and the counts of its `DaemonSet`s change too, and their
    /// events trigger the reconcile.
    fn node_changed(
        &mut self,
        location: (String, String),
        metadata: &ObjectMeta,
        needs: &NeedIndex,
    ) -> Vec<Key> {
        let fingerprint = format!("{:?}", metadata.labels);
        let known =
            Known { owner_uid: None, owner: None, uid: String::new(), fingerprint: fingerprint.clone() };
        match self.known.insert(location, known) {
            Some(before) if before.fingerprint == fingerprint => Vec::new(),
            _ => needs.needed_by(&any_node()),
        }
    }

    /// An object that was recreated between two events has another uid.
    fn forget_former_owner(&self, location: &(String, String), before: &Known) {
        let now = self.known.get(location);
        if let Some(owner_uid) = &before.owner_uid
            && now.is_none_or(|now| now.uid != before.uid || now.owner_uid != before.owner_uid)
        {
            self.children.remove(owner_uid, &self.child(location, &before.uid));
        }
    }

    fn deleted(&mut self, location: &(String, String), needs: &NeedIndex) -> Vec<Key> {
        self.recent.changed(self.kind, &location.0, &location.1, None);
        if self.kind == NODE {
            self.known.remove(location);
            return needs.needed_by(&any_node());
        }
        let mut keys = needs.needed_by(&(self.kind, location.0.clone(), location.1.clone()));
        if let Some(known) = self.known.remove(location) {
            self.forget_former_owner(location, &known);
            keys.extend(known.owner);
        }
        if self.kinds.contains(&self.kind) {
            keys.push(Key { kind: self.kind, namespace: location.0.clone(), name: location.1.clone() });
            keys.extend(needs.needed_by(&any_object(self.kind, &location.0)));
        }
        keys
    }

    fn child(&self, location: &(String, String), uid: &str) -> ChildReference {
        ChildReference { kind: self.kind, name: location.1.clone(), uid: uid.to_owned() }
    }

    fn known(&self, metadata: &ObjectMeta) -> Known {
        let owner = metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
        let namespace = metadata.namespace.clone().unwrap_or_default();
        let key = |kind: &str, name: &str| {
            let kind = self.kinds.iter().find(|known| known.kind == kind)?;
            Some(Key { kind: *kind, namespace: namespace.clone(), name: name.to_owned() })
        };
        // Pods are owned by workloads, and retained objects have no owner: use their labels.
        let labelled = || {
            let labels = metadata.labels.as_ref()?;
            key(labels.get(KIND_LABEL)?, labels.get(INSTANCE_LABEL)?)
        };
        let own = owner.and_then(|owner| key(&owner.kind, &owner.name));
        let is_own_kind = self.kinds.contains(&self.kind);
        Known {
            owner_uid: owner.filter(|_| own.is_some()).map(|owner| owner.uid.clone()),
            owner: own.or_else(|| if is_own_kind { None } else { labelled() }),
            uid: metadata.uid.clone().unwrap_or_default(),
            fingerprint: format!(
                "{:?} {:?} {:?} {:?} {}",
                metadata.uid,
                metadata.generation,
                metadata.annotations,
                metadata.deletion_timestamp.is_some(),
                metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER),
            ),
        }
    }
}

fn location_of(metadata: &ObjectMeta) -> (String, String) {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use kube::core::DynamicObject;
    use openstack_operator_model::common::Scheduling;
    use openstack_operator_model::kind::{CONFIG_MAP, POD};
    use openstack_operator_model::need::ObjectNeed;
    use serde_json::json;

    use super::*;

    const THING: Kind = Kind::own("Thing", "things");

    type Meta = PartialObjectMeta<DynamicObject>;

    fn meta(value: &serde_json::Value) -> Meta {
        serde_json::from_value(json!({ "metadata": value })).unwrap()
    }

    fn owned(name: &str, uid: &str) -> Meta {
        meta(&json!({
            "name": name, "namespace": "n", "uid": uid, "labels": { MANAGED_BY_LABEL: MANAGER },
            "ownerReferences": [{ "apiVersion": "v", "kind": "Thing", "name": "t", "uid": "o", "controller": true }]
        }))
    }

    fn router(kind: Kind) -> (Router, Arc<ChildIndex>) {
        let children = Arc::new(ChildIndex::default());
        let recent = Arc::new(RecentObjects::new(vec![THING]));
        (Router::new(kind, Arc::from([THING]), children.clone(), recent), children)
    }

    fn key() -> Key {
        Key { kind: THING, namespace: "n".into(), name: "t".into() }
    }

    #[test]
    fn a_changed_or_deleted_child_triggers_its_owner() {
        let (mut router, children) = router(CONFIG_MAP);
        let needs = NeedIndex::default();
        assert_eq!(router.route(Event::Apply(owned("c", "1")), &needs), vec![key()]);
        assert_eq!(children.children_of("o").len(), 1);
        assert_eq!(router.route(Event::Delete(owned("c", "1")), &needs), vec![key()]);
        assert!(children.children_of("o").is_empty());
    }

    #[test]
    fn a_deletion_during_an_interrupted_watch_is_noticed() {
        let (mut router, children) = router(CONFIG_MAP);
        let needs = NeedIndex::default();
        router.route(Event::Apply(owned("c", "1")), &needs);
        assert!(router.route(Event::<Meta>::Init, &needs).is_empty());
        assert_eq!(router.route(Event::<Meta>::InitDone, &needs), vec![key()]);
        assert!(children.children_of("o").is_empty());
    }

    #[test]
    fn a_recreated_child_is_indexed_once() {
        let (mut router, children) = router(CONFIG_MAP);
        let needs = NeedIndex::default();
        router.route(Event::Apply(owned("c", "1")), &needs);
        router.route(Event::Apply(owned("c", "2")), &needs);
        assert_eq!(
            children.children_of("o").iter().map(|child| child.uid.as_str()).collect::<Vec<_>>(),
            ["2"]
        );
    }

    #[test]
    fn a_status_write_triggers_dependents_but_not_the_object_itself() {
        let (mut router, _) = router(THING);
        let needs = NeedIndex::default();
        let other = Key { kind: THING, namespace: "n".into(), name: "other".into() };
        let need = ObjectNeed { field: "spec.x".into(), kind: THING, namespace: None, name: "t".into() };
        needs.set(&other, &Needs { objects: vec![need], ..Needs::default() }, &[THING]);
        let object = || meta(&json!({ "name": "t", "namespace": "n", "uid": "o", "generation": 1 }));
        assert_eq!(router.route(Event::Apply(object()), &needs), vec![other.clone(), key()]);
        assert_eq!(router.route(Event::Apply(object()), &needs), vec![other.clone()]);
        needs.remove(&other);
        assert!(router.route(Event::Apply(object()), &needs).is_empty());
    }

    #[test]
    fn an_annotation_triggers_a_reconcile() {
        let (mut router, _) = router(THING);
        let needs = NeedIndex::default();
        let object = |annotations: serde_json::Value| {
            meta(
                &json!({ "name": "t", "namespace": "n", "uid": "o", "generation": 1, "annotations": annotations }),
            )
        };
        router.route(Event::Apply(object(json!({}))), &needs);
        let annotated = || object(json!({ "openstack.k8s.io/reconcile": "2026-01-01T00:00:00Z" }));
        assert_eq!(router.route(Event::Apply(annotated()), &needs), vec![key()]);
        assert!(router.route(Event::Apply(annotated()), &needs).is_empty());
    }

    #[test]
    fn a_pod_is_routed_by_its_labels() {
        let (mut router, _) = router(POD);
        let pod = meta(&json!({
            "name": "t-0", "namespace": "n", "uid": "p",
            "labels": { MANAGED_BY_LABEL: MANAGER, KIND_LABEL: "Thing", INSTANCE_LABEL: "t" },
            "ownerReferences": [{ "apiVersion": "v", "kind": "StatefulSet", "name": "t", "uid": "s", "controller": true }]
        }));
        assert_eq!(router.route(Event::Apply(pod), &NeedIndex::default()), vec![key()]);
    }

    #[test]
    fn a_foreign_secret_triggers_only_its_dependents() {
        let (mut router, _) = router(SECRET);
        let needs = NeedIndex::default();
        let secret = || meta(&json!({ "name": "s", "namespace": "n", "uid": "x" }));
        assert!(router.route(Event::Apply(secret()), &needs).is_empty());
        needs.set(&key(), &Needs::default().secret("spec.x", Some("s"), &[]), &[]);
        assert_eq!(router.route(Event::Apply(secret()), &needs), vec![key()]);
    }

    #[test]
    fn a_node_triggers_objects_that_select_nodes_when_its_labels_change_and_when_it_is_deleted() {
        let (mut router, _) = router(NODE);
        let needs = NeedIndex::default();
        let node = |labels: &serde_json::Value| {
            Event::Apply(meta(&json!({ "name": "a", "uid": "x", "labels": labels })))
        };
        assert!(router.route(node(&json!({})), &needs).is_empty());
        needs.set(&key(), &Needs::default().nodes(&Scheduling::default()), &[]);
        assert!(router.route(node(&json!({})), &needs).is_empty(), "heartbeats of nodes are ignored");
        assert_eq!(router.route(node(&json!({ "l": "" })), &needs), vec![key()]);
        assert_eq!(router.route(Event::Delete(meta(&json!({ "name": "a" }))), &needs), vec![key()]);
    }
}
