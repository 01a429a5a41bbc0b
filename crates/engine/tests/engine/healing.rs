//! Self-healing: the operator restores lost and damaged objects, and touches nothing else.

use std::time::Duration;

use openstack_operator_model::kind::{
    CONFIG_MAP, DEPLOYMENT, HTTP_ROUTE, JOB, Kind, SECRET, SERVICE, STATEFUL_SET,
};
use openstack_operator_services::{control_plane, keystone, mariadb};
use openstack_operator_testkit::World;
use serde_json::{Value, json};

use crate::driver::{
    NAMESPACE, assert_same, cloud, condition, converge, engine, get, is_ready, keys, object, round, statuses,
    world, writes,
};

const SQL: &str = "cloud-mariadb.openstack.svc";
const IDENTITY: &str = "http://cloud-keystone.openstack.svc:5000/v3";

/// The world without generations, which count changes.
fn fingerprint(world: &World) -> Value {
    fn remove_generations(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|field, _| field != "generation" && field != "observedGeneration");
                fields.values_mut().for_each(remove_generations);
            }
            Value::Array(items) => items.iter_mut().for_each(remove_generations),
            _ => {}
        }
    }
    let mut print = world.fingerprint();
    remove_generations(&mut print);
    print
}

/// Damages a converged cloud, lets it heal, and returns all writes except status and events.
async fn heal(damage: impl FnOnce(&World)) -> (World, Vec<String>) {
    let (world, engine) = cloud().await;
    let whole = fingerprint(&world);
    damage(&world);
    converge(&world, &engine).await;
    assert_same(&fingerprint(&world), &whole, || format!("after healing:\n{}", statuses(&world, &engine)));
    let reports = ["write_status", "publish"];
    let written =
        writes(&world).into_iter().filter(|call| !reports.iter().any(|verb| call.starts_with(verb)));
    let written = written.collect();
    (world, written)
}

fn lose(kind: Kind, name: &str) -> impl FnOnce(&World) {
    let name = name.to_owned();
    move |world| world.delete_object(kind, NAMESPACE, &name)
}

fn edit(kind: Kind, name: &str, pointer: &str, value: Value) -> impl FnOnce(&World) {
    let (name, pointer) = (name.to_owned(), pointer.to_owned());
    move |world| {
        world.edit_object(kind, NAMESPACE, &name, |body| {
            let field = body.pointer_mut(&pointer).unwrap_or_else(|| panic!("{pointer} does not exist"));
            assert_ne!(*field, value, "this is no damage");
            *field = value;
        });
    }
}

/// The names of all objects of a kind that belong to Keystone.
fn names(world: &World, kind: Kind) -> Vec<String> {
    let bodies = world.cluster.objects(kind).into_iter();
    let names = bodies.map(|body| body["metadata"]["name"].as_str().unwrap().to_owned());
    names.filter(|name| name.starts_with("cloud-keystone")).collect()
}

#[tokio::test]
async fn a_deleted_child_is_recreated_without_other_writes() {
    let (world, _) = cloud().await;
    for kind in [CONFIG_MAP, SERVICE, DEPLOYMENT, JOB] {
        let names = names(&world, kind);
        assert!(!names.is_empty(), "Keystone has no {}", kind.kind);
        for name in names {
            let (_, written) = heal(lose(kind, &name)).await;
            assert_eq!(written, [format!("apply {} {name}", kind.kind)]);
        }
    }
    let (_, written) = heal(lose(STATEFUL_SET, "cloud-mariadb")).await;
    assert_eq!(written, ["apply StatefulSet cloud-mariadb"]);
}

#[tokio::test]
async fn manual_changes_are_reverted() {
    let replicas = edit(DEPLOYMENT, "cloud-keystone", "/spec/replicas", json!(0));
    assert_eq!(heal(replicas).await.1, ["apply Deployment cloud-keystone"]);
    let selector = edit(SERVICE, "cloud-keystone", "/spec/selector", json!({ "app": "other" }));
    assert_eq!(heal(selector).await.1, ["apply Service cloud-keystone"]);
    let narrower = |world: &World| {
        world.edit_object(SERVICE, NAMESPACE, "cloud-keystone", |service| {
            service["spec"]["selector"]["app"] = json!("other");
        });
    };
    assert_eq!(heal(narrower).await.1, ["apply Service cloud-keystone"]);
    let image = "/spec/template/spec/containers/0/image";
    let image = edit(DEPLOYMENT, "cloud-keystone", image, json!("evil"));
    assert_eq!(heal(image).await.1, ["apply Deployment cloud-keystone"]);
    let member_list = edit(CONFIG_MAP, "cloud-mariadb-live", "/data/members", json!("elsewhere"));
    assert_eq!(heal(member_list).await.1, ["apply ConfigMap cloud-mariadb-live"]);
    let label = "/metadata/labels/app.kubernetes.io~1managed-by";
    let label = edit(SERVICE, "cloud-memcached", label, json!("me"));
    assert_eq!(heal(label).await.1, ["apply Service cloud-memcached"]);
    let owner = edit(SERVICE, "cloud-memcached", "/metadata/ownerReferences", json!([]));
    assert_eq!(heal(owner).await.1, ["apply Service cloud-memcached"]);
}

