//! A group of databases is begun by exactly one member, which is told so after the decision is on record.

use openstack_operator_engine::engine::Engine;
use openstack_operator_model::kind::{POD, SERVICE, STATEFUL_SET};
use openstack_operator_services::mariadb;
use openstack_operator_testkit::World;
use serde_json::{Value, json};

use crate::driver::{NAMESPACE, condition, converge, engine, get, is_ready, key, object, world, writes};

const ORDER: &str = "openstack.k8s.io/galera-bootstrap";
const EMPTY: &str = r#"{"state":"empty"}"#;

/// A group of three whose pods are yet to come.
async fn group() -> (World, Engine) {
    let world = world();
    world.apply_object(&object(mariadb::KIND, "db", &json!({ "replicas": 3 })));
    world.cluster.hold(STATEFUL_SET, "db");
    let engine = engine(&world);
    converge(&world, &engine).await;
    world.script.clear_log();
    (world, engine)
}

fn data(sequence: i64) -> String {
    format!(r#"{{"state":"data","uuid":"u","sequence":{sequence},"safe":0}}"#)
}

fn name(ordinal: usize) -> String {
    format!("db-{ordinal}")
}

/// A pod as the set makes it, whose setup container has reported.
fn start(world: &World, ordinal: usize, report: &str) {
    let labels = &get(world, STATEFUL_SET, "db")["spec"]["template"]["metadata"]["labels"];
    world.apply_object(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name(ordinal), "namespace": NAMESPACE, "labels": labels },
    }));
    let ended = json!({ "exitCode": 0, "reason": "Completed", "message": report });
    let setup = json!([{ "name": "prepare", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                         "state": { "terminated": ended } }]);
    world.set_status(POD, NAMESPACE, &name(ordinal), json!({ "initContainerStatuses": setup }));
}

fn set_ready(world: &World, ordinal: usize, ready: &str) {
    let conditions = json!([{ "type": "Ready", "status": ready }]);
    world.edit_object(POD, NAMESPACE, &name(ordinal), |pod| pod["status"]["conditions"] = conditions);
}

/// What each of the pods was told.
fn orders(world: &World) -> Vec<Value> {
    let pods = world.cluster.objects(POD);
    pods.iter().map(|pod| pod["metadata"]["annotations"][ORDER].clone()).collect()
}

fn uid(world: &World, ordinal: usize) -> String {
    get(world, POD, &name(ordinal))["metadata"]["uid"].as_str().unwrap().to_owned()
}

fn memory(world: &World) -> Value {
    get(world, mariadb::KIND, "db")["status"]["memory"].clone()
}

fn waits_for(world: &World) -> String {
    condition(world, mariadb::KIND, "db", "MembersReady").2
}

#[tokio::test]
async fn nobody_begins_before_all_have_reported() {
    let (world, engine) = group().await;
    start(&world, 0, EMPTY);
    start(&world, 2, EMPTY);
    converge(&world, &engine).await;
    assert_eq!(orders(&world), [Value::Null, Value::Null]);
    assert_eq!(waits_for(&world), "pod db-1 has not reported the content of its volume");
    assert!(!is_ready(&world, mariadb::KIND, "db"));
}

#[tokio::test]
async fn one_member_is_told_to_begin_after_that_is_on_record() {
    let (world, engine) = group().await;
    for ordinal in 0..3 {
        start(&world, ordinal, EMPTY);
    }
    engine.reconcile(&key(mariadb::KIND, "db")).await;
    let order = format!("{}/0", uid(&world, 0));
    assert_eq!(memory(&world)["bootstrapOrder"], order);
    assert_eq!(orders(&world), [Value::Null, Value::Null, Value::Null], "first it is written down");
    engine.reconcile(&key(mariadb::KIND, "db")).await;
    assert_eq!(orders(&world), [json!(order), Value::Null, Value::Null]);
    world.script.clear_log();
    converge(&world, &engine).await;
    assert!(!writes(&world).iter().any(|call| call.contains("Pod")), "it is told once");
    assert_eq!(waits_for(&world), "pod db-0 bootstraps the cluster");
}

