//! Status: written once per reconcile, last, only if it differs, and with stable messages.

use std::collections::BTreeSet;
use std::time::Duration;

use openstack_operator_engine::engine::Engine;
use openstack_operator_model::kind::{DEPLOYMENT, STATEFUL_SET};
use openstack_operator_services::{control_plane, keystone};
use openstack_operator_testkit::World;
use serde_json::{Value, json};

use crate::driver::{
    NAMESPACE, cloud, condition, converge, engine, is_urgent, keys, new_cloud, object, world, writes,
};
use crate::test_services::{BOMB, WIDGET};

/// Values that differ from run to run: uids, times, passwords.
const UNSTABLE: [&str; 3] = ["00000000-0000-4000-8000-", "2026-", "Zq0"];

/// Converges, and checks writes and status after each reconcile.
async fn converge_checked(world: &World, engine: &Engine) {
    for _ in 0..40 {
        let mut busy = false;
        // Failed Jobs are retried after a while.
        world.environment.advance(Duration::from_mins(1));
        for key in keys(world, engine) {
            world.script.clear_log();
            let outcome = engine.reconcile(&key).await;
            let written = writes(world);
            busy |= is_urgent(&outcome) || !written.is_empty();
            let report = format!("write_status {} {}", key.kind.kind, key.name);
            let reports = written.iter().filter(|call| call.starts_with("write_status")).count();
            assert!(reports <= 1, "{key}: {written:?}");
            if reports == 1 {
                let after: Vec<&String> =
                    written.iter().skip_while(|call| **call != report).skip(1).collect();
                let announced = format!("publish {} {}", key.kind.kind, key.name);
                assert!(after.is_empty() || after == [&announced], "{key}: {written:?}");
            }
            if let Some(body) = world.object(key.kind, NAMESPACE, &key.name) {
                check(&format!("{key}"), &body["status"]);
            }
        }
        if !world.cluster.settle() && !busy {
            return;
        }
    }
    panic!("not converged");
}

fn check(key: &str, status: &Value) {
    let mut types = BTreeSet::new();
    for condition in status["conditions"].as_array().into_iter().flatten() {
        let text = |field: &str| condition[field].as_str().unwrap_or_else(|| panic!("{key}: {condition}"));
        assert!(types.insert(text("type")), "{key} has condition {} twice: {status:#}", text("type"));
        let unstable = UNSTABLE.iter().any(|part| text("message").contains(part));
        assert!(!unstable, "{key}: {}", text("message"));
        assert!(!text("reason").is_empty(), "the API server requires a reason: {condition}");
        assert!(text("message").len() <= 32768);
    }
    for row in status["services"].as_array().into_iter().flatten() {
        let waiting = row["waitingFor"].as_str().unwrap_or_default();
        assert!(!UNSTABLE.iter().any(|part| waiting.contains(part)), "{key}: {waiting}");
    }
}

#[tokio::test]
async fn every_reconcile_writes_the_status_at_most_once_and_last() {
    let world = new_cloud();
    let engine = engine(&world);
    world.apply_object(&object(WIDGET, "widget", &json!({})));
    world.apply_object(&object(BOMB, "bomb", &json!({})));
    world.cluster.fail_job("cloud-keystone-db-sync");
    converge_checked(&world, &engine).await;
    world.apply_object(&object(
        control_plane::KIND,
        "cloud",
        &json!({ "images": { "tag": "next" }, "keystone": { "notifications": { "enabled": true } } }),
    ));
    world.apply_object(&object(WIDGET, "widget", &json!({ "database": "gadget" })));
    converge_checked(&world, &engine).await;
    world.delete_object(STATEFUL_SET, NAMESPACE, "cloud-mariadb");
    world.delete_object(DEPLOYMENT, NAMESPACE, "cloud-keystone");
    converge_checked(&world, &engine).await;
    world.delete_object(WIDGET, NAMESPACE, "widget");
    world.delete_object(control_plane::KIND, NAMESPACE, "cloud");
    converge_checked(&world, &engine).await;
}

