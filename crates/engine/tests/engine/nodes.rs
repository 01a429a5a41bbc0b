//! Nodes: registration of their agents, and departure.

use openstack_operator_engine::engine::Engine;
use openstack_operator_model::kind::{CONFIG_MAP, DAEMON_SET, Kind, NODE, POD, SERVICE};
use openstack_operator_services::{chassis, compute, control_plane, neutron, ovn};
use openstack_operator_testkit::{AgentEntry, World};
use serde_json::{Value, json};

use crate::driver::{NAMESPACE, condition, converge, engine, full_object, get, is_ready, world, writes};

pub(crate) const HYPERVISORS: &str = "http://cloud-nova.openstack.svc:8774/v2.1";
const LABEL: &str = "node-role.kubernetes.io/hypervisor";

pub(crate) fn add_node(world: &World, name: &str) {
    world.apply_object(&json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": { LABEL: "" } },
    }));
    set_node_ready(world, name, "True");
}

/// Sets the Ready condition of a node.
pub(crate) fn set_node_ready(world: &World, name: &str, ready: &str) {
    world.set_status(NODE, "", name, json!({ "conditions": [{ "type": "Ready", "status": ready }] }));
}

fn set_selected(world: &World, name: &str, selected: bool) {
    world.edit_object(NODE, "", name, |node| {
        node["metadata"]["labels"] = if selected { json!({ LABEL: "" }) } else { json!({}) };
    });
}

/// Registry of the chassis: the southbound database.
pub(crate) fn southbound(world: &World) -> String {
    let address = get(world, SERVICE, "cloud-ovn-sb-0")["spec"]["clusterIP"].as_str().unwrap().to_owned();
    format!("tcp:{address}:6642")
}

pub(crate) fn register(world: &World, node: &str) {
    for registry in [HYPERVISORS.to_owned(), southbound(world)] {
        world.agents.edit(&registry, |state| {
            state.agents.insert(node.to_owned(), AgentEntry::new());
        });
    }
}

pub(crate) fn hypervisor(world: &World, node: &str) -> Option<AgentEntry> {
    world.agents.state(HYPERVISORS).agents.get(node).cloned()
}

pub(crate) fn hold(world: &World, registry: &str, node: &str, holdings: &[&str]) {
    world.agents.edit(registry, |state| {
        state.agents.get_mut(node).unwrap().holds =
            holdings.iter().map(|&holding| holding.to_owned()).collect();
    });
}

pub(crate) fn rows(world: &World, kind: Kind, name: &str) -> Value {
    get(world, kind, name)["status"]["nodes"].clone()
}

pub(crate) fn exists(world: &World, kind: Kind, name: &str) -> bool {
    world.object(kind, NAMESPACE, name).is_some()
}

/// A whole cloud on these nodes.
pub(crate) async fn cloud_on(nodes: &[&str]) -> (World, Engine) {
    let world = world();
    for node in nodes {
        add_node(&world, node);
    }
    world.apply_object(&full_object(control_plane::KIND, "cloud", &json!({})));
    let running = engine(&world);
    converge(&world, &running).await;
    for node in nodes {
        register(&world, node);
    }
    converge(&world, &running).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
    (world, running)
}

