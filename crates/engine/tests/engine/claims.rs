//! Claims of nodes: two objects never run the same software on one node.

use std::time::Duration;

use openstack_operator_engine::engine::{Engine, Key, Outcome};
use openstack_operator_model::kind::{DAEMON_SET, Kind, NODE, STATEFUL_SET};
use openstack_operator_services::{compute, control_plane, neutron, ovn};
use openstack_operator_testkit::World;
use serde_json::{Value, json};

use crate::driver::{NAMESPACE, converge, engine, full_object, round, world};
use crate::nodes::{add_node, cloud_on, hold, southbound};

/// Namespace of the younger cloud.
const OTHER: &str = "other";

fn object_in(namespace: &str, kind: Kind, name: &str, spec: &Value) -> Value {
    let mut object = full_object(kind, name, spec);
    object["metadata"]["namespace"] = json!(namespace);
    object
}

/// A cloud on a node, and a second one in another namespace that selects the same node.
async fn two_clouds() -> (World, Engine) {
    let (world, running) = cloud_on(&["node-a"]).await;
    world.apply_object(&object_in(OTHER, control_plane::KIND, "cloud", &json!({})));
    converge(&world, &running).await;
    (world, running)
}

fn status_of(world: &World, namespace: &str, kind: Kind, name: &str) -> Value {
    world.object(kind, namespace, name).unwrap()["status"].clone()
}

/// Message of the condition Stalled; none if the object is not stalled.
fn stalled(world: &World, namespace: &str, kind: Kind, name: &str) -> Option<String> {
    let status = status_of(world, namespace, kind, name);
    let mut conditions = status["conditions"].as_array().unwrap().iter();
    let found = conditions.find(|condition| condition["type"] == "Stalled").unwrap();
    (found["status"] == "True").then(|| found["message"].as_str().unwrap().to_owned())
}

fn claimed(world: &World, namespace: &str, kind: Kind, name: &str) -> Value {
    status_of(world, namespace, kind, name)["claimedNodes"].clone()
}

/// Names of the objects of a kind in a namespace.
fn names(world: &World, namespace: &str, kind: Kind) -> Vec<String> {
    let all =
        world.cluster.objects(kind).into_iter().filter(|body| body["metadata"]["namespace"] == namespace);
    all.map(|body| body["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_second_cloud_on_the_same_nodes_is_stalled_and_starts_nothing_there() {
    let (world, running) = two_clouds().await;
    let message = stalled(&world, OTHER, ovn::KIND, "cloud-ovn").unwrap();
    assert_eq!(
        message,
        "node node-a is claimed by OVNNetwork openstack/cloud-ovn, and a node can run Open vSwitch only once: select \
         other nodes in the spec of one of the two objects, or delete one of them; the operator starts nothing until then"
    );
    assert_eq!(names(&world, OTHER, DAEMON_SET), [""; 0]);
    assert!(stalled(&world, OTHER, control_plane::KIND, "cloud").unwrap().contains("node-a is claimed by"));
    for (kind, name) in [(ovn::KIND, "cloud-ovn"), (compute::KIND, "cloud-compute")] {
        assert_eq!(claimed(&world, NAMESPACE, kind, name), json!(["node-a"]));
        assert_eq!(stalled(&world, NAMESPACE, kind, name), None);
    }
    // It asks again by itself, without writes.
    world.script.clear_log();
    let key = Key { kind: ovn::KIND, namespace: OTHER.to_owned(), name: "cloud-ovn".to_owned() };
    let outcome = running.reconcile(&key).await;
    let Outcome::Waiting { after } = outcome else { panic!("{outcome:?}") };
    assert_eq!(after, Some(Duration::from_secs(10)));
    assert!(world.script.writes().is_empty());
}

#[tokio::test]
async fn deleting_the_stalled_cloud_touches_nothing_on_the_nodes() {
    let (world, running) = two_clouds().await;
    let state = |world: &World| {
        let sets = names(world, NAMESPACE, DAEMON_SET).into_iter().map(|name| {
            world.object(DAEMON_SET, NAMESPACE, &name).unwrap()["metadata"]["resourceVersion"].clone()
        });
        (sets.collect::<Vec<_>>(), world.fingerprint()["agents"].clone())
    };
    let before = state(&world);
    world.delete_object(control_plane::KIND, OTHER, "cloud");
    converge(&world, &running).await;
    assert!(world.object(control_plane::KIND, OTHER, "cloud").is_none());
    assert_eq!(state(&world), before);
    assert_eq!(claimed(&world, NAMESPACE, ovn::KIND, "cloud-ovn"), json!(["node-a"]));
}

#[tokio::test]
async fn the_second_cloud_starts_when_the_first_one_and_its_pods_are_gone() {
    let (world, running) = two_clouds().await;
    let set = world.object(DAEMON_SET, NAMESPACE, "cloud-ovn-ovs-vswitchd").unwrap();
    world.apply_object(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "last", "namespace": NAMESPACE,
            "labels": { "app.kubernetes.io/instance": "cloud-ovn", "openstack.k8s.io/kind": "OVNNetwork" },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "cloud-ovn-ovs-vswitchd",
                "uid": set["metadata"]["uid"],
            }],
            "finalizers": ["test/runs"],
        },
        "spec": { "nodeName": "node-a" },
    }));
    world.delete_object(control_plane::KIND, NAMESPACE, "cloud");
    converge(&world, &running).await;
    assert!(world.object(ovn::KIND, NAMESPACE, "cloud-ovn").is_none());
    assert_eq!(stalled(&world, OTHER, ovn::KIND, "cloud-ovn"), None);
    let status = status_of(&world, OTHER, ovn::KIND, "cloud-ovn").to_string();
    assert!(
        status.contains("pods of OVNNetwork openstack/cloud-ovn, which is deleted, still stop"),
        "{status}"
    );
    assert!(world.object(DAEMON_SET, OTHER, "cloud-ovn-ovs-vswitchd").is_none());

    let pod = openstack_operator_model::kind::POD;
    world.edit_object(pod, NAMESPACE, "last", |pod| pod["metadata"]["finalizers"] = json!([]));
    converge(&world, &running).await;
    assert_eq!(claimed(&world, OTHER, ovn::KIND, "cloud-ovn"), json!(["node-a"]));
    assert!(names(&world, OTHER, DAEMON_SET).contains(&"cloud-ovn-ovs-vswitchd".to_owned()));
}

