//! Routing: from a change that a watch saw to the objects that it concerns.

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

type Place = (Kind, String, String);

/// Stands for all nodes, since whoever needs some must know of others that become one of them.
fn any_node() -> Place {
    (NODE, String::new(), String::new())
}

/// Stands for all objects of a kind in a namespace.
fn any_object(kind: Kind, namespace: &str) -> Place {
    (kind, namespace.to_owned(), String::new())
}

/// Who needs what, so that a change of something wakes those who need it.
#[derive(Debug, Default)]
pub struct NeedIndex {
    state: RwLock<NeedState>,
}

#[derive(Debug, Default)]
struct NeedState {
    needed_by: HashMap<Place, BTreeSet<Key>>,
    needs_of: HashMap<Key, Vec<Place>>,
}

impl NeedIndex {
    /// Remembers what an object needs, instead of what it needed before.
    pub fn set(&self, key: &Key, needs: &Needs, kinds: &[Kind]) {
        let place = |kind: Kind, name: &String| (kind, key.namespace.clone(), name.clone());
        let object = |need: &ObjectNeed| {
            (need.kind, need.namespace.clone().unwrap_or_else(|| key.namespace.clone()), need.name.clone())
        };
        let mut places: Vec<Place> = needs.objects.iter().map(object).collect();
        places.extend(needs.secrets.iter().map(|need| place(SECRET, &need.name)));
        let after = needs.after.iter().map(|dependency| (&dependency.kind, &dependency.name));
        let later = needs.later.iter().map(|reference| (&reference.kind, &reference.name));
        places.extend(after.chain(later).filter_map(|(kind, name)| {
            let kind = kinds.iter().find(|known| known.kind == *kind)?;
            Some(place(*kind, name))
        }));
        places.extend(needs.peers.iter().map(|kind| any_object(*kind, &key.namespace)));
        places.extend(needs.nodes.is_some().then(any_node));
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if state.needs_of.get(key) == Some(&places) {
            return;
        }
        state.remove(key);
        for place in &places {
            state.needed_by.entry(place.clone()).or_default().insert(key.clone());
        }
        state.needs_of.insert(key.clone(), places);
    }

    pub fn remove(&self, key: &Key) {
        self.state.write().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    fn needed_by(&self, place: &Place) -> Vec<Key> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.needed_by.get(place).into_iter().flatten().cloned().collect()
    }
}

impl NeedState {
    fn remove(&mut self, key: &Key) {
        for place in self.needs_of.remove(key).into_iter().flatten() {
            if let Some(keys) = self.needed_by.get_mut(&place) {
                keys.remove(key);
                if keys.is_empty() {
                    self.needed_by.remove(&place);
                }
            }
        }
    }
}

/// What is remembered of an object, so that its deletion can be routed and its status writes ignored.
struct Known {
    owner_uid: Option<String>,
    owner: Option<Key>,
    uid: String,
    /// All that a person or the API server changes, but not the status.
    face: String,
}

/// Turns the events of one kind's watch into keys.
pub struct Router {
    kind: Kind,
    kinds: Arc<[Kind]>,
    known: HashMap<(String, String), Known>,
    /// Objects that a new list has named so far.
    listed: HashSet<(String, String)>,
    children: Arc<ChildIndex>,
}

impl Router {
    pub fn new(kind: Kind, kinds: Arc<[Kind]>, children: Arc<ChildIndex>) -> Self {
        Self { kind, kinds, known: HashMap::new(), listed: HashSet::new(), children }
    }