#[tokio::test]
async fn an_operator_that_ends_at_any_write_tells_the_same_member() {
    for write in 1..=3 {
        let (world, running) = group().await;
        for ordinal in 0..3 {
            start(&world, ordinal, EMPTY);
        }
        world.script.crash_after_write(write);
        converge(&world, &running).await;
        if !world.script.crashed() {
            assert!(write > 2, "deciding and telling are two writes");
            return;
        }
        world.script.revive();
        converge(&world, &engine(&world)).await;
        assert_eq!(orders(&world), [json!(format!("{}/0", uid(&world, 0))), Value::Null, Value::Null]);
    }
}

#[tokio::test]
async fn after_a_full_stop_the_newest_data_begins() {
    let (world, engine) = group().await;
    for (ordinal, sequence) in [5, 9, 7].into_iter().enumerate() {
        start(&world, ordinal, &data(sequence));
    }
    converge(&world, &engine).await;
    assert_eq!(orders(&world), [Value::Null, json!(format!("{}/0", uid(&world, 1))), Value::Null]);
}

#[tokio::test]
async fn a_pod_that_took_the_others_place_is_not_told_by_mistake() {
    let (world, engine) = group().await;
    for ordinal in 0..3 {
        start(&world, ordinal, EMPTY);
    }
    engine.reconcile(&key(mariadb::KIND, "db")).await;
    world.delete_object(POD, NAMESPACE, "db-0");
    start(&world, 0, &data(3));
    converge(&world, &engine).await;
    let order = format!("{}/0", uid(&world, 0));
    assert_eq!(memory(&world)["bootstrapOrder"], order, "an order is for one pod, not for its name");
    assert_eq!(orders(&world), [json!(order), Value::Null, Value::Null]);
}

/// A group of three that serves.
async fn serving() -> (World, Engine) {
    let (world, engine) = group().await;
    for ordinal in 0..3 {
        start(&world, ordinal, EMPTY);
        set_ready(&world, ordinal, "True");
    }
    world.cluster.release(STATEFUL_SET, "db");
    converge(&world, &engine).await;
    assert!(is_ready(&world, mariadb::KIND, "db"));
    (world, engine)
}

fn writer(world: &World) -> Value {
    get(world, SERVICE, "db")["spec"]["selector"]["statefulset.kubernetes.io/pod-name"].clone()
}

#[tokio::test]
async fn all_writes_go_to_one_member_while_it_serves() {
    let (world, engine) = serving().await;
    assert_eq!(writer(&world), "db-0");
    set_ready(&world, 0, "False");
    converge(&world, &engine).await;
    assert_eq!(writer(&world), "db-1");
    set_ready(&world, 0, "True");
    converge(&world, &engine).await;
    assert_eq!(writer(&world), "db-1", "it does not go back and forth");
    assert_eq!(memory(&world)["formed"], "true");
}

#[tokio::test]
async fn a_group_that_has_served_is_never_begun_empty() {
    let (world, engine) = serving().await;
    world.cluster.hold(STATEFUL_SET, "db");
    for ordinal in 0..3 {
        world.delete_object(POD, NAMESPACE, &name(ordinal));
        start(&world, ordinal, EMPTY);
    }
    converge(&world, &engine).await;
    assert_eq!(orders(&world), [Value::Null, Value::Null, Value::Null]);
    assert!(waits_for(&world).contains("restore it"), "{}", waits_for(&world));
}

#[tokio::test]
async fn one_member_alone_needs_no_order() {
    let world = world();
    world.apply_object(&object(mariadb::KIND, "db", &json!({})));
    let engine = engine(&world);
    world.cluster.hold(STATEFUL_SET, "db");
    converge(&world, &engine).await;
    start(&world, 0, EMPTY);
    converge(&world, &engine).await;
    assert_eq!(orders(&world), [Value::Null]);
    set_ready(&world, 0, "True");
    world.cluster.release(STATEFUL_SET, "db");
    converge(&world, &engine).await;
    assert!(is_ready(&world, mariadb::KIND, "db"));
}
