//! Nodes with taints that pods do not tolerate.

use openstack_operator_model::kind::{DAEMON_SET, NODE, POD};
use openstack_operator_services::{chassis, compute, control_plane};
use openstack_operator_testkit::World;
use serde_json::{Value, json};

use crate::driver::{NAMESPACE, condition, converge, engine, full_object, get, is_ready, world};
use crate::nodes::{HYPERVISORS, add_node, cloud_on, exists, hold, hypervisor, register, rows};

pub(crate) fn set_taint(world: &World, name: &str, key: &str, effects: &[&str]) {
    let taints: Vec<Value> = effects.iter().map(|effect| json!({ "key": key, "effect": effect })).collect();
    world.edit_object(NODE, "", name, |node| node["spec"]["taints"] = json!(taints));
}

/// A pod of a `DaemonSet` on a node.
fn add_agent_pod(world: &World, name: &str, component: &str, node: &str) {
    let set = get(world, DAEMON_SET, &format!("cloud-compute-{component}"));
    world.apply_object(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": NAMESPACE,
            "labels": {
                "app.kubernetes.io/instance": "cloud-compute", "openstack.k8s.io/kind": "NovaCompute",
                "app.kubernetes.io/component": component,
            },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "DaemonSet", "name": set["metadata"]["name"],
                "uid": set["metadata"]["uid"],
            }],
        },
        "spec": { "nodeName": node },
    }));
}

#[tokio::test]
async fn a_node_with_an_untolerated_taint_is_not_selected() {
    let world = world();
    add_node(&world, "node-a");
    add_node(&world, "control");
    set_taint(&world, "control", "node-role.kubernetes.io/control-plane", &["NoSchedule"]);
    world.apply_object(&full_object(control_plane::KIND, "cloud", &json!({})));
    let running = engine(&world);
    converge(&world, &running).await;
    register(&world, "node-a");
    converge(&world, &running).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
    assert_eq!(rows(&world, compute::KIND, "cloud-compute"), json!([{ "name": "node-a", "state": "Up" }]));
    assert!(!exists(&world, chassis::KIND, "cloud-ovn-control"));

    // With a toleration the node is selected.
    let tolerations = json!([{ "key": "node-role.kubernetes.io/control-plane", "operator": "Exists" }]);
    let spec = json!({ "compute": { "tolerations": tolerations } });
    world.apply_object(&full_object(control_plane::KIND, "cloud", &spec));
    converge(&world, &running).await;
    let message = condition(&world, compute::KIND, "cloud-compute", "NodesReady").2;
    assert_eq!(message, "node control is not registered");
}

#[tokio::test]
async fn a_tainted_node_leaves_like_a_deselected_one() {
    let (world, running) = cloud_on(&["node-a", "node-b"]).await;
    hold(&world, HYPERVISORS, "node-b", &["instance (1)"]);
    for node in ["node-a", "node-b"] {
        add_agent_pod(&world, &format!("libvirt-{node}"), "libvirt", node);
    }
    set_taint(&world, "node-b", "maintenance", &["NoSchedule"]);
    converge(&world, &running).await;
    assert!(!hypervisor(&world, "node-b").unwrap().enabled);
    let row = json!({ "name": "node-b", "state": "Leaving", "holds": ["instance (1)"] });
    assert_eq!(rows(&world, compute::KIND, "cloud-compute")[1], row);
    let leaving = get(&world, DAEMON_SET, "cloud-compute-libvirt-leaving");
    assert_eq!(leaving["status"]["numberReady"], 1, "pods of the leaving workload tolerate the taint");
    assert!(!exists(&world, POD, "libvirt-node-b"), "it must not run beside the pod of the leaving workload");
    assert!(exists(&world, POD, "libvirt-node-a"));
    assert!(is_ready(&world, control_plane::KIND, "cloud"), "nothing is missing");

    // Without the taint the node is selected again.
    add_agent_pod(&world, "kept", "libvirt-leaving", "node-b");
    set_taint(&world, "node-b", "maintenance", &[]);
    converge(&world, &running).await;
    assert!(hypervisor(&world, "node-b").unwrap().enabled);
    assert!(!exists(&world, DAEMON_SET, "cloud-compute-libvirt-leaving"));

    set_taint(&world, "node-b", "maintenance", &["NoExecute"]);
    hold(&world, HYPERVISORS, "node-b", &[]);
    converge(&world, &running).await;
    assert!(hypervisor(&world, "node-b").is_none(), "it hosts nothing, so its record is removed");
}
