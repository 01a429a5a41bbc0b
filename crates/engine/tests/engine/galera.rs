//! Exactly one member bootstraps a Galera cluster, and only after the status records the decision.

use openstack_operator_engine::engine::Engine;
use openstack_operator_model::kind::{POD, SERVICE, STATEFUL_SET};
use openstack_operator_model::service::{Replication, SqlView};
use openstack_operator_services::mariadb;
use openstack_operator_testkit::World;
use serde_json::{Value, json};

use crate::driver::{NAMESPACE, condition, converge, engine, get, is_ready, key, object, world, writes};

const ORDER: &str = "openstack.k8s.io/galera-bootstrap";
const EMPTY: &str = r#"{"state":"empty","ticket":"TICKET"}"#;

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
    format!(r#"{{"state":"data","uuid":"u","sequence":{sequence},"safe":0,"ticket":"TICKET"}}"#)
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
    let report = report.replace("TICKET", &ticket(world, ordinal));
    let ended = json!({ "exitCode": 0, "reason": "Completed", "message": report });
    let setup = json!([{ "name": "prepare", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                         "state": { "terminated": ended } }]);
    let status = json!({ "initContainerStatuses": setup, "podIP": address(ordinal) });
    world.set_status(POD, NAMESPACE, &name(ordinal), status);
}

fn address(ordinal: usize) -> String {
    format!("10.0.0.{ordinal}")
}

/// State of the main container of a pod.
fn set_container(world: &World, ordinal: usize, restarts: i32, started: bool, last: &Value) {
    let main = json!([{ "name": "mariadb", "image": "", "imageID": "", "ready": false, "started": started,
                        "restartCount": restarts, "state": { "running": {} }, "lastState": last }]);
    world.edit_object(POD, NAMESPACE, &name(ordinal), |pod| pod["status"]["containerStatuses"] = main);
}

/// The server of a pod responds with this state.
fn respond(world: &World, ordinal: usize, view: Option<SqlView>) {
    world.sql.edit(&address(ordinal), |state| state.view = view);
}

fn synced(size: usize) -> SqlView {
    let history = "u".to_owned();
    SqlView { primary: true, replication: Replication::Synced, size, committed: 50, history }
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

/// Ticket of the first start of a pod. Every pod has its own.
fn ticket(world: &World, ordinal: usize) -> String {
    format!("ticket-{}", get(world, POD, &name(ordinal))["metadata"]["uid"].as_str().unwrap())
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
    let order = ticket(&world, 0);
    assert_eq!(memory(&world)["bootstrapOrder"], format!("db-0/{order}"));
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
        assert_eq!(orders(&world), [json!(ticket(&world, 0)), Value::Null, Value::Null]);
    }
}

#[tokio::test]
async fn after_a_full_stop_the_member_with_the_newest_data_bootstraps() {
    let (world, engine) = galera_cluster().await;
    for (ordinal, sequence) in [5, 9, 7].into_iter().enumerate() {
        start(&world, ordinal, &data(sequence));
    }
    converge(&world, &engine).await;
    assert_eq!(orders(&world), [Value::Null, json!(ticket(&world, 1)), Value::Null]);
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
    let order = ticket(&world, 0);
    assert_eq!(memory(&world)["bootstrapOrder"], format!("db-0/{order}"), "an order names one start");
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
    assert!(members_message(&world).contains("restore a volume"), "{}", members_message(&world));
}

#[tokio::test]
async fn an_order_is_withdrawn_when_a_member_serves() {
    let (world, engine) = galera_cluster().await;
    for ordinal in 0..3 {
        start(&world, ordinal, EMPTY);
    }
    converge(&world, &engine).await;
    assert_eq!(orders(&world), [json!(ticket(&world, 0)), Value::Null, Value::Null]);
    set_ready(&world, 0, "True");
    converge(&world, &engine).await;
    assert_eq!(orders(&world), [Value::Null, Value::Null, Value::Null]);
    assert_eq!(memory(&world)["bootstrapOrder"], Value::Null);
}

#[tokio::test]
async fn a_new_cluster_is_available_once_all_members_have_joined() {
    let (world, engine) = galera_cluster().await;
    let available = |world: &World| condition(world, mariadb::KIND, "db", "Available").0;
    let generation = get(&world, STATEFUL_SET, "db")["metadata"]["generation"].clone();
    let set_joined = |ready: usize| {
        let status = json!({ "observedGeneration": generation, "replicas": 3, "updatedReplicas": 3,
                             "currentReplicas": 3, "readyReplicas": ready, "availableReplicas": ready });
        world.set_status(STATEFUL_SET, NAMESPACE, "db", status);
    };
    for ordinal in 0..3 {
        start(&world, ordinal, EMPTY);
    }
    set_ready(&world, 0, "True");
    set_joined(1);
    converge(&world, &engine).await;
    assert_eq!(available(&world), "False", "schemas that users install now would be missing on the others");
    set_joined(3);
    converge(&world, &engine).await;
    assert_eq!(available(&world), "True");
    set_joined(1);
    converge(&world, &engine).await;
    assert_eq!(available(&world), "True");
}