#[tokio::test]
async fn a_cloud_is_ready_when_its_nodes_are_registered_and_reports_their_number() {
    let world = world();
    add_node(&world, "node-a");
    world.apply_object(&full_object(control_plane::KIND, "cloud", &json!({})));
    let running = engine(&world);
    converge(&world, &running).await;
    assert!(!is_ready(&world, control_plane::KIND, "cloud"));
    for (kind, name) in
        [(compute::KIND, "cloud-compute"), (ovn::KIND, "cloud-ovn"), (chassis::KIND, "cloud-ovn-node-a")]
    {
        assert_eq!(condition(&world, kind, name, "NodesReady").2, "node node-a is not registered", "{name}");
        assert_eq!(rows(&world, kind, name), json!([{ "name": "node-a", "state": "Missing" }]));
    }
    register(&world, "node-a");
    converge(&world, &running).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
    let services = get(&world, control_plane::KIND, "cloud")["status"]["services"].clone();
    let extent = |kind: &str| {
        let row = services.as_array().unwrap().iter().find(|row| row["kind"] == kind).unwrap();
        row["extent"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(extent("NovaCompute"), "1 of 1 nodes up");
    assert_eq!(extent("OVNNetwork"), "1 of 1 nodes up");
    assert_eq!(extent("Nova"), "cells cell1");
    world.script.clear_log();
    converge(&world, &running).await;
    assert_eq!(writes(&world), [""; 0]);
}

#[tokio::test]
async fn the_status_reports_what_setup_containers_find_on_a_node() {
    let (world, running) = cloud_on(&["node-a"]).await;
    let set = get(&world, DAEMON_SET, "cloud-compute-libvirt");
    let container = |name: &str, message: &str| {
        let ended = json!({ "exitCode": 0, "message": message });
        json!({
            "name": name, "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
            "state": { "terminated": ended },
        })
    };
    world.apply_object(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "libvirt", "namespace": NAMESPACE,
            "labels": { "app.kubernetes.io/instance": "cloud-compute", "openstack.k8s.io/kind": "NovaCompute" },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "cloud-compute-libvirt",
                "uid": set["metadata"]["uid"],
            }],
        },
        "spec": { "nodeName": "node-a" },
    }));
    world.edit_object(POD, NAMESPACE, "libvirt", |pod| {
        let ended = [container("detect", "qemu: the node has no /dev/kvm\n"), container("other", "")];
        pod["status"] = json!({ "initContainerStatuses": ended });
    });
    converge(&world, &running).await;
    let row = json!({ "name": "node-a", "state": "Up", "found": "qemu: the node has no /dev/kvm" });
    assert_eq!(rows(&world, compute::KIND, "cloud-compute"), json!([row]));
}

#[tokio::test]
async fn a_node_whose_agent_is_down_is_named() {
    let (world, running) = cloud_on(&["node-a", "node-b"]).await;
    world.agents.edit(HYPERVISORS, |state| state.agents.get_mut("node-b").unwrap().up = false);
    converge(&world, &running).await;
    assert_eq!(condition(&world, compute::KIND, "cloud-compute", "NodesReady").2, "node node-b is down");
    assert_eq!(condition(&world, compute::KIND, "cloud-compute", "Available").0, "True");
    assert!(!is_ready(&world, compute::KIND, "cloud-compute"), "the node itself is Ready");
    assert_eq!(condition(&world, compute::KIND, "cloud-compute", "Degraded").0, "False");
}

