//! Types of volumes in the API of an object.

use openstack_operator_engine::engine::Engine;
use openstack_operator_testkit::{TypeEntry, World};
use serde_json::json;

use crate::driver::{cloud, converge, get, is_ready, object, round, writes};
use crate::test_services::WIDGET;

const URL: &str = "http://widget";

async fn offer(world: &World, engine: &Engine, types: &[&str]) {
    world.apply_object(&object(WIDGET, "widget", &json!({ "volumeTypes": types })));
    converge(world, engine).await;
}

fn offered(world: &World) -> Vec<String> {
    world.block_storage.state(URL).types.into_keys().collect()
}

fn condition(world: &World, kind: &str) -> (String, String) {
    let status = get(world, WIDGET, "widget")["status"].clone();
    let conditions = status["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|condition| condition["type"] == kind).unwrap();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("message"))
}

#[tokio::test]
async fn types_are_created_restored_and_removed() {
    let (world, engine) = cloud().await;
    offer(&world, &engine, &["fast", "slow"]).await;
    assert_eq!(offered(&world), ["fast", "slow"]);
    assert_eq!(condition(&world, "VolumeTypesReady").0, "True");
    world.script.clear_log();
    round(&world, &engine).await;
    assert!(writes(&world).is_empty(), "{:?}", writes(&world));
    // Drift.
    world.block_storage.edit(URL, |state| {
        state.types.remove("fast");
        state.types.insert("admin".to_owned(), TypeEntry::default());
    });
    offer(&world, &engine, &["fast"]).await;
    assert_eq!(offered(&world), ["admin", "fast"], "a type of an administrator stays");
}

#[tokio::test]
async fn a_type_in_use_stays_with_a_remark_and_does_not_affect_readiness() {
    let (world, engine) = cloud().await;
    offer(&world, &engine, &["fast", "slow"]).await;
    world.block_storage.edit(URL, |state| {
        if let Some(entry) = state.types.get_mut("slow") {
            entry.used = true;
        }
    });
    offer(&world, &engine, &["fast"]).await;
    assert_eq!(offered(&world), ["fast", "slow"]);
    assert!(is_ready(&world, WIDGET, "widget"));
    let (_, message) = condition(&world, "Ready");
    assert!(message.contains("volume type slow cannot be deleted: it is in use"), "{message}");
}

#[tokio::test]
async fn an_api_that_does_not_answer_is_reported_and_asked_again() {
    let (world, engine) = cloud().await;
    world.block_storage.set_down(true);
    world.apply_object(&object(WIDGET, "widget", &json!({ "volumeTypes": ["fast"] })));
    for _ in 0..10 {
        round(&world, &engine).await;
    }
    assert_eq!(condition(&world, "VolumeTypesReady").0, "False");
    assert!(!is_ready(&world, WIDGET, "widget"));
    world.block_storage.set_down(false);
    offer(&world, &engine, &["fast"]).await;
    assert!(is_ready(&world, WIDGET, "widget"));
    assert_eq!(offered(&world), ["fast"]);
}
