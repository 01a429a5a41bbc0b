//! Key-value stores, of this operator and of another one.

use openstack_operator_model::kind::{SECRET, SERVICE, STATEFUL_SET};
use openstack_operator_services::valkey;
use serde_json::json;

use crate::driver::{
    NAMESPACE, condition, converge, engine, full_object, get, is_ready, statuses, world, writes,
};

const NAME: &str = "store";

#[tokio::test]
async fn a_store_with_three_members_has_an_address_for_each() {
    let world = world();
    world.apply_object(&full_object(valkey::KIND, NAME, &json!({ "replicas": 3 })));
    let engine = engine(&world);
    converge(&world, &engine).await;
    assert!(is_ready(&world, valkey::KIND, NAME), "{}", statuses(&world, &engine));
    for member in ["store-0", "store-1", "store-2"] {
        let service = get(&world, SERVICE, member);
        assert_eq!(service["spec"]["selector"]["statefulset.kubernetes.io/pod-name"], member);
        assert_eq!(
            service["spec"]["publishNotReadyAddresses"], true,
            "Sentinels elect while no member is ready"
        );
    }
    let provides = &get(&world, valkey::KIND, NAME)["status"]["provides"]["keyValue"];
    assert_eq!(provides["sentinel"], NAME);
    assert_eq!(provides["servers"][2], "store-2.openstack.svc:26379");
    assert!(get(&world, SECRET, "store-password")["data"]["password"].is_string());
    world.script.clear_log();
    converge(&world, &engine).await;
    assert_eq!(writes(&world), [""; 0]);
}

#[tokio::test]
async fn a_store_of_another_operator_is_available_once_that_operator_says_so() {
    let world = world();
    let engine = engine(&world);
    let foreign =
        engine.services.iter().find(|service| service.kind() == valkey::KIND).unwrap().foreign_kinds()[0];
    world.cluster.remove_crd(foreign.kind);
    let spec = json!({ "provider": "ValkeyOperator", "replicas": 3 });
    world.apply_object(&full_object(valkey::KIND, NAME, &spec));
    converge(&world, &engine).await;
    let message = condition(&world, valkey::KIND, NAME, "Stalled").2;
    assert!(message.contains("valkeys.cache.cs.sap.com: install the valkey-operator of SAP"), "{message}");
    world.cluster.install_crd(foreign.kind);
    converge(&world, &engine).await;
    assert_eq!(condition(&world, valkey::KIND, NAME, "Available").0, "False");
    assert!(world.object(STATEFUL_SET, NAMESPACE, NAME).is_none());
    for (state, available) in [("Processing", "False"), ("Ready", "True")] {
        let generation = get(&world, foreign.kind, NAME)["metadata"]["generation"].clone();
        let status = json!({ "state": state, "observedGeneration": generation });
        world.set_status(foreign.kind, NAMESPACE, NAME, status);
        converge(&world, &engine).await;
        assert_eq!(condition(&world, valkey::KIND, NAME, "Available").0, available, "{state}");
    }
    assert!(is_ready(&world, valkey::KIND, NAME), "{}", statuses(&world, &engine));
}
