//! Exactly one member bootstraps a Galera cluster, and only after the status records the decision.

use openstack_operator_engine::engine::Engine;
use openstack_operator_model::kind::{POD, SERVICE, STATEFUL_SET};
use openstack_operator_services::mariadb;
use openstack_operator_testkit::World;
use serde_json::{Value, json};

use crate::driver::{NAMESPACE, condition, converge, engine, get, is_ready, key, object, world, writes};

const ORDER: &str = "openstack.k8s.io/galera-bootstrap";
const EMPTY: &str = r#"{"state":"empty"}"#;

/// A Galera cluster of three without pods yet.
async fn galera_cluster() -> (World, Engine) {
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

/// A pod of the StatefulSet whose setup container has reported.
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

/// Bootstrap orders of all pods.
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

fn members_message(world: &World) -> String {
    condition(world, mariadb::KIND, "db", "MembersReady").2
}

#[tokio::test]
async fn no_member_bootstraps_before_all_have_reported() {
    let (world, engine) = galera_cluster().await;
    start(&world, 0, EMPTY);
    start(&world, 2, EMPTY);
    converge(&world, &engine).await;
    assert_eq!(orders(&world), [Value::Null, Value::Null]);
    assert_eq!(members_message(&world), "pod db-1 has not reported the content of its volume");
    assert!(!is_ready(&world, mariadb::KIND, "db"));
}

#[tokio::test]
async fn one_member_gets_the_bootstrap_order_after_it_is_recorded() {
    let (world, engine) = galera_cluster().await;
    for ordinal in 0..3 {
        start(&world, ordinal, EMPTY);
    }
    engine.reconcile(&key(mariadb::KIND, "db")).await;
    let order = format!("{}/0", uid(&world, 0));
    assert_eq!(memory(&world)["bootstrapOrder"], order);
    assert_eq!(orders(&world), [Value::Null, Value::Null, Value::Null], "the status records the order first");
    engine.reconcile(&key(mariadb::KIND, "db")).await;
    assert_eq!(orders(&world), [json!(order), Value::Null, Value::Null]);
    world.script.clear_log();
    converge(&world, &engine).await;
    assert!(!writes(&world).iter().any(|call| call.contains("Pod")), "the order is sent once");
    assert_eq!(members_message(&world), "pod db-0 bootstraps the cluster");
}

#[tokio::test]
async fn a_restart_after_any_write_orders_the_same_member() {
    for write in 1..=3 {
        let (world, running) = galera_cluster().await;
        for ordinal in 0..3 {
            start(&world, ordinal, EMPTY);
        }
        world.script.crash_after_write(write);
        converge(&world, &running).await;
        if !world.script.crashed() {
            assert!(write > 2, "decision and order are two writes");
            return;
        }
        world.script.revive();
        converge(&world, &engine(&world)).await;
        assert_eq!(orders(&world), [json!(format!("{}/0", uid(&world, 0))), Value::Null, Value::Null]);
    }
}

#[tokio::test]
async fn after_a_full_stop_the_member_with_the_newest_data_bootstraps() {
    let (world, engine) = galera_cluster().await;
    for (ordinal, sequence) in [5, 9, 7].into_iter().enumerate() {
        start(&world, ordinal, &data(sequence));
    }
    converge(&world, &engine).await;
    assert_eq!(orders(&world), [Value::Null, json!(format!("{}/0", uid(&world, 1))), Value::Null]);
}

#[tokio::test]
async fn a_recreated_pod_does_not_get_the_order_of_its_predecessor() {
    let (world, engine) = galera_cluster().await;
    for ordinal in 0..3 {
        start(&world, ordinal, EMPTY);
    }
    engine.reconcile(&key(mariadb::KIND, "db")).await;
    world.delete_object(POD, NAMESPACE, "db-0");
    start(&world, 0, &data(3));
    converge(&world, &engine).await;
    let order = format!("{}/0", uid(&world, 0));
    assert_eq!(memory(&world)["bootstrapOrder"], order, "an order names the uid of a pod");
    assert_eq!(orders(&world), [json!(order), Value::Null, Value::Null]);
}

/// A Galera cluster of three that serves.
async fn serving() -> (World, Engine) {
    let (world, engine) = galera_cluster().await;
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
    assert_eq!(writer(&world), "db-1", "the writer does not switch back");
    assert_eq!(memory(&world)["formed"], "true");
}

#[tokio::test]
async fn a_galera_cluster_that_has_served_is_never_bootstrapped_empty() {
    let (world, engine) = serving().await;
    world.cluster.hold(STATEFUL_SET, "db");
    for ordinal in 0..3 {
        world.delete_object(POD, NAMESPACE, &name(ordinal));
        start(&world, ordinal, EMPTY);
    }
    converge(&world, &engine).await;
    assert_eq!(orders(&world), [Value::Null, Value::Null, Value::Null]);
    assert!(members_message(&world).contains("restore it"), "{}", members_message(&world));
}

#[tokio::test]
async fn a_single_member_needs_no_order() {
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
