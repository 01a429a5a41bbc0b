//! Releases: a cloud changes wave by wave, and data never goes back.

use openstack_operator_engine::engine::{Engine, Key};
use openstack_operator_model::common::PAUSE_ANNOTATION;
use openstack_operator_model::kind::{Kind, STATEFUL_SET};
use openstack_operator_services::{control_plane, keystone, mariadb, memcached, rabbitmq};
use openstack_operator_testkit::World;
use serde_json::{Value, json};

use crate::driver::{NAMESPACE, cloud, condition, converge, engine, get, is_ready, object, world, writes};

const PARTS: [(Kind, &str); 4] = [
    (mariadb::KIND, "cloud-mariadb"),
    (rabbitmq::KIND, "cloud-rabbitmq"),
    (keystone::KIND, "cloud-keystone"),
    (memcached::KIND, "cloud-memcached"),
];

fn set_release(world: &World, kind: Kind, name: &str, release: &str) {
    world.edit_object(kind, NAMESPACE, name, |object| object["spec"]["release"] = json!(release));
}

fn set_cloud_release(world: &World, release: &str) {
    set_release(world, control_plane::KIND, "cloud", release);
}

fn release(world: &World, kind: Kind, name: &str) -> Value {
    get(world, kind, name)["status"]["release"].clone()
}

/// Releases of the services by their status, in the order of `PARTS`.
fn releases(world: &World) -> [Value; 4] {
    PARTS.map(|(kind, name)| release(world, kind, name))
}

fn image(world: &World, set: &str) -> String {
    let set = get(world, STATEFUL_SET, set);
    set["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
}

/// Writes other than those of statuses and Events.
fn changes(world: &World) -> Vec<String> {
    let is_change = |write: &String| !write.contains("status") && !write.contains("publish");
    writes(world).into_iter().filter(is_change).collect()
}

async fn upgraded() -> (World, Engine) {
    let (world, engine) = cloud().await;
    set_cloud_release(&world, "2026.1");
    converge(&world, &engine).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
    (world, engine)
}

#[tokio::test]
async fn every_object_records_its_release() {
    let (world, _) = cloud().await;
    assert_eq!(release(&world, control_plane::KIND, "cloud"), "2025.1");
    assert_eq!(releases(&world), ["2025.1"; 4]);
}

#[tokio::test]
async fn a_cloud_changes_its_release_wave_by_wave() {
    let (world, engine) = cloud().await;
    world.cluster.hold(STATEFUL_SET, "cloud-rabbitmq");
    set_cloud_release(&world, "2026.1");
    converge(&world, &engine).await;
    assert_eq!(releases(&world), ["2026.1", "2026.1", "2025.1", "2025.1"], "the first wave is not Ready");
    assert!(image(&world, "cloud-mariadb").ends_with(":2026.1-ubuntu-noble"));
    assert!(image(&world, "cloud-memcached").ends_with(":2025.1-ubuntu-noble"));
    assert_eq!(release(&world, control_plane::KIND, "cloud"), "2025.1", "not all services have changed");
    assert!(!is_ready(&world, control_plane::KIND, "cloud"));

    world.cluster.release(STATEFUL_SET, "cloud-rabbitmq");
    world.cluster.hold(STATEFUL_SET, "cloud-memcached");
    converge(&world, &engine).await;
    assert_eq!(releases(&world), ["2026.1"; 4]);
    assert!(!is_ready(&world, control_plane::KIND, "cloud"));

    world.cluster.release(STATEFUL_SET, "cloud-memcached");
    converge(&world, &engine).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
    assert_eq!(release(&world, control_plane::KIND, "cloud"), "2026.1");
    world.script.clear_log();
    converge(&world, &engine).await;
    assert_eq!(writes(&world), [""; 0]);
}

#[tokio::test]
async fn a_restarted_operator_continues_an_upgrade() {
    let (world, before) = cloud().await;
    world.cluster.hold(STATEFUL_SET, "cloud-rabbitmq");
    set_cloud_release(&world, "2026.1");
    converge(&world, &before).await;
    world.cluster.release(STATEFUL_SET, "cloud-rabbitmq");
    converge(&world, &engine(&world)).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
    assert_eq!(releases(&world), ["2026.1"; 4]);
}

#[tokio::test]
async fn a_cloud_that_has_changed_its_release_cannot_go_back() {
    let (world, engine) = upgraded().await;
    world.script.clear_log();
    set_cloud_release(&world, "2025.1");
    converge(&world, &engine).await;
    let (status, reason, message) = condition(&world, control_plane::KIND, "cloud", "Stalled");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "InvalidSpec"));
    assert!(message.starts_with("spec.release: "), "{message}");
    for part in ["set it to 2026.1", "restore backups"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(changes(&world), [""; 0]);
    set_cloud_release(&world, "2026.1");
    converge(&world, &engine).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
}