#[tokio::test]
async fn a_deselected_node_leaves_step_by_step() {
    let (world, running) = cloud_on(&["node-a", "node-b"]).await;
    let southbound = southbound(&world);
    hold(&world, HYPERVISORS, "node-b", &["instance (1)"]);
    hold(&world, &southbound, "node-b", &["port 1"]);
    let others = get(&world, DAEMON_SET, "cloud-compute-libvirt")["metadata"]["generation"].clone();
    set_selected(&world, "node-b", false);
    converge(&world, &running).await;

    // Scheduling is disabled, and the pods that its instances need stay.
    assert!(!hypervisor(&world, "node-b").unwrap().enabled);
    assert!(hypervisor(&world, "node-a").unwrap().enabled);
    let row = json!({ "name": "node-b", "state": "Leaving", "holds": ["instance (1)"] });
    assert_eq!(rows(&world, compute::KIND, "cloud-compute")[1], row);
    for set in [
        "cloud-compute-libvirt",
        "cloud-compute-nova-compute",
        "cloud-ovn-ovs-vswitchd",
        "cloud-neutron-metadata-agent",
    ] {
        let leaving = get(&world, DAEMON_SET, &format!("{set}-leaving"));
        let affinity = leaving["spec"]["template"]["spec"]["affinity"].to_string();
        assert!(affinity.contains("node-b") && !affinity.contains("node-a"), "{affinity}");
    }
    assert!(exists(&world, chassis::KIND, "cloud-ovn-node-b"));
    assert!(is_ready(&world, control_plane::KIND, "cloud"), "nothing is missing");
    let generation = &get(&world, DAEMON_SET, "cloud-compute-libvirt")["metadata"]["generation"];
    assert_eq!(*generation, others, "pods of other nodes do not restart");

    // It hosts nothing: its pods are deleted, and its record stays until the last one is gone.
    hold(&world, HYPERVISORS, "node-b", &[]);
    let set = get(&world, DAEMON_SET, "cloud-compute-nova-compute");
    world.apply_object(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "last", "namespace": NAMESPACE,
            "labels": {
                "app.kubernetes.io/instance": "cloud-compute", "openstack.k8s.io/kind": "NovaCompute",
            },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "cloud-compute-nova-compute",
                "uid": set["metadata"]["uid"],
            }],
        },
        "spec": { "nodeName": "node-b" },
    }));
    converge(&world, &running).await;
    assert!(!exists(&world, DAEMON_SET, "cloud-compute-libvirt-leaving"));
    assert!(exists(&world, DAEMON_SET, "cloud-ovn-ovs-vswitchd-leaving"), "a port is still bound");
    assert_eq!(rows(&world, compute::KIND, "cloud-compute")[1]["state"], "Left");
    assert!(hypervisor(&world, "node-b").is_some());

    world.delete_object(POD, NAMESPACE, "last");
    hold(&world, &southbound, "node-b", &[]);
    converge(&world, &running).await;
    assert_eq!(hypervisor(&world, "node-b"), None);
    assert!(!world.agents.state(&southbound).agents.contains_key("node-b"));
    assert_eq!(rows(&world, compute::KIND, "cloud-compute"), json!([{ "name": "node-a", "state": "Up" }]));
    assert!(!exists(&world, chassis::KIND, "cloud-ovn-node-b"));
    assert!(!exists(&world, DAEMON_SET, "cloud-ovn-ovs-vswitchd-leaving"));
    assert!(!exists(&world, DAEMON_SET, "cloud-neutron-metadata-agent-leaving"));
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
}

#[tokio::test]
async fn a_node_that_is_down_does_not_block_the_departure_of_another() {
    let (world, running) = cloud_on(&["node-a", "node-b"]).await;
    world.agents.edit(HYPERVISORS, |state| state.agents.get_mut("node-a").unwrap().up = false);
    set_selected(&world, "node-b", false);
    converge(&world, &running).await;
    assert_eq!(hypervisor(&world, "node-b"), None);
    assert!(!exists(&world, DAEMON_SET, "cloud-compute-libvirt-leaving"));
    assert_eq!(condition(&world, compute::KIND, "cloud-compute", "NodesReady").2, "node node-a is down");
}

#[tokio::test]
async fn a_node_that_is_selected_again_is_enabled_again() {
    let (world, running) = cloud_on(&["node-a", "node-b"]).await;
    hold(&world, HYPERVISORS, "node-b", &["instance (1)"]);
    set_selected(&world, "node-b", false);
    converge(&world, &running).await;
    assert!(!hypervisor(&world, "node-b").unwrap().enabled);
    set_selected(&world, "node-b", true);
    converge(&world, &running).await;
    assert!(hypervisor(&world, "node-b").unwrap().enabled);
    assert_eq!(rows(&world, compute::KIND, "cloud-compute")[1]["state"], "Up");
    assert!(!exists(&world, DAEMON_SET, "cloud-compute-libvirt-leaving"));
}

#[tokio::test]
async fn an_unreachable_registry_does_not_drop_nodes() {
    let (world, running) = cloud_on(&["node-a", "node-b"]).await;
    hold(&world, HYPERVISORS, "node-b", &["instance (1)"]);
    set_selected(&world, "node-b", false);
    converge(&world, &running).await;
    world.agents.set_down(true);
    for _ in 0..3 {
        crate::driver::round(&world, &running).await;
    }
    assert_eq!(rows(&world, compute::KIND, "cloud-compute")[1]["state"], "Leaving");
    assert!(exists(&world, DAEMON_SET, "cloud-compute-libvirt-leaving"));
    world.agents.set_down(false);
    converge(&world, &running).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
}

