//! Volumes of StatefulSets grow without a restart of their pods, or the user gets the reason why they cannot.

use openstack_operator_engine::engine::Engine;
use openstack_operator_model::kind::{PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET};
use openstack_operator_services::mariadb;
use openstack_operator_testkit::World;
use serde_json::{Value, json};

use crate::driver::{NAMESPACE, condition, converge, engine, get, is_ready, object, world, writes};

fn wanted(size: &str) -> Value {
    object(mariadb::KIND, "db", &json!({ "storageSize": size }))
}

fn uid(world: &World, kind: openstack_operator_model::kind::Kind, name: &str) -> String {
    get(world, kind, name)["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// A database whose pod has a volume of this storage class.
async fn database(class: Option<bool>) -> (World, Engine) {
    let world = world();
    let engine = engine(&world);
    if let Some(expandable) = class {
        world.apply_object(&json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "disk" },
            "allowVolumeExpansion": expandable,
        }));
    }
    world.apply_object(&wanted("10Gi"));
    converge(&world, &engine).await;
    let set = get(&world, STATEFUL_SET, "db");
    let owners = json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "controller": true,
                          "uid": set["metadata"]["uid"] }]);
    world.apply_object(&json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data-db-0", "namespace": NAMESPACE, "labels": set["spec"]["selector"]["matchLabels"],
                      "ownerReferences": owners },
        "spec": { "storageClassName": "disk", "resources": { "requests": { "storage": "10Gi" } } },
    }));
    world.apply_object(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "db-0", "namespace": NAMESPACE, "labels": set["spec"]["template"]["metadata"]["labels"],
                      "ownerReferences": owners },
    }));
    world.set_status(
        POD,
        NAMESPACE,
        "db-0",
        json!({ "conditions": [{ "type": "Ready", "status": "True" }] }),
    );
    converge(&world, &engine).await;
    world.script.clear_log();
    (world, engine)
}

fn claimed(world: &World) -> Value {
    get(world, PERSISTENT_VOLUME_CLAIM, "data-db-0")["spec"]["resources"]["requests"]["storage"].clone()
}

fn planned(world: &World) -> Value {
    let set = get(world, STATEFUL_SET, "db");
    set["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"].clone()
}

#[tokio::test]
async fn a_volume_grows_and_its_pod_keeps_running() {
    let (world, engine) = database(Some(true)).await;
    let before = (uid(&world, POD, "db-0"), uid(&world, PERSISTENT_VOLUME_CLAIM, "data-db-0"));
    let template = get(&world, STATEFUL_SET, "db")["spec"]["template"].clone();
    let set = uid(&world, STATEFUL_SET, "db");
    world.apply_object(&wanted("20Gi"));
    converge(&world, &engine).await;
    assert_eq!((claimed(&world), planned(&world)), (json!("20Gi"), json!("20Gi")));
    assert_eq!((uid(&world, POD, "db-0"), uid(&world, PERSISTENT_VOLUME_CLAIM, "data-db-0")), before);
    assert_eq!(
        get(&world, STATEFUL_SET, "db")["spec"]["template"],
        template,
        "pods match the new StatefulSet"
    );
    assert_ne!(uid(&world, STATEFUL_SET, "db"), set);
    assert!(is_ready(&world, mariadb::KIND, "db"));
    world.script.clear_log();
    converge(&world, &engine).await;
    assert_eq!(writes(&world), [""; 0]);
}

#[tokio::test]
async fn a_volume_that_cannot_grow_stalls_the_object_and_other_changes_apply() {
    for class in [Some(false), None] {
        let (world, engine) = database(class).await;
        let set = uid(&world, STATEFUL_SET, "db");
        let spec = json!({ "storageSize": "20Gi", "priorityClassName": "important" });
        world.apply_object(&object(mariadb::KIND, "db", &spec));
        converge(&world, &engine).await;
        assert_eq!((claimed(&world), planned(&world)), (json!("10Gi"), json!("10Gi")));
        assert_eq!(uid(&world, STATEFUL_SET, "db"), set);
        let message = condition(&world, mariadb::KIND, "db", "WorkloadsReady").2;
        let reason = "StatefulSet db: storage class \"disk\" does not allow volume expansion, so \
                      PersistentVolumeClaim data-db-0 stays at 10Gi";
        assert!(message.starts_with(reason), "{message}");
        assert_eq!(condition(&world, mariadb::KIND, "db", "Stalled").0, "True");
        assert_eq!(condition(&world, mariadb::KIND, "db", "Available").0, "True");
        let pod = get(&world, STATEFUL_SET, "db")["spec"]["template"]["spec"].clone();
        assert_eq!(pod["priorityClassName"], "important");
    }
}

#[tokio::test]
async fn a_volume_never_shrinks() {
    let (world, engine) = database(Some(true)).await;
    world.apply_object(&wanted("5Gi"));
    converge(&world, &engine).await;
    assert_eq!((claimed(&world), planned(&world)), (json!("10Gi"), json!("10Gi")));
    let message = condition(&world, mariadb::KIND, "db", "WorkloadsReady").2;
    assert_eq!(
        message,
        "StatefulSet db: its volumes cannot shrink from 10Gi to 5Gi: set the size to at least 10Gi"
    );
    world.apply_object(&wanted("10240Mi"));
    converge(&world, &engine).await;
    assert!(is_ready(&world, mariadb::KIND, "db"), "the same size in another notation");
}

#[tokio::test]
async fn an_interrupted_growth_is_completed() {
    for write in 1..=4 {
        let (world, engine) = database(Some(true)).await;
        let pod = uid(&world, POD, "db-0");
        world.apply_object(&wanted("20Gi"));
        world.script.crash_after_write(write);
        converge(&world, &engine).await;
        world.script.revive();
        converge(&world, &crate::driver::engine(&world)).await;
        assert_eq!((claimed(&world), planned(&world)), (json!("20Gi"), json!("20Gi")), "write {write}");
        assert_eq!(uid(&world, POD, "db-0"), pod, "write {write}");
    }
}
