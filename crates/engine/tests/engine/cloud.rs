//! A cloud from one object.

use openstack_operator_model::kind::{DEPLOYMENT, HTTP_ROUTE, JOB, SECRET, STATEFUL_SET};
use openstack_operator_services::{control_plane, keystone, mariadb, memcached, rabbitmq};
use openstack_operator_testkit::World;
use serde_json::{Value, json};

use crate::driver::{
    NAMESPACE, cloud, condition, converge, engine, get, is_ready, new_cloud, object, round, world,
};

fn condition_types(body: &Value) -> Vec<&str> {
    body["status"]["conditions"].as_array().unwrap().iter().map(|one| one["type"].as_str().unwrap()).collect()
}

/// A ready cloud with this spec.
async fn cloud_of(spec: &Value) -> World {
    let world = world();
    world.apply_object(&object(control_plane::KIND, "my-cloud", spec));
    converge(&world, &engine(&world)).await;
    world
}

#[tokio::test]
async fn a_cloud_with_an_empty_spec_becomes_ready() {
    let (world, _) = cloud().await;
    let plane = get(&world, control_plane::KIND, "cloud");
    assert_eq!(plane["status"]["phase"], "Ready");
    let rows = plane["status"]["services"].as_array().unwrap();
    let row =
        |kind: &str, name: &str| json!({ "kind": kind, "name": name, "ready": true, "release": "2025.1" });
    let mut identity = row("Keystone", "cloud-keystone");
    identity["endpoint"] = json!("http://cloud-keystone.openstack.svc:5000");
    let expected = [
        row("MariaDB", "cloud-mariadb"),
        row("RabbitMQ", "cloud-rabbitmq"),
        row("Memcached", "cloud-memcached"),
        identity,
    ];
    assert_eq!(*rows, expected);
    let types = ["ServicesReady", "Available", "Ready", "Degraded", "Reconciling", "Stalled"];
    assert_eq!(condition_types(&plane), types);
    for (kind, name) in [
        (control_plane::KIND, "cloud"),
        (mariadb::KIND, "cloud-mariadb"),
        (rabbitmq::KIND, "cloud-rabbitmq"),
        (memcached::KIND, "cloud-memcached"),
        (keystone::KIND, "cloud-keystone"),
    ] {
        let succeeded = |status: &str| (status.to_owned(), "Succeeded".to_owned(), String::new());
        let summary = [
            ("Available", "True"),
            ("Ready", "True"),
            ("Degraded", "False"),
            ("Reconciling", "False"),
            ("Stalled", "False"),
        ];
        for (type_, status) in summary {
            assert_eq!(condition(&world, kind, name, type_), succeeded(status), "{type_} of {name}");
        }
        let body = get(&world, kind, name);
        assert_eq!(body["status"]["observedGeneration"], body["metadata"]["generation"]);
    }
    let identity = get(&world, keystone::KIND, "cloud-keystone");
    let expected = [
        "InputsReady",
        "FernetKeysReady",
        "CredentialKeysReady",
        "DatabaseReady",
        "ConfigReady",
        "TasksComplete",
        "WorkloadsReady",
        "Registered",
        "Finished",
        "Available",
        "Ready",
        "Degraded",
        "Reconciling",
        "Stalled",
    ];
    assert_eq!(condition_types(&identity), expected);
}

