//! Upgrades: the database schema expands before the rollout and contracts after it.

use std::time::Duration;

use openstack_operator_engine::engine::Engine;
use openstack_operator_model::kind::{CONFIG_MAP, DEPLOYMENT, HTTP_ROUTE, JOB, POD};
use openstack_operator_services::{control_plane, keystone};
use openstack_operator_testkit::World;
use serde_json::{Value, json};

use crate::driver::{
    NAMESPACE, cloud, condition, converge, engine, get, is_ready, new_cloud, object, round, world, writes,
};

const REPOSITORY: &str = "quay.io/openstack.kolla/keystone";

fn set_tag(world: &World, tag: &str) {
    let spec = json!({ "keystone": { "image": { "tag": tag } } });
    world.apply_object(&object(control_plane::KIND, "cloud", &spec));
}

fn installed(world: &World) -> Value {
    get(world, keystone::KIND, "cloud-keystone")["status"]["installed"].clone()
}

fn running_image(world: &World) -> Value {
    let deployment = get(world, DEPLOYMENT, "cloud-keystone");
    deployment["spec"]["template"]["spec"]["containers"][0]["image"].clone()
}

fn job(world: &World, name: &str) -> Option<Value> {
    world.object(JOB, NAMESPACE, &format!("cloud-keystone-{name}"))
}

fn job_image(world: &World, name: &str) -> Value {
    let job = job(world, name).unwrap_or_else(|| panic!("Job {name} does not exist"));
    job["spec"]["template"]["spec"]["containers"][0]["image"].clone()
}

fn ready_message(world: &World) -> String {
    let (status, _, message) = condition(world, keystone::KIND, "cloud-keystone", "Ready");
    assert_eq!(status, "False");
    message
}

#[tokio::test]
async fn a_first_start_installs_without_migrations() {
    let world = new_cloud();
    converge(&world, &engine(&world)).await;
    let written = writes(&world);
    let jobs: Vec<&String> = written.iter().filter(|call| call.starts_with("apply Job")).collect();
    assert_eq!(jobs, ["apply Job cloud-keystone-db-sync", "apply Job cloud-keystone-bootstrap"]);
    let position = |call: &str| written.iter().position(|written| written == call).unwrap();
    assert!(position("ensure sql keystone") < position("apply Job cloud-keystone-db-sync"));
    assert!(position("apply Job cloud-keystone-db-sync") < position("apply Deployment cloud-keystone"));
}

#[tokio::test]
async fn an_installation_is_recorded_before_a_gateway_accepts_the_route() {
    let world = world();
    world.cluster.hold(HTTP_ROUTE, "cloud-keystone");
    let spec = |tag: &str| {
        json!({ "gatewayRef": { "name": "edge" }, "publicDomain": "example.com",
                "keystone": { "image": { "tag": tag } } })
    };
    world.apply_object(&object(control_plane::KIND, "cloud", &spec("first")));
    let engine = engine(&world);
    converge(&world, &engine).await;
    assert!(!is_ready(&world, keystone::KIND, "cloud-keystone"));
    assert_eq!(installed(&world), format!("{REPOSITORY}:first"));
    world.script.clear_log();
    world.apply_object(&object(control_plane::KIND, "cloud", &spec("second")));
    converge(&world, &engine).await;
    let written = writes(&world);
    let jobs: Vec<&String> = written.iter().filter(|call| call.starts_with("apply Job")).collect();
    let expected = ["db-expand", "db-migrate", "bootstrap", "db-contract"];
    assert_eq!(jobs, expected.map(|name| format!("apply Job cloud-keystone-{name}")).each_ref());
    assert_eq!(installed(&world), format!("{REPOSITORY}:second"));
}

#[tokio::test]
async fn an_installation_is_not_recorded_before_its_task_is_complete() {
    let world = new_cloud();
    world.cluster.hold(JOB, "cloud-keystone-db-sync");
    let engine = engine(&world);
    converge(&world, &engine).await;
    assert_eq!(installed(&world), Value::Null);
    world.cluster.release(JOB, "cloud-keystone-db-sync");
    world.cluster.hold(DEPLOYMENT, "cloud-keystone");
    converge(&world, &engine).await;
    assert_eq!(installed(&world), format!("{REPOSITORY}:2025.1-ubuntu-noble"));
}

#[tokio::test]
async fn a_workload_waits_for_its_install() {
    let world = new_cloud();
    let engine = engine(&world);
    world.cluster.hold(JOB, "cloud-keystone-db-sync");
    converge(&world, &engine).await;
    assert!(world.object(DEPLOYMENT, NAMESPACE, "cloud-keystone").is_none());
    assert_eq!(ready_message(&world), "Job cloud-keystone-db-sync runs");
    let (status, _, message) = condition(&world, keystone::KIND, "cloud-keystone", "TasksComplete");
    assert_eq!((status.as_str(), message.as_str()), ("False", "Job cloud-keystone-db-sync runs"));
    assert_eq!(condition(&world, keystone::KIND, "cloud-keystone", "WorkloadsReady").2, "not started");
    world.cluster.release(JOB, "cloud-keystone-db-sync");
    converge(&world, &engine).await;
    assert!(is_ready(&world, keystone::KIND, "cloud-keystone"));
}

