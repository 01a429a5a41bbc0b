//! Objects that cannot be worked on: wrong specs, panics, pauses, and things that are not there yet.

use openstack_operator_engine::engine::Outcome;
use openstack_operator_model::common::PAUSE_ANNOTATION;
use openstack_operator_model::kind::{DEPLOYMENT, SECRET, STATEFUL_SET};
use openstack_operator_services::{control_plane, keystone, mariadb, memcached};
use openstack_operator_testkit::World;
use serde_json::json;

use crate::driver::{
    NAMESPACE, cloud, condition, converge, engine, get, is_ready, key, keys, object, world, writes,
};
use crate::sample::{BOMB, WIDGET};

fn pause(world: &World, word: &str) {
    world.edit_object(keystone::KIND, NAMESPACE, "cloud-keystone", |body| {
        body["metadata"]["annotations"][PAUSE_ANNOTATION] = json!(word);
    });
}

#[tokio::test]
async fn a_wrong_spec_is_told_by_its_field_and_nothing_else_is_done() {
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
    assert!(matches!(outcome, Outcome::Stalled), "it is not tried again: {outcome:?}");
    assert_eq!(writes(&world), [""; 0]);
}

#[tokio::test]
async fn a_spec_that_became_wrong_leaves_what_runs_alone() {
    let (world, engine) = cloud().await;
    let wrong = json!({ "keystone": { "fernet": { "rotationSchedule": "* * * *" } } });
    world.apply_object(&object(control_plane::KIND, "cloud", &wrong));
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
async fn a_spec_that_cannot_be_read_stalls() {
    let world = world();
    world.apply_object(&object(memcached::KIND, "cache", &json!({ "replicas": "many" })));
    let outcome = engine(&world).reconcile(&key(memcached::KIND, "cache")).await;
    assert!(matches!(outcome, Outcome::Stalled), "{outcome:?}");
    let message = condition(&world, memcached::KIND, "cache", "Ready").2;
    assert!(message.starts_with("spec: cannot be read as a Memcached: "), "{message}");
}

#[tokio::test]
async fn a_panic_is_a_bug_of_one_object_and_stops_no_other() {
    let world = world();
    world.apply_object(&object(BOMB, "bomb", &json!({})));
    world.apply_object(&object(memcached::KIND, "cache", &json!({})));
    let engine = engine(&world);
    let outcome = engine.reconcile(&key(BOMB, "bomb")).await;
    assert!(matches!(outcome, Outcome::Stalled), "{outcome:?}");
    converge(&world, &engine).await;
    let (status, reason, message) = condition(&world, BOMB, "bomb", "Stalled");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "Bug"));
    assert_eq!(message, "planning panicked: the fuse was too short; please report this");
    assert!(is_ready(&world, memcached::KIND, "cache"));
    world.delete_object(BOMB, NAMESPACE, "bomb");
    converge(&world, &engine).await;
    assert!(world.object(BOMB, NAMESPACE, "bomb").is_none(), "deletion needs no plan");
}

#[tokio::test]
async fn a_paused_object_is_left_alone_until_it_is_not() {
    let (world, engine) = cloud().await;
    pause(&world, "true");
    world.delete_object(DEPLOYMENT, NAMESPACE, "cloud-keystone");
    converge(&world, &engine).await;
    assert!(world.object(DEPLOYMENT, NAMESPACE, "cloud-keystone").is_none());
    let told =
        writes(&world).iter().all(|call| call.starts_with("write_status") || call.starts_with("publish"));
    assert!(told, "{:?}", writes(&world));
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
async fn an_object_waits_for_those_it_depends_on() {
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
async fn a_secret_of_others_is_waited_for_by_its_name_and_its_keys() {
    let world = world();
    let spec = json!({ "database": { "host": "db", "secretRef": { "name": "login" } } });
    world.apply_object(&object(keystone::KIND, "identity", &spec));
    let engine = engine(&world);
    let told = async || {
        converge(&world, &engine).await;
        condition(&world, keystone::KIND, "identity", "InputsReady").2
    };
    assert_eq!(told().await, "Secret login does not exist (spec.database.secretRef)");
    let secret = "{ apiVersion: v1, kind: Secret, metadata: { name: login, namespace: openstack },
                    stringData: { username: x } }";
    world.apply_yaml(secret);
    assert_eq!(told().await, "Secret login has no key password (spec.database.secretRef)");
    world.apply_yaml(&secret.replace("username: x", "username: x, password: y"));
    assert_eq!(told().await, "");
    assert!(is_ready(&world, keystone::KIND, "identity"));
    assert!(world.sql.administrator("db").is_none(), "a server of others is not ours to change");
    let pods = |world: &World| get(world, DEPLOYMENT, "identity")["spec"]["template"].clone();
    let before = pods(&world);
    world.apply_yaml(&secret.replace("username: x", "username: x, password: z"));
    assert_eq!(told().await, "");
    assert_ne!(pods(&world), before, "a password that others change reaches the pods");
    assert!(world.object(SECRET, NAMESPACE, "login").is_some());
}

#[tokio::test]
async fn a_secret_of_others_that_pods_mount_reaches_them_when_it_changes() {
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
async fn an_object_whose_status_cannot_be_read_is_left_alone() {
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
            ["the status of Keystone openstack/cloud-keystone cannot be read", "Teapot", "or put right"]
        {
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(writes(&world), [""; 0], "deleted {deleted}");
        assert_eq!(get(&world, keystone::KIND, "cloud-keystone")["status"], other);
        world.delete_object(keystone::KIND, NAMESPACE, "cloud-keystone");
    }
    world.set_status(keystone::KIND, NAMESPACE, "cloud-keystone", whole);
    converge(&world, &engine).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
}

#[tokio::test]
async fn an_object_that_is_needed_and_cannot_be_read_is_waited_for() {
    let (world, engine) = cloud().await;
    let whole = get(&world, mariadb::KIND, "cloud-mariadb")["status"].clone();
    let mut other = whole.clone();
    other["provides"]["database"]["port"] = json!("many");
    world.set_status(mariadb::KIND, NAMESPACE, "cloud-mariadb", other);
    let outcome = engine.reconcile(&key(keystone::KIND, "cloud-keystone")).await;
    assert!(matches!(outcome, Outcome::Waiting { .. }), "{outcome:?}");
    let (ready, reason, message) = condition(&world, keystone::KIND, "cloud-keystone", "InputsReady");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "Waiting"));
    assert!(message.starts_with("the status of MariaDB cloud-mariadb cannot be read"), "{message}");
    assert_eq!(condition(&world, keystone::KIND, "cloud-keystone", "Available").0, "True");
    world.set_status(mariadb::KIND, NAMESPACE, "cloud-mariadb", whole);
    converge(&world, &engine).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
}

#[tokio::test]
async fn a_workload_on_its_way_out_does_not_count_as_serving() {
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
async fn a_secret_on_its_way_out_is_waited_for_and_told_once() {
    let (world, engine) = cloud().await;
    world.edit_object(SECRET, NAMESPACE, "cloud-mariadb-root", |secret| {
        secret["metadata"]["finalizers"] = json!(["somebody/else"]);
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