#[tokio::test]
async fn services_are_children_of_the_cloud() {
    let (world, _) = cloud().await;
    let plane = get(&world, control_plane::KIND, "cloud");
    for (kind, name) in [
        (mariadb::KIND, "cloud-mariadb"),
        (rabbitmq::KIND, "cloud-rabbitmq"),
        (memcached::KIND, "cloud-memcached"),
        (keystone::KIND, "cloud-keystone"),
    ] {
        let owners = &get(&world, kind, name)["metadata"]["ownerReferences"];
        let expected = json!([{
            "apiVersion": "openstack.k8s.io/v1alpha1", "kind": "OpenStackControlPlane", "name": "cloud",
            "uid": plane["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
        }]);
        assert_eq!(*owners, expected, "{name}");
    }
}

#[tokio::test]
async fn keystone_gets_a_database_a_database_user_and_catalog_entries() {
    let (world, _) = cloud().await;
    let sql = world.sql.state("cloud-mariadb.openstack.svc");
    assert!(sql.databases.contains("keystone"));
    assert!(sql.grants.contains(&("keystone".to_owned(), "keystone".to_owned())));
    let identity = world.identity.state("http://cloud-keystone.openstack.svc:5000/v3");
    assert!(identity.projects.contains("service"));
    let endpoints = &identity.services["identity"].endpoints["RegionOne"];
    assert_eq!(endpoints.keys().collect::<Vec<_>>(), ["admin", "internal", "public"]);
    let administrator = world.sql.administrator("cloud-mariadb.openstack.svc").unwrap();
    assert_eq!(administrator.username, "root");
}

#[tokio::test]
async fn the_install_job_runs_once_and_is_deleted() {
    let (world, _) = cloud().await;
    let jobs: Vec<Value> = world.cluster.objects(JOB);
    let names: Vec<&str> = jobs.iter().map(|job| job["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["cloud-keystone-bootstrap"], "the install Job is pruned, and no upgrade ran");
    let status = &get(&world, keystone::KIND, "cloud-keystone")["status"];
    assert_eq!(status["installed"], "quay.io/openstack.kolla/keystone:2025.1-ubuntu-noble");
}

#[tokio::test]
async fn the_phase_is_that_of_the_first_service_that_is_not_ready() {
    let world = new_cloud();
    let engine = engine(&world);
    world.cluster.hold(STATEFUL_SET, "cloud-rabbitmq");
    converge(&world, &engine).await;
    let status = get(&world, control_plane::KIND, "cloud")["status"].clone();
    assert_eq!(status["phase"], "Infrastructure");
    let row = &status["services"][1];
    assert_eq!(row["ready"], false);
    let message = "RabbitMQ cloud-rabbitmq: StatefulSet cloud-rabbitmq: 0 of 1 pods ready";
    assert_eq!(row["waitingFor"], message);
    assert_eq!(condition(&world, control_plane::KIND, "cloud", "Ready").2, message);
    assert!(
        is_ready(&world, keystone::KIND, "cloud-keystone"),
        "a service starts as soon as its dependencies are available"
    );
    world.cluster.hold(DEPLOYMENT, "cloud-keystone");
    world.cluster.release(STATEFUL_SET, "cloud-rabbitmq");
    world.edit_object(DEPLOYMENT, NAMESPACE, "cloud-keystone", |deployment| {
        deployment["status"] = json!({});
    });
    converge(&world, &engine).await;
    assert_eq!(get(&world, control_plane::KIND, "cloud")["status"]["phase"], "Identity");
}

#[tokio::test]
async fn services_are_created_at_once_and_wait_for_their_dependencies() {
    let world = new_cloud();
    let engine = engine(&world);
    world.cluster.hold(STATEFUL_SET, "cloud-mariadb");
    for _ in 0..3 {
        round(&world, &engine).await;
    }
    let identity = get(&world, keystone::KIND, "cloud-keystone");
    assert!(
        identity["metadata"]["ownerReferences"].is_array(),
        "all services are created in the first round"
    );
    let (status, reason, message) = condition(&world, keystone::KIND, "cloud-keystone", "DatabaseReady");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Waiting"));
    assert_eq!(message, "MariaDB cloud-mariadb is not available");
    assert!(
        world.object(SECRET, NAMESPACE, "cloud-keystone-admin").is_some(),
        "steps without dependencies are done"
    );
    assert!(world.cluster.objects(JOB).is_empty() && world.cluster.objects(DEPLOYMENT).is_empty());
}

#[tokio::test]
async fn keystone_is_exposed_in_the_clouds_domain_through_the_clouds_gateway() {
    let world = cloud_of(&json!({
        "publicDomain": "cloud.example.com",
        "gatewayRef": { "name": "edge-gw", "namespace": "edge-system" },
    }))
    .await;
    let spec = &get(&world, keystone::KIND, "my-cloud-keystone")["spec"];
    assert_eq!(spec["publicHostname"], "keystone.cloud.example.com");
    assert_eq!(spec["gatewayRef"], json!({ "name": "edge-gw", "namespace": "edge-system" }));
    let route = &get(&world, HTTP_ROUTE, "my-cloud-keystone")["spec"];
    assert_eq!(route["hostnames"], json!(["keystone.cloud.example.com"]));
    assert_eq!(route["parentRefs"], json!([{ "name": "edge-gw", "namespace": "edge-system" }]));
    let plane = get(&world, control_plane::KIND, "my-cloud");
    assert_eq!(plane["status"]["endpoint"], "https://keystone.cloud.example.com");
    assert_eq!(plane["status"]["services"][3]["endpoint"], "https://keystone.cloud.example.com");
    let identity = world.identity.state("http://my-cloud-keystone.openstack.svc:5000/v3");
    let public = &identity.services["identity"].endpoints["RegionOne"]["public"];
    assert_eq!(public, "https://keystone.cloud.example.com/v3");
}

#[tokio::test]
async fn settings_of_a_service_override_those_of_the_cloud() {
    let world = cloud_of(&json!({
        "publicDomain": "cloud.example.com",
        "publicScheme": "https",
        "gatewayRef": { "name": "edge-gw", "namespace": "edge-system" },
        "region": "North",
        "keystone": {
            "publicHostname": "id.example.org",
            "publicScheme": "http",
            "gatewayRef": { "name": "own", "listenerName": "web" },
            "bootstrap": { "region": "South" },
        },
    }))
    .await;
    let spec = &get(&world, keystone::KIND, "my-cloud-keystone")["spec"];
    assert_eq!(spec["publicHostname"], "id.example.org");
    assert_eq!(spec["gatewayRef"], json!({ "name": "own", "listenerName": "web" }));
    assert_eq!(spec["bootstrap"]["region"], "South");
    let route = &get(&world, HTTP_ROUTE, "my-cloud-keystone")["spec"];
    assert_eq!(route["parentRefs"], json!([{ "name": "own", "sectionName": "web" }]));
    assert_eq!(
        get(&world, keystone::KIND, "my-cloud-keystone")["status"]["endpoint"],
        "http://id.example.org"
    );
}

#[tokio::test]
async fn a_cloud_without_a_gateway_has_no_route() {
    let (world, _) = cloud().await;
    assert!(world.cluster.objects(HTTP_ROUTE).is_empty());
    let spec = &get(&world, keystone::KIND, "cloud-keystone")["spec"];
    assert_eq!(spec["publicHostname"], "keystone.openstack.local");
    assert_eq!(spec.get("gatewayRef"), None);
}

#[tokio::test]
async fn a_service_without_its_dependency_is_not_deployed_and_reported() {
    let world = cloud_of(&json!({ "mariadb": { "enabled": false } })).await;
    assert!(is_ready(&world, control_plane::KIND, "my-cloud"));
    assert!(world.cluster.objects(keystone::KIND).is_empty());
    assert!(world.cluster.objects(mariadb::KIND).is_empty());
    let message = condition(&world, control_plane::KIND, "my-cloud", "Ready").2;
    assert!(
        message.contains("my-cloud-keystone is not deployed") && message.contains("MariaDB"),
        "{message}"
    );
}

#[tokio::test]
async fn a_disabled_service_is_deleted_and_the_others_stay() {
    let (world, engine) = cloud().await;
    world.apply_object(&object(
        control_plane::KIND,
        "cloud",
        &json!({ "rabbitmq": { "enabled": false }, "memcached": { "enabled": false } }),
    ));
    converge(&world, &engine).await;
    assert!(world.cluster.objects(rabbitmq::KIND).is_empty());
    assert!(world.cluster.objects(memcached::KIND).is_empty());
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
    assert!(is_ready(&world, keystone::KIND, "cloud-keystone"));
    let rows = get(&world, control_plane::KIND, "cloud")["status"]["services"].clone();
    assert_eq!(rows.as_array().unwrap().len(), 2);
}
