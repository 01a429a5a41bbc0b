//! Losses that no new object can replace: the operator changes nothing until the user restores them or accepts the loss.

use openstack_operator_engine::engine::Engine;
use openstack_operator_model::common::ACCEPT_LOSS_ANNOTATION;
use openstack_operator_model::kind::{DEPLOYMENT, JOB, SECRET};
use openstack_operator_services::{control_plane, keystone};
use openstack_operator_testkit::World;
use serde_json::{Value, json};

use crate::driver::{
    NAMESPACE, assert_same, cloud, condition, converge, engine, get, is_ready, statuses, writes,
};

const CREDENTIAL_KEYS: &str = "cloud-keystone-credential";

/// A cloud that has lost its credential keys.
async fn without_credential_keys(damage: fn(&World)) -> (World, Engine, Value) {
    let (world, engine) = cloud().await;
    let keys = get(&world, SECRET, CREDENTIAL_KEYS);
    damage(&world);
    let before = get(&world, DEPLOYMENT, "cloud-keystone");
    converge(&world, &engine).await;
    let (status, reason, message) = condition(&world, keystone::KIND, "cloud-keystone", "Stalled");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "ActionRequired"));
    let remedy = "restore it, or accept that data encrypted with it is lost by setting annotation \
                  openstack.k8s.io/accept-loss: cloud-keystone-credential on Keystone cloud-keystone";
    assert!(message.contains(remedy), "{message}");
    assert_eq!(condition(&world, control_plane::KIND, "cloud", "Stalled").0, "True");
    assert_eq!(condition(&world, keystone::KIND, "cloud-keystone", "Available").0, "True");
    assert_eq!(get(&world, DEPLOYMENT, "cloud-keystone"), before, "running pods keep the mounted keys");
    assert!(!writes(&world).contains(&format!("apply Secret {CREDENTIAL_KEYS}")));
    (world, engine, keys)
}

const DAMAGES: [fn(&World); 3] = [
    |world| world.delete_object(SECRET, NAMESPACE, CREDENTIAL_KEYS),
    |world| world.edit_object(SECRET, NAMESPACE, CREDENTIAL_KEYS, |secret| secret["data"] = json!({})),
    |world| {
        world.edit_object(SECRET, NAMESPACE, CREDENTIAL_KEYS, |secret| {
            secret["data"].as_object_mut().unwrap().remove("1");
        });
    },
];

#[tokio::test]
async fn lost_credential_keys_are_not_replaced_until_they_are_restored() {
    for damage in DAMAGES {
        let (world, engine, keys) = without_credential_keys(damage).await;
        world.apply_object(&json!({
            "apiVersion": "v1", "kind": "Secret", "data": keys["data"],
            "metadata": { "name": CREDENTIAL_KEYS, "namespace": NAMESPACE },
        }));
        converge(&world, &engine).await;
        assert!(is_ready(&world, control_plane::KIND, "cloud"));
        assert_eq!(get(&world, SECRET, CREDENTIAL_KEYS)["data"], keys["data"]);
    }
}

fn accept_loss(world: &World, names: &str) {
    world.edit_object(keystone::KIND, NAMESPACE, "cloud-keystone", |body| {
        body["metadata"]["annotations"][ACCEPT_LOSS_ANNOTATION] = json!(names);
    });
}

#[tokio::test]
async fn an_accepted_loss_of_credential_keys_is_accepted_once() {
    for damage in DAMAGES {
        let (world, engine, keys) = without_credential_keys(damage).await;
        accept_loss(&world, "another-secret");
        converge(&world, &engine).await;
        assert!(!is_ready(&world, keystone::KIND, "cloud-keystone"), "another loss was accepted");
        accept_loss(&world, "another-secret, cloud-keystone-credential");
        converge(&world, &engine).await;
        assert!(is_ready(&world, control_plane::KIND, "cloud"));
        let new = get(&world, SECRET, CREDENTIAL_KEYS)["data"].clone();
        assert_ne!(new["1"], keys["data"]["1"]);
        let object = get(&world, keystone::KIND, "cloud-keystone");
        assert_eq!(object["metadata"]["annotations"].get(ACCEPT_LOSS_ANNOTATION), None);
        damage(&world);
        converge(&world, &engine).await;
        assert_eq!(condition(&world, keystone::KIND, "cloud-keystone", "Stalled").0, "True");
    }
}