#[tokio::test]
async fn of_two_objects_of_the_same_age_the_name_decides_whichever_is_reconciled_first() {
    let world = world();
    add_node(&world, "node-a");
    for namespace in ["a", "b"] {
        world.apply_object(&object_in(namespace, ovn::KIND, "ovn", &json!({})));
    }
    let running = engine(&world);
    let key =
        |namespace: &str| Key { kind: ovn::KIND, namespace: namespace.to_owned(), name: "ovn".to_owned() };
    for namespace in ["b", "a", "b", "a", "b"] {
        running.reconcile(&key(namespace)).await;
        assert!(status_of(&world, "b", ovn::KIND, "ovn")["claimedNodes"].is_null());
    }
    assert!(stalled(&world, "b", ovn::KIND, "ovn").unwrap().contains("OVNNetwork a/ovn"));
    assert_eq!(claimed(&world, "a", ovn::KIND, "ovn"), json!(["node-a"]));
}

#[tokio::test]
async fn the_status_records_a_node_before_pods_start_there() {
    let world = world();
    add_node(&world, "node-a");
    world.apply_object(&full_object(ovn::KIND, "ovn", &json!({})));
    let running = engine(&world);
    let key = Key { kind: ovn::KIND, namespace: NAMESPACE.to_owned(), name: "ovn".to_owned() };
    running.reconcile(&key).await;
    assert_eq!(claimed(&world, NAMESPACE, ovn::KIND, "ovn"), json!(["node-a"]));
    assert_eq!(names(&world, NAMESPACE, DAEMON_SET), [""; 0]);
    running.reconcile(&key).await;
    assert_eq!(names(&world, NAMESPACE, STATEFUL_SET), ["ovn-nb", "ovn-sb"]);
}

#[tokio::test]
async fn switches_of_ovn_and_of_neutron_exclude_each_other() {
    let (world, running) = cloud_on(&["node-a"]).await;
    world.apply_object(&object_in(OTHER, control_plane::KIND, "cloud", &json!({ "networkBackend": "ovs" })));
    converge(&world, &running).await;
    let message = stalled(&world, OTHER, neutron::KIND, "cloud-neutron").unwrap();
    assert!(message.contains("node node-a is claimed by OVNNetwork openstack/cloud-ovn"), "{message}");
    assert_eq!(names(&world, OTHER, DAEMON_SET), [""; 0]);
}

#[tokio::test]
async fn a_node_that_leaves_is_free_for_another_cloud_once_it_holds_nothing() {
    let (world, running) = cloud_on(&["node-a", "node-b"]).await;
    let spec = json!({ "controller": { "nodeSelector": { "rack": "two" } } });
    world.apply_object(&object_in(OTHER, ovn::KIND, "ovn", &spec));
    let southbound = southbound(&world);
    hold(&world, &southbound, "node-b", &["port 1"]);
    world.edit_object(NODE, "", "node-b", |node| node["metadata"]["labels"] = json!({ "rack": "two" }));
    converge(&world, &running).await;
    let message = stalled(&world, OTHER, ovn::KIND, "ovn").unwrap();
    assert!(message.contains("node node-b is claimed by OVNNetwork openstack/cloud-ovn"), "{message}");
    assert_eq!(claimed(&world, NAMESPACE, ovn::KIND, "cloud-ovn"), json!(["node-a", "node-b"]));

    hold(&world, &southbound, "node-b", &[]);
    converge(&world, &running).await;
    // The other object asks again after a time.
    round(&world, &running).await;
    converge(&world, &running).await;
    assert_eq!(claimed(&world, NAMESPACE, ovn::KIND, "cloud-ovn"), json!(["node-a"]));
    assert_eq!(claimed(&world, OTHER, ovn::KIND, "ovn"), json!(["node-b"]));
    assert_eq!(stalled(&world, OTHER, ovn::KIND, "ovn"), None);
}

#[tokio::test]
async fn two_kinds_of_compute_nodes_share_no_node() {
    let (world, running) = cloud_on(&["node-a"]).await;
    let spec = world.object(compute::KIND, NAMESPACE, "cloud-compute").unwrap()["spec"].clone();
    world.apply_object(&full_object(compute::KIND, "second", &spec));
    converge(&world, &running).await;
    let message = stalled(&world, NAMESPACE, compute::KIND, "second").unwrap();
    assert!(
        message
            .contains("claimed by NovaCompute openstack/cloud-compute, and a node can run libvirt only once"),
        "{message}"
    );
    assert!(world.object(DAEMON_SET, NAMESPACE, "second-libvirt").is_none());
}
