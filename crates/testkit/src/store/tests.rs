//! Tests of the object store.

use openstack_operator_model::kind::{DEPLOYMENT, JOB, STATEFUL_SET};

use super::*;

const CLOUD: Kind = Kind::own("Cloud", "clouds");

fn now() -> Timestamp {
    START.parse().unwrap()
}

fn key(kind: Kind, name: &str) -> Key {
    Key::new(kind, "default", name)
}

fn body(kind: Kind, name: &str, fields: &Value) -> Value {
    let mut body =
        json!({ "apiVersion": kind.api_version(), "kind": kind.kind, "metadata": { "name": name } });
    merge::set(&mut body, fields);
    body
}

fn apply(store: &mut Store, kind: Kind, name: &str, fields: &Value) -> Result<Value, Rejection> {
    store.apply(&key(kind, name), Manager::Operator, &body(kind, name, fields), now())
}

fn owned_by(owner: &Value) -> Value {
    json!({ "metadata": { "ownerReferences": [{ "uid": owner["metadata"]["uid"] }] } })
}

#[test]
fn an_apply_removes_its_former_fields_and_keeps_those_of_others() {
    let mut store = Store::default();
    apply(&mut store, DEPLOYMENT, "x", &json!({ "spec": { "replicas": 1, "paused": true } })).unwrap();
    let user = body(DEPLOYMENT, "x", &json!({ "metadata": { "labels": { "theirs": "yes" } } }));
    store.apply(&key(DEPLOYMENT, "x"), Manager::User, &user, now()).unwrap();
    store.set_status(&key(DEPLOYMENT, "x"), json!({ "replicas": 1 }), now()).unwrap();
    let live = apply(&mut store, DEPLOYMENT, "x", &json!({ "spec": { "replicas": 1 } })).unwrap();
    assert_eq!(live["spec"], json!({ "replicas": 1 }));
    assert_eq!(live["status"], json!({ "replicas": 1 }));
    assert_eq!(live["metadata"]["labels"], json!({ "theirs": "yes" }));
    assert_eq!(live["metadata"]["generation"], 2, "two forms of the spec; labels and status do not count");
}

