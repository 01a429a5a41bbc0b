//! What the operator creates belongs to one object. What belongs to others is neither changed nor removed.

use openstack_operator_engine::engine::Engine;
use openstack_operator_model::common::ADOPT_ANNOTATION;
use openstack_operator_model::kind::{CONFIG_MAP, PERSISTENT_VOLUME_CLAIM, SECRET, SERVICE};
use openstack_operator_model::lower::{MANAGED_BY_LABEL, MANAGER};
use openstack_operator_services::{control_plane, glance, keystone};
use openstack_operator_testkit::{BusState, IdentityState, SqlState, World};
use serde_json::{Value, json};

use crate::driver::{
    self, NAMESPACE, assert_same, cloud, condition, converge, get, is_ready, object, statuses, world,
};
use crate::test_services::WIDGET;

const SQL: &str = "cloud-mariadb.openstack.svc";
const BUS: &str = "http://cloud-rabbitmq.openstack.svc:15672";
const IDENTITY: &str = "http://cloud-keystone.openstack.svc:5000/v3";

type Servers = (SqlState, BusState, IdentityState);

fn servers(world: &World) -> Servers {
    (world.sql.state(SQL), world.bus.state(BUS), world.identity.state(IDENTITY))
}

/// A cloud with one widget.
async fn used_cloud(spec: &Value) -> (World, Engine) {
    let (world, engine) = cloud().await;
    world.apply_object(&object(WIDGET, "widget", spec));
    converge(&world, &engine).await;
    assert!(is_ready(&world, WIDGET, "widget"));
    (world, engine)
}

fn stalled(world: &World, name: &str) -> String {
    let (status, reason, message) = condition(world, WIDGET, name, "Stalled");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "ActionRequired"), "{message}");
    message
}

fn adopt(world: &World, name: &str, resources: &str) {
    world.edit_object(WIDGET, NAMESPACE, name, |body| {
        body["metadata"]["annotations"][ADOPT_ANNOTATION] = json!(resources);
    });
}

async fn delete(world: &World, engine: &Engine, name: &str) {
    world.delete_object(WIDGET, NAMESPACE, name);
    converge(world, engine).await;
    assert!(world.object(WIDGET, NAMESPACE, name).is_none());
}

#[tokio::test]
async fn a_second_object_with_the_same_resources_stalls_and_touches_nothing() {
    let own = ["database", "virtualHost", "service", "user"];
    let titles = ["database widget", "virtual host widget", "catalog service widget", "identity user widget"];
    let places = [
        "MariaDB cloud-mariadb",
        "RabbitMQ cloud-rabbitmq",
        "Keystone cloud-keystone",
        "Keystone cloud-keystone",
    ];
    for (shared, (title, place)) in titles.into_iter().zip(places).enumerate() {
        let (world, engine) = used_cloud(&json!({})).await;
        let spec: Value = own[..shared].iter().map(|field| ((*field).to_owned(), json!("second"))).collect();
        let before = servers(&world);
        world.apply_object(&object(WIDGET, "second", &spec));
        converge(&world, &engine).await;
        let expected = format!(
            "{title} belongs to Widget openstack/widget (on {place}): use another server, or delete one of the two \
             objects; to take it over, set annotation openstack.k8s.io/adopt: widget on Widget second"
        );
        assert_eq!(stalled(&world, "second"), expected);
        assert!(is_ready(&world, WIDGET, "widget"));
        let (sql, bus, identity) = servers(&world);
        assert_eq!(sql.users["widget"], before.0.users["widget"]);
        assert_eq!(bus.users["widget"], before.1.users["widget"]);
        assert_eq!(identity.users["widget"], before.2.users["widget"]);
        assert_eq!(identity.services["widget"], before.2.services["widget"]);
        delete(&world, &engine, "second").await;
        assert_eq!(servers(&world), before, "{title}");
        assert!(is_ready(&world, WIDGET, "widget"));
    }
}

/// Two objects that start at once both record their effects before either of them creates anything.
#[tokio::test]
async fn rivals_never_share_a_resource_wherever_the_operator_is_killed() {
    let (lone, _) = used_cloud(&json!({})).await;
    for write in 1.. {
        let (world, engine) = cloud().await;
        for name in ["rival", "widget"] {
            world.apply_object(&object(WIDGET, name, &json!({})));
        }
        world.script.crash_after_write(write);
        converge(&world, &engine).await;
        if !world.script.crashed() {
            assert!(write > 8, "too few writes");
            return;
        }
        world.script.revive();
        let engine = driver::engine(&world);
        converge(&world, &engine).await;
        stalled(&world, "widget");
        assert!(is_ready(&world, WIDGET, "rival"), "{}", statuses(&world, &engine));
        delete(&world, &engine, "rival").await;
        converge(&world, &engine).await;
        assert_same(&world.fingerprint(), &lone.fingerprint(), || format!("killed after write {write}"));
    }
}