#[tokio::test]
async fn a_deleted_route_is_recreated() {
    let world = world();
    let spec = json!({ "gatewayRef": { "name": "edge" }, "publicDomain": "example.com" });
    world.apply_object(&object(control_plane::KIND, "cloud", &spec));
    let engine = engine(&world);
    converge(&world, &engine).await;
    let whole = fingerprint(&world);
    world.delete_object(HTTP_ROUTE, NAMESPACE, "cloud-keystone");
    converge(&world, &engine).await;
    assert_same(&fingerprint(&world), &whole, || statuses(&world, &engine));
}

fn secrets_hash(world: &World) -> Value {
    let pods = &get(world, DEPLOYMENT, "cloud-keystone")["spec"]["template"]["metadata"]["annotations"];
    pods["openstack.k8s.io/secrets"].clone()
}

#[tokio::test]
async fn a_lost_database_password_reaches_the_database_and_the_pods() {
    let (before, _) = cloud().await;
    let former = before.sql.state(SQL).users["keystone"].clone();
    let (world, written) = heal(lose(SECRET, "cloud-keystone-database")).await;
    let expected =
        ["apply Secret cloud-keystone-database", "ensure sql keystone", "apply Deployment cloud-keystone"];
    assert_eq!(written, expected);
    assert_ne!(world.sql.state(SQL).users["keystone"], former);
    assert_ne!(secrets_hash(&world), secrets_hash(&before));
}

#[tokio::test]
async fn a_lost_administrator_password_is_set_by_the_bootstrap_job() {
    let (before, _) = cloud().await;
    let (world, written) = heal(lose(SECRET, "cloud-keystone-admin")).await;
    let expected = [
        "apply Secret cloud-keystone-admin",
        "delete Job cloud-keystone-bootstrap",
        "apply Job cloud-keystone-bootstrap",
    ];
    assert_eq!(written, expected);
    assert_eq!(secrets_hash(&world), secrets_hash(&before), "API pods do not use the administrator password");
    let login = |world: &World| world.identity.administrator(IDENTITY).unwrap().password;
    assert_ne!(login(&world), login(&before));
}

#[tokio::test]
async fn an_administrator_password_that_was_changed_in_keystone_is_set_again() {
    const JOB_NAME: &str = "cloud-keystone-bootstrap";
    let (world, engine) = cloud().await;
    world.environment.advance(Duration::from_hours(1));
    let uid = || get(&world, JOB, JOB_NAME)["metadata"]["uid"].clone();
    let before = uid();
    world.identity.set_rejecting_logins(true);
    for _ in 0..10 {
        round(&world, &engine).await;
    }
    assert_ne!(uid(), before);
    let runs = || writes(&world).iter().filter(|call| **call == format!("apply Job {JOB_NAME}")).count();
    assert_eq!(runs(), 1, "the login is still rejected, but the task has just run");
    let (status, reason, message) = condition(&world, keystone::KIND, "cloud-keystone", "Registered");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Unavailable"));
    assert!(message.contains("401 Unauthorized"), "{message}");
    world.environment.advance(Duration::from_mins(5));
    for _ in 0..10 {
        round(&world, &engine).await;
    }
    assert_eq!(runs(), 2, "someone may have changed it again");
    world.identity.set_rejecting_logins(false);
    converge(&world, &engine).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
    assert_eq!(runs(), 2);
}

#[tokio::test]
async fn a_lost_root_password_of_the_database_server_is_regenerated() {
    let (before, _) = cloud().await;
    let (world, written) = heal(lose(SECRET, "cloud-mariadb-root")).await;
    assert_eq!(written, ["apply Secret cloud-mariadb-root", "apply StatefulSet cloud-mariadb"]);
    let login = |world: &World| world.sql.administrator(SQL).unwrap().password;
    assert_ne!(login(&world), login(&before));
}

#[tokio::test]
async fn a_lost_value_of_a_secret_is_regenerated_and_the_others_stay() {
    let (_, written) = heal(|world| {
        world.edit_object(SECRET, NAMESPACE, "cloud-rabbitmq-administrator", |secret| {
            secret["data"].as_object_mut().unwrap().remove("password");
        });
    })
    .await;
    assert_eq!(
        written,
        ["apply Secret cloud-rabbitmq-administrator"],
        "the pods read the new value themselves"
    );
}

