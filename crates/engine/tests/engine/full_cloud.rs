//! A cloud with all default services: start-up order and dependencies.

use std::time::Duration;

use openstack_operator_model::kind::{CONFIG_MAP, DAEMON_SET, DEPLOYMENT, JOB, SERVICE, STATEFUL_SET};
use openstack_operator_services::cloud::Presence;
use openstack_operator_services::{
    PARTS, compute, control_plane, glance, keystone, neutron, nova, ovn, placement,
};
use openstack_operator_testkit::World;
use serde_json::{Value, json};

use crate::driver::{NAMESPACE, condition, converge, engine, full_object, get, is_ready, world, writes};

const IDENTITY: &str = "http://cloud-keystone.openstack.svc:5000/v3";

fn new_cloud() -> World {
    let world = world();
    world.apply_object(&full_object(control_plane::KIND, "cloud", &json!({})));
    world
}

fn exists(world: &World, kind: openstack_operator_model::kind::Kind, name: &str) -> bool {
    world.object(kind, NAMESPACE, name).is_some()
}

#[tokio::test]
async fn a_full_cloud_becomes_ready_and_then_causes_no_writes() {
    let world = new_cloud();
    let running = engine(&world);
    converge(&world, &running).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
    assert_eq!(get(&world, control_plane::KIND, "cloud")["status"]["phase"], "Ready");
    world.script.clear_log();
    converge(&world, &running).await;
    assert_eq!(writes(&world), [""; 0]);
    let identity = world.identity.state("http://cloud-keystone.openstack.svc:5000/v3");
    let mut registered = 0;
    for part in PARTS.iter().filter(|part| part.presence() == Presence::ByDefault) {
        let name = format!("cloud-{}", part.field());
        assert!(is_ready(&world, part.kind(), &name), "{name}");
        let conditions = get(&world, part.kind(), &name)["status"]["conditions"].to_string();
        registered += usize::from(conditions.contains(r#""type":"Registered""#));
    }
    assert_eq!(identity.services.len(), registered, "{:?}", identity.services.keys());
}

#[tokio::test]
async fn databases_are_migrated_and_apis_start_while_keystone_starts_and_workers_wait_for_their_users() {
    let world = new_cloud();
    let running = engine(&world);
    world.cluster.hold(DEPLOYMENT, "cloud-keystone");
    converge(&world, &running).await;
    let installed = get(&world, glance::KIND, "cloud-glance");
    assert_eq!(condition(&world, glance::KIND, "cloud-glance", "TasksComplete").0, "True", "{installed}");
    assert!(exists(&world, DEPLOYMENT, "cloud-nova"));
    assert!(!exists(&world, STATEFUL_SET, "cloud-nova-scheduler"));
    let message = condition(&world, nova::KIND, "cloud-nova", "WorkloadsReady").2;
    assert!(message.contains("waits for the registration of its service user"), "{message}");
    let message = condition(&world, glance::KIND, "cloud-glance", "Registered").2;
    assert_eq!(message, "Keystone cloud-keystone is not available");
    world.cluster.release(DEPLOYMENT, "cloud-keystone");
    converge(&world, &running).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
}

#[tokio::test]
async fn services_register_only_after_keystone_is_bootstrapped() {
    let world = new_cloud();
    let running = engine(&world);
    world.cluster.hold(JOB, "cloud-keystone-bootstrap");
    converge(&world, &running).await;
    assert_eq!(condition(&world, keystone::KIND, "cloud-keystone", "Available").0, "False");
    let message = condition(&world, glance::KIND, "cloud-glance", "Registered").2;
    assert_eq!(message, "Keystone cloud-keystone is not available");
}

/// A check costs Keystone the hash of a password, and the start of a cloud causes dozens of reconciles.
#[tokio::test]
async fn a_registration_is_checked_once_per_minute_while_the_object_starts_and_always_afterwards() {
    let world = new_cloud();
    let running = engine(&world);
    world.cluster.hold(DEPLOYMENT, "cloud-glance");
    converge(&world, &running).await;
    assert_eq!(condition(&world, glance::KIND, "cloud-glance", "Registered").0, "True");
    let has_user = || world.identity.state(IDENTITY).users.contains_key("glance");
    let delete_user = || {
        world.identity.edit(IDENTITY, |state| {
            state.users.remove("glance");
        });
    };
    delete_user();
    converge(&world, &running).await;
    assert!(!has_user(), "it was checked a moment ago");
    world.environment.advance(Duration::from_mins(1));
    converge(&world, &running).await;
    assert!(has_user());
    world.cluster.release(DEPLOYMENT, "cloud-glance");
    converge(&world, &running).await;
    delete_user();
    converge(&world, &running).await;
    assert!(has_user(), "nothing else is left to do");
}

#[tokio::test]
async fn a_change_rolls_out_while_keystone_is_down() {
    let world = new_cloud();
    let running = engine(&world);
    converge(&world, &running).await;
    world.cluster.hold(DEPLOYMENT, "cloud-keystone");
    world.edit_object(DEPLOYMENT, NAMESPACE, "cloud-keystone", |deployment| {
        deployment["status"] = json!({});
    });
    converge(&world, &running).await;
    let debug =
        json!({ "glance": { "extraConfig": { "glance-api.conf": { "DEFAULT": { "debug": "true" } } } } });
    world.apply_object(&full_object(control_plane::KIND, "cloud", &debug));
    converge(&world, &running).await;
    let template = get(&world, DEPLOYMENT, "cloud-glance")["spec"]["template"].to_string();
    let maps = world.cluster.objects(CONFIG_MAP);
    let changed = maps.iter().find(|map| map["data"]["glance-api.conf"].to_string().contains("debug = true"));
    let name = changed.unwrap()["metadata"]["name"].as_str().unwrap();
    assert!(template.contains(name), "the pods do not use the new configuration");
    assert!(!is_ready(&world, glance::KIND, "cloud-glance"), "its user cannot be checked");
}

#[tokio::test]
async fn nova_compute_starts_beside_nova() {
    let world = new_cloud();
    world.cluster.hold(JOB, "cloud-nova-db-sync");
    converge(&world, &engine(&world)).await;
    assert!(!exists(&world, DEPLOYMENT, "cloud-nova"));
    assert!(exists(&world, DAEMON_SET, "cloud-compute-nova-compute"), "it waits for the conductor itself");
}

#[tokio::test]
async fn nova_compute_first_starts_after_its_dependencies_and_is_always_updated_afterwards() {
    let world = new_cloud();
    let running = engine(&world);
    world.cluster.hold(DEPLOYMENT, "cloud-placement");
    converge(&world, &running).await;
    assert!(exists(&world, DAEMON_SET, "cloud-compute-libvirt"), "workloads without dependencies start");
    assert!(!exists(&world, DAEMON_SET, "cloud-compute-nova-compute"));
    let message = condition(&world, compute::KIND, "cloud-compute", "WorkloadsReady").2;
    assert_eq!(message, "DaemonSet cloud-compute-nova-compute waits for Placement cloud-placement");
    world.cluster.release(DEPLOYMENT, "cloud-placement");
    converge(&world, &running).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
    world.cluster.hold(DEPLOYMENT, "cloud-placement");
    world
        .edit_object(DEPLOYMENT, NAMESPACE, "cloud-placement", |deployment| deployment["status"] = json!({}));
    world.edit_object(DAEMON_SET, NAMESPACE, "cloud-compute-nova-compute", |set| {
        set["spec"]["template"]["spec"]["hostNetwork"] = Value::Bool(false);
    });
    converge(&world, &running).await;
    assert!(!is_ready(&world, placement::KIND, "cloud-placement"));
    let set = get(&world, DAEMON_SET, "cloud-compute-nova-compute");
    assert_eq!(set["spec"]["template"]["spec"]["hostNetwork"], true, "running workloads are always updated");
}

#[tokio::test]
async fn clients_of_ovn_use_cluster_ips() {
    let world = new_cloud();
    converge(&world, &engine(&world)).await;
    let address = get(&world, SERVICE, "cloud-ovn-nb-0")["spec"]["clusterIP"].as_str().unwrap().to_owned();
    let maps = world.cluster.objects(CONFIG_MAP);
    let settings = maps.iter().find_map(|map| map["data"]["ml2_conf.ini"].as_str()).unwrap();
    assert!(settings.contains(&format!("ovn_nb_connection = tcp:{address}:6641")), "{settings}");
    assert!(is_ready(&world, neutron::KIND, "cloud-neutron"));
}

#[tokio::test]
async fn neutron_uses_a_user_service_for_ovn_once_it_has_an_address() {
    let world = world();
    let running = engine(&world);
    let relay = json!({ "sbConnection": { "service": { "name": "relay", "port": 16642 } } });
    let changes = json!({ "ovn": { "neutronIntegration": relay } });
    world.apply_object(&full_object(control_plane::KIND, "cloud", &changes));
    let service = |address: Value| {
        world.apply_object(&json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "relay", "namespace": NAMESPACE },
            "spec": { "clusterIP": address },
        }));
    };
    service(json!("None"));
    converge(&world, &running).await;
    let (status, _, message) = condition(&world, ovn::KIND, "cloud-ovn", "Ready");
    assert_eq!(status, "True", "a relay needs the databases first");
    assert!(message.contains("Service relay"), "{message}");
    assert!(!is_ready(&world, neutron::KIND, "cloud-neutron"));
    world.delete_object(SERVICE, NAMESPACE, "relay");
    service(json!("10.96.7.7"));
    converge(&world, &running).await;
    let maps = world.cluster.objects(CONFIG_MAP);
    let settings = maps.iter().find_map(|map| map["data"]["ml2_conf.ini"].as_str()).unwrap();
    assert!(settings.contains("ovn_sb_connection = tcp:10.96.7.7:16642"), "{settings}");
    assert!(is_ready(&world, neutron::KIND, "cloud-neutron"));
}
