//! External servers: with administrator credentials the operator creates its resources there, without them it does not.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use openstack_operator_model::kind::{CONFIG_MAP, Kind, NODE, SECRET};
use openstack_operator_services::{chassis, glance, mariadb, ovn, placement};
use openstack_operator_testkit::World;
use serde_json::{Value, json};

use crate::driver::{NAMESPACE, condition, converge, engine, get, object, world};

const SQL: &str = "db.example.com";
const IDENTITY: &str = "https://keystone.example.com/v3";

fn secret(world: &World, name: &str, values: &[(&str, &str)]) {
    let data: serde_json::Map<String, Value> =
        values.iter().map(|(key, value)| ((*key).to_owned(), json!(STANDARD.encode(value)))).collect();
    world.apply_object(&json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": name, "namespace": NAMESPACE }, "data": data,
    }));
}

fn glance_spec() -> Value {
    json!({
        "database": { "host": SQL, "adminSecretRef": { "name": "db-admin" }, "deletionPolicy": "Delete" },
        "keystone": { "authUrl": IDENTITY, "adminSecretRef": { "name": "keystone-admin" } },
    })
}

/// Administrator Secrets of external servers.
fn world_with_administrators() -> World {
    let world = world();
    secret(&world, "db-admin", &[("username", "root"), ("password", "p")]);
    secret(&world, "keystone-admin", &[("username", "boss"), ("password", "q")]);
    world
}

#[tokio::test]
async fn administrator_credentials_create_databases_users_and_catalog_entries_and_remove_them() {
    let world = world_with_administrators();
    world.apply_object(&object(glance::KIND, "images", &glance_spec()));
    let engine = engine(&world);
    converge(&world, &engine).await;
    assert_eq!(condition(&world, glance::KIND, "images", "Ready").0, "True");
    assert!(world.sql.state(SQL).databases.contains("glance"));
    assert_eq!(world.sql.administrator(SQL).unwrap().username, "root");
    assert!(world.identity.state(IDENTITY).users.contains_key("glance"));
    assert_eq!(world.identity.administrator(IDENTITY).unwrap().username, "boss");
    world.delete_object(glance::KIND, NAMESPACE, "images");
    converge(&world, &engine).await;
    assert!(world.object(glance::KIND, NAMESPACE, "images").is_none());
    assert!(world.sql.state(SQL).databases.is_empty() && world.sql.state(SQL).users.is_empty());
    assert!(world.identity.state(IDENTITY).users.is_empty());
    assert!(world.identity.state(IDENTITY).services.is_empty());
}

/// What only the user can repair on servers and Secrets that the operator does not manage.
#[tokio::test]
async fn a_problem_that_only_the_user_can_repair_stalls_the_object_until_it_is_repaired() {
    type Change = fn(&World);
    let problems: [(&str, Change, Change, &str); 4] = [
        (
            "DatabaseReady",
            |world| world.sql.set_rejecting_logins(true),
            |world| world.sql.set_rejecting_logins(false),
            "the server rejects the login of Secret db-admin: correct it",
        ),
        (
            "Registered",
            |world| world.identity.set_rejecting_logins(true),
            |world| world.identity.set_rejecting_logins(false),
            "the server rejects the login of Secret keystone-admin: correct it",
        ),
        (
            "InputsReady",
            |world| world.delete_object(SECRET, NAMESPACE, "db-admin"),
            |world| secret(world, "db-admin", &[("username", "root"), ("password", "p")]),
            "Secret db-admin does not exist (spec.database.adminSecretRef): create it again",
        ),
        (
            "DatabaseReady",
            |world| take_over(world, &uid(world, SECRET, "db-admin")),
            |world| take_over(world, &uid(world, glance::KIND, "images")),
            "Secret images-database belongs to Glance other; rename one of the two objects",
        ),
    ];
    for (part, damage, repair, message) in problems {
        let world = world_with_administrators();
        world.apply_object(&object(glance::KIND, "images", &glance_spec()));
        let engine = engine(&world);
        converge(&world, &engine).await;
        damage(&world);
        converge(&world, &engine).await;
        let expected = ("False".to_owned(), "ActionRequired".to_owned(), message.to_owned());
        assert_eq!(condition(&world, glance::KIND, "images", part), expected);
        let stalled = ("True".to_owned(), "ActionRequired".to_owned(), message.to_owned());
        assert_eq!(condition(&world, glance::KIND, "images", "Stalled"), stalled);
        repair(&world);
        converge(&world, &engine).await;
        assert_eq!(condition(&world, glance::KIND, "images", "Stalled").0, "False", "{message}");
        assert_eq!(condition(&world, glance::KIND, "images", "Ready").0, "True", "{message}");
    }
}

