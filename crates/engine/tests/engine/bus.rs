//! Message brokers: members leave before their pods are deleted, members that disagree are reported, and a lost
//! password reaches all members without a restart.

use std::collections::BTreeSet;

use openstack_operator_engine::engine::Engine;
use openstack_operator_model::kind::{CONFIG_MAP, POD, SECRET, STATEFUL_SET};
use openstack_operator_model::service::BusView;
use openstack_operator_services::{control_plane, nova, rabbitmq};
use openstack_operator_testkit::World;
use serde_json::{Value, json};

use crate::driver::{
    NAMESPACE, condition, converge, engine, full_object, get, is_ready, object, world, writes,
};

const ORDER: &str = "openstack.k8s.io/rabbitmq-order";
const MANAGEMENT: &str = "http://cloud-rabbitmq.openstack.svc:15672";

fn wanted(members: usize) -> Value {
    object(rabbitmq::KIND, "bus", &json!({ "replicas": members }))
}

/// A broker that serves in a cluster with these members.
fn serve(world: &World, ordinal: usize, known: &[usize]) {
    let name = format!("bus-{ordinal}");
    let labels = &get(world, STATEFUL_SET, "bus")["spec"]["template"]["metadata"]["labels"];
    world.apply_object(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": NAMESPACE, "labels": labels },
    }));
    let main = json!([{ "name": "rabbitmq", "image": "", "imageID": "", "ready": true, "started": true,
                        "restartCount": 0, "state": { "running": {} } }]);
    let status = json!({ "conditions": [{ "type": "Ready", "status": "True" }], "containerStatuses": main,
                         "podIP": format!("10.0.0.{ordinal}") });
    world.set_status(POD, NAMESPACE, &name, status);
    let node = |ordinal: &usize| format!("rabbit@bus-{ordinal}.bus-members.openstack.svc.cluster.local");
    let known: BTreeSet<String> = known.iter().map(node).collect();
    world.bus.edit(&format!("http://10.0.0.{ordinal}:15672"), |state| {
        state.view = Some(BusView { running: known.clone(), known });
    });
}

/// Pod status after its member has left.
fn leave(world: &World, name: &str) {
    let ended = json!({ "exitCode": 0, "reason": "Completed", "message": "{\"state\":\"left\"}\n" });
    let main = json!([{ "name": "rabbitmq", "image": "", "imageID": "", "ready": false, "started": false,
                        "restartCount": 2, "lastState": { "terminated": ended } }]);
    world.set_status(POD, NAMESPACE, name, json!({ "containerStatuses": main }));
}

async fn three() -> (World, Engine) {
    let world = world();
    let engine = engine(&world);
    world.apply_object(&wanted(3));
    converge(&world, &engine).await;
    for ordinal in 0..3 {
        serve(&world, ordinal, &[0, 1, 2]);
    }
    converge(&world, &engine).await;
    (world, engine)
}

fn order(world: &World, name: &str) -> Value {
    get(world, POD, name)["metadata"]["annotations"][ORDER].clone()
}

fn members(world: &World) -> usize {
    let list = get(world, CONFIG_MAP, "bus-live")["data"]["members.conf"].as_str().unwrap().to_owned();
    list.lines().count()
}

#[tokio::test]
async fn members_leave_before_their_pods_are_deleted() {
    let (world, engine) = three().await;
    assert!(is_ready(&world, rabbitmq::KIND, "bus"));
    world.apply_object(&wanted(1));
    converge(&world, &engine).await;
    let hosts = get(&world, rabbitmq::KIND, "bus")["status"]["provides"]["messaging"]["hosts"].clone();
    assert_eq!(hosts.as_array().unwrap().len(), 1, "clients leave first");
    for (last, left) in [("bus-2", 2), ("bus-1", 1)] {
        assert_eq!(get(&world, STATEFUL_SET, "bus")["spec"]["replicas"], left + 1);
        assert_eq!(members(&world), left + 1);
        assert!(order(&world, last).as_str().unwrap().starts_with("leave/"));
        let message = condition(&world, rabbitmq::KIND, "bus", "MembersReady").2;
        assert_eq!(message, format!("pod {last} is leaving the cluster"));
        leave(&world, last);
        converge(&world, &engine).await;
        assert_eq!(get(&world, STATEFUL_SET, "bus")["spec"]["replicas"], left);
        world.delete_object(POD, NAMESPACE, last);
        converge(&world, &engine).await;
    }
    assert_eq!(order(&world, "bus-0"), Value::Null);
    assert_eq!(members(&world), 1);
    assert!(is_ready(&world, rabbitmq::KIND, "bus"));
}