fn forget_owners(world: &World) {
    world.sql.edit(SQL, |state| state.owners.0.clear());
    world.bus.edit(BUS, |state| state.owners.0.clear());
    world.identity.edit(IDENTITY, |state| state.owners.0.clear());
}

#[tokio::test]
async fn resources_of_an_older_operator_get_their_owner() {
    let (world, engine) = used_cloud(&json!({})).await;
    let before = servers(&world);
    forget_owners(&world);
    converge(&world, &engine).await;
    assert_eq!(servers(&world), before);
    assert!(!before.0.owners.0.is_empty() && !before.1.owners.0.is_empty() && !before.2.owners.0.is_empty());
    forget_owners(&world);
    delete(&world, &engine, "widget").await;
    let (sql, bus, identity) = servers(&world);
    assert!(!sql.databases.contains("widget") && !sql.users.contains_key("widget"));
    assert!(bus.virtual_hosts.is_empty() && bus.users.is_empty());
    assert!(!identity.services.contains_key("widget") && !identity.users.contains_key("widget"));
}

#[tokio::test]
async fn an_existing_resource_without_an_owner_needs_the_consent_of_the_user() {
    let (world, engine) = cloud().await;
    world.sql.edit(SQL, |state| {
        state.users.insert("widget".to_owned(), "of a person".to_owned());
    });
    let before = world.sql.state(SQL);
    world.apply_object(&object(WIDGET, "widget", &json!({})));
    converge(&world, &engine).await;
    let expected = "database user widget exists and belongs to no object (on MariaDB cloud-mariadb): remove it; to take \
                    it over, set annotation openstack.k8s.io/adopt: widget on Widget widget";
    assert_eq!(stalled(&world, "widget"), expected);
    delete(&world, &engine, "widget").await;
    assert_eq!(world.sql.state(SQL), before);
    world.apply_object(&object(WIDGET, "widget", &json!({})));
    adopt(&world, "widget", "another, widget");
    converge(&world, &engine).await;
    assert!(is_ready(&world, WIDGET, "widget"));
    assert_eq!(get(&world, WIDGET, "widget")["metadata"]["annotations"].get(ADOPT_ANNOTATION), None);
    delete(&world, &engine, "widget").await;
    assert!(!world.sql.state(SQL).users.contains_key("widget"));
}

#[tokio::test]
async fn a_resource_that_is_taken_over_survives_its_former_owner() {
    let (world, engine) = used_cloud(&json!({})).await;
    world.apply_object(&object(WIDGET, "second", &json!({})));
    adopt(&world, "second", "widget");
    converge(&world, &engine).await;
    assert!(is_ready(&world, WIDGET, "second"));
    assert!(stalled(&world, "widget").contains("belongs to Widget openstack/second"));
    let before = servers(&world);
    delete(&world, &engine, "widget").await;
    assert_eq!(servers(&world), before);
}

#[tokio::test]
async fn a_retained_database_belongs_to_the_next_object_of_its_name() {
    let retain = json!({ "deletionPolicy": "Retain" });
    let (world, engine) = used_cloud(&retain).await;
    delete(&world, &engine, "widget").await;
    world.apply_object(&object(WIDGET, "other", &json!({})));
    converge(&world, &engine).await;
    assert!(stalled(&world, "other").contains("database widget belongs to Widget openstack/widget"));
    delete(&world, &engine, "other").await;
    assert!(world.sql.state(SQL).databases.contains("widget"));
    world.apply_object(&object(WIDGET, "widget", &retain));
    converge(&world, &engine).await;
    assert!(is_ready(&world, WIDGET, "widget"));
}

#[tokio::test]
async fn an_object_of_the_user_under_the_name_of_a_part_is_neither_changed_nor_deleted() {
    for (kind, name) in [(SERVICE, "cloud-mariadb"), (CONFIG_MAP, "cloud-mariadb-live")] {
        let world = driver::new_cloud();
        let mine = world.apply_object(&json!({
            "apiVersion": kind.api_version(), "kind": kind.kind,
            "metadata": { "name": name, "namespace": NAMESPACE, "labels": { "app": "mine" } },
        }));
        let engine = driver::engine(&world);
        converge(&world, &engine).await;
        let (status, _, message) = condition(&world, control_plane::KIND, "cloud", "Stalled");
        let expected = format!("{} {name} exists and was not created by the operator", kind.kind);
        assert!(status == "True" && message.contains(&expected), "{message}");
        assert_eq!(get(&world, kind, name), mine);
        world.delete_object(control_plane::KIND, NAMESPACE, "cloud");
        converge(&world, &engine).await;
        assert_eq!(get(&world, kind, name), mine);
    }
}

