//! Lost nodes: an object stays Ready and becomes Degraded.

use openstack_operator_model::kind::{CONFIG_MAP, DAEMON_SET, Kind};
use openstack_operator_services::{chassis, compute, control_plane, neutron, ovn};
use openstack_operator_testkit::{AgentEntry, World};
use serde_json::json;

use crate::driver::{NAMESPACE, condition, converge, engine, full_object, get, is_ready, world, writes};
use crate::nodes::{HYPERVISORS, add_node, cloud_on, exists, set_node_ready, southbound};
use crate::taints::set_taint;

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const CLOUD: (Kind, &str) = (control_plane::KIND, "cloud");
const COMPUTE: (Kind, &str) = (compute::KIND, "cloud-compute");
const NETWORK: (Kind, &str) = (ovn::KIND, "cloud-ovn");
const CHASSIS: (Kind, &str) = (chassis::KIND, "cloud-ovn-node-b");

fn set_agents(world: &World, registries: &[&str], node: &str, up: bool) {
    for registry in registries {
        world.agents.edit(registry, |state| state.agents.get_mut(node).unwrap().up = up);
    }
}

/// A node loses power. Kubernetes sets its Ready condition, and soon after its taints.
fn lose(world: &World, node: &str, taints: &[&str]) {
    set_node_ready(world, node, "Unknown");
    set_taint(world, node, UNREACHABLE, taints);
    set_agents(world, &[HYPERVISORS, &southbound(world)], node, false);
}

fn bring_back(world: &World, node: &str) {
    set_node_ready(world, node, "True");
    set_taint(world, node, UNREACHABLE, &[]);
    set_agents(world, &[HYPERVISORS, &southbound(world)], node, true);
}

fn degraded(world: &World, (kind, name): (Kind, &str)) -> (bool, String) {
    let (status, _, message) = condition(world, kind, name, "Degraded");
    (status == "True", message)
}

#[tokio::test]
async fn a_cloud_that_loses_a_node_stays_ready_and_names_it() {
    for taints in [[].as_slice(), &["NoSchedule", "NoExecute"]] {
        let (world, running) = cloud_on(&["node-a", "node-b"]).await;
        assert_eq!(degraded(&world, CLOUD), (false, String::new()));
        lose(&world, "node-b", taints);
        converge(&world, &running).await;
        for object in [CLOUD, COMPUTE, NETWORK, CHASSIS] {
            assert!(is_ready(&world, object.0, object.1), "{}", object.1);
            let (is_degraded, message) = degraded(&world, object);
            assert!(is_degraded && message.contains("node node-b is not Ready"), "{}: {message}", object.1);
        }
        assert_eq!(degraded(&world, COMPUTE).1, "node node-b is not Ready");
        assert!(!degraded(&world, (chassis::KIND, "cloud-ovn-node-a")).0);
        assert!(is_ready(&world, neutron::KIND, "cloud-neutron"));
        let services = get(&world, CLOUD.0, CLOUD.1)["status"]["services"].clone();
        let row = services.as_array().unwrap().iter().find(|row| row["kind"] == "NovaCompute").unwrap();
        let text = "degraded: NovaCompute cloud-compute: node node-b is not Ready";
        assert_eq!((&row["ready"], &row["waitingFor"]), (&json!(true), &json!(text)));
        let mut announced = world.cluster.announcements().into_iter().filter(|one| one.name == CLOUD.1);
        assert_eq!(announced.next_back().unwrap().event.reason, "Degraded");
        world.script.clear_log();
        converge(&world, &running).await;
        assert_eq!(writes(&world), [""; 0]);

        bring_back(&world, "node-b");
        converge(&world, &running).await;
        for object in [CLOUD, COMPUTE, NETWORK, CHASSIS] {
            assert!(is_ready(&world, object.0, object.1), "{}", object.1);
            assert_eq!(degraded(&world, object), (false, String::new()), "{}", object.1);
        }
    }
}

#[tokio::test]
async fn pruning_continues_while_a_node_is_lost() {
    let (world, running) = cloud_on(&["node-a", "node-b"]).await;
    lose(&world, "node-b", &[]);
    converge(&world, &running).await;
    let owner = get(&world, COMPUTE.0, COMPUTE.1);
    world.apply_object(&json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "old", "namespace": NAMESPACE, "ownerReferences": [{
            "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": COMPUTE.1,
            "uid": owner["metadata"]["uid"], "controller": true,
        }] },
    }));
    converge(&world, &running).await;
    assert!(!exists(&world, CONFIG_MAP, "old"));
}

#[tokio::test]
async fn a_cloud_that_loses_all_its_nodes_is_not_ready() {
    for taints in [[].as_slice(), &["NoSchedule", "NoExecute"]] {
        let (world, running) = cloud_on(&["node-a", "node-b"]).await;
        lose(&world, "node-b", taints);
        converge(&world, &running).await;
        lose(&world, "node-a", taints);
        converge(&world, &running).await;
        for object in [CLOUD, COMPUTE, NETWORK, CHASSIS] {
            assert!(!is_ready(&world, object.0, object.1), "{}", object.1);
        }
        assert!(!degraded(&world, COMPUTE).0, "it does not serve");
    }
}

#[tokio::test]
async fn a_pod_that_is_not_ready_on_a_ready_node_makes_the_cloud_not_ready() {
    let (world, running) = cloud_on(&["node-a", "node-b", "node-c"]).await;
    // A DaemonSet does not count a tainted node, so the missing pod belongs to another node.
    lose(&world, "node-c", &["NoSchedule", "NoExecute"]);
    world.cluster.hold(DAEMON_SET, "cloud-compute-libvirt");
    let mut status = get(&world, DAEMON_SET, "cloud-compute-libvirt")["status"].clone();
    status["desiredNumberScheduled"] = json!(2);
    status["updatedNumberScheduled"] = json!(2);
    status["numberReady"] = json!(1);
    world.set_status(DAEMON_SET, NAMESPACE, "cloud-compute-libvirt", status);
    converge(&world, &running).await;
    assert!(!is_ready(&world, COMPUTE.0, COMPUTE.1));
    let message = condition(&world, COMPUTE.0, COMPUTE.1, "WorkloadsReady").2;
    assert_eq!(message, "DaemonSet cloud-compute-libvirt: 1 of 2 pods ready");
}

#[tokio::test]
async fn a_cloud_without_ovn_stays_ready_when_it_loses_a_node() {
    const NETWORKS: &str = "http://cloud-neutron.openstack.svc:9696";
    let world = world();
    let nodes = ["node-a", "node-b"];
    for node in nodes {
        add_node(&world, node);
    }
    world.apply_object(&full_object(control_plane::KIND, "cloud", &json!({ "networkBackend": "ovs" })));
    let running = engine(&world);
    converge(&world, &running).await;
    for registry in [HYPERVISORS, NETWORKS] {
        world.agents.edit(registry, |state| {
            state.agents.extend(nodes.map(|node| (node.to_owned(), AgentEntry::new())));
        });
    }
    converge(&world, &running).await;
    set_node_ready(&world, "node-b", "False");
    set_agents(&world, &[HYPERVISORS, NETWORKS], "node-b", false);
    converge(&world, &running).await;
    for object in [CLOUD, (neutron::KIND, "cloud-neutron")] {
        assert!(is_ready(&world, object.0, object.1), "{}", object.1);
        assert!(degraded(&world, object).1.contains("node node-b is not Ready"), "{}", object.1);
    }
}