#[tokio::test]
async fn a_value_that_the_user_restored_since_the_secret_was_read_is_kept() {
    let name = "cloud-keystone-admin";
    let (world, engine) = cloud().await;
    let whole = get(&world, SECRET, name);
    world.edit_object(SECRET, NAMESPACE, name, |body| {
        body["data"].as_object_mut().unwrap().remove("password").unwrap();
    });
    let outdated = get(&world, SECRET, name);
    world.edit_object(SECRET, NAMESPACE, name, |body| body["data"] = whole["data"].clone());
    world.cluster.answer_outdated(SECRET, NAMESPACE, name, outdated);
    converge(&world, &engine).await;
    assert_eq!(get(&world, SECRET, name)["data"], whole["data"]);
}

#[tokio::test]
async fn lost_token_keys_are_regenerated_without_a_restart() {
    let (_, written) = heal(lose(SECRET, "cloud-keystone-fernet")).await;
    assert_eq!(written, ["apply Secret cloud-keystone-fernet"]);
}

#[tokio::test]
async fn remaining_keys_survive_the_loss_of_other_keys_and_annotations() {
    let secret = "cloud-keystone-credential";
    let damages: [fn(&mut Value); 4] = [
        |secret| {
            secret["data"].as_object_mut().unwrap().remove("0");
        },
        |secret| {
            secret["metadata"].as_object_mut().unwrap().remove("annotations");
        },
        |secret| secret["metadata"]["annotations"]["openstack.k8s.io/rotated-at"] = json!("yesterday"),
        |secret| secret["data"]["note"] = json!("aGVsbG8="),
    ];
    for damage in damages {
        let (world, engine) = cloud().await;
        let key = get(&world, SECRET, secret)["data"]["1"].clone();
        world.edit_object(SECRET, NAMESPACE, secret, damage);
        converge(&world, &engine).await;
        let healed = get(&world, SECRET, secret);
        assert_eq!(healed["data"]["1"], key, "only this key can decrypt existing credentials");
        assert!(healed["data"]["0"].is_string());
        assert!(is_ready(&world, keystone::KIND, "cloud-keystone"));
        world.script.clear_log();
        converge(&world, &engine).await;
        assert_eq!(writes(&world), [""; 0]);
    }
}

#[tokio::test]
async fn a_lost_database_user_and_lost_privileges_are_restored() {
    let damages: [fn(&mut openstack_operator_testkit::SqlState); 3] = [
        |state| state.users.clear(),
        |state| state.grants.clear(),
        |state| {
            state.users.insert("keystone".to_owned(), "guessed".to_owned());
        },
    ];
    for damage in damages {
        let (_, written) = heal(|world| world.sql.edit(SQL, damage)).await;
        assert_eq!(written, ["ensure sql keystone"]);
    }
}

#[tokio::test]
async fn manual_changes_of_the_catalog_are_reverted() {
    let damages: [fn(&mut openstack_operator_testkit::IdentityState); 3] = [
        |state| state.services.clear(),
        |state| {
            let endpoints = &mut state.services.get_mut("identity").unwrap().endpoints;
            endpoints.get_mut("RegionOne").unwrap().insert("public".to_owned(), "http://evil".to_owned());
        },
        |state| {
            state.projects.remove("service");
        },
    ];
    for damage in damages {
        let (_, written) = heal(|world| world.identity.edit(IDENTITY, damage)).await;
        assert_eq!(written, ["ensure identity identity"]);
    }
}

#[tokio::test]
async fn a_removed_finalizer_is_restored() {
    let (_, written) = heal(edit(mariadb::KIND, "cloud-mariadb", "/metadata/finalizers", json!([]))).await;
    assert_eq!(written, ["patch_metadata MariaDB cloud-mariadb"]);
}

#[tokio::test]
async fn a_deleted_service_is_recreated_with_its_data() {
    let (world, engine) = cloud().await;
    let key = |world: &World| get(world, SECRET, "cloud-keystone-credential")["data"].clone();
    let before = key(&world);
    world.delete_object(keystone::KIND, NAMESPACE, "cloud-keystone");
    assert_eq!(keys(&world, &engine).len(), 5, "it is still being cleaned up");
    converge(&world, &engine).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
    assert_eq!(key(&world), before, "only these keys can decrypt the credentials in the retained database");
    assert!(!writes(&world).contains(&"drop_database sql keystone".to_owned()));
}

#[tokio::test]
async fn a_secret_that_is_restored_with_its_values_restarts_no_pod() {
    let (world, engine) = cloud().await;
    let pods = |world: &World| get(world, DEPLOYMENT, "cloud-keystone")["spec"]["template"].clone();
    let before = pods(&world);
    let secret = get(&world, SECRET, "cloud-keystone-database");
    world.delete_object(SECRET, NAMESPACE, "cloud-keystone-database");
    let mut restored = secret.clone();
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "ownerReferences"] {
        restored["metadata"].as_object_mut().unwrap().remove(field);
    }
    let restored = world.apply_object(&restored);
    assert_ne!(restored["metadata"]["uid"], secret["metadata"]["uid"]);
    converge(&world, &engine).await;
    assert_eq!(pods(&world), before);
    assert_eq!(get(&world, SECRET, "cloud-keystone-database")["data"], secret["data"]);
}