fn uid(world: &World, kind: Kind, name: &str) -> String {
    get(world, kind, name)["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// Changes the owner of a Secret.
fn take_over(world: &World, uid: &str) {
    world.edit_object(SECRET, NAMESPACE, "images-database", |secret| {
        let owner = &mut secret["metadata"]["ownerReferences"][0];
        (owner["uid"], owner["name"]) = (json!(uid), json!("other"));
    });
}

#[tokio::test]
async fn with_user_credentials_only_nothing_is_created_or_registered() {
    let world = world();
    secret(&world, "login", &[("username", "u"), ("password", "p"), ("host", SQL)]);
    let credential = [("application_credential_id", "i"), ("application_credential_secret", "s")];
    secret(&world, "credential", &credential);
    let spec = json!({
        "database": { "secretRef": { "name": "login" } },
        "keystone": { "authUrl": IDENTITY, "appCredentialRef": { "secretName": "credential" } },
    });
    world.apply_object(&object(placement::KIND, "inventory", &spec));
    converge(&world, &engine(&world)).await;
    assert_eq!(condition(&world, placement::KIND, "inventory", "Ready").0, "True");
    let status = get(&world, placement::KIND, "inventory")["status"].clone();
    assert_eq!(status.get("effects"), None, "{status}");
    assert!(world.identity.state(IDENTITY).services.is_empty());
    let connection = get(&world, SECRET, "inventory-database")["data"]["connection"].clone();
    let connection = STANDARD.decode(connection.as_str().unwrap()).unwrap();
    let connection = String::from_utf8(connection).unwrap();
    assert!(connection.starts_with("mysql+pymysql://u:p@db.example.com:3306/placement?"), "{connection}");
}

#[tokio::test]
async fn an_object_waits_for_the_condition_that_it_depends_on() {
    let world = world_with_administrators();
    let mut spec = glance_spec();
    spec["dependsOn"] = json!([{ "kind": "MariaDB", "name": "other", "condition": "Available" }]);
    world.apply_object(&object(glance::KIND, "images", &spec));
    let engine = engine(&world);
    converge(&world, &engine).await;
    let (status, _, message) = condition(&world, glance::KIND, "images", "Ready");
    assert_eq!(
        (status.as_str(), message.as_str()),
        ("False", "MariaDB other is not Available (spec.dependsOn)")
    );
    world.apply_object(&object(mariadb::KIND, "other", &json!({})));
    converge(&world, &engine).await;
    assert_eq!(condition(&world, glance::KIND, "images", "Ready").0, "True");
}

#[tokio::test]
async fn a_chassis_that_a_user_creates_configures_its_node() {
    let world = world();
    world.apply_object(&json!({
        "apiVersion": "v1", "kind": NODE.kind, "metadata": { "name": "node-a", "labels": { "net": "yes" } },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
    }));
    let spec = json!({ "controller": { "nodeSelector": { "net": "yes" } } });
    world.apply_object(&object(ovn::KIND, "ovn", &spec));
    let engine = engine(&world);
    converge(&world, &engine).await;
    let settings = || get(&world, CONFIG_MAP, "ovn-live")["data"].get("node-node-a").cloned();
    assert_eq!(settings(), None);
    let spec =
        json!({ "hostname": "node-a", "systemId": "rack1", "ovn": { "clusterRef": { "name": "ovn" } } });
    world.apply_object(&object(chassis::KIND, "mine", &spec));
    converge(&world, &engine).await;
    let settings = settings().unwrap_or_default();
    assert!(settings.as_str().is_some_and(|text| text.contains("system-id rack1")), "{settings}");
}