#[test]
fn the_same_apply_again_changes_nothing() {
    let mut store = Store::default();
    let fields = json!({ "spec": { "replicas": 1 }, "status": { "ignored": true } });
    let first = apply(&mut store, DEPLOYMENT, "x", &fields).unwrap();
    assert_eq!(first.get("status"), None);
    assert_eq!(first["metadata"]["generation"], 1);
    assert_eq!(apply(&mut store, DEPLOYMENT, "x", &fields).unwrap(), first);
    let other = apply(&mut store, DEPLOYMENT, "x", &json!({ "spec": { "replicas": 2 } })).unwrap();
    assert_ne!(other["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    assert_eq!(other["metadata"]["uid"], first["metadata"]["uid"]);
}

#[test]
fn changes_of_immutable_fields_are_rejected() {
    let mut store = Store::default();
    let cases = [
        (JOB, json!({ "spec": { "template": { "a": 1 } } }), json!({ "spec": { "template": { "a": 2 } } })),
        (
            CONFIG_MAP,
            json!({ "immutable": true, "data": { "a": "1" } }),
            json!({ "immutable": true, "data": { "a": "2" } }),
        ),
        (STATEFUL_SET, json!({ "spec": { "serviceName": "a" } }), json!({ "spec": { "serviceName": "b" } })),
        (
            STATEFUL_SET,
            json!({ "spec": { "serviceName": "a" } }),
            json!({ "spec": { "serviceName": "a", "volumeClaimTemplates": [] } }),
        ),
    ];
    for (kind, first, second) in cases {
        let live = apply(&mut store, kind, "x", &first).unwrap();
        let refusal = apply(&mut store, kind, "x", &second);
        assert!(matches!(refusal, Err(Rejection::Refused(_))), "{refusal:?}");
        assert_eq!(store.get(&key(kind, "x")), Some(&live));
        let labelled = json!({ "metadata": { "labels": { "a": "b" } } });
        let mut allowed = first.clone();
        merge::set(&mut allowed, &labelled);
        apply(&mut store, kind, "x", &allowed).unwrap();
    }
}

#[test]
fn a_mutable_config_map_can_change_and_has_no_generation() {
    let mut store = Store::default();
    apply(&mut store, CONFIG_MAP, "x", &json!({ "data": { "a": "1" } })).unwrap();
    let live = apply(&mut store, CONFIG_MAP, "x", &json!({ "data": { "b": "2" } })).unwrap();
    assert_eq!(live["data"], json!({ "b": "2" }));
    assert_eq!(live["metadata"].get("generation"), None);
}

#[test]
fn texts_of_a_secret_are_stored_encoded() {
    let mut store = Store::default();
    let live = apply(&mut store, SECRET, "x", &json!({ "stringData": { "a": "b" } })).unwrap();
    assert_eq!(live["data"], json!({ "a": "Yg==" }));
    assert_eq!(live.get("stringData"), None);
}

#[test]
fn children_are_deleted_with_their_last_owner_recursively() {
    let mut store = Store::default();
    let owner = apply(&mut store, CLOUD, "owner", &json!({})).unwrap();
    let other = apply(&mut store, CLOUD, "other", &json!({})).unwrap();
    let child = apply(&mut store, DEPLOYMENT, "child", &owned_by(&owner)).unwrap();
    apply(&mut store, CONFIG_MAP, "grandchild", &owned_by(&child)).unwrap();
    let mut shared = owned_by(&owner);
    let second = owned_by(&other)["metadata"]["ownerReferences"][0].clone();
    shared["metadata"]["ownerReferences"].as_array_mut().unwrap().push(second);
    apply(&mut store, CONFIG_MAP, "shared", &shared).unwrap();
    let mut held = owned_by(&owner);
    held["metadata"]["finalizers"] = json!(["a/b"]);
    apply(&mut store, CLOUD, "held", &held).unwrap();

    store.delete(&key(CLOUD, "owner"), now());
    let names: Vec<&str> = store.objects().map(|(key, _)| key.name.as_str()).collect();
    assert_eq!(names, ["shared", "held", "other"]);
    assert!(store.get(&key(CLOUD, "held")).unwrap()["metadata"]["deletionTimestamp"].is_string());

    let late = owned_by(&owner);
    apply(&mut store, CONFIG_MAP, "late", &late).unwrap();
    assert!(store.collect_garbage(now()));
    assert_eq!(store.get(&key(CONFIG_MAP, "late")), None);
    assert!(!store.collect_garbage(now()));
}

#[test]
fn an_object_is_deleted_with_its_last_finalizer() {
    let mut store = Store::default();
    let cloud = key(CLOUD, "x");
    let owner = apply(&mut store, CLOUD, "x", &json!({ "metadata": { "labels": { "a": "b" } } })).unwrap();
    apply(&mut store, CONFIG_MAP, "child", &owned_by(&owner)).unwrap();
    store.patch_metadata(&cloud, &json!({ "finalizers": ["a/b"], "labels": { "a": null } }), now()).unwrap();
    store.delete(&cloud, now());
    let marked = store.get(&cloud).unwrap().clone();
    assert_eq!(marked["metadata"]["deletionTimestamp"], START);
    assert_eq!(marked["metadata"]["generation"], 2);
    assert_eq!(marked["metadata"]["labels"].get("a"), None);
    store.delete(&cloud, now());
    assert_eq!(store.get(&cloud), Some(&marked), "what is on its way is not deleted again");
    assert!(store.get(&key(CONFIG_MAP, "child")).is_some());
    store.patch_metadata(&cloud, &json!({ "finalizers": null }), now()).unwrap();
    assert_eq!(store.objects().count(), 0);
}

#[test]
fn a_patch_for_another_version_or_another_object_is_a_conflict() {
    let mut store = Store::default();
    let cloud = key(CLOUD, "x");
    let first = apply(&mut store, CLOUD, "x", &json!({})).unwrap();
    apply(&mut store, CLOUD, "x", &json!({ "spec": { "a": 1 } })).unwrap();
    let version = &first["metadata"]["resourceVersion"];
    let stale = json!({ "resourceVersion": version, "labels": { "a": "b" } });
    assert_eq!(store.patch_metadata(&cloud, &stale, now()), Err(Rejection::Conflict));
    let former = json!({ "uid": format!("{UID}9"), "labels": { "a": "b" } });
    assert_eq!(store.patch_metadata(&cloud, &former, now()), Err(Rejection::Conflict));
    let late = store.write_status(&cloud, version.as_str(), json!({ "late": true }), now());
    assert_eq!(late, Err(Rejection::Conflict));
    let fresh = store.get(&cloud).unwrap()["metadata"]["resourceVersion"].clone();
    let reported = store.write_status(&cloud, fresh.as_str(), json!({}), now()).unwrap();
    let fresh = reported["metadata"]["resourceVersion"].clone();
    let current = json!({ "resourceVersion": fresh, "labels": { "a": "b" } });
    store.patch_metadata(&cloud, &current, now()).unwrap();
    assert_eq!(store.get(&cloud).unwrap()["metadata"]["labels"], json!({ "a": "b" }));
    let absent = key(CLOUD, "y");
    assert_eq!(store.patch_metadata(&absent, &json!({}), now()), Err(Rejection::Conflict));
    assert_eq!(store.set_status(&absent, json!({}), now()), Err(Rejection::Conflict));
}

#[test]
fn a_body_of_another_object_is_rejected() {
    let mut store = Store::default();
    let other = body(JOB, "y", &json!({}));
    for target in [key(JOB, "x"), key(DEPLOYMENT, "y")] {
        let refusal = store.apply(&target, Manager::Operator, &other, now());
        assert!(matches!(refusal, Err(Rejection::Refused(_))), "{refusal:?}");
    }
    assert_eq!(store.objects().count(), 0);
}
