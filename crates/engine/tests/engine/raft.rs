//! A Raft cluster that scales down keeps a pod until its member has left.

use openstack_operator_model::kind::{POD, SERVICE, STATEFUL_SET};
use openstack_operator_services::ovn;
use openstack_operator_testkit::World;
use serde_json::{Value, json};

use crate::driver::{NAMESPACE, condition, converge, engine, get, object, world};

const ORDER: &str = "openstack.k8s.io/ovn-order";

fn wanted(members: usize) -> Value {
    object(ovn::KIND, "net", &json!({ "northbound": { "replicas": members } }))
}

/// A pod of the StatefulSet whose member serves.
fn start(world: &World, name: &str) {
    let labels = &get(world, STATEFUL_SET, "net-nb")["spec"]["template"]["metadata"]["labels"];
    world.apply_object(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": NAMESPACE, "labels": labels },
    }));
    world.set_status(POD, NAMESPACE, name, json!({ "conditions": [{ "type": "Ready", "status": "True" }] }));
}

/// Pod status after its member has left.
fn leave(world: &World, name: &str) {
    let ended = json!({ "exitCode": 0, "reason": "Completed", "message": "{\"state\":\"left\"}\n" });
    let server = json!([{ "name": "server", "image": "", "imageID": "", "ready": false, "restartCount": 1,
                          "lastState": { "terminated": ended } }]);
    world.set_status(POD, NAMESPACE, name, json!({ "containerStatuses": server }));
}

fn pods(world: &World) -> Value {
    get(world, STATEFUL_SET, "net-nb")["spec"]["replicas"].clone()
}

fn order(world: &World, name: &str) -> String {
    get(world, POD, name)["metadata"]["annotations"][ORDER].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn members_leave_before_their_pods_are_deleted() {
    let world = world();
    let engine = engine(&world);
    world.apply_object(&wanted(3));
    converge(&world, &engine).await;
    for name in ["net-nb-0", "net-nb-1", "net-nb-2"] {
        start(&world, name);
    }
    converge(&world, &engine).await;
    world.apply_object(&wanted(1));
    converge(&world, &engine).await;
    assert_eq!(pods(&world), 3);
    assert!(order(&world, "net-nb-2").starts_with("leave/"), "{}", order(&world, "net-nb-2"));
    assert_eq!(order(&world, "net-nb-1"), "", "members leave one at a time");
    let message = condition(&world, ovn::KIND, "net", "MembersReady").2;
    assert_eq!(message, "pod net-nb-2 is leaving the cluster of the northbound database");
    for (name, left) in [("net-nb-2", 2), ("net-nb-1", 1)] {
        leave(&world, name);
        converge(&world, &engine).await;
        assert_eq!(pods(&world), left);
        world.delete_object(POD, NAMESPACE, name);
        converge(&world, &engine).await;
    }
    assert_eq!(order(&world, "net-nb-0"), "");
    assert_eq!(condition(&world, ovn::KIND, "net", "MembersReady").0, "True");
    assert!(world.object(SERVICE, NAMESPACE, "net-nb-1").is_none(), "clients do not connect to it");
    assert!(world.object(SERVICE, NAMESPACE, "net-nb-0").is_some());
}