fn secret_of_user(world: &World, name: &str, values: &Value) -> Value {
    world.apply_object(&json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": values,
        "metadata": { "name": name, "namespace": NAMESPACE },
    }))
}

#[tokio::test]
async fn a_secret_of_the_user_is_used_and_neither_changed_nor_deleted() {
    let world = driver::new_cloud();
    let password = secret_of_user(&world, "cloud-keystone-admin", &json!({ "password": "chosen" }));
    let keys = secret_of_user(&world, "cloud-keystone-fernet", &json!({ "0": "staged", "1": "primary" }));
    let engine = driver::engine(&world);
    converge(&world, &engine).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"), "{}", statuses(&world, &engine));
    let (_, _, remarks) = condition(&world, keystone::KIND, "cloud-keystone", "Ready");
    assert!(remarks.starts_with("the keys in Secret cloud-keystone-fernet are not rotated"), "{remarks}");
    assert_eq!(world.identity.administrator(IDENTITY).unwrap().password, "chosen");
    world.delete_object(control_plane::KIND, NAMESPACE, "cloud");
    converge(&world, &engine).await;
    assert_eq!(get(&world, SECRET, "cloud-keystone-admin"), password);
    assert_eq!(get(&world, SECRET, "cloud-keystone-fernet"), keys);
}

#[tokio::test]
async fn an_incomplete_secret_of_the_user_is_completed_only_after_it_is_handed_over() {
    let (world, engine) = cloud().await;
    let mine = secret_of_user(&world, "widget-database", &json!({ "password": "chosen" }));
    world.apply_object(&object(WIDGET, "widget", &json!({})));
    converge(&world, &engine).await;
    let expected = "Secret widget-database was not created by the operator and has no key username: correct or delete it";
    assert!(stalled(&world, "widget").starts_with(expected), "{}", stalled(&world, "widget"));
    assert_eq!(get(&world, SECRET, "widget-database"), mine);
    world.edit_object(SECRET, NAMESPACE, "widget-database", |secret| {
        secret["metadata"]["labels"] = json!({ MANAGED_BY_LABEL: MANAGER });
    });
    converge(&world, &engine).await;
    assert!(is_ready(&world, WIDGET, "widget"));
    assert_eq!(world.sql.state(SQL).users["widget"], "chosen");
}

#[tokio::test]
async fn another_backend_does_not_delete_the_volume_of_the_former_one() {
    let world = world();
    secret_of_user(&world, "login", &json!({ "username": "u", "password": "p", "host": "db.example.com" }));
    secret_of_user(&world, "bucket", &json!({ "accessKey": "a", "secretKey": "s" }));
    let spec = |storage: Value| {
        json!({
            "database": { "secretRef": { "name": "login" } },
            "keystone": { "authUrl": "https://keystone.example.com/v3", "secretRef": { "name": "login" } },
            "storage": storage,
        })
    };
    let volume = json!({ "backend": "pvc", "pvc": { "size": "1Gi", "deletionPolicy": "Delete" } });
    world.apply_object(&object(glance::KIND, "images", &spec(volume)));
    let engine = driver::engine(&world);
    converge(&world, &engine).await;
    let claims = || world.cluster.objects(PERSISTENT_VOLUME_CLAIM);
    let before = claims();
    assert_eq!(before.len(), 1, "{}", statuses(&world, &engine));
    let bucket =
        json!({ "endpoint": "https://s3.example.com", "bucket": "b", "secretRef": { "name": "bucket" } });
    world.apply_object(&object(glance::KIND, "images", &spec(json!({ "backend": "s3", "s3": bucket }))));
    converge(&world, &engine).await;
    assert_eq!(claims(), before);
    let (status, _, message) = condition(&world, glance::KIND, "images", "Ready");
    let name = before[0]["metadata"]["name"].as_str().unwrap();
    let remark = format!("PersistentVolumeClaim {name} is not used any more and stays");
    assert!(status == "True" && message.starts_with(&remark), "{message}");
    world.delete_object(glance::KIND, NAMESPACE, "images");
    converge(&world, &engine).await;
    assert!(claims().is_empty(), "the deletion policy applies");
}
