//! Keys rotate on schedule and on request, without a restart of pods.

use std::time::Duration;

use openstack_operator_engine::engine::{Engine, Outcome};
use openstack_operator_model::kind::{DEPLOYMENT, HTTP_ROUTE, JOB, SECRET};
use openstack_operator_services::control_plane;
use openstack_operator_services::keystone::{self, ROTATE_ANNOTATION};
use openstack_operator_testkit::World;
use serde_json::{Value, json};

use crate::driver::{
    NAMESPACE, cloud, condition, converge, engine, get, is_ready, key, object, world, writes,
};

const DAY: Duration = Duration::from_hours(24);
const MINUTE: Duration = Duration::from_mins(1);
const RINGS: [&str; 2] = ["cloud-keystone-fernet", "cloud-keystone-credential"];

fn ring(world: &World, secret: &str) -> Value {
    get(world, SECRET, secret)["data"].clone()
}

fn numbers(ring: &Value) -> Vec<&str> {
    ring.as_object().unwrap().keys().map(String::as_str).collect()
}

fn request(world: &World, value: &str) {
    world.edit_object(keystone::KIND, NAMESPACE, "cloud-keystone", |body| {
        body["metadata"]["annotations"][ROTATE_ANNOTATION] = json!(value);
    });
}

async fn due(engine: &Engine) -> Option<Duration> {
    match engine.reconcile(&key(keystone::KIND, "cloud-keystone")).await {
        Outcome::Done { recheck } => recheck,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn keys_rotate_on_schedule() {
    let (world, engine) = cloud().await;
    // Worlds start on a Thursday, and the default schedule is Sunday at midnight.
    assert_eq!(due(&engine).await, Some(DAY * 3));
    world.environment.advance(DAY * 2 + MINUTE * (24 * 60 - 1));
    converge(&world, &engine).await;
    assert_eq!(writes(&world), [""; 0], "a minute too early");
    let before = RINGS.map(|secret| ring(&world, secret));
    let pods = get(&world, DEPLOYMENT, "cloud-keystone");
    world.environment.advance(MINUTE);
    converge(&world, &engine).await;
    for (secret, before) in RINGS.iter().zip(&before) {
        let after = ring(&world, secret);
        assert_eq!(numbers(&after), ["0", "1", "2"], "{secret}");
        assert_eq!(after["2"], before["0"], "the staged key signs");
        assert_eq!(after["1"], before["1"], "the former primary key still verifies");
        assert!(before.as_object().unwrap().values().all(|key| *key != after["0"]), "a new key is staged");
    }
    assert_eq!(get(&world, DEPLOYMENT, "cloud-keystone"), pods, "no pod restarts");
    assert_eq!(due(&engine).await, Some(DAY * 7));
}

#[tokio::test]
async fn stored_credentials_are_reencrypted_after_each_rotation() {
    let (world, engine) = cloud().await;
    assert!(world.object(JOB, NAMESPACE, "cloud-keystone-credential-migrate").is_none());
    let mut uids = Vec::new();
    for _ in 0..2 {
        world.environment.advance(DAY * 7);
        world.script.clear_log();
        converge(&world, &engine).await;
        let written = writes(&world);
        let position = |call: &str| written.iter().position(|written| written == call).unwrap();
        let rotated = position("apply Secret cloud-keystone-credential");
        assert!(rotated < position("apply Job cloud-keystone-credential-migrate"), "{written:?}");
        assert!(is_ready(&world, keystone::KIND, "cloud-keystone"));
        let job = get(&world, JOB, "cloud-keystone-credential-migrate");
        uids.push(job["metadata"]["uid"].clone());
    }
    assert_ne!(uids[0], uids[1], "each rotation runs the Job again");
}

#[tokio::test]
async fn keys_are_deleted_only_after_their_tokens_expire() {
    let (world, engine) = cloud().await;
    for _ in 0..3 {
        world.environment.advance(DAY * 7);
        converge(&world, &engine).await;
    }
    assert_eq!(numbers(&ring(&world, "cloud-keystone-fernet")), ["0", "3", "4"]);
    for value in ["a", "b", "c"] {
        world.environment.advance(MINUTE * 3);
        request(&world, value);
        converge(&world, &engine).await;
    }
    // Tokens that these keys signed have not expired.
    assert_eq!(numbers(&ring(&world, "cloud-keystone-fernet")), ["0", "3", "4", "5", "6", "7"]);
    world.environment.advance(DAY * 7);
    converge(&world, &engine).await;
    assert_eq!(numbers(&ring(&world, "cloud-keystone-fernet")), ["0", "7", "8"]);
}

#[tokio::test]
async fn a_request_rotates_once() {
    let (world, engine) = cloud().await;
    world.environment.advance(DAY);
    request(&world, "please");
    converge(&world, &engine).await;
    for secret in RINGS {
        assert_eq!(numbers(&ring(&world, secret)), ["0", "1", "2"]);
    }
    world.environment.advance(DAY);
    world.script.clear_log();
    converge(&world, &engine).await;
    assert_eq!(writes(&world), [""; 0]);
    world.edit_object(keystone::KIND, NAMESPACE, "cloud-keystone", |body| {
        body["metadata"]["annotations"].as_object_mut().unwrap().remove(ROTATE_ANNOTATION);
    });
    converge(&world, &engine).await;
    request(&world, "please");
    converge(&world, &engine).await;
    assert_eq!(numbers(&ring(&world, RINGS[0])), ["0", "1", "2"], "the same value is the same request");
}

#[tokio::test]
async fn a_request_waits_until_every_pod_has_the_last_keys() {
    let (world, engine) = cloud().await;
    world.environment.advance(DAY);
    request(&world, "first");
    converge(&world, &engine).await;
    world.environment.advance(MINUTE);
    request(&world, "second");
    converge(&world, &engine).await;
    assert_eq!(numbers(&ring(&world, RINGS[0])), ["0", "1", "2"]);
    assert_eq!(due(&engine).await, Some(MINUTE));
    world.environment.advance(MINUTE);
    converge(&world, &engine).await;
    assert_eq!(numbers(&ring(&world, RINGS[0])), ["0", "1", "2", "3"]);
}

/// A cloud whose route no Gateway accepts.
async fn cloud_without_gateway() -> (World, Engine) {
    let world = world();
    world.cluster.hold(HTTP_ROUTE, "cloud-keystone");
    let spec = json!({ "gatewayRef": { "name": "edge" }, "publicDomain": "example.com" });
    world.apply_object(&object(control_plane::KIND, "cloud", &spec));
    let engine = engine(&world);
    converge(&world, &engine).await;
    (world, engine)
}

#[tokio::test]
async fn stored_credentials_are_reencrypted_while_no_gateway_accepts_the_route() {
    let (world, engine) = cloud_without_gateway().await;
    assert!(!is_ready(&world, keystone::KIND, "cloud-keystone"));
    world.environment.advance(DAY * 7);
    converge(&world, &engine).await;
    let job = get(&world, JOB, "cloud-keystone-credential-migrate");
    assert_eq!(job["status"]["conditions"][0]["type"], "Complete");
    assert_eq!(condition(&world, keystone::KIND, "cloud-keystone", "Exposed").0, "False");
    assert_eq!(condition(&world, keystone::KIND, "cloud-keystone", "Finished").0, "True");
}

#[tokio::test]
async fn a_key_is_kept_until_stored_credentials_are_reencrypted() {
    const TASK: &str = "cloud-keystone-credential-migrate";
    for (world, engine) in [cloud().await, cloud_without_gateway().await] {
        world.cluster.hold(JOB, TASK);
        let before = ring(&world, RINGS[1]);
        for week in 1..=3 {
            world.environment.advance(DAY * 7);
            request(&world, &week.to_string());
            converge(&world, &engine).await;
            let after = ring(&world, RINGS[1]);
            assert_eq!(numbers(&after), ["0", "1", "2"], "week {week}");
            assert_eq!(after["1"], before["1"], "all stored credentials need it");
            assert_eq!(condition(&world, keystone::KIND, "cloud-keystone", "Finished").0, "False");
        }
        assert_eq!(numbers(&ring(&world, RINGS[0])).len(), 3, "tokens expire by themselves");
        world.cluster.release(JOB, TASK);
        converge(&world, &engine).await;
        // The rotation that is due follows at once.
        assert_eq!(numbers(&ring(&world, RINGS[1])), ["0", "2", "3"]);
    }
}

#[tokio::test]
async fn a_rotation_after_lost_annotations_is_followed_by_a_new_reencryption() {
    let (world, engine) = cloud().await;
    world.environment.advance(DAY * 7);
    converge(&world, &engine).await;
    let uid = || get(&world, JOB, "cloud-keystone-credential-migrate")["metadata"]["uid"].clone();
    let first = uid();
    world.edit_object(SECRET, NAMESPACE, RINGS[1], |secret| {
        secret["metadata"].as_object_mut().unwrap().remove("annotations");
    });
    converge(&world, &engine).await;
    assert_eq!(uid(), first, "nothing was rotated");
    world.environment.advance(DAY * 7);
    converge(&world, &engine).await;
    assert_ne!(uid(), first);
}
