//! Objects of other operators: created, awaited, read and pruned, if the cluster serves their kind.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use openstack_operator_engine::engine::Engine;
use openstack_operator_model::foreign::ROUTES;
use openstack_operator_model::kind::{CONFIG_MAP, DEPLOYMENT, SECRET};
use openstack_operator_services::keystone;
use openstack_operator_testkit::{Gadget, World};
use serde_json::{Value, json};

use crate::driver::{
    NAMESPACE, cloud, condition, converge, engine, full_object, get, is_ready, key, statuses, world, writes,
};

const PART: &str = "x-part";
const CONDITION: &str = "ForeignObjectsReady";

/// A gadget with a part, of which the other operator knows nothing yet.
async fn gadget() -> (World, Engine) {
    let world = world();
    world.apply_object(&full_object(Gadget::KIND, "x", &json!({ "part": 3 })));
    let engine = engine(&world);
    converge(&world, &engine).await;
    (world, engine)
}

fn part(world: &World) -> Option<Value> {
    world.object(Gadget::PART.kind, NAMESPACE, PART)
}

/// The other operator reports on the current generation, and writes its Secret.
fn finish_part(world: &World, address: &str) {
    let generation = part(world).unwrap()["metadata"]["generation"].clone();
    let ready = json!({ "type": "Ready", "status": "True" });
    let status = json!({ "observedGeneration": generation, "conditions": [ready], "address": address });
    world.set_status(Gadget::PART.kind, NAMESPACE, PART, status);
    world.apply_object(&json!({
        "apiVersion": "v1", "kind": "Secret", "data": { "password": STANDARD.encode("of the part") },
        "metadata": { "name": "x-part-login", "namespace": NAMESPACE },
    }));
}

/// Content of the live file with the address of the part.
fn known_address(world: &World) -> String {
    let files = world.cluster.objects(CONFIG_MAP);
    let address = files.iter().find_map(|file| file["data"]["part-address"].as_str());
    address.unwrap_or_default().to_owned()
}

#[tokio::test]
async fn everything_waits_for_the_object_of_another_operator_and_then_uses_it() {
    let (world, engine) = gadget().await;
    let part = part(&world).unwrap();
    assert_eq!(part["spec"], json!({ "size": 3 }));
    assert_eq!(part["metadata"]["ownerReferences"][0]["kind"], "Gadget");
    let (status, reason, message) = condition(&world, Gadget::KIND, "x", CONDITION);
    let expected = "Part.example.com x-part: parts-operator has not reported yet";
    assert_eq!((status.as_str(), reason.as_str(), message.as_str()), ("False", "Waiting", expected));
    assert_eq!(
        condition(&world, Gadget::KIND, "x", "Ready").2,
        expected,
        "not the Secret that it writes later"
    );
    assert!(world.object(DEPLOYMENT, NAMESPACE, "x").is_none());
    finish_part(&world, "192.0.2.7");
    converge(&world, &engine).await;
    assert!(is_ready(&world, Gadget::KIND, "x"), "{}", statuses(&world, &engine));
    assert_eq!(get(&world, SECRET, "x-login")["data"]["password"], STANDARD.encode("of the part"));
    assert_eq!(known_address(&world), "192.0.2.7");
    world.script.clear_log();
    converge(&world, &engine).await;
    assert_eq!(writes(&world), [""; 0]);
}

#[tokio::test]
async fn a_changed_object_is_ready_once_the_other_operator_has_seen_the_change() {
    let (world, engine) = gadget().await;
    finish_part(&world, "192.0.2.7");
    converge(&world, &engine).await;
    world.edit_object(Gadget::KIND, NAMESPACE, "x", |body| body["spec"]["part"] = json!(5));
    converge(&world, &engine).await;
    assert_eq!(part(&world).unwrap()["spec"]["size"], 5);
    assert_eq!(condition(&world, Gadget::KIND, "x", CONDITION).0, "False");
    assert_eq!(condition(&world, Gadget::KIND, "x", "Available").0, "True", "its pods still serve");
    finish_part(&world, "192.0.2.8");
    converge(&world, &engine).await;
    assert!(is_ready(&world, Gadget::KIND, "x"));
    assert_eq!(known_address(&world), "192.0.2.8");
}

#[tokio::test]
async fn a_kind_that_the_cluster_does_not_serve_stalls_the_object_until_it_does() {
    let world = world();
    world.cluster.remove_crd(Gadget::PART.kind);
    world.apply_object(&full_object(Gadget::KIND, "x", &json!({ "part": 3 })));
    let engine = engine(&world);
    converge(&world, &engine).await;
    let (_, reason, message) = condition(&world, Gadget::KIND, "x", CONDITION);
    assert_eq!(reason, "ActionRequired");
    assert_eq!(
        message,
        "the cluster does not serve parts.example.com: install parts-operator, which has the CustomResourceDefinition"
    );
    assert_eq!(condition(&world, Gadget::KIND, "x", "Stalled").0, "True");
    assert!(world.object(DEPLOYMENT, NAMESPACE, "x").is_none());
    world.cluster.install_crd(Gadget::PART.kind);
    converge(&world, &engine).await;
    assert!(part(&world).is_some());
    finish_part(&world, "192.0.2.7");
    converge(&world, &engine).await;
    assert!(is_ready(&world, Gadget::KIND, "x"), "{}", statuses(&world, &engine));
}

#[tokio::test]
async fn an_object_without_the_gateway_api_serves_and_names_what_to_install() {
    let (world, engine) = cloud().await;
    world.cluster.remove_crd(ROUTES.kind);
    world.edit_object(keystone::KIND, NAMESPACE, "cloud-keystone", |body| {
        body["spec"]["publicHostname"] = json!("identity.example.com");
        body["spec"]["gatewayRef"] = json!({ "name": "gateway" });
    });
    // The cloud would undo the change.
    for _ in 0..4 {
        engine.reconcile(&key(keystone::KIND, "cloud-keystone")).await;
        world.cluster.settle();
    }
    let (_, reason, message) = condition(&world, keystone::KIND, "cloud-keystone", "Exposed");
    assert_eq!((reason.as_str(), message), ("ActionRequired", ROUTES.not_served()));
    assert_eq!(condition(&world, keystone::KIND, "cloud-keystone", "Available").0, "True");
}

#[tokio::test]
async fn an_object_that_the_plan_no_longer_contains_is_deleted() {
    let (world, engine) = gadget().await;
    finish_part(&world, "192.0.2.7");
    converge(&world, &engine).await;
    world.edit_object(Gadget::KIND, NAMESPACE, "x", |body| {
        body["spec"].as_object_mut().unwrap().remove("part");
    });
    converge(&world, &engine).await;
    assert!(is_ready(&world, Gadget::KIND, "x"), "{}", statuses(&world, &engine));
    assert!(part(&world).is_none());
}

#[tokio::test]
async fn an_object_of_the_user_is_not_changed() {
    let world = world();
    world.apply_object(&full_object(Gadget::KIND, "x", &json!({ "part": 3 })));
    world.apply_object(&full_object(Gadget::PART.kind, PART, &json!({ "size": 7 })));
    let engine = engine(&world);
    converge(&world, &engine).await;
    assert_eq!(part(&world).unwrap()["spec"]["size"], 7);
    let message = condition(&world, Gadget::KIND, "x", CONDITION).2;
    assert!(message.starts_with("Part x-part exists and was not created by the operator"), "{message}");
}
