//! Deletion undoes effects on other servers, and never blocks forever.

use std::time::Duration;

use openstack_operator_engine::engine::{Engine, Outcome};
use openstack_operator_model::kind::{DEPLOYMENT, Kind, SECRET, STATEFUL_SET};
use openstack_operator_services::{control_plane, keystone, mariadb, rabbitmq};
use openstack_operator_testkit::{IdentityState, SqlState, World};
use serde_json::{Value, json};

use crate::driver::{self, NAMESPACE, cloud, condition, converge, get, key, keys, object, round, writes};
use crate::test_services::WIDGET;

const SQL: &str = "cloud-mariadb.openstack.svc";
const BUS: &str = "http://cloud-rabbitmq.openstack.svc:15672";
const IDENTITY: &str = "http://cloud-keystone.openstack.svc:5000/v3";

/// A cloud, and an object that uses all its services.
async fn used_cloud(spec: &Value) -> (World, Engine) {
    let (world, engine) = cloud().await;
    world.apply_object(&object(WIDGET, "widget", spec));
    converge(&world, &engine).await;
    assert!(sql(&world).users.contains_key("widget"));
    assert!(identity(&world).users.contains_key("widget"));
    assert!(world.bus.state(BUS).users.contains_key("widget"));
    world.script.clear_log();
    (world, engine)
}

fn sql(world: &World) -> SqlState {
    world.sql.state(SQL)
}

fn identity(world: &World) -> IdentityState {
    world.identity.state(IDENTITY)
}

fn sql_user(world: &World, name: &str, password: &str) {
    world.sql.edit(SQL, |state| {
        state.users.insert(name.to_owned(), password.to_owned());
    });
}

fn is_gone(world: &World, kind: Kind, name: &str) -> bool {
    world.object(kind, NAMESPACE, name).is_none()
}

#[tokio::test]
async fn deletion_undoes_all_effects_of_an_object() {
    let (world, engine) = used_cloud(&json!({})).await;
    world.delete_object(WIDGET, NAMESPACE, "widget");
    converge(&world, &engine).await;
    assert!(is_gone(&world, WIDGET, "widget"));
    let undone = [
        "drop_database sql widget",
        "drop_user sql widget",
        "drop_virtual_host bus widget",
        "drop_user bus widget",
        "drop_service identity widget",
        "drop_user identity widget",
        "patch_metadata Widget widget",
    ];
    assert_eq!(writes(&world), undone);
    for secret in ["widget-database", "widget-messaging", "widget-user"] {
        assert!(is_gone(&world, SECRET, secret));
    }
    assert_eq!(sql(&world).databases.iter().collect::<Vec<_>>(), ["keystone"]);
    assert!(identity(&world).services.contains_key("identity"));
}

#[tokio::test]
async fn a_retained_database_stays_and_its_user_is_removed() {
    let (world, engine) = used_cloud(&json!({ "deletionPolicy": "Retain" })).await;
    world.delete_object(WIDGET, NAMESPACE, "widget");
    converge(&world, &engine).await;
    assert!(sql(&world).databases.contains("widget"));
    assert!(!sql(&world).users.contains_key("widget"));
}

#[tokio::test]
async fn the_deletion_policy_at_the_time_of_deletion_applies() {
    let (world, engine) = used_cloud(&json!({})).await;
    world.apply_object(&object(WIDGET, "widget", &json!({ "deletionPolicy": "Retain" })));
    converge(&world, &engine).await;
    assert!(sql(&world).databases.contains("widget"));
    world.delete_object(WIDGET, NAMESPACE, "widget");
    converge(&world, &engine).await;
    assert!(sql(&world).databases.contains("widget"));
}