#[tokio::test]
async fn a_node_that_another_object_selects_is_not_drained() {
    let (world, running) = cloud_on(&["node-a", "node-b"]).await;
    let mut spec = get(&world, compute::KIND, "cloud-compute")["spec"].clone();
    spec["nodeSelector"] = json!({ "kind": "large" });
    world.apply_object(&full_object(compute::KIND, "large", &spec));
    world.edit_object(NODE, "", "node-b", |node| node["metadata"]["labels"] = json!({ "kind": "large" }));
    let key = crate::driver::key(compute::KIND, "large");
    for _ in 0..3 {
        running.reconcile(&key).await;
        world.cluster.settle();
    }
    assert_eq!(rows(&world, compute::KIND, "large"), json!([{ "name": "node-b", "state": "Up" }]));
    converge(&world, &running).await;
    assert!(hypervisor(&world, "node-b").unwrap().enabled);
    assert!(!exists(&world, DAEMON_SET, "cloud-compute-libvirt-leaving"));
}

#[tokio::test]
async fn overrides_change_settings_of_selected_nodes() {
    let world = world();
    add_node(&world, "node-a");
    add_node(&world, "node-b");
    world.edit_object(NODE, "", "node-b", |node| node["metadata"]["labels"]["rack"] = json!("two"));
    let mapping = |bridge: &str| json!([{ "physicalNetwork": "physnet1", "bridge": bridge }]);
    let spec = json!({ "ovn": {
        "bridgeMappings": mapping("br-ex"),
        "overrides": [{ "nodeSelector": { "rack": "two" }, "bridgeMappings": mapping("br-two") }],
    } });
    world.apply_object(&full_object(control_plane::KIND, "cloud", &spec));
    converge(&world, &engine(&world)).await;
    let maps = world.cluster.objects(CONFIG_MAP);
    let files = maps.iter().find(|map| map["data"]["nodes"].is_string()).unwrap();
    assert!(files["data"]["nodes"].to_string().contains("physnet1 br-ex"));
    assert!(files["data"]["node-node-b"].to_string().contains("physnet1 br-two"));
    assert!(files["data"]["node-node-a"].is_null());
    let bridge = |node: &str| {
        get(&world, chassis::KIND, &format!("cloud-ovn-{node}"))["spec"]["bridgeMappings"][0]["bridge"]
            .clone()
    };
    assert_eq!((bridge("node-a"), bridge("node-b")), (json!("br-ex"), json!("br-two")));
}

#[tokio::test]
async fn a_cloud_without_ovn_tracks_its_nodes_by_neutron_agents() {
    const NETWORKS: &str = "http://cloud-neutron.openstack.svc:9696";
    let world = world();
    for node in ["node-a", "node-b"] {
        add_node(&world, node);
    }
    world.apply_object(&full_object(control_plane::KIND, "cloud", &json!({ "networkBackend": "ovs" })));
    let running = engine(&world);
    converge(&world, &running).await;
    assert!(!exists(&world, ovn::KIND, "cloud-ovn"));
    let message = condition(&world, neutron::KIND, "cloud-neutron", "NodesReady").2;
    assert_eq!(message, "nodes node-a, node-b are not registered");
    for (registry, node) in
        [HYPERVISORS, NETWORKS].into_iter().flat_map(|url| [(url, "node-a"), (url, "node-b")])
    {
        world.agents.edit(registry, |state| {
            state.agents.insert(node.to_owned(), AgentEntry::new());
        });
    }
    converge(&world, &running).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));

    hold(&world, NETWORKS, "node-b", &["router 1"]);
    set_selected(&world, "node-b", false);
    converge(&world, &running).await;
    let row = json!({ "name": "node-b", "state": "Leaving", "holds": ["router 1"] });
    assert_eq!(rows(&world, neutron::KIND, "cloud-neutron")[1], row);
    for set in ["ovs-db", "ovs-vswitchd", "openvswitch-agent", "network-agents"] {
        assert!(exists(&world, DAEMON_SET, &format!("cloud-neutron-{set}-leaving")), "{set}");
    }
    hold(&world, NETWORKS, "node-b", &[]);
    converge(&world, &running).await;
    assert!(!world.agents.state(NETWORKS).agents.contains_key("node-b"));
    assert!(!exists(&world, DAEMON_SET, "cloud-neutron-ovs-db-leaving"));
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
}
