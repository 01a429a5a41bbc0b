//! Faults at every step: whatever goes wrong and whenever, the end is the same.

use openstack_operator_engine::engine::Engine;
use openstack_operator_services::{control_plane, keystone};
use openstack_operator_testkit::{Script, World};
use serde_json::{Value, json};

use crate::driver::{NAMESPACE, assert_same, converge, engine, object, statuses, world};
use crate::sample::WIDGET;

/// A cloud with everything that leads to a call of some port, and an object that uses all that it provides.
fn spec() -> Value {
    json!({
        "gatewayRef": { "name": "edge", "namespace": "gateways" },
        "publicDomain": "example.com",
        "keystone": { "notifications": { "enabled": true }, "replicas": 2 },
    })
}

async fn create() -> (World, Engine) {
    let world = world();
    world.apply_object(&object(control_plane::KIND, "cloud", &spec()));
    world.apply_object(&object(WIDGET, "widget", &json!({})));
    let engine = engine(&world);
    (world, engine)
}

async fn created() -> (World, Engine) {
    let (world, engine) = create().await;
    converge(&world, &engine).await;
    world.script.clear_log();
    (world, engine)
}

/// Another image, another hostname, no notifications any more, and another database of the other object.
async fn change() -> (World, Engine) {
    let (world, engine) = created().await;
    let mut spec = spec();
    spec["keystone"] = json!({ "image": { "tag": "next" }, "replicas": 2 });
    spec["publicDomain"] = json!("example.org");
    world.apply_object(&object(control_plane::KIND, "cloud", &spec));
    world.apply_object(&object(WIDGET, "widget", &json!({ "database": "gadget" })));
    (world, engine)
}

async fn delete_user() -> (World, Engine) {
    let (world, engine) = created().await;
    world.delete_object(WIDGET, NAMESPACE, "widget");
    (world, engine)
}

async fn delete_cloud() -> (World, Engine) {
    let (world, engine) = delete_user().await;
    converge(&world, &engine).await;
    world.script.clear_log();
    world.delete_object(control_plane::KIND, NAMESPACE, "cloud");
    (world, engine)
}

/// Runs a scenario with a fault at each number that `count` finds in an undisturbed run, and compares the ends.
async fn disturb(
    begin: impl AsyncFn() -> (World, Engine),
    count: impl Fn(&Script) -> usize,
    disturb: impl AsyncFn(&World, Engine, usize) -> Engine,
) {
    let (world, undisturbed) = begin().await;
    converge(&world, &undisturbed).await;
    let expected = world.fingerprint();
    let steps = count(&world.script);
    assert!(steps > 3, "there is nothing to disturb in {steps} steps");
    for step in 1..=steps {
        let (world, engine) = begin().await;
        let engine = disturb(&world, engine, step).await;
        converge(&world, &engine).await;
        let context = || format!("step {step} of {steps}\n{}", statuses(&world, &engine));
        assert_same(&world.fingerprint(), &expected, context);
    }
}

async fn kill_after_every_write(begin: impl AsyncFn() -> (World, Engine)) {
    let writes = |script: &Script| script.writes().len();
    disturb(begin, writes, async |world, running, step| {
        world.script.crash_after_write(step);
        converge(world, &running).await;
        assert!(world.script.crashed(), "write {step} did not come");
        world.script.revive();
        engine(world)
    })
    .await;
}

async fn fail_every_call(begin: impl AsyncFn() -> (World, Engine)) {
    let calls = |script: &Script| script.log().len();
    disturb(begin, calls, async |world, engine, step| {
        world.script.fail_call(step);
        engine
    })
    .await;
}

async fn conflict_on_every_write(begin: impl AsyncFn() -> (World, Engine)) {
    let writes = |script: &Script| script.writes().len();
    disturb(begin, writes, async |world, engine, step| {
        world.script.conflict_on_write(step);
        engine
    })
    .await;
}

#[tokio::test]
async fn an_operator_killed_after_any_write_of_a_creation_comes_to_the_same_end() {
    kill_after_every_write(create).await;
}

#[tokio::test]
async fn an_operator_killed_after_any_write_of_a_change_comes_to_the_same_end() {
    kill_after_every_write(change).await;
}

#[tokio::test]
async fn an_operator_killed_after_any_write_of_a_deletion_comes_to_the_same_end() {
    kill_after_every_write(delete_user).await;
    kill_after_every_write(delete_cloud).await;
}

#[tokio::test]
async fn any_call_of_a_creation_may_fail_once() {
    fail_every_call(create).await;
}

#[tokio::test]
async fn any_call_of_a_change_may_fail_once() {
    fail_every_call(change).await;
}

#[tokio::test]
async fn any_call_of_a_deletion_may_fail_once() {
    fail_every_call(delete_user).await;
    fail_every_call(delete_cloud).await;
}

#[tokio::test]
async fn any_write_may_meet_another_change() {
    conflict_on_every_write(create).await;
    conflict_on_every_write(change).await;
    conflict_on_every_write(delete_user).await;
    conflict_on_every_write(delete_cloud).await;
}

#[tokio::test]
async fn a_deleted_cloud_leaves_what_its_policy_retains_and_nothing_else() {
    let (world, engine) = delete_cloud().await;
    converge(&world, &engine).await;
    let print = world.fingerprint();
    let objects: Vec<&String> = print["objects"].as_object().unwrap().keys().collect();
    assert_eq!(objects, ["Secret openstack/cloud-keystone-credential"]);
    let sql = world.sql.state("cloud-mariadb.openstack.svc");
    assert_eq!(sql.databases.iter().collect::<Vec<_>>(), ["keystone"]);
    assert!(sql.users.is_empty(), "{sql:?}");
    assert!(world.object(keystone::KIND, NAMESPACE, "cloud-keystone").is_none());
}
