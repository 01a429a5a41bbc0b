//! Objects that cannot be reconciled: invalid specs, panics, pauses, and missing dependencies.

use openstack_operator_engine::engine::Outcome;
use openstack_operator_model::common::PAUSE_ANNOTATION;
use openstack_operator_model::kind::{DEPLOYMENT, SECRET, STATEFUL_SET};
use openstack_operator_services::{control_plane, keystone, mariadb, memcached};
use openstack_operator_testkit::World;
use serde_json::json;

use crate::driver::{
    NAMESPACE, cloud, condition, converge, engine, get, is_ready, key, keys, object, world, writes,
};
use crate::test_services::{BOMB, WIDGET};

fn pause(world: &World, value: &str) {
    world.edit_object(keystone::KIND, NAMESPACE, "cloud-keystone", |body| {
        body["metadata"]["annotations"][PAUSE_ANNOTATION] = json!(value);
    });
}

#[tokio::test]
async fn an_invalid_spec_is_reported_with_its_field_and_applies_nothing() {
    let world = world();
    let spec = json!({ "database": { "host": "db", "secretRef": { "name": "login" } },
                       "fernet": { "rotationSchedule": "when I say so now" } });
    world.apply_object(&object(keystone::KIND, "identity", &spec));
    world.apply_yaml(
        "{ apiVersion: v1, kind: Secret, metadata: { name: login, namespace: openstack },
           stringData: { username: x, password: y } }",
    );
    let engine = engine(&world);
    let outcome = engine.reconcile(&key(keystone::KIND, "identity")).await;
    assert!(matches!(outcome, Outcome::Stalled), "{outcome:?}");
    let expected =
        ["patch_metadata Keystone identity", "write_status Keystone identity", "publish Keystone identity"];
    assert_eq!(writes(&world), expected);
    let (status, reason, message) = condition(&world, keystone::KIND, "identity", "Stalled");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "InvalidSpec"));
    assert!(message.starts_with("spec.fernet.rotationSchedule: "), "{message}");
    assert!(message.contains("when I say so now") && message.contains("five fields"), "{message}");
    assert_eq!(condition(&world, keystone::KIND, "identity", "Reconciling").0, "False");
    world.script.clear_log();
    let outcome = engine.reconcile(&key(keystone::KIND, "identity")).await;
    assert!(matches!(outcome, Outcome::Stalled), "it is not retried: {outcome:?}");
    assert_eq!(writes(&world), [""; 0]);
}

#[tokio::test]
async fn a_spec_that_becomes_invalid_does_not_stop_the_service() {
    let (world, engine) = cloud().await;
    let invalid = json!({ "keystone": { "fernet": { "rotationSchedule": "* * * *" } } });
    world.apply_object(&object(control_plane::KIND, "cloud", &invalid));
    converge(&world, &engine).await;
    let (ready, reason, _) = condition(&world, keystone::KIND, "cloud-keystone", "Ready");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "InvalidSpec"));
    assert_eq!(condition(&world, keystone::KIND, "cloud-keystone", "Available").0, "True");
    assert_eq!(condition(&world, keystone::KIND, "cloud-keystone", "WorkloadsReady").0, "True");
    let row = &get(&world, control_plane::KIND, "cloud")["status"]["services"][3];
    assert!(row["waitingFor"].as_str().unwrap().contains("spec.fernet.rotationSchedule"), "{row}");
    world.apply_object(&object(control_plane::KIND, "cloud", &json!({})));
    converge(&world, &engine).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
}

#[tokio::test]
async fn a_spec_that_cannot_be_decoded_stalls() {
    let world = world();
    world.apply_object(&object(memcached::KIND, "cache", &json!({ "replicas": "many" })));
    let outcome = engine(&world).reconcile(&key(memcached::KIND, "cache")).await;
    assert!(matches!(outcome, Outcome::Stalled), "{outcome:?}");
    let message = condition(&world, memcached::KIND, "cache", "Ready").2;
    assert!(message.starts_with("spec: cannot be read as a Memcached: "), "{message}");
}

#[tokio::test]
async fn a_panic_stalls_only_its_object() {
    let world = world();
    world.apply_object(&object(BOMB, "bomb", &json!({})));
    world.apply_object(&object(memcached::KIND, "cache", &json!({})));
    let engine = engine(&world);
    let outcome = engine.reconcile(&key(BOMB, "bomb")).await;
    assert!(matches!(outcome, Outcome::Stalled), "{outcome:?}");
    converge(&world, &engine).await;
    let (status, reason, message) = condition(&world, BOMB, "bomb", "Stalled");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "Bug"));
    assert_eq!(
        message,
        "panic while planning: the fuse was too short; this is a bug in the operator, please report it"
    );
    assert!(is_ready(&world, memcached::KIND, "cache"));
    world.delete_object(BOMB, NAMESPACE, "bomb");
    converge(&world, &engine).await;
    assert!(world.object(BOMB, NAMESPACE, "bomb").is_none(), "deletion needs no plan");
}