#[tokio::test]
async fn deletion_removes_the_user_that_a_users_secret_names() {
    let (world, engine) = cloud().await;
    world.apply_yaml(
        "{ apiVersion: v1, kind: Secret, metadata: { name: login, namespace: openstack },
           stringData: { username: second, password: secret } }",
    );
    let database = json!({ "clusterRef": { "name": "cloud-mariadb" }, "secretRef": { "name": "login" },
                           "database": "other" });
    world.apply_object(&object(keystone::KIND, "other", &json!({ "database": database })));
    converge(&world, &engine).await;
    assert!(sql(&world).grants.contains(&("second".to_owned(), "other".to_owned())));
    sql_user(&world, "other", "unrelated");
    world.delete_object(keystone::KIND, NAMESPACE, "other");
    converge(&world, &engine).await;
    let users: Vec<String> = sql(&world).users.into_keys().collect();
    assert_eq!(users, ["keystone", "other"], "a user with the name of the database is unrelated");
    assert!(!is_gone(&world, SECRET, "login"));
}

#[tokio::test]
async fn secrets_that_data_depends_on_are_retained_or_deleted_with_it() {
    for (policy, stays) in [("Retain", true), ("Delete", false)] {
        let (world, engine) = cloud().await;
        let spec = json!({
            "keystone": { "database": { "deletionPolicy": policy } }, "rabbitmq": { "deletionPolicy": policy },
        });
        world.apply_object(&object(control_plane::KIND, "cloud", &spec));
        converge(&world, &engine).await;
        world.delete_object(control_plane::KIND, NAMESPACE, "cloud");
        converge(&world, &engine).await;
        assert!(keys(&world, &engine).is_empty());
        assert_eq!(sql(&world).databases.contains("keystone"), stays, "{policy}");
        assert_eq!(!is_gone(&world, SECRET, "cloud-keystone-credential"), stays, "{policy}");
        assert_eq!(!is_gone(&world, SECRET, "cloud-rabbitmq-cookie"), stays, "{policy}");
        let secrets = world.cluster.objects(SECRET).len();
        assert_eq!(secrets, if stays { 2 } else { 0 }, "no other Secret stays");
    }
}

#[tokio::test]
async fn a_recreated_cloud_uses_the_retained_keys() {
    let (world, engine) = cloud().await;
    let keys_of = |world: &World| world.object(SECRET, NAMESPACE, "cloud-keystone-credential").unwrap();
    let before = keys_of(&world)["data"].clone();
    world.delete_object(control_plane::KIND, NAMESPACE, "cloud");
    converge(&world, &engine).await;
    world.apply_object(&object(control_plane::KIND, "cloud", &json!({})));
    converge(&world, &engine).await;
    assert_eq!(keys_of(&world)["data"], before);
    let (whole, _) = cloud().await;
    assert_eq!(world.fingerprint(), whole.fingerprint());
}

#[tokio::test]
async fn services_are_deleted_before_their_dependencies() {
    let (world, engine) = cloud().await;
    world.delete_object(control_plane::KIND, NAMESPACE, "cloud");
    converge(&world, &engine).await;
    let written = writes(&world);
    let position = |call: &str| written.iter().position(|written| written == call).unwrap();
    let undone = position("drop_user sql keystone");
    assert!(position("delete Keystone cloud-keystone") < undone);
    assert!(undone < position("patch_metadata Keystone cloud-keystone"));
    for used in ["delete MariaDB cloud-mariadb", "delete Memcached cloud-memcached"] {
        assert!(position("patch_metadata Keystone cloud-keystone") < position(used), "{written:#?}");
    }
    assert_eq!(position("patch_metadata OpenStackControlPlane cloud"), written.len() - 1);
    let deletes = written.iter().filter(|call| call.starts_with("delete")).count();
    assert_eq!(deletes, 4, "each is deleted once: {written:#?}");
}

