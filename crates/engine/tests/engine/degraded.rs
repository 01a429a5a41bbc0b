//! Lost nodes: an object stays Ready and becomes Degraded.

use openstack_operator_engine::engine::Engine;
use openstack_operator_model::kind::{CONFIG_MAP, DAEMON_SET, DEPLOYMENT, Kind, POD, STATEFUL_SET};
use openstack_operator_services::{chassis, compute, control_plane, keystone, neutron, ovn, rabbitmq};
use openstack_operator_testkit::{AgentEntry, World};
use serde_json::json;

use crate::driver::{
    NAMESPACE, condition, converge, engine, full_object, get, is_ready, object, world, writes,
};
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

const API: (Kind, &str) = (DEPLOYMENT, "cloud-keystone");
const BUS: (Kind, &str) = (STATEFUL_SET, "cloud-rabbitmq");

/// A cloud whose identity service has two pods and whose message bus has three, each on its own node.
async fn redundant_cloud() -> (World, Engine) {
    let world = world();
    for node in ["node-a", "node-b", "node-c"] {
        add_node(&world, node);
    }
    let spec = json!({ "keystone": { "replicas": 2 }, "rabbitmq": { "replicas": 3 } });
    world.apply_object(&object(control_plane::KIND, "cloud", &spec));
    let running = engine(&world);
    converge(&world, &running).await;
    add_pods(&world, API, &["node-a", "node-b"]);
    add_pods(&world, BUS, &["node-a", "node-b", "node-c"]);
    converge(&world, &running).await;
    assert!(is_ready(&world, CLOUD.0, CLOUD.1));
    (world, running)
}

/// Adds the pods of a workload, each on one of these nodes.
pub(crate) fn add_pods(world: &World, (kind, name): (Kind, &str), nodes: &[&str]) {
    let labels = get(world, kind, name)["spec"]["template"]["metadata"]["labels"].clone();
    for (number, node) in nodes.iter().enumerate() {
        world.apply_object(&json!({
            "apiVersion": "v1", "kind": "Pod", "spec": { "nodeName": node },
            "metadata": { "name": format!("{name}-{number}"), "namespace": NAMESPACE, "labels": labels },
        }));
    }
}

/// Sets how many pods of a workload are ready, and updated.
fn set_pods(world: &World, (kind, name): (Kind, &str), ready: i32, updated: i32) {
    world.cluster.hold(kind, name);
    let mut status = get(world, kind, name)["status"].clone();
    status["readyReplicas"] = json!(ready);
    status["availableReplicas"] = json!(ready);
    status["updatedReplicas"] = json!(updated);
    world.set_status(kind, NAMESPACE, name, status);
}

/// Deletes a pod on a lost node, whose kubelet cannot confirm it.
fn evict(world: &World, pod: &str) {
    world.edit_object(POD, NAMESPACE, pod, |pod| pod["metadata"]["finalizers"] = json!(["test/kubelet"]));
    world.delete_object(POD, NAMESPACE, pod);
}

#[tokio::test]
async fn workloads_that_serve_without_the_pods_of_a_lost_node_are_degraded() {
    let (world, running) = redundant_cloud().await;
    set_node_ready(&world, "node-b", "Unknown");
    set_pods(&world, API, 1, 2);
    set_pods(&world, BUS, 2, 3);
    converge(&world, &running).await;
    for object in [CLOUD, (keystone::KIND, API.1), (rabbitmq::KIND, BUS.1)] {
        assert!(is_ready(&world, object.0, object.1), "{}", object.1);
        let (is_degraded, message) = degraded(&world, object);
        assert!(is_degraded && message.contains("node node-b is not Ready"), "{}: {message}", object.1);
    }
    // Kubernetes evicts the pods. A StatefulSet waits for its pod, a Deployment gets a new one.
    evict(&world, "cloud-rabbitmq-1");
    set_pods(&world, BUS, 2, 2);
    set_pods(&world, API, 2, 2);
    converge(&world, &running).await;
    assert!(is_ready(&world, CLOUD.0, CLOUD.1));
    assert!(degraded(&world, (rabbitmq::KIND, BUS.1)).0);
    assert!(!degraded(&world, (keystone::KIND, API.1)).0);
    set_node_ready(&world, "node-b", "True");
    set_pods(&world, BUS, 3, 3);
    converge(&world, &running).await;
    assert!(is_ready(&world, CLOUD.0, CLOUD.1) && !degraded(&world, CLOUD).0);
}

#[tokio::test]
async fn workloads_wait_for_pods_that_are_missing_for_another_reason() {
    let lost = [
        ("node-c", API, 1, 2, "Deployment cloud-keystone: 1 of 2 pods ready"),
        ("node-b", API, 0, 2, "Deployment cloud-keystone: 0 of 2 pods ready"),
        ("node-b", BUS, 1, 3, "StatefulSet cloud-rabbitmq: 1 of 3 pods ready"),
        ("node-b", API, 2, 1, "Deployment cloud-keystone: 1 of 2 pods updated"),
    ];
    for (node, workload, ready, updated, message) in lost {
        let (world, running) = redundant_cloud().await;
        set_node_ready(&world, node, "False");
        set_pods(&world, workload, ready, updated);
        converge(&world, &running).await;
        let kind = if workload == API { keystone::KIND } else { rabbitmq::KIND };
        assert_eq!(condition(&world, kind, workload.1, "WorkloadsReady").2, message);
        assert!(!is_ready(&world, CLOUD.0, CLOUD.1), "{message}");
    }
}

#[tokio::test]
async fn a_replacement_that_fails_on_a_ready_node_is_not_blamed_on_the_lost_node() {
    for (node, is_degraded) in [(None, true), (Some("node-a"), false)] {
        let (world, running) = redundant_cloud().await;
        set_node_ready(&world, "node-b", "Unknown");
        evict(&world, "cloud-keystone-1");
        add_pods(&world, API, &["node-a", "node-b", "node-a"]);
        if node.is_none() {
            world.edit_object(POD, NAMESPACE, "cloud-keystone-2", |pod| pod["spec"] = json!({}));
        }
        set_pods(&world, API, 1, 2);
        converge(&world, &running).await;
        assert_eq!(is_ready(&world, keystone::KIND, API.1), is_degraded, "{node:?}");
    }
}

#[tokio::test]
async fn pods_with_data_that_share_a_node_are_named() {
    let (world, running) = redundant_cloud().await;
    let message = || condition(&world, rabbitmq::KIND, BUS.1, "Ready").2;
    assert_eq!(message(), "");
    add_pods(&world, BUS, &["node-a", "node-b", "node-a"]);
    add_pods(&world, API, &["node-a", "node-a"]);
    converge(&world, &running).await;
    assert!(is_ready(&world, CLOUD.0, CLOUD.1));
    let expected =
        "pods cloud-rabbitmq-0 and cloud-rabbitmq-2 share node node-a, whose loss stops all of them";
    assert_eq!(message(), expected);
    assert_eq!(condition(&world, keystone::KIND, API.1, "Ready").2, "", "its pods have no data");
}
