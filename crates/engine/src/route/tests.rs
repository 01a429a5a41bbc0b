//! Events of watches, and the objects that they affect.

use kube::core::DynamicObject;
use openstack_operator_model::common::Scheduling;
use openstack_operator_model::kind::{CONFIG_MAP, POD};
use openstack_operator_model::need::{ForeignNeed, ObjectNeed};
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
    assert_eq!(children.children_of("o").iter().map(|child| child.uid.as_str()).collect::<Vec<_>>(), ["2"]);
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

#[test]
fn an_object_of_another_operator_and_its_secrets_trigger_their_user() {
    const PART: Kind = Kind::new("example.com", "v1", "Part", "parts");
    let needs = NeedIndex::default();
    let need = ForeignNeed { kind: PART, name: "p".into(), secrets: vec!["s".into()] };
    needs.set(&key(), &Needs { foreign: vec![need], ..Needs::default() }, &[THING]);
    for (kind, name) in [(PART, "p"), (SECRET, "s")] {
        let (mut router, _) = router(kind);
        let object = |name: &str| Event::Apply(meta(&json!({ "name": name, "namespace": "n", "uid": "x" })));
        assert_eq!(router.route(object(name), &needs), vec![key()], "{}", kind.kind);
        assert!(router.route(object("other"), &needs).is_empty(), "{}", kind.kind);
    }
}

#[test]
fn a_kind_that_the_cluster_starts_to_serve_triggers_its_users() {
    const PART: Kind = Kind::new("example.com", "v1", "Part", "parts");
    let needs = NeedIndex::default();
    needs.set_kinds(&key(), [PART].into_iter());
    let (mut parts, _) = router(PART);
    assert!(parts.route(Event::<Meta>::Init, &needs).is_empty());
    assert_eq!(parts.route(Event::<Meta>::InitDone, &needs), vec![key()]);
    let (mut others, _) = router(CONFIG_MAP);
    others.route(Event::<Meta>::Init, &needs);
    assert!(others.route(Event::<Meta>::InitDone, &needs).is_empty());
    needs.remove(&key());
    assert!(parts.route(Event::<Meta>::InitDone, &needs).is_empty());
}