#[tokio::test]
async fn effects_on_deleted_servers_need_no_undoing() {
    for (kind, name) in [
        (keystone::KIND, "cloud-keystone"),
        (mariadb::KIND, "cloud-mariadb"),
        (rabbitmq::KIND, "cloud-rabbitmq"),
    ] {
        let (world, engine) = used_cloud(&json!({})).await;
        // The cloud does not recreate it.
        world.delete_object(control_plane::KIND, NAMESPACE, "cloud");
        world.edit_object(kind, NAMESPACE, name, |body| body["metadata"]["finalizers"] = json!([]));
        world.delete_object(kind, NAMESPACE, name);
        world.delete_object(WIDGET, NAMESPACE, "widget");
        let outcome = engine.reconcile(&key(WIDGET, "widget")).await;
        assert!(matches!(outcome, Outcome::Gone), "without {name}: {outcome:?}");
        assert!(is_gone(&world, WIDGET, "widget"));
        let others = writes(&world).iter().filter(|call| call.starts_with("drop_")).count();
        assert_eq!(others, 4, "effects on the other servers are undone");
        assert!(world.cluster.announcements().iter().all(|one| one.event.reason != "LeftBehind"));
    }
}

/// Reconciles the widget and returns the message in its outcome and its status.
async fn waiting_message(world: &World, engine: &Engine) -> String {
    let outcome = engine.reconcile(&key(WIDGET, "widget")).await;
    let Outcome::Failed { message } = outcome else { panic!("expected to wait: {outcome:?}") };
    assert!(!is_gone(world, WIDGET, "widget"));
    let expected = ("False".to_owned(), "Waiting".to_owned(), message.clone());
    assert_eq!(condition(world, WIDGET, "widget", "Ready"), expected);
    assert_eq!(condition(world, WIDGET, "widget", "Reconciling").0, "True");
    message
}

fn reports(world: &World) -> usize {
    writes(world).iter().filter(|call| call.starts_with("write_status")).count()
}

/// Reconciles the widget while the API server refuses Events.
async fn assert_gone_without_event(world: &World) {
    let (probe, refusing) = (world.fork(), world.fork());
    driver::engine(&probe).reconcile(&key(WIDGET, "widget")).await;
    let publish = probe.script.log().iter().position(|call| call.verb == "publish").unwrap();
    refusing.script.fail_call(publish + 1);
    driver::engine(&refusing).reconcile(&key(WIDGET, "widget")).await;
    assert!(is_gone(&refusing, WIDGET, "widget"), "an Event does not keep an object");
}

/// Deletes the widget while an effect cannot be undone, and expects the timeout and then an Event.
async fn assert_timeout(world: &World, engine: &Engine, server: &str, left: &str) {
    world.delete_object(WIDGET, NAMESPACE, "widget");
    // The operator starts late: time before its first attempt does not count.
    world.environment.advance(Duration::from_hours(1));
    let message = waiting_message(world, engine).await;
    assert!(message.contains(&format!("{server} to remove {left}")), "{message}");
    assert_eq!(reports(world), 1);
    world.environment.advance(Duration::from_secs(299));
    let restarted = driver::engine(world);
    assert_eq!(waiting_message(world, &restarted).await, message);
    assert_eq!(reports(world), 1, "an unchanged status is not written again");
    world.environment.advance(Duration::from_secs(1));
    assert_gone_without_event(world).await;
    let outcome = restarted.reconcile(&key(WIDGET, "widget")).await;
    assert!(matches!(outcome, Outcome::Gone), "{outcome:?}");
    assert!(is_gone(world, WIDGET, "widget"));
    let last = world.cluster.announcements().pop().unwrap();
    assert_eq!((last.name.as_str(), last.event.reason, last.event.warning), ("widget", "LeftBehind", true));
    assert!(last.event.note.contains(&format!("{left} on {server}")), "{}", last.event.note);
}