#[tokio::test]
async fn a_paused_object_is_not_reconciled() {
    let (world, engine) = cloud().await;
    pause(&world, "true");
    world.delete_object(DEPLOYMENT, NAMESPACE, "cloud-keystone");
    converge(&world, &engine).await;
    assert!(world.object(DEPLOYMENT, NAMESPACE, "cloud-keystone").is_none());
    let only_reports =
        writes(&world).iter().all(|call| call.starts_with("write_status") || call.starts_with("publish"));
    assert!(only_reports, "{:?}", writes(&world));
    for (type_, status) in [("Ready", "False"), ("Reconciling", "False"), ("Stalled", "True")] {
        let (found, reason, _) = condition(&world, keystone::KIND, "cloud-keystone", type_);
        assert_eq!((found.as_str(), reason.as_str()), (status, "Paused"));
    }
    assert_eq!(condition(&world, keystone::KIND, "cloud-keystone", "DatabaseReady").0, "True");
    pause(&world, "false");
    converge(&world, &engine).await;
    assert!(is_ready(&world, keystone::KIND, "cloud-keystone"));
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
}

#[tokio::test]
async fn a_paused_object_can_be_deleted() {
    let (world, engine) = cloud().await;
    pause(&world, "true");
    world.delete_object(control_plane::KIND, NAMESPACE, "cloud");
    converge(&world, &engine).await;
    assert!(keys(&world, &engine).is_empty());
    assert!(world.sql.state("cloud-mariadb.openstack.svc").users.is_empty());
}

#[tokio::test]
async fn an_object_waits_for_its_dependencies() {
    let world = world();
    let depends = json!({ "dependsOn": [{ "kind": "MariaDB", "name": "db" }] });
    world.apply_object(&object(memcached::KIND, "cache", &depends));
    let engine = engine(&world);
    converge(&world, &engine).await;
    assert!(world.cluster.objects(STATEFUL_SET).is_empty());
    let waiting =
        ("False".to_owned(), "Waiting".to_owned(), "MariaDB db is not Ready (spec.dependsOn)".to_owned());
    assert_eq!(condition(&world, memcached::KIND, "cache", "InputsReady"), waiting);
    world.apply_object(&object(mariadb::KIND, "db", &json!({})));
    world.cluster.hold(STATEFUL_SET, "db");
    converge(&world, &engine).await;
    assert_eq!(condition(&world, memcached::KIND, "cache", "Ready"), waiting);
    world.cluster.release(STATEFUL_SET, "db");
    converge(&world, &engine).await;
    assert!(is_ready(&world, memcached::KIND, "cache"));
    let uses = &get(&world, memcached::KIND, "cache")["status"]["uses"];
    assert_eq!(*uses, json!([{ "kind": "MariaDB", "name": "db" }]), "so that it is deleted first");
}

#[tokio::test]
async fn a_missing_user_secret_or_key_is_named() {
    let world = world();
    let spec = json!({ "database": { "host": "db", "secretRef": { "name": "login" } } });
    world.apply_object(&object(keystone::KIND, "identity", &spec));
    let engine = engine(&world);
    let message = async || {
        converge(&world, &engine).await;
        condition(&world, keystone::KIND, "identity", "InputsReady").2
    };
    assert_eq!(message().await, "Secret login does not exist (spec.database.secretRef)");
    let secret = "{ apiVersion: v1, kind: Secret, metadata: { name: login, namespace: openstack },
                    stringData: { username: x } }";
    world.apply_yaml(secret);
    assert_eq!(message().await, "Secret login has no key password (spec.database.secretRef)");
    world.apply_yaml(&secret.replace("username: x", "username: x, password: y"));
    assert_eq!(message().await, "");
    assert!(is_ready(&world, keystone::KIND, "identity"));
    assert!(world.sql.administrator("db").is_none(), "the operator does not change an external server");
    let pods = |world: &World| get(world, DEPLOYMENT, "identity")["spec"]["template"].clone();
    let before = pods(&world);
    world.apply_yaml(&secret.replace("username: x", "username: x, password: z"));
    assert_eq!(message().await, "");
    assert_ne!(pods(&world), before, "a changed password restarts the pods");
    assert!(world.object(SECRET, NAMESPACE, "login").is_some());
}

#[tokio::test]
async fn a_changed_user_secret_restarts_the_pods_that_mount_it() {
    let (world, engine) = cloud().await;
    let secret = "{ apiVersion: v1, kind: Secret, metadata: { name: certificate, namespace: openstack },
                    stringData: { tls.crt: first } }";
    world.apply_yaml(secret);
    world.apply_object(&object(WIDGET, "widget", &json!({ "mounts": "certificate" })));
    converge(&world, &engine).await;
    let pods = |world: &World| get(world, DEPLOYMENT, "widget")["spec"]["template"].clone();
    let before = pods(&world);
    world.apply_yaml(&secret.replace("first", "second"));
    converge(&world, &engine).await;
    assert_ne!(pods(&world), before);
}

