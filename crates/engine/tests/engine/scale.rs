//! Records of pods that a scale-down has removed.

use openstack_operator_engine::engine::Engine;
use openstack_operator_model::kind::{JOB, POD, STATEFUL_SET};
use openstack_operator_model::lower::{INSTANCE_LABEL, KIND_LABEL};
use openstack_operator_testkit::World;
use serde_json::{Value, json};

use crate::driver::{self, NAMESPACE, assert_same, cloud, converge, get, is_ready, object, round, writes};
use crate::test_services::WIDGET;

async fn scale(world: &World, engine: &Engine, workers: i32) {
    world.apply_object(&object(WIDGET, "widget", &json!({ "workers": workers })));
    world.script.clear_log();
    converge(world, engine).await;
    assert!(is_ready(world, WIDGET, "widget"), "{}", driver::statuses(world, engine));
}

fn recorded(world: &World) -> Value {
    get(world, WIDGET, "widget")["status"]["scale"].clone()
}

fn has_cleaned(world: &World) -> bool {
    writes(world).contains(&"apply Job widget-forget".to_owned())
}

/// Runs rounds until the task is there, and returns the names of the pods in its environment.
async fn removed_pods(world: &World, engine: &Engine) -> String {
    for _ in 0..20 {
        round(world, engine).await;
        if let Some(job) = world.object(JOB, NAMESPACE, "widget-forget") {
            let variables = &job["spec"]["template"]["spec"]["containers"][0]["env"];
            let variables = variables.as_array().unwrap();
            let pods = variables.iter().find(|variable| variable["name"] == "REMOVED_PODS").unwrap();
            return pods["value"].as_str().unwrap().to_owned();
        }
    }
    panic!("no task: {}", driver::statuses(world, engine));
}

#[tokio::test]
async fn a_scale_down_removes_the_records_of_the_removed_pods_once() {
    let (world, engine) = cloud().await;
    scale(&world, &engine, 3).await;
    assert_eq!(recorded(&world), json!({ "worker": 3 }));
    assert!(!has_cleaned(&world), "a new object has left no records");
    world.apply_object(&object(WIDGET, "widget", &json!({ "workers": 1 })));
    world.cluster.hold(JOB, "widget-forget");
    assert_eq!(removed_pods(&world, &engine).await, "widget-worker-1 widget-worker-2");
    assert_eq!(recorded(&world), json!({ "worker": 3 }), "the records remain until the task is complete");
    world.cluster.release(JOB, "widget-forget");
    converge(&world, &engine).await;
    assert_eq!(recorded(&world), json!({ "worker": 1 }));
    assert_eq!(world.object(JOB, NAMESPACE, "widget-forget"), None);
    scale(&world, &engine, 2).await;
    assert!(!has_cleaned(&world), "a scale-up removes nothing");
    scale(&world, &engine, 1).await;
    assert!(has_cleaned(&world));
}

#[tokio::test]
async fn no_record_is_removed_while_the_pod_exists_or_its_set_is_not_smaller() {
    let (world, engine) = cloud().await;
    scale(&world, &engine, 2).await;
    world.apply_object(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "widget-worker-1", "namespace": NAMESPACE,
            "labels": { INSTANCE_LABEL: "widget", KIND_LABEL: "Widget" },
        },
    }));
    scale(&world, &engine, 1).await;
    assert!(!has_cleaned(&world) && recorded(&world) == json!({ "worker": 2 }));
    world.delete_object(POD, NAMESPACE, "widget-worker-1");
    converge(&world, &engine).await;
    assert!(has_cleaned(&world) && recorded(&world) == json!({ "worker": 1 }));

    scale(&world, &engine, 2).await;
    world.cluster.hold(STATEFUL_SET, "widget-worker");
    world.apply_object(&object(WIDGET, "widget", &json!({ "workers": 1 })));
    world.script.clear_log();
    converge(&world, &engine).await;
    assert!(!has_cleaned(&world), "the set has not confirmed its new size");
    world.cluster.release(STATEFUL_SET, "widget-worker");
    converge(&world, &engine).await;
    assert!(has_cleaned(&world));
}

#[tokio::test]
async fn records_are_removed_wherever_the_operator_is_killed() {
    let (whole, engine) = cloud().await;
    scale(&whole, &engine, 3).await;
    let before = whole.fork();
    scale(&whole, &engine, 1).await;
    for write in 1.. {
        let world = before.fork();
        world.script.clear_log();
        world.apply_object(&object(WIDGET, "widget", &json!({ "workers": 1 })));
        world.script.crash_after_write(write);
        converge(&world, &driver::engine(&world)).await;
        let has_crashed = world.script.crashed();
        if has_crashed {
            world.script.revive();
            converge(&world, &driver::engine(&world)).await;
        }
        assert!(has_cleaned(&world), "killed after write {write}");
        assert_same(&world.fingerprint(), &whole.fingerprint(), || format!("killed after write {write}"));
        if !has_crashed {
            assert!(write > 2, "too few writes");
            return;
        }
    }
}