#[tokio::test]
async fn deletion_waits_for_an_unavailable_server_and_then_gives_up() {
    for (kind, name, server, left) in [
        (STATEFUL_SET, "cloud-mariadb", "MariaDB cloud-mariadb", "database widget"),
        (STATEFUL_SET, "cloud-rabbitmq", "RabbitMQ cloud-rabbitmq", "virtual host widget"),
        (DEPLOYMENT, "cloud-keystone", "Keystone cloud-keystone", "catalog service widget"),
    ] {
        let (world, engine) = used_cloud(&json!({})).await;
        world.cluster.hold(kind, name);
        world.edit_object(kind, NAMESPACE, name, |body| body["status"] = json!({}));
        round(&world, &engine).await;
        world.script.clear_log();
        assert_timeout(&world, &engine, server, left).await;
    }
}

#[tokio::test]
async fn deletion_waits_for_a_server_that_does_not_answer_and_then_gives_up() {
    let (world, engine) = used_cloud(&json!({})).await;
    world.sql.set_down(true);
    assert_timeout(&world, &engine, "MariaDB cloud-mariadb", "database widget").await;
    assert!(!identity(&world).users.contains_key("widget"), "effects on other servers are undone");
}

#[tokio::test]
async fn deletion_does_not_wait_for_a_database_that_was_never_available() {
    let world = driver::new_cloud();
    let engine = driver::engine(&world);
    world.cluster.hold(STATEFUL_SET, "cloud-mariadb");
    converge(&world, &engine).await;
    world.delete_object(control_plane::KIND, NAMESPACE, "cloud");
    converge(&world, &engine).await;
    assert!(world.object(control_plane::KIND, NAMESPACE, "cloud").is_none());
}

#[tokio::test]
async fn the_status_names_all_effects_that_block_deletion() {
    let (world, engine) = used_cloud(&json!({})).await;
    world.sql.set_down(true);
    world.identity.set_down(true);
    world.delete_object(WIDGET, NAMESPACE, "widget");
    assert_eq!(
        waiting_message(&world, &engine).await,
        "waiting for Keystone cloud-keystone to remove catalog service widget and identity user widget; \
         MariaDB cloud-mariadb to remove database widget and database user widget"
    );
}

#[tokio::test]
async fn each_server_has_its_own_timeout() {
    let (world, engine) = used_cloud(&json!({})).await;
    world.bus.set_down(true);
    world.identity.set_down(true);
    world.delete_object(WIDGET, NAMESPACE, "widget");
    waiting_message(&world, &engine).await;
    world.environment.advance(Duration::from_secs(200));
    world.identity.set_down(false);
    // It answered in time; a later failure does not matter.
    waiting_message(&world, &engine).await;
    assert!(!identity(&world).users.contains_key("widget"));
    world.identity.set_down(true);
    world.environment.advance(Duration::from_secs(100));
    let outcome = engine.reconcile(&key(WIDGET, "widget")).await;
    assert!(matches!(outcome, Outcome::Gone), "{outcome:?}");
    let note = world.cluster.announcements().pop().unwrap().event.note;
    let left =
        "virtual host widget on RabbitMQ cloud-rabbitmq, message bus user widget on RabbitMQ cloud-rabbitmq";
    assert!(note.ends_with(left), "{note}");
}

#[tokio::test]
async fn deletion_waits_for_a_server_with_an_unreadable_status() {
    let (world, engine) = used_cloud(&json!({})).await;
    let status = json!({ "conditions": "none", "phase": "Beyond" });
    world.set_status(mariadb::KIND, NAMESPACE, "cloud-mariadb", status);
    assert_timeout(&world, &engine, "MariaDB cloud-mariadb", "database widget").await;
    assert!(sql(&world).users.contains_key("widget"));
}

#[tokio::test]
async fn a_deleted_cloud_names_the_services_that_block_it() {
    let (world, engine) = cloud().await;
    world.delete_object(control_plane::KIND, NAMESPACE, "cloud");
    let outcome = engine.reconcile(&key(control_plane::KIND, "cloud")).await;
    assert!(matches!(outcome, Outcome::Waiting { after: None }), "{outcome:?}");
    let (ready, reason, message) = condition(&world, control_plane::KIND, "cloud", "Ready");
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "Waiting"));
    assert!(message.starts_with("waiting for deletion of "), "{message}");
    for part in ["Keystone cloud-keystone", "MariaDB cloud-mariadb", "RabbitMQ cloud-rabbitmq"] {
        assert!(message.contains(part), "{message}");
    }
    world.script.clear_log();
    engine.reconcile(&key(control_plane::KIND, "cloud")).await;
    assert_eq!(reports(&world), 0);
}

