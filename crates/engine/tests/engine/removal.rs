//! Tasks for the deletion of an object run before it is gone, and never block it forever.

use std::time::Duration;

use openstack_operator_engine::engine::Engine;
use openstack_operator_model::kind::{CRON_JOB, JOB, Kind};
use openstack_operator_testkit::{Gadget, World};
use serde_json::json;

use crate::driver::{NAMESPACE, condition, converge, engine, full_object, get, is_ready, world, writes};

const KIND: Kind = Gadget::KIND;

/// A Ready gadget with a task for its deletion.
async fn gadget() -> (World, Engine) {
    let world = world();
    world.apply_object(&full_object(KIND, "x", &json!({ "onDeletion": true })));
    let engine = engine(&world);
    converge(&world, &engine).await;
    assert!(is_ready(&world, KIND, "x"));
    world.script.clear_log();
    (world, engine)
}

#[tokio::test]
async fn the_task_runs_only_when_the_object_is_deleted() {
    let (world, engine) = gadget().await;
    assert_eq!(get(&world, CRON_JOB, "x-remove")["spec"]["suspend"], true);
    assert!(world.object(JOB, NAMESPACE, "x-remove").is_none());
    world.delete_object(KIND, NAMESPACE, "x");
    converge(&world, &engine).await;
    assert!(world.object(KIND, NAMESPACE, "x").is_none());
    let written = writes(&world);
    let position = |call: &str| written.iter().position(|known| known == call);
    let (task, finalizer) = (position("apply Job x-remove"), position("patch_metadata Gadget x"));
    assert!(task.is_some() && task < finalizer, "{written:#?}");
}

#[tokio::test]
async fn a_task_runs_with_a_spec_that_cannot_be_planned_any_more() {
    let (world, engine) = gadget().await;
    world.edit_object(KIND, NAMESPACE, "x", |body| body["spec"] = json!({ "login": "missing" }));
    world.delete_object(KIND, NAMESPACE, "x");
    converge(&world, &engine).await;
    assert!(world.object(KIND, NAMESPACE, "x").is_none());
    assert!(writes(&world).contains(&"apply Job x-remove".to_owned()));
}

#[tokio::test]
async fn deletion_waits_for_the_task_and_gives_up_after_five_minutes() {
    let (world, engine) = gadget().await;
    world.cluster.hold(JOB, "x-remove");
    world.delete_object(KIND, NAMESPACE, "x");
    converge(&world, &engine).await;
    let (_, _, message) = condition(&world, KIND, "x", "Ready");
    assert!(message.contains("waiting for Job x-remove"), "{message}");
    world.environment.advance(Duration::from_secs(299));
    converge(&world, &engine).await;
    assert!(world.object(KIND, NAMESPACE, "x").is_some());
    world.environment.advance(Duration::from_secs(1));
    converge(&world, &engine).await;
    assert!(world.object(KIND, NAMESPACE, "x").is_none());
    let events = world.cluster.announcements();
    let left = events.iter().find(|one| one.event.reason == "LeftBehind").unwrap();
    assert_eq!(left.event.note, "remove by hand, its Job did not complete: what Job x-remove removes");
}

#[tokio::test]
async fn a_task_that_the_plan_no_longer_contains_does_not_run() {
    let (world, engine) = gadget().await;
    world.edit_object(KIND, NAMESPACE, "x", |body| body["spec"] = json!({}));
    converge(&world, &engine).await;
    assert!(world.object(CRON_JOB, NAMESPACE, "x-remove").is_none());
    world.delete_object(KIND, NAMESPACE, "x");
    converge(&world, &engine).await;
    assert!(world.object(KIND, NAMESPACE, "x").is_none());
    assert!(!writes(&world).contains(&"apply Job x-remove".to_owned()));
}