#[tokio::test]
async fn separate_clusters_stall_the_object() {
    let (world, engine) = three().await;
    serve(&world, 0, &[0]);
    for ordinal in [1, 2] {
        serve(&world, ordinal, &[1, 2]);
    }
    converge(&world, &engine).await;
    let (status, reason, message) = condition(&world, rabbitmq::KIND, "bus", "MembersReady");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "ActionRequired"));
    assert!(message.starts_with("pods bus-0 and bus-1 are members of separate clusters"), "{message}");
    assert_eq!(condition(&world, rabbitmq::KIND, "bus", "Stalled").0, "True");
    for ordinal in 0..3 {
        serve(&world, ordinal, &[0, 1, 2]);
    }
    converge(&world, &engine).await;
    assert!(is_ready(&world, rabbitmq::KIND, "bus"));
}

#[tokio::test]
async fn a_new_member_finds_out_whether_the_cluster_has_formed() {
    let world = world();
    let engine = engine(&world);
    world.apply_object(&wanted(1));
    converge(&world, &engine).await;
    assert_eq!(get(&world, CONFIG_MAP, "bus-live")["data"]["mode"], "new");
    serve(&world, 0, &[0]);
    converge(&world, &engine).await;
    assert_eq!(get(&world, CONFIG_MAP, "bus-live")["data"]["mode"], "formed");
    world.apply_object(&wanted(3));
    converge(&world, &engine).await;
    assert_eq!(members(&world), 3);
    assert!(writes(&world).iter().all(|call| !call.starts_with("patch_metadata Pod")), "it needs no order");
}

#[tokio::test]
async fn a_lost_administrator_password_reaches_the_bus_without_a_restart() {
    let world = world();
    let engine = engine(&world);
    let spec = json!({ "rabbitmq": { "replicas": 3 } });
    world.apply_object(&full_object(control_plane::KIND, "cloud", &spec));
    converge(&world, &engine).await;
    let template = |world: &World| get(world, STATEFUL_SET, "cloud-rabbitmq")["spec"]["template"].clone();
    let cookie = |world: &World| get(world, SECRET, "cloud-rabbitmq-cookie")["data"].clone();
    let password = |world: &World| world.bus.administrator(MANAGEMENT).unwrap().password;
    let before = (template(&world), cookie(&world));
    let former = password(&world);
    world.delete_object(SECRET, NAMESPACE, "cloud-rabbitmq-administrator");
    converge(&world, &engine).await;
    assert_eq!((template(&world), cookie(&world)), before, "no member restarts or loses its cluster");
    assert_ne!(password(&world), former);
    assert_eq!(condition(&world, nova::KIND, "cloud-nova", "MessagingReady").0, "True");
}

#[tokio::test]
async fn queues_of_every_virtual_host_follow_the_size_of_the_cluster() {
    let world = world();
    let engine = engine(&world);
    let sizes = |world: &World| {
        let hosts = world.bus.state(MANAGEMENT).virtual_hosts;
        assert!(hosts.len() > 1, "{hosts:?}");
        hosts.into_values().collect::<BTreeSet<usize>>()
    };
    for members in [1, 3, 1] {
        let spec = json!({ "rabbitmq": { "replicas": members } });
        world.apply_object(&full_object(control_plane::KIND, "cloud", &spec));
        converge(&world, &engine).await;
        assert_eq!(sizes(&world), BTreeSet::from([members]));
    }
}