#[tokio::test]
async fn possible_dependencies_of_a_service_with_an_unreadable_status_stay() {
    let (world, engine) = cloud().await;
    let status = get(&world, keystone::KIND, "cloud-keystone")["status"].clone();
    world.set_status(keystone::KIND, NAMESPACE, "cloud-keystone", json!({ "effects": "some" }));
    world.delete_object(control_plane::KIND, NAMESPACE, "cloud");
    for _ in 0..8 {
        round(&world, &engine).await;
    }
    let deleted: Vec<String> = writes(&world).into_iter().filter(|call| call.starts_with("delete")).collect();
    assert!(!deleted.is_empty(), "its users are deleted");
    for kept in ["MariaDB cloud-mariadb", "Memcached cloud-memcached", "RabbitMQ cloud-rabbitmq"] {
        assert!(!deleted.contains(&format!("delete {kept}")), "{deleted:?}");
    }
    world.set_status(keystone::KIND, NAMESPACE, "cloud-keystone", status);
    converge(&world, &engine).await;
    assert!(keys(&world, &engine).is_empty());
    assert!(sql(&world).users.is_empty());
    assert!(world.cluster.announcements().iter().all(|one| one.event.reason != "LeftBehind"));
}

#[tokio::test]
async fn effects_are_undone_when_a_server_answers_again_in_time() {
    let (world, engine) = used_cloud(&json!({})).await;
    world.identity.set_down(true);
    world.delete_object(WIDGET, NAMESPACE, "widget");
    let outcome = engine.reconcile(&key(WIDGET, "widget")).await;
    assert!(matches!(outcome, Outcome::Failed { .. }), "{outcome:?}");
    world.identity.set_down(false);
    converge(&world, &engine).await;
    assert!(is_gone(&world, WIDGET, "widget"));
    assert!(!identity(&world).users.contains_key("widget"));
    assert!(!identity(&world).services.contains_key("widget"));
}

#[tokio::test]
async fn effects_of_an_earlier_spec_are_undone_once_the_change_is_complete() {
    let (world, engine) = used_cloud(&json!({})).await;
    world.cluster.hold(STATEFUL_SET, "cloud-rabbitmq");
    world.edit_object(STATEFUL_SET, NAMESPACE, "cloud-rabbitmq", |set| set["status"] = json!({}));
    world.apply_object(&object(WIDGET, "widget", &json!({ "database": "gadget" })));
    for _ in 0..4 {
        round(&world, &engine).await;
    }
    assert!(sql(&world).databases.contains("widget"), "the change is not complete yet");
    world.cluster.release(STATEFUL_SET, "cloud-rabbitmq");
    converge(&world, &engine).await;
    assert!(!sql(&world).databases.contains("widget"));
    assert!(sql(&world).databases.contains("gadget"));
}

#[tokio::test]
async fn finalizers_of_other_controllers_stay() {
    let (world, engine) = used_cloud(&json!({})).await;
    world.edit_object(WIDGET, NAMESPACE, "widget", |body| {
        body["metadata"]["finalizers"].as_array_mut().unwrap().push(json!("example.com/finalizer"));
    });
    world.delete_object(WIDGET, NAMESPACE, "widget");
    converge(&world, &engine).await;
    let left = world.object(WIDGET, NAMESPACE, "widget").unwrap();
    assert_eq!(left["metadata"]["finalizers"], json!(["example.com/finalizer"]));
    assert!(!sql(&world).users.contains_key("widget"));
}