#[tokio::test]
async fn members_that_are_unready_for_a_moment_get_no_order() {
    let (world, engine) = serving().await;
    for ordinal in 0..3 {
        set_container(&world, ordinal, 0, true, &json!({}));
        set_ready(&world, ordinal, "False");
    }
    converge(&world, &engine).await;
    assert_eq!(
        orders(&world),
        [Value::Null, Value::Null, Value::Null],
        "their reports are from their first start"
    );
}

#[tokio::test]
async fn a_survivor_restores_the_quorum_once_the_others_have_reported() {
    let (world, engine) = serving().await;
    world.cluster.hold(STATEFUL_SET, "db");
    set_container(&world, 0, 0, true, &json!({}));
    respond(&world, 0, Some(SqlView { primary: false, ..synced(1) }));
    let crashed = json!({ "terminated": { "exitCode": 137, "message": "killed" } });
    for ordinal in 0..3 {
        set_ready(&world, ordinal, "False");
    }
    for ordinal in 1..3 {
        set_container(&world, ordinal, 1, false, &crashed);
    }
    converge(&world, &engine).await;
    assert!(members_message(&world).contains("db-1 has not reported"), "{}", members_message(&world));
    let reported = |sequence: i64| json!({ "terminated": { "exitCode": 3, "message": data(sequence) } });
    for ordinal in 1..3 {
        set_container(&world, ordinal, 2, false, &reported(50));
    }
    converge(&world, &engine).await;
    assert!(world.sql.state(&address(0)).view.unwrap().primary, "{}", members_message(&world));
    assert_eq!(orders(&world), [Value::Null, Value::Null, Value::Null], "no second cluster");
}

#[tokio::test]
async fn the_writer_moves_before_the_kubelet_reports_the_lost_node() {
    let (world, engine) = serving().await;
    assert_eq!(writer(&world), "db-0");
    for ordinal in 1..3 {
        respond(&world, ordinal, Some(synced(2)));
    }
    engine.reconcile(&key(mariadb::KIND, "db")).await;
    converge(&world, &engine).await;
    assert_eq!(writer(&world), "db-1");
}

#[tokio::test]
async fn a_lost_member_stalls_a_full_stop_until_the_user_gives_it_up() {
    let (world, engine) = serving().await;
    world.cluster.hold(STATEFUL_SET, "db");
    for ordinal in 0..2 {
        world.delete_object(POD, NAMESPACE, &name(ordinal));
        start(&world, ordinal, &data(5));
    }
    // The status of a pod on a lost node does not change any more.
    set_container(&world, 2, 0, true, &json!({}));
    set_ready(&world, 2, "False");
    world.edit_object(POD, NAMESPACE, &name(2), |pod| pod["spec"] = json!({ "nodeName": "lost" }));
    converge(&world, &engine).await;
    let (stalled, reason, message) = condition(&world, mariadb::KIND, "db", "Stalled");
    assert_eq!((stalled.as_str(), reason.as_str()), ("True", "ActionRequired"));
    assert!(message.contains("add db-2 to spec.recovery.lostMembers"), "{message}");
    let lost = json!({ "replicas": 3, "recovery": { "lostMembers": ["db-2"] } });
    world.apply_object(&object(mariadb::KIND, "db", &lost));
    converge(&world, &engine).await;
    assert_eq!(orders(&world), [json!(ticket(&world, 0)), Value::Null, Value::Null]);
}

#[tokio::test]
async fn a_cluster_shrinks_member_by_member() {
    let (world, engine) = serving().await;
    world.apply_object(&object(mariadb::KIND, "db", &json!({ "replicas": 1 })));
    engine.reconcile(&key(mariadb::KIND, "db")).await;
    engine.reconcile(&key(mariadb::KIND, "db")).await;
    assert_eq!(get(&world, STATEFUL_SET, "db")["spec"]["replicas"], 2);
    converge(&world, &engine).await;
    assert_eq!(memory(&world)["size"], "2", "the last pod has not stopped");
    world.delete_object(POD, NAMESPACE, "db-2");
    converge(&world, &engine).await;
    assert_eq!(get(&world, STATEFUL_SET, "db")["spec"]["replicas"], 1);
    world.delete_object(POD, NAMESPACE, "db-1");
    converge(&world, &engine).await;
    assert!(is_ready(&world, mariadb::KIND, "db"));
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