const SQL: &str = "cloud-mariadb.openstack.svc";

/// A cloud whose identity service has lost its database.
async fn without_database() -> (World, Engine) {
    let (world, engine) = cloud().await;
    world.sql.edit(SQL, |state| {
        state.databases.remove("keystone");
    });
    converge(&world, &engine).await;
    let (status, reason, message) = condition(&world, keystone::KIND, "cloud-keystone", "Stalled");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "ActionRequired"));
    let expected = "database keystone does not exist on cloud-mariadb.openstack.svc although it was installed: restore \
                    it, or set annotation openstack.k8s.io/accept-loss: keystone on Keystone cloud-keystone to install \
                    it again, which loses its content";
    assert_eq!(message, expected);
    assert!(!world.sql.state(SQL).databases.contains("keystone"), "an empty one looks like a working one");
    (world, engine)
}

#[tokio::test]
async fn a_lost_database_is_not_replaced_until_it_is_restored() {
    let (world, engine) = without_database().await;
    world.script.clear_log();
    world.sql.edit(SQL, |state| {
        state.databases.insert("keystone".to_owned());
    });
    converge(&world, &engine).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
    assert!(!writes(&world).iter().any(|call| call.contains("Job")), "{:?}", writes(&world));
}

#[tokio::test]
async fn an_accepted_loss_of_a_database_installs_it_again() {
    let (world, running) = without_database().await;
    accept_loss(&world, "keystone");
    world.script.clear_log();
    let start = world.fork();
    converge(&world, &running).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
    let written = writes(&world);
    let position = |call: &str| written.iter().position(|written| written == call).unwrap();
    let created = position("ensure sql keystone");
    assert!(position("delete Job cloud-keystone-bootstrap") < created, "a complete Job would not run again");
    assert!(created < position("apply Job cloud-keystone-db-sync"));
    assert!(position("apply Job cloud-keystone-db-sync") < position("apply Job cloud-keystone-bootstrap"));
    assert!(!written.contains(&"apply Deployment cloud-keystone".to_owned()), "no pod restarts");
    let object = get(&world, keystone::KIND, "cloud-keystone");
    assert_eq!(object["metadata"]["annotations"].get(ACCEPT_LOSS_ANNOTATION), None);
    // A kill after any of these writes does not lose the installation.
    for write in 1..=written.len() {
        let killed = start.fork();
        killed.script.crash_after_write(write);
        converge(&killed, &engine(&killed)).await;
        assert!(killed.script.crashed());
        killed.cluster.settle();
        killed.script.revive();
        let next = engine(&killed);
        converge(&killed, &next).await;
        let fault = || format!("killed after {:?}:\n{}", written.get(write - 1), statuses(&killed, &next));
        assert_same(&killed.fingerprint(), &world.fingerprint(), fault);
    }
}

#[tokio::test]
async fn a_database_that_joins_an_installation_is_created() {
    let (world, engine) = cloud().await;
    let mut status = get(&world, keystone::KIND, "cloud-keystone")["status"].clone();
    assert_eq!(status["databases"], json!(["keystone"]));
    // An earlier version of the operator did not record databases.
    status.as_object_mut().unwrap().remove("databases");
    world.set_status(keystone::KIND, NAMESPACE, "cloud-keystone", status);
    world.sql.edit(SQL, |state| state.databases.clear());
    converge(&world, &engine).await;
    assert!(world.sql.state(SQL).databases.contains("keystone"));
    let status = get(&world, keystone::KIND, "cloud-keystone")["status"].clone();
    assert_eq!(status["databases"], json!(["keystone"]));
    assert!(world.object(JOB, NAMESPACE, "cloud-keystone-db-sync").is_none());
}
