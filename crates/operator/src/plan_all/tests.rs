//! Planning several objects together.

use openstack_operator_model::image::{Family, ImageDefaults};
use openstack_operator_model::lower::Phase;
use openstack_operator_services::{PARTS, cloud::Presence};
use serde_json::Value;

use super::*;

fn site() -> Site {
    let images = ImageDefaults { family: Family::Kolla, registry: None, tags: BTreeMap::new() };
    Site { images, cluster_domain: "cluster.local".to_owned() }
}

fn document(kind: &str, name: &str, spec: &Value) -> Document {
    let kind = of_kind(kind).unwrap().kind();
    let object = json!({ "apiVersion": kind.api_version(), "kind": kind.kind,
                         "metadata": { "name": name, "namespace": "n" }, "spec": spec });
    Document {
        origin: Origin { file: "f.yaml".to_owned(), document: 1 },
        key: Key { kind, namespace: "n".to_owned(), name: name.to_owned() },
        object: serde_json::from_value(object).unwrap(),
    }
}

fn keystone(database: &str) -> Document {
    document("Keystone", "k", &json!({ "database": { "clusterRef": { "name": database } } }))
}

fn names(planned: &[Planned]) -> Vec<&str> {
    planned.iter().map(|planned| planned.key.name.as_str()).collect()
}

#[test]
fn a_control_plane_is_planned_with_all_its_parts() {
    let planned =
        plan_all(vec![document("OpenStackControlPlane", "cloud", &json!({}))], &site(), &Known::default());
    let planned = planned.unwrap();
    let names = names(&planned);
    for part in PARTS.iter().filter(|part| part.presence() == Presence::ByDefault) {
        assert!(names.contains(&format!("cloud-{}", part.field()).as_str()), "{names:?}");
    }
    let compute = planned.iter().find(|planned| planned.key.name == "cloud-compute").unwrap();
    assert_eq!(compute.parent.as_ref().unwrap().name, "cloud");
    assert!(compute.manifests.contains_key(&Phase::Workloads));
}

#[test]
fn order_in_the_files_does_not_matter() {
    let documents = vec![keystone("m"), document("MariaDB", "m", &json!({}))];
    assert_eq!(names(&plan_all(documents, &site(), &Known::default()).unwrap()), ["m", "k"]);
}

#[test]
fn an_unmet_need_is_reported_with_field_kind_and_name() {
    let problems = plan_all(vec![keystone("gone")], &site(), &Known::default()).unwrap_err();
    assert_eq!(
        problems.to_string(),
        "f.yaml, document 1 (Keystone n/k): spec.database.clusterRef: there is no MariaDB \"gone\" in \
         namespace \"n\": add it, or reference another"
    );
}

#[test]
fn an_object_of_the_cluster_meets_a_need() {
    let planned = plan_all(vec![document("MariaDB", "m", &json!({}))], &site(), &Known::default()).unwrap();
    let status = Status { provides: planned[0].plan.provides.clone(), ..Status::default() };
    let known = KnownObject { uid: "u".to_owned(), status, ..KnownObject::default() };
    let known = Known { objects: BTreeMap::from([(planned[0].key.clone(), known)]), ..Known::default() };
    assert_eq!(names(&plan_all(vec![keystone("m")], &site(), &known).unwrap()), ["k"]);
}

#[test]
fn an_invalid_object_is_reported_once_and_not_for_its_users() {
    let wrong = document("MariaDB", "m", &json!({ "resources": { "limits": { "memory": "much" } } }));
    let problems = plan_all(vec![wrong, keystone("m")], &site(), &Known::default()).unwrap_err();
    assert_eq!(problems.0.len(), 1, "{problems}");
    assert!(problems.to_string().contains("(MariaDB n/m): spec.resources.limits.memory"), "{problems}");
}

#[test]
fn an_object_that_is_also_a_part_of_a_cloud_is_rejected() {
    let documents = vec![
        document("OpenStackControlPlane", "cloud", &json!({})),
        document("Memcached", "cloud-memcached", &json!({})),
    ];
    let problems = plan_all(documents, &site(), &Known::default()).unwrap_err();
    assert!(
        problems.to_string().contains("Memcached n/cloud-memcached, part of OpenStackControlPlane n/cloud")
    );
}

#[test]
fn a_new_image_runs_migrations() {
    let known = |document: &Document| {
        let status = Status { installed: Some("old".to_owned()), ..Status::default() };
        let object = KnownObject { uid: "u".to_owned(), status, ..KnownObject::default() };
        Known { objects: BTreeMap::from([(document.key.clone(), object)]), ..Known::default() }
    };
    let keystone = keystone("m");
    let known = known(&keystone);
    let planned = plan_all(vec![document("MariaDB", "m", &json!({})), keystone], &site(), &known).unwrap();
    let tasks: Vec<&str> =
        planned[1].manifests[&Phase::Tasks].iter().map(|manifest| manifest.name.as_str()).collect();
    assert_eq!(tasks, ["k-db-expand", "k-db-migrate"]);
}

#[test]
fn nodes_with_taints_that_the_pods_do_not_tolerate_are_left_out() {
    let chassis = |spec: &Value| -> Vec<String> {
        let labels = BTreeMap::from([("node-role.kubernetes.io/hypervisor".to_owned(), String::new())]);
        let taint = json!({ "spec": { "taints": [{ "key": "maintenance", "effect": "NoSchedule" }] } });
        let nodes = BTreeMap::from([
            ("free".to_owned(), Node::new(labels.clone(), &json!({}))),
            ("tainted".to_owned(), Node::new(labels, &taint)),
        ]);
        let known = Known { nodes: Some(nodes), ..Known::default() };
        let planned = plan_all(vec![document("OVNNetwork", "net", spec)], &site(), &known).unwrap();
        planned.into_iter().filter(|one| one.key.kind.kind == "OVNChassis").map(|one| one.key.name).collect()
    };
    assert_eq!(chassis(&json!({})), ["net-free"]);
    let tolerations = json!([{ "key": "maintenance", "operator": "Exists" }]);
    let spec = json!({ "controller": { "tolerations": tolerations } });
    assert_eq!(chassis(&spec), ["net-free", "net-tainted"]);
}
