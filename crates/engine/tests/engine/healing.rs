//! Self-healing: what is lost or damaged comes back, and nothing else is touched.

use openstack_operator_model::kind::{
    CONFIG_MAP, DEPLOYMENT, HTTP_ROUTE, JOB, Kind, SECRET, SERVICE, STATEFUL_SET,
};
use openstack_operator_services::{control_plane, keystone, mariadb};
use openstack_operator_testkit::World;
use serde_json::{Value, json};

use crate::driver::{
    NAMESPACE, assert_same, cloud, converge, engine, get, is_ready, keys, object, statuses, world, writes,
};

const SQL: &str = "cloud-mariadb.openstack.svc";
const IDENTITY: &str = "http://cloud-keystone.openstack.svc:5000/v3";

/// A world without what counts how often an object was changed.
fn fingerprint(world: &World) -> Value {
    fn uncounted(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|field, _| field != "generation" && field != "observedGeneration");
                fields.values_mut().for_each(uncounted);
            }
            Value::Array(items) => items.iter_mut().for_each(uncounted),
            _ => {}
        }
    }
    let mut print = world.fingerprint();
    uncounted(&mut print);
    print
}

/// Damages a cloud at rest, lets it heal, and returns what was written for it apart from what was reported.
async fn heals(damage: impl FnOnce(&World)) -> (World, Vec<String>) {
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
            let field = body.pointer_mut(&pointer).unwrap_or_else(|| panic!("there is no {pointer}"));
            assert_ne!(*field, value, "this damages nothing");
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
async fn every_child_that_is_lost_comes_back_alone() {
    let (world, _) = cloud().await;
    for kind in [CONFIG_MAP, SERVICE, DEPLOYMENT, JOB] {
        let names = names(&world, kind);
        assert!(!names.is_empty(), "Keystone has no {}", kind.kind);
        for name in names {
            let (_, written) = heals(lose(kind, &name)).await;
            assert_eq!(written, [format!("apply {} {name}", kind.kind)]);
        }
    }
    let (_, written) = heals(lose(STATEFUL_SET, "cloud-mariadb")).await;
    assert_eq!(written, ["apply StatefulSet cloud-mariadb"]);
}

#[tokio::test]
async fn what_somebody_changes_is_changed_back() {
    let replicas = edit(DEPLOYMENT, "cloud-keystone", "/spec/replicas", json!(0));
    assert_eq!(heals(replicas).await.1, ["apply Deployment cloud-keystone"]);
    let selector = edit(SERVICE, "cloud-keystone", "/spec/selector", json!({ "app": "other" }));
    assert_eq!(heals(selector).await.1, ["apply Service cloud-keystone"]);
    let narrower = |world: &World| {
        world.edit_object(SERVICE, NAMESPACE, "cloud-keystone", |service| {
            service["spec"]["selector"]["app"] = json!("other");
        });
    };
    assert_eq!(heals(narrower).await.1, ["apply Service cloud-keystone"]);
    let image = "/spec/template/spec/containers/0/image";
    let image = edit(DEPLOYMENT, "cloud-keystone", image, json!("evil"));
    assert_eq!(heals(image).await.1, ["apply Deployment cloud-keystone"]);
    let member_list = edit(CONFIG_MAP, "cloud-mariadb-live", "/data/members", json!("elsewhere"));
    assert_eq!(heals(member_list).await.1, ["apply ConfigMap cloud-mariadb-live"]);
    let label = "/metadata/labels/app.kubernetes.io~1managed-by";
    let label = edit(SERVICE, "cloud-memcached", label, json!("me"));
    assert_eq!(heals(label).await.1, ["apply Service cloud-memcached"]);
    let owner = edit(SERVICE, "cloud-memcached", "/metadata/ownerReferences", json!([]));
    assert_eq!(heals(owner).await.1, ["apply Service cloud-memcached"]);
}

#[tokio::test]
async fn a_route_that_is_lost_comes_back() {
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

fn rolled_by(world: &World) -> Value {
    let pods = &get(world, DEPLOYMENT, "cloud-keystone")["spec"]["template"]["metadata"]["annotations"];
    pods["openstack.k8s.io/secrets"].clone()
}

#[tokio::test]
async fn a_lost_database_password_reaches_the_database_and_the_pods() {
    let (before, _) = cloud().await;
    let former = before.sql.state(SQL).users["keystone"].clone();
    let (world, written) = heals(lose(SECRET, "cloud-keystone-database")).await;
    let expected =
        ["apply Secret cloud-keystone-database", "ensure sql keystone", "apply Deployment cloud-keystone"];
    assert_eq!(written, expected);
    assert_ne!(world.sql.state(SQL).users["keystone"], former);
    assert_ne!(rolled_by(&world), rolled_by(&before));
}

#[tokio::test]
async fn a_lost_administrators_password_is_told_to_keystone_by_its_own_command() {
    let (before, _) = cloud().await;
    let (world, written) = heals(lose(SECRET, "cloud-keystone-admin")).await;
    let expected = [
        "apply Secret cloud-keystone-admin",
        "delete Job cloud-keystone-bootstrap",
        "apply Job cloud-keystone-bootstrap",
    ];
    assert_eq!(written, expected);
    assert_eq!(rolled_by(&world), rolled_by(&before), "the API does not know the administrator's password");
    let login = |world: &World| world.identity.administrator(IDENTITY).unwrap().password;
    assert_ne!(login(&world), login(&before));
}

#[tokio::test]
async fn a_lost_password_of_the_database_server_is_made_anew() {
    let (before, _) = cloud().await;
    let (world, written) = heals(lose(SECRET, "cloud-mariadb-root")).await;
    assert_eq!(written, ["apply Secret cloud-mariadb-root", "apply StatefulSet cloud-mariadb"]);
    let login = |world: &World| world.sql.administrator(SQL).unwrap().password;
    assert_ne!(login(&world), login(&before));
}

#[tokio::test]
async fn one_value_that_is_lost_leaves_the_others() {
    let (_, written) = heals(|world| {
        world.edit_object(SECRET, NAMESPACE, "cloud-rabbitmq-administrator", |secret| {
            secret["data"].as_object_mut().unwrap().remove("password");
        });
    })
    .await;
    let expected = ["apply Secret cloud-rabbitmq-administrator", "apply StatefulSet cloud-rabbitmq"];
    assert_eq!(written, expected);
}

#[tokio::test]
async fn lost_keys_are_made_anew_without_new_pods() {
    for secret in ["cloud-keystone-fernet", "cloud-keystone-credential"] {
        let (_, written) = heals(lose(SECRET, secret)).await;
        assert_eq!(written, [format!("apply Secret {secret}")]);
    }
}

#[tokio::test]
async fn keys_that_are_left_survive_the_loss_of_others_and_of_all_notes() {
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
        assert_eq!(healed["data"]["1"], key, "what is encrypted with it can be read with it alone");
        assert!(healed["data"]["0"].is_string());
        assert!(is_ready(&world, keystone::KIND, "cloud-keystone"));
        world.script.clear_log();
        converge(&world, &engine).await;
        assert_eq!(writes(&world), [""; 0]);
    }
}

#[tokio::test]
async fn a_database_user_or_its_rights_that_are_lost_come_back() {
    let damages: [fn(&mut openstack_operator_testkit::SqlState); 3] = [
        |state| state.users.clear(),
        |state| state.grants.clear(),
        |state| {
            state.users.insert("keystone".to_owned(), "guessed".to_owned());
        },
    ];
    for damage in damages {
        let (_, written) = heals(|world| world.sql.edit(SQL, damage)).await;
        assert_eq!(written, ["ensure sql keystone"]);
    }
}

#[tokio::test]
async fn a_catalog_that_somebody_changed_is_changed_back() {
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
        let (_, written) = heals(|world| world.identity.edit(IDENTITY, damage)).await;
        assert_eq!(written, ["ensure identity identity"]);
    }
}

#[tokio::test]
async fn a_finalizer_that_is_lost_comes_back() {
    let (_, written) = heals(edit(mariadb::KIND, "cloud-mariadb", "/metadata/finalizers", json!([]))).await;
    assert_eq!(written, ["patch_metadata MariaDB cloud-mariadb"]);
}

#[tokio::test]
async fn a_service_that_somebody_deletes_comes_back_with_its_data() {
    let (world, engine) = cloud().await;
    let key = |world: &World| get(world, SECRET, "cloud-keystone-credential")["data"].clone();
    let before = key(&world);
    world.delete_object(keystone::KIND, NAMESPACE, "cloud-keystone");
    assert_eq!(keys(&world, &engine).len(), 5, "it is still being cleaned up");
    converge(&world, &engine).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
    assert_eq!(key(&world), before, "credentials in a database that stays can be read with these keys alone");
    assert!(!writes(&world).contains(&"drop_database sql keystone".to_owned()));
}