#[tokio::test]
async fn a_failed_call_is_reported_by_the_condition_of_its_step() {
    for (down, part) in [(0, "DatabaseReady"), (1, "MessagingReady"), (2, "Registered")] {
        let (world, engine) = cloud().await;
        world.apply_object(&object(WIDGET, "widget", &json!({})));
        match down {
            0 => world.sql.set_down(true),
            1 => world.bus.set_down(true),
            _ => world.identity.set_down(true),
        }
        for _ in 0..3 {
            for key in keys(&world, &engine) {
                engine.reconcile(&key).await;
            }
        }
        let (status, reason, message) = condition(&world, WIDGET, "widget", part);
        assert_eq!((status.as_str(), reason.as_str()), ("False", "Unavailable"));
        assert!(message.contains("the server is down"), "{message}");
        assert_eq!(condition(&world, WIDGET, "widget", "Ready").2, message);
        check("widget", &world.object(WIDGET, NAMESPACE, "widget").unwrap()["status"]);
    }
}

#[tokio::test]
async fn a_rejected_apply_is_reported_by_its_phase_and_keeps_other_conditions() {
    let (world, engine) = cloud().await;
    // The API server rejects a change of the selector.
    world.edit_object(DEPLOYMENT, NAMESPACE, "cloud-keystone", |deployment| {
        deployment["spec"]["selector"] = json!({ "matchLabels": { "another": "selector" } });
    });
    for key in keys(&world, &engine) {
        engine.reconcile(&key).await;
    }
    let (status, _, message) = condition(&world, keystone::KIND, "cloud-keystone", "WorkloadsReady");
    assert_eq!(status, "False");
    assert!(message.contains("immutable"), "{message}");
    for part in ["InputsReady", "DatabaseReady", "FernetKeysReady", "ConfigReady", "Registered"] {
        assert_eq!(condition(&world, keystone::KIND, "cloud-keystone", part).0, "True", "{part}");
    }
}

fn announced(world: &World, name: &str) -> Vec<&'static str> {
    let events = world.cluster.announcements().into_iter().filter(|one| one.name == name);
    events.map(|one| one.event.reason).collect()
}

#[tokio::test]
async fn events_report_only_transitions() {
    let world = new_cloud();
    let engine = engine(&world);
    converge(&world, &engine).await;
    for key in keys(&world, &engine) {
        assert_eq!(announced(&world, &key.name), ["Ready"], "{key}");
    }
    converge(&world, &engine).await;
    world.delete_object(DEPLOYMENT, NAMESPACE, "cloud-keystone");
    converge(&world, &engine).await;
    assert_eq!(announced(&world, "cloud-keystone"), ["Ready", "Reconciling", "Ready"]);
    assert_eq!(announced(&world, "cloud"), ["Ready", "Reconciling", "Ready"]);
    assert_eq!(announced(&world, "cloud-mariadb"), ["Ready"]);
    let events = world.cluster.announcements();
    let why = events.iter().find(|one| one.name == "cloud-keystone" && one.event.reason == "Reconciling");
    let why = why.unwrap();
    assert_eq!(why.event.note, "Deployment cloud-keystone: 0 of 1 pods ready");
    assert_eq!((why.kind.as_str(), why.event.warning), ("Keystone", false));
}

#[tokio::test]
async fn a_stalled_event_is_published_once_per_message() {
    let world = world();
    world.apply_object(&object(BOMB, "bomb", &json!({})));
    let engine = engine(&world);
    for size in 0..3 {
        converge(&world, &engine).await;
        world.apply_object(&object(BOMB, "bomb", &json!({ "size": size })));
    }
    assert_eq!(announced(&world, "bomb"), ["Stalled"], "the same message is not published again");
    let event = world.cluster.announcements().pop().unwrap().event;
    assert!(event.warning && event.note.contains("the fuse was too short"), "{event:?}");
}

#[tokio::test]
async fn a_transition_keeps_its_time_until_the_next() {
    let (world, engine) = cloud().await;
    let since = |world: &World, type_: &str| {
        let body = world.object(keystone::KIND, NAMESPACE, "cloud-keystone").unwrap();
        let conditions = body["status"]["conditions"].as_array().unwrap().clone();
        let found = conditions.into_iter().find(|condition| condition["type"] == type_).unwrap();
        found["lastTransitionTime"].as_str().unwrap().to_owned()
    };
    let before = since(&world, "Ready");
    world.environment.advance(Duration::from_millis(61_500));
    world.delete_object(DEPLOYMENT, NAMESPACE, "cloud-keystone");
    converge(&world, &engine).await;
    assert_eq!(since(&world, "DatabaseReady"), before, "the database was ready all the time");
    assert_eq!(since(&world, "Ready"), "2026-01-01T00:01:01Z", "in whole seconds");
    assert_eq!(since(&world, "Available"), "2026-01-01T00:01:01Z");
}