#[tokio::test]
async fn a_new_image_expands_migrates_rolls_out_and_contracts() {
    let (world, engine) = cloud().await;
    let (old, new) = (format!("{REPOSITORY}:2025.1-ubuntu-noble"), format!("{REPOSITORY}:next"));
    for name in ["db-expand", "db-migrate", "db-contract"] {
        world.cluster.hold(JOB, &format!("cloud-keystone-{name}"));
    }
    world.cluster.hold(DEPLOYMENT, "cloud-keystone");
    set_tag(&world, "next");

    converge(&world, &engine).await;
    assert_eq!(job_image(&world, "db-expand"), new);
    assert_eq!(job(&world, "db-migrate"), None, "the schema expands first");
    assert_eq!(running_image(&world), old);

    world.cluster.release(JOB, "cloud-keystone-db-expand");
    converge(&world, &engine).await;
    assert_eq!(job_image(&world, "db-migrate"), new);
    assert_eq!(running_image(&world), old, "old pods serve during the migration");
    assert_eq!(condition(&world, keystone::KIND, "cloud-keystone", "Available").0, "True");

    world.cluster.release(JOB, "cloud-keystone-db-migrate");
    converge(&world, &engine).await;
    assert_eq!(running_image(&world), new);
    assert_eq!(job(&world, "db-contract"), None, "old pods still use the old schema");
    assert_eq!(job(&world, "db-sync"), None);

    world.cluster.release(DEPLOYMENT, "cloud-keystone");
    converge(&world, &engine).await;
    assert_eq!(job_image(&world, "db-contract"), new);
    assert_eq!(installed(&world), old, "an unfinished upgrade is not installed");
    assert_eq!(ready_message(&world), "Job cloud-keystone-db-contract runs");

    world.cluster.release(JOB, "cloud-keystone-db-contract");
    converge(&world, &engine).await;
    assert_eq!(installed(&world), new);
    assert!(is_ready(&world, keystone::KIND, "cloud-keystone"));
    for name in ["db-sync", "db-expand", "db-migrate", "db-contract"] {
        assert_eq!(job(&world, name), None, "{name} is pruned");
    }
}

/// A cloud whose upgrade is at its first Job.
async fn stuck_upgrade() -> (World, Engine) {
    let (world, engine) = cloud().await;
    world.cluster.hold(JOB, "cloud-keystone-db-expand");
    set_tag(&world, "next");
    converge(&world, &engine).await;
    (world, engine)
}

#[tokio::test]
async fn a_running_job_finishes_before_it_is_replaced() {
    let (world, engine) = stuck_upgrade().await;
    let running = job(&world, "db-expand").unwrap()["metadata"]["uid"].clone();
    set_tag(&world, "later");
    converge(&world, &engine).await;
    assert_eq!(job(&world, "db-expand").unwrap()["metadata"]["uid"], running);
    assert_eq!(ready_message(&world), "Job cloud-keystone-db-expand of an earlier change is still running");
    world.cluster.release(JOB, "cloud-keystone-db-expand");
    world.script.clear_log();
    converge(&world, &engine).await;
    let written = writes(&world);
    let position = |call: &str| written.iter().position(|written| written == call).unwrap();
    let finished = position("delete Job cloud-keystone-db-expand");
    assert!(finished < position("apply Job cloud-keystone-db-expand"));
    assert_eq!(installed(&world), format!("{REPOSITORY}:later"));
    assert_eq!(running_image(&world), format!("{REPOSITORY}:later"));
}

#[tokio::test]
async fn an_upgrade_can_be_rolled_back_before_the_rollout() {
    let (world, engine) = stuck_upgrade().await;
    let before = running_image(&world);
    world.apply_object(&object(control_plane::KIND, "cloud", &json!({})));
    converge(&world, &engine).await;
    assert_eq!(running_image(&world), before);
    assert_eq!(installed(&world), before);
    assert!(is_ready(&world, keystone::KIND, "cloud-keystone"));
}

#[tokio::test]
async fn a_changed_setting_runs_no_job() {
    let (world, engine) = cloud().await;
    let extra = json!({ "keystone.conf": { "DEFAULT": { "debug": "true" } } });
    world.apply_object(&object(
        control_plane::KIND,
        "cloud",
        &json!({ "keystone": { "extraConfig": extra, "replicas": 3 } }),
    ));
    converge(&world, &engine).await;
    let written = writes(&world);
    assert!(written.contains(&"apply Deployment cloud-keystone".to_owned()));
    assert!(!written.iter().any(|call| call.contains("Job")), "{written:?}");
}

