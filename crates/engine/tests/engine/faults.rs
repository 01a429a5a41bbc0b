//! Faults at every step do not change the final state.

use openstack_operator_engine::engine::{Engine, Key};
use openstack_operator_services::control_plane;
use openstack_operator_testkit::World;
use serde_json::{Value, json};

use crate::driver::{
    NAMESPACE, assert_same, converge, engine, is_urgent, keys, object, statuses, world, writes,
};
use crate::test_services::WIDGET;

/// A cloud that calls every port.
fn spec() -> Value {
    json!({
        "gatewayRef": { "name": "edge", "namespace": "gateways" },
        "publicDomain": "example.com",
        "keystone": { "notifications": { "enabled": true }, "replicas": 2 },
    })
}

fn create() -> World {
    let world = world();
    world.apply_object(&object(control_plane::KIND, "cloud", &spec()));
    world.apply_object(&object(WIDGET, "widget", &json!({})));
    world
}

async fn created() -> World {
    let world = create();
    converge(&world, &engine(&world)).await;
    world
}

/// Another image, another hostname, notifications disabled, and another database for the widget.
async fn change() -> World {
    let world = created().await;
    let mut spec = spec();
    spec["keystone"] = json!({ "image": { "tag": "next" }, "replicas": 2 });
    spec["publicDomain"] = json!("example.org");
    world.apply_object(&object(control_plane::KIND, "cloud", &spec));
    world.apply_object(&object(WIDGET, "widget", &json!({ "database": "gadget" })));
    world
}

async fn delete_widget() -> World {
    let world = created().await;
    world.delete_object(WIDGET, NAMESPACE, "widget");
    world
}

async fn delete_cloud() -> World {
    let world = delete_widget().await;
    converge(&world, &engine(&world)).await;
    world.delete_object(control_plane::KIND, NAMESPACE, "cloud");
    world
}

/// One reconcile of a run without faults.
struct Step {
    before: World,
    after: Value,
    key: Key,
    calls: usize,
    writes: usize,
}

/// All reconciles of a run without faults that wrote, one idle reconcile of each object, and the final state.
async fn record(world: World) -> (Vec<Step>, Value) {
    let engine = engine(&world);
    let mut steps: Vec<Step> = Vec::new();
    loop {
        let mut busy = false;
        let mut idle = Vec::new();
        for key in keys(&world, &engine) {
            let before = world.fork();
            world.script.clear_log();
            let outcome = engine.reconcile(&key).await;
            let (calls, writes) = (world.script.log().len(), world.script.writes().len());
            busy |= writes > 0 || is_urgent(&outcome);
            let step = Step { before, after: world.fingerprint(), key, calls, writes };
            if writes > 0 { steps.push(step) } else { idle.push(step) }
        }
        if !world.cluster.settle() && !busy {
            steps.extend(idle);
            return (steps, world.fingerprint());
        }
    }
}

/// Converges after a fault, and compares the final state with that of a run without faults.
async fn compare(world: &World, engine: &Engine, expected: &Value, fault: &str) {
    converge(world, engine).await;
    assert_same(&world.fingerprint(), expected, || format!("{fault}:\n{}", statuses(world, engine)));
}

/// The same, but stops as soon as the run has caught up with the run without faults.
async fn compare_soon(world: &World, engine: &Engine, step: &Step, end: &Value, fault: &str) {
    engine.reconcile(&step.key).await;
    if world.fingerprint() != step.after {
        compare(world, engine, end, fault).await;
    }
}

async fn kill_after_every_write(start: World) {
    let (steps, end) = record(start).await;
    for step in &steps {
        for write in 1..=step.writes {
            let world = step.before.fork();
            world.script.crash_after_write(write);
            engine(&world).reconcile(&step.key).await;
            assert!(world.script.crashed(), "write {write} of {} is missing", step.key);
            let fault = format!("killed at {} after {:?}", step.key, writes(&world).last());
            world.cluster.settle();
            world.script.revive();
            compare(&world, &engine(&world), &end, &fault).await;
        }
    }
}

async fn fail_every_call(start: World) {
    let (steps, end) = record(start).await;
    for step in &steps {
        for call in 1..=step.calls {
            let world = step.before.fork();
            let engine = engine(&world);
            world.script.fail_call(call);
            engine.reconcile(&step.key).await;
            let fault = format!("failure at {} in {:?}", step.key, world.script.log().get(call - 1));
            compare_soon(&world, &engine, step, &end, &fault).await;
        }
    }
}

async fn conflict_on_every_write(start: World) {
    let (steps, end) = record(start).await;
    for step in &steps {
        for write in 1..=step.writes {
            let world = step.before.fork();
            let engine = engine(&world);
            world.script.conflict_on_write(write);
            engine.reconcile(&step.key).await;
            let fault = format!("conflict at {} in {:?}", step.key, writes(&world).get(write - 1));
            compare_soon(&world, &engine, step, &end, &fault).await;
        }
    }
}

#[tokio::test]
async fn a_kill_after_any_write_of_a_creation_does_not_change_the_result() {
    kill_after_every_write(create()).await;
}

#[tokio::test]
async fn a_kill_after_any_write_of_a_change_does_not_change_the_result() {
    kill_after_every_write(change().await).await;
}

#[tokio::test]
async fn a_kill_after_any_write_of_a_deletion_does_not_change_the_result() {
    kill_after_every_write(delete_widget().await).await;
    kill_after_every_write(delete_cloud().await).await;
}

#[tokio::test]
async fn any_call_of_a_creation_may_fail_once() {
    fail_every_call(create()).await;
}

#[tokio::test]
async fn any_call_of_a_change_may_fail_once() {
    fail_every_call(change().await).await;
}

#[tokio::test]
async fn any_call_of_a_deletion_may_fail_once() {
    fail_every_call(delete_widget().await).await;
    fail_every_call(delete_cloud().await).await;
}

#[tokio::test]
async fn any_write_may_conflict_once() {
    conflict_on_every_write(create()).await;
    conflict_on_every_write(change().await).await;
    conflict_on_every_write(delete_widget().await).await;
    conflict_on_every_write(delete_cloud().await).await;
}

#[tokio::test]
async fn a_deleted_cloud_leaves_only_retained_data() {
    let world = delete_cloud().await;
    converge(&world, &engine(&world)).await;
    let print = world.fingerprint();
    let objects: Vec<&String> = print["objects"].as_object().unwrap().keys().collect();
    let retained = ["Secret openstack/cloud-keystone-credential", "Secret openstack/cloud-rabbitmq-cookie"];
    assert_eq!(objects, retained);
    let sql = world.sql.state("cloud-mariadb.openstack.svc");
    assert_eq!(sql.databases.iter().collect::<Vec<_>>(), ["keystone"]);
    assert!(sql.users.is_empty(), "{sql:?}");
}