#[tokio::test]
async fn an_object_with_an_unreadable_status_is_not_changed() {
    let (world, engine) = cloud().await;
    let whole = get(&world, keystone::KIND, "cloud-keystone")["status"].clone();
    let mut other = whole.clone();
    other["effects"][0]["what"] = json!("Teapot");
    world.set_status(keystone::KIND, NAMESPACE, "cloud-keystone", other.clone());
    world.delete_object(DEPLOYMENT, NAMESPACE, "cloud-keystone");
    for deleted in [false, true] {
        world.script.clear_log();
        let outcome = engine.reconcile(&key(keystone::KIND, "cloud-keystone")).await;
        let Outcome::Failed { message } = outcome else { panic!("deleted {deleted}: {outcome:?}") };
        for part in
            ["cannot read the status of Keystone openstack/cloud-keystone", "Teapot", "correct the status"]
        {
            assert!(message.contains(part), "{message}");
        }
        let only_reports =
            writes(&world).iter().all(|call| call.starts_with("write_status") || call.starts_with("publish"));
        assert!(only_reports, "deleted {deleted}: {:?}", writes(&world));
        let found = get(&world, keystone::KIND, "cloud-keystone")["status"].clone();
        for record in ["effects", "installed", "databases", "uses", "provides"] {
            assert_eq!(found[record], other[record], "{record}");
        }
        world.delete_object(keystone::KIND, NAMESPACE, "cloud-keystone");
    }
    world.set_status(keystone::KIND, NAMESPACE, "cloud-keystone", whole);
    converge(&world, &engine).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
}

#[tokio::test]
async fn a_dependency_with_an_unreadable_status_requires_the_user() {
    let (world, engine) = cloud().await;
    let whole = get(&world, mariadb::KIND, "cloud-mariadb")["status"].clone();
    let mut other = whole.clone();
    other["provides"]["database"]["port"] = json!("many");
    world.set_status(mariadb::KIND, NAMESPACE, "cloud-mariadb", other);
    let outcome = engine.reconcile(&key(keystone::KIND, "cloud-keystone")).await;
    assert!(matches!(outcome, Outcome::Waiting { .. }), "{outcome:?}");
    let (ready, reason, message) = condition(&world, keystone::KIND, "cloud-keystone", "InputsReady");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "ActionRequired"));
    assert!(message.starts_with("cannot read the status of MariaDB cloud-mariadb"), "{message}");
    assert_eq!(condition(&world, keystone::KIND, "cloud-keystone", "Available").0, "True");
    world.set_status(mariadb::KIND, NAMESPACE, "cloud-mariadb", whole);
    converge(&world, &engine).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
}

#[tokio::test]
async fn a_workload_that_is_being_deleted_is_not_available() {
    let (world, engine) = cloud().await;
    world.edit_object(STATEFUL_SET, NAMESPACE, "cloud-mariadb", |set| {
        set["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
    });
    world.delete_object(STATEFUL_SET, NAMESPACE, "cloud-mariadb");
    converge(&world, &engine).await;
    assert_eq!(condition(&world, mariadb::KIND, "cloud-mariadb", "Available").0, "False");
    let message = condition(&world, mariadb::KIND, "cloud-mariadb", "Ready").2;
    assert_eq!(message, "StatefulSet cloud-mariadb is being deleted");
    assert_eq!(condition(&world, keystone::KIND, "cloud-keystone", "Available").0, "True");
    assert_eq!(
        condition(&world, keystone::KIND, "cloud-keystone", "DatabaseReady").2,
        "MariaDB cloud-mariadb is not available"
    );
    world.edit_object(STATEFUL_SET, NAMESPACE, "cloud-mariadb", |set| {
        set["metadata"]["finalizers"] = json!([]);
    });
    converge(&world, &engine).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
}

#[tokio::test]
async fn a_secret_that_is_being_deleted_is_reported_once() {
    let (world, engine) = cloud().await;
    world.edit_object(SECRET, NAMESPACE, "cloud-mariadb-root", |secret| {
        secret["metadata"]["finalizers"] = json!(["example.com/finalizer"]);
    });
    world.delete_object(SECRET, NAMESPACE, "cloud-mariadb-root");
    converge(&world, &engine).await;
    let message = condition(&world, mariadb::KIND, "cloud-mariadb", "ConfigReady").2;
    assert_eq!(message, "Secret cloud-mariadb-root is being deleted");
    let status = &get(&world, mariadb::KIND, "cloud-mariadb")["status"];
    let types: Vec<_> = status["conditions"].as_array().unwrap().iter().map(|one| &one["type"]).collect();
    let once = types.iter().filter(|type_| ***type_ == "ConfigReady").count();
    assert_eq!(once, 1, "{types:?}");
}