    /// Whom an event concerns.
    pub fn route<K>(&mut self, event: Event<PartialObjectMeta<K>>, needs: &NeedIndex) -> Vec<Key> {
        match event {
            Event::Init => {
                self.listed.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                self.listed.insert(place_of(&object.metadata));
                self.changed(&object.metadata, needs)
            }
            Event::Apply(object) => self.changed(&object.metadata, needs),
            Event::Delete(object) => self.deleted(&place_of(&object.metadata), needs),
            // What the new list does not name was deleted while nobody watched.
            Event::InitDone => {
                let gone: Vec<_> =
                    self.known.keys().filter(|place| !self.listed.contains(*place)).cloned().collect();
                self.listed = HashSet::new();
                gone.iter().flat_map(|place| self.deleted(place, needs)).collect()
            }
        }
    }

    fn changed(&mut self, metadata: &ObjectMeta, needs: &NeedIndex) -> Vec<Key> {
        let place = place_of(metadata);
        if self.kind == NODE {
            return self.node_changed(place, metadata, needs);
        }
        let mut keys = needs.needed_by(&(self.kind, place.0.clone(), place.1.clone()));
        let ours = self.kinds.contains(&self.kind);
        let managed = metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY_LABEL));
        if !ours && managed.is_none_or(|manager| manager != MANAGER) {
            return keys;
        }
        let known = self.known(metadata);
        keys.extend(known.owner.clone());
        if ours && self.known.get(&place).is_none_or(|before| before.face != known.face) {
            keys.push(Key { kind: self.kind, namespace: place.0.clone(), name: place.1.clone() });
            keys.extend(needs.needed_by(&any_object(self.kind, &place.0)));
        }
        if let Some(owner_uid) = &known.owner_uid {
            self.children.insert(owner_uid, self.child(&place, &known.uid));
        }
        if let Some(before) = self.known.insert(place.clone(), known) {
            self.forget_former_owner(&place, &before);
        }
        keys
    }

    /// Nodes send heartbeats all the time; only a change of labels triggers a reconcile here. When a node gets a taint or
    /// its readiness changes, the readiness of its pods and the counts of its `DaemonSet`s change too, and their events
    /// trigger the reconcile.
    fn node_changed(
        &mut self,
        place: (String, String),
        metadata: &ObjectMeta,
        needs: &NeedIndex,
    ) -> Vec<Key> {
        let face = format!("{:?}", metadata.labels);
        let known = Known { owner_uid: None, owner: None, uid: String::new(), face: face.clone() };
        match self.known.insert(place, known) {
            Some(before) if before.face == face => Vec::new(),
            _ => needs.needed_by(&any_node()),
        }
    }

    /// An object that was deleted and made anew between two events has another uid.
    fn forget_former_owner(&self, place: &(String, String), before: &Known) {
        let now = self.known.get(place);
        if let Some(owner_uid) = &before.owner_uid
            && now.is_none_or(|now| now.uid != before.uid || now.owner_uid != before.owner_uid)
        {
            self.children.remove(owner_uid, &self.child(place, &before.uid));
        }
    }

    fn deleted(&mut self, place: &(String, String), needs: &NeedIndex) -> Vec<Key> {
        if self.kind == NODE {
            self.known.remove(place);
            return needs.needed_by(&any_node());
        }
        let mut keys = needs.needed_by(&(self.kind, place.0.clone(), place.1.clone()));
        if let Some(known) = self.known.remove(place) {
            self.forget_former_owner(place, &known);
            keys.extend(known.owner);
        }
        if self.kinds.contains(&self.kind) {
            keys.push(Key { kind: self.kind, namespace: place.0.clone(), name: place.1.clone() });
            keys.extend(needs.needed_by(&any_object(self.kind, &place.0)));
        }
        keys
    }

    fn child(&self, place: &(String, String), uid: &str) -> ChildReference {
        ChildReference { kind: self.kind, name: place.1.clone(), uid: uid.to_owned() }
    }

    fn known(&self, metadata: &ObjectMeta) -> Known {
        let owner = metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
        let namespace = metadata.namespace.clone().unwrap_or_default();
        let key = |kind: &str, name: &str| {
            let kind = self.kinds.iter().find(|known| known.kind == kind)?;
            Some(Key { kind: *kind, namespace: namespace.clone(), name: name.to_owned() })
        };
        // A pod's owner is a workload, and what outlives its owner has none: their labels say whose they are.
        let labelled = || {
            let labels = metadata.labels.as_ref()?;
            key(labels.get(KIND_LABEL)?, labels.get(INSTANCE_LABEL)?)
        };
        let own = owner.and_then(|owner| key(&owner.kind, &owner.name));
        let ours = self.kinds.contains(&self.kind);
        Known {
            owner_uid: owner.filter(|_| own.is_some()).map(|owner| owner.uid.clone()),
            owner: own.or_else(|| if ours { None } else { labelled() }),
            uid: metadata.uid.clone().unwrap_or_default(),
            face: format!(
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

fn place_of(metadata: &ObjectMeta) -> (String, String) {
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
        (Router::new(kind, Arc::from([THING]), children.clone()), children)
    }

    fn key() -> Key {
        Key { kind: THING, namespace: "n".into(), name: "t".into() }
    }

    #[test]
    fn a_child_wakes_its_owner_when_it_changes_and_when_it_goes() {
        let (mut router, children) = router(CONFIG_MAP);
        let needs = NeedIndex::default();
        assert_eq!(router.route(Event::Apply(owned("c", "1")), &needs), vec![key()]);
        assert_eq!(children.of("o").len(), 1);
        assert_eq!(router.route(Event::Delete(owned("c", "1")), &needs), vec![key()]);
        assert!(children.of("o").is_empty());
    }

    #[test]
    fn what_went_while_nobody_watched_is_noticed() {
        let (mut router, children) = router(CONFIG_MAP);
        let needs = NeedIndex::default();
        router.route(Event::Apply(owned("c", "1")), &needs);
        assert!(router.route(Event::<Meta>::Init, &needs).is_empty());
        assert_eq!(router.route(Event::<Meta>::InitDone, &needs), vec![key()]);
        assert!(children.of("o").is_empty());
    }

    #[test]
    fn a_child_that_was_made_anew_is_known_once() {
        let (mut router, children) = router(CONFIG_MAP);
        let needs = NeedIndex::default();
        router.route(Event::Apply(owned("c", "1")), &needs);
        router.route(Event::Apply(owned("c", "2")), &needs);
        assert_eq!(children.of("o").iter().map(|child| child.uid.as_str()).collect::<Vec<_>>(), ["2"]);
    }

    #[test]
    fn a_status_write_wakes_those_who_need_the_object_but_not_itself() {
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
    fn a_secret_of_somebody_else_wakes_only_those_who_need_it() {
        let (mut router, _) = router(SECRET);
        let needs = NeedIndex::default();
        let secret = || meta(&json!({ "name": "s", "namespace": "n", "uid": "x" }));
        assert!(router.route(Event::Apply(secret()), &needs).is_empty());
        needs.set(&key(), &Needs::default().secret("spec.x", Some("s"), &[]), &[]);
        assert_eq!(router.route(Event::Apply(secret()), &needs), vec![key()]);
    }

    #[test]
    fn a_node_wakes_those_who_choose_nodes_when_its_labels_change_and_when_it_goes() {
        let (mut router, _) = router(NODE);
        let needs = NeedIndex::default();
        let node = |labels: &serde_json::Value| {
            Event::Apply(meta(&json!({ "name": "a", "uid": "x", "labels": labels })))
        };
        assert!(router.route(node(&json!({})), &needs).is_empty());
        needs.set(&key(), &Needs::default().nodes(&Scheduling::default()), &[]);
        assert!(router.route(node(&json!({})), &needs).is_empty(), "nodes tell of themselves all the time");
        assert_eq!(router.route(node(&json!({ "l": "" })), &needs), vec![key()]);
        assert_eq!(router.route(Event::Delete(meta(&json!({ "name": "a" }))), &needs), vec![key()]);
    }
}