#[tokio::test]
async fn an_upgrade_cannot_go_back_once_a_service_has_changed() {
    let (world, engine) = cloud().await;
    world.cluster.hold(STATEFUL_SET, "cloud-rabbitmq");
    set_cloud_release(&world, "2026.1");
    converge(&world, &engine).await;
    world.script.clear_log();
    set_cloud_release(&world, "2025.1");
    converge(&world, &engine).await;
    let (status, _, message) = condition(&world, control_plane::KIND, "cloud", "Stalled");
    assert_eq!(status, "True");
    assert!(message.starts_with("spec.release: mariadb, rabbitmq: "), "{message}");
    assert_eq!(changes(&world), [""; 0]);
}

#[tokio::test]
async fn an_upgrade_can_be_taken_back_before_a_service_has_changed() {
    let (world, engine) = cloud().await;
    let pause = |value: &str| {
        for (kind, name) in PARTS {
            world.edit_object(kind, NAMESPACE, name, |object| {
                object["metadata"]["annotations"][PAUSE_ANNOTATION] = json!(value);
            });
        }
    };
    pause("true");
    set_cloud_release(&world, "2026.1");
    converge(&world, &engine).await;
    assert_eq!(get(&world, mariadb::KIND, "cloud-mariadb")["spec"]["release"], "2026.1");
    set_cloud_release(&world, "2025.1");
    converge(&world, &engine).await;
    pause("false");
    converge(&world, &engine).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
    assert_eq!(releases(&world), ["2025.1"; 4]);
}

/// A cache of its own.
async fn cache() -> (World, Engine) {
    let world = world();
    world.apply_object(&object(memcached::KIND, "cache", &json!({})));
    let engine = engine(&world);
    converge(&world, &engine).await;
    assert!(is_ready(&world, memcached::KIND, "cache"));
    (world, engine)
}

#[tokio::test]
async fn a_release_is_recorded_before_anything_of_it_is_applied() {
    let (world, engine) = cache().await;
    set_release(&world, memcached::KIND, "cache", "2026.1");
    let key = Key { kind: memcached::KIND, namespace: NAMESPACE.to_owned(), name: "cache".to_owned() };
    engine.reconcile(&key).await;
    assert_eq!(release(&world, memcached::KIND, "cache"), "2026.1");
    assert!(image(&world, "cache").ends_with(":2025.1-ubuntu-noble"));
    assert_eq!(condition(&world, memcached::KIND, "cache", "Available").0, "True", "it still serves");
    assert!(!is_ready(&world, memcached::KIND, "cache"), "the former release is not taken for the new one");
    converge(&world, &engine).await;
    assert!(image(&world, "cache").ends_with(":2026.1-ubuntu-noble"));
    assert!(is_ready(&world, memcached::KIND, "cache"));
}

#[tokio::test]
async fn a_single_service_cannot_go_back_either() {
    let (world, engine) = cache().await;
    set_release(&world, memcached::KIND, "cache", "2026.1");
    converge(&world, &engine).await;
    set_release(&world, memcached::KIND, "cache", "2025.1");
    converge(&world, &engine).await;
    let (status, _, message) = condition(&world, memcached::KIND, "cache", "Stalled");
    assert_eq!(status, "True");
    assert!(message.contains("release 2025.1 cannot use it"), "{message}");
    assert!(image(&world, "cache").ends_with(":2026.1-ubuntu-noble"));
}

#[tokio::test]
async fn an_object_of_an_operator_that_recorded_no_release_gets_the_record_without_a_rollout() {
    let (world, engine) = cache().await;
    let mut status = get(&world, memcached::KIND, "cache")["status"].clone();
    status.as_object_mut().unwrap().remove("release");
    world.set_status(memcached::KIND, NAMESPACE, "cache", status);
    world.script.clear_log();
    converge(&world, &engine).await;
    assert_eq!(release(&world, memcached::KIND, "cache"), "2025.1");
    assert_eq!(changes(&world), [""; 0]);
}