#[tokio::test]
async fn a_failed_job_is_reported_kept_for_its_log_and_retried() {
    let world = new_cloud();
    let engine = engine(&world);
    world.cluster.fail_job("cloud-keystone-db-sync");
    for _ in 0..10 {
        round(&world, &engine).await;
    }
    let failure = "Job cloud-keystone-db-sync failed; see kubectl logs job/cloud-keystone-db-sync";
    let expected = ("False".to_owned(), "Unavailable".to_owned(), failure.to_owned());
    assert_eq!(condition(&world, keystone::KIND, "cloud-keystone", "Ready"), expected);
    let failed = job(&world, "db-sync").unwrap()["metadata"]["uid"].clone();
    world.environment.advance(Duration::from_secs(299));
    round(&world, &engine).await;
    assert_eq!(job(&world, "db-sync").unwrap()["metadata"]["uid"], failed, "it is kept for its log");
    world.environment.advance(Duration::from_secs(1));
    converge(&world, &engine).await;
    assert!(is_ready(&world, keystone::KIND, "cloud-keystone"));
    let tries = writes(&world).iter().filter(|call| *call == "apply Job cloud-keystone-db-sync").count();
    assert_eq!(tries, 2);
}

/// A pod of a Job, whose container is in this state.
fn start_pod(world: &World, name: &str, state: &Value) {
    world.apply_object(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "pod", "namespace": NAMESPACE,
                      "labels": { "batch.kubernetes.io/job-name": format!("cloud-keystone-{name}") } },
    }));
    let status = json!({ "containerStatuses": [{ "name": "keystone-manage", "image": "", "imageID": "",
                         "ready": false, "restartCount": 0, "state": state }] });
    world.set_status(POD, NAMESPACE, "pod", status);
}

#[tokio::test]
async fn a_job_that_has_not_started_is_replaced_by_a_corrected_one() {
    let (world, engine) = stuck_upgrade().await;
    start_pod(&world, "db-expand", &json!({ "waiting": { "reason": "ImagePullBackOff" } }));
    world.cluster.release(JOB, "cloud-keystone-db-expand");
    world.cluster.hold(JOB, "cloud-keystone-db-migrate");
    set_tag(&world, "corrected");
    converge(&world, &engine).await;
    assert_eq!(job_image(&world, "db-expand"), format!("{REPOSITORY}:corrected"));
    assert!(!ready_message(&world).contains("earlier change"), "{}", ready_message(&world));
}

#[tokio::test]
async fn an_unschedulable_job_is_recreated_with_a_corrected_node_selector() {
    let (world, engine) = stuck_upgrade().await;
    start_pod(&world, "db-expand", &json!({}));
    let uid = |world: &World| job(world, "db-expand").unwrap()["metadata"]["uid"].clone();
    let before = uid(&world);
    converge(&world, &engine).await;
    assert_eq!(uid(&world), before, "nothing was corrected");
    world.apply_object(&object(
        control_plane::KIND,
        "cloud",
        &json!({ "keystone": { "image": { "tag": "next" }, "nodeSelector": { "disk": "ssd" } } }),
    ));
    converge(&world, &engine).await;
    assert_ne!(uid(&world), before);
    let pod = job(&world, "db-expand").unwrap()["spec"]["template"]["spec"].clone();
    assert_eq!(pod["nodeSelector"], json!({ "disk": "ssd" }));
}

#[tokio::test]
async fn a_job_that_has_started_is_not_interrupted() {
    for state in [
        json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } }),
        json!({ "terminated": { "exitCode": 1 } }),
    ] {
        let (world, engine) = stuck_upgrade().await;
        start_pod(&world, "db-expand", &state);
        let before = job(&world, "db-expand");
        set_tag(&world, "corrected");
        converge(&world, &engine).await;
        assert_eq!(job(&world, "db-expand"), before);
    }
}

#[tokio::test]
async fn old_configuration_is_deleted_after_the_rollout() {
    let (world, engine) = cloud().await;
    let files = |world: &World| -> Vec<String> {
        let maps = world.cluster.objects(CONFIG_MAP);
        let names = maps.iter().map(|map| map["metadata"]["name"].as_str().unwrap().to_owned());
        names.filter(|name| name.starts_with("cloud-keystone-keystone-conf")).collect()
    };
    let before = files(&world);
    let extra = json!({ "keystone.conf": { "DEFAULT": { "debug": "true" } } });
    world.cluster.hold(DEPLOYMENT, "cloud-keystone");
    world.apply_object(&object(
        control_plane::KIND,
        "cloud",
        &json!({ "keystone": { "extraConfig": extra } }),
    ));
    converge(&world, &engine).await;
    assert_eq!(files(&world).len(), 2, "old pods may still restart");
    world.cluster.release(DEPLOYMENT, "cloud-keystone");
    converge(&world, &engine).await;
    let after = files(&world);
    assert_eq!(after.len(), 1);
    assert_ne!(after, before);
}
