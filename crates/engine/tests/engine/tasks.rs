//! Tasks after the workloads, tasks that wait for other objects, schedules, and Services for clients outside.

use openstack_operator_engine::engine::Engine;
use openstack_operator_model::kind::{CRON_JOB, DEPLOYMENT, JOB, SECRET, SERVICE};
use openstack_operator_testkit::{Gadget, World};
use serde_json::{Value, json};

use crate::driver::{
    NAMESPACE, condition, converge, engine, full_object, get, is_ready, statuses, world, writes,
};

const TASK: &str = "x-configure";

fn new_gadget(world: &World, name: &str, spec: &Value) {
    world.apply_object(&full_object(Gadget::KIND, name, spec));
}

async fn gadget(spec: &Value) -> (World, Engine) {
    let world = world();
    new_gadget(&world, "x", spec);
    let engine = engine(&world);
    converge(&world, &engine).await;
    assert!(is_ready(&world, Gadget::KIND, "x"), "{}", statuses(&world, &engine));
    world.script.clear_log();
    (world, engine)
}

fn edit(world: &World, field: &str, value: &Value) {
    world.edit_object(Gadget::KIND, NAMESPACE, "x", |body| body["spec"][field] = value.clone());
}

fn job_uid(world: &World) -> Value {
    get(world, JOB, TASK)["metadata"]["uid"].clone()
}

#[tokio::test]
async fn a_task_that_uses_the_workloads_runs_once_they_are_ready() {
    let world = world();
    world.cluster.hold(DEPLOYMENT, "x");
    new_gadget(&world, "x", &json!({}));
    let engine = engine(&world);
    converge(&world, &engine).await;
    assert!(world.object(JOB, NAMESPACE, TASK).is_none());
    world.cluster.release(DEPLOYMENT, "x");
    world.cluster.hold(JOB, TASK);
    converge(&world, &engine).await;
    assert_eq!(condition(&world, Gadget::KIND, "x", "Available").0, "True");
    assert_eq!(condition(&world, Gadget::KIND, "x", "Finished").0, "False");
    world.cluster.release(JOB, TASK);
    converge(&world, &engine).await;
    assert!(is_ready(&world, Gadget::KIND, "x"));
}

#[tokio::test]
async fn a_task_is_repeated_when_its_file_or_its_secret_changes_and_not_otherwise() {
    let (world, engine) = gadget(&json!({ "file": "a" })).await;
    let first = job_uid(&world);
    edit(&world, "purge", &json!(false));
    converge(&world, &engine).await;
    assert_eq!(job_uid(&world), first, "nothing that it depends on has changed");
    edit(&world, "file", &json!("b"));
    converge(&world, &engine).await;
    let second = job_uid(&world);
    assert_ne!(second, first);
    edit(&world, "names", &json!(["b.example.com"]));
    converge(&world, &engine).await;
    let third = job_uid(&world);
    assert_ne!(third, second, "the certificate has changed");
    assert!(is_ready(&world, Gadget::KIND, "x"));
    world.edit_object(SECRET, NAMESPACE, "x-ssh", |body| body["data"] = json!({}));
    converge(&world, &engine).await;
    assert_eq!(job_uid(&world), third, "it does not depend on this Secret");
}

#[tokio::test]
async fn a_task_waits_for_another_object_before_it_starts() {
    let world = world();
    world.cluster.hold(DEPLOYMENT, "other");
    new_gadget(&world, "other", &json!({}));
    new_gadget(&world, "x", &json!({ "waitsFor": "other" }));
    let engine = engine(&world);
    converge(&world, &engine).await;
    assert!(world.object(JOB, NAMESPACE, TASK).is_none());
    let (status, _, message) = condition(&world, Gadget::KIND, "x", "Finished");
    assert_eq!((status.as_str(), message.as_str()), ("False", "Job x-configure waits for Gadget other"));
    assert_eq!(condition(&world, Gadget::KIND, "x", "Available").0, "True");
    world.cluster.release(DEPLOYMENT, "other");
    converge(&world, &engine).await;
    assert!(is_ready(&world, Gadget::KIND, "x"));
    let uid = job_uid(&world);
    world.cluster.hold(DEPLOYMENT, "other");
    world.edit_object(DEPLOYMENT, NAMESPACE, "other", |body| body["status"]["availableReplicas"] = json!(0));
    converge(&world, &engine).await;
    assert!(!is_ready(&world, Gadget::KIND, "other"));
    assert!(is_ready(&world, Gadget::KIND, "x"), "the task has run");
    assert_eq!(job_uid(&world), uid);
}

#[tokio::test]
async fn an_object_waits_for_the_address_of_its_load_balancer() {
    let world = world();
    world.cluster.hold(SERVICE, "x-public");
    new_gadget(&world, "x", &json!({}));
    let engine = engine(&world);
    converge(&world, &engine).await;
    let (status, _, message) = condition(&world, Gadget::KIND, "x", "WorkloadsReady");
    assert_eq!(status, "False");
    assert!(message.contains("Service x-public: no load balancer has given it an address"), "{message}");
    world.cluster.release(SERVICE, "x-public");
    converge(&world, &engine).await;
    assert!(is_ready(&world, Gadget::KIND, "x"));
}

#[tokio::test]
async fn objects_whose_tasks_wait_for_each_other_can_be_deleted() {
    let world = world();
    new_gadget(&world, "x", &json!({ "waitsFor": "other" }));
    new_gadget(&world, "other", &json!({ "waitsFor": "x" }));
    let engine = engine(&world);
    converge(&world, &engine).await;
    for name in ["x", "other"] {
        world.delete_object(Gadget::KIND, NAMESPACE, name);
    }
    converge(&world, &engine).await;
    assert!(world.cluster.objects(Gadget::KIND).is_empty(), "{}", statuses(&world, &engine));
}

#[tokio::test]
async fn a_schedule_is_kept_up_to_date_and_its_failure_is_only_a_remark() {
    let (world, engine) = gadget(&json!({})).await;
    let spec = get(&world, CRON_JOB, "x-purge")["spec"].clone();
    assert_eq!((&spec["schedule"], &spec["concurrencyPolicy"]), (&json!("0 3 * * *"), &json!("Forbid")));
    world.edit_object(CRON_JOB, NAMESPACE, "x-purge", |body| {
        body["status"] = json!({ "lastScheduleTime": "2026-01-01T03:00:00Z" });
    });
    converge(&world, &engine).await;
    assert!(is_ready(&world, Gadget::KIND, "x"));
    let remark = "the last run of CronJob x-purge failed";
    assert!(statuses(&world, &engine).contains(remark), "{}", statuses(&world, &engine));
    world.edit_object(CRON_JOB, NAMESPACE, "x-purge", |body| {
        body["status"]["lastSuccessfulTime"] = json!("2026-01-01T03:00:09Z");
        body["spec"]["schedule"] = json!("0 4 * * *");
    });
    converge(&world, &engine).await;
    assert!(!statuses(&world, &engine).contains(remark));
    assert_eq!(get(&world, CRON_JOB, "x-purge")["spec"]["schedule"], "0 3 * * *");
    world.script.clear_log();
    converge(&world, &engine).await;
    assert_eq!(writes(&world), [""; 0]);
    edit(&world, "purge", &json!(false));
    converge(&world, &engine).await;
    assert!(world.object(CRON_JOB, NAMESPACE, "x-purge").is_none(), "it is pruned");
}
