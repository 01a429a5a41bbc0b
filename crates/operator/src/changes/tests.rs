//! What would change, from a cloud as it runs.

use std::collections::BTreeMap;

use openstack_operator_model::image::{Family, ImageDefaults};
use openstack_operator_model::service::Site;
use openstack_operator_services::of_kind;

use super::*;
use crate::desired::desired;
use crate::input::{Document, Origin};
use crate::plan_all::{Known, KnownObject, plan_all};

fn site() -> Site {
    let images = ImageDefaults { family: Family::Kolla, registry: None, tags: BTreeMap::new() };
    Site { images, cluster_domain: "cluster.local".to_owned() }
}

fn document(spec: &Value) -> Document {
    let kind = of_kind("OpenStackControlPlane").unwrap().kind();
    let object = json!({ "apiVersion": kind.api_version(), "kind": kind.kind,
                         "metadata": { "name": "cloud", "namespace": "n" }, "spec": spec });
    Document {
        origin: Origin { file: "f.yaml".to_owned(), document: 1 },
        key: Key { kind, namespace: "n".to_owned(), name: "cloud".to_owned() },
        object: serde_json::from_value(object).unwrap(),
    }
}

fn plan(spec: &Value, known: &Known) -> Vec<Planned> {
    plan_all(vec![document(spec)], &site(), known).unwrap()
}

/// A cluster in which a cloud of this spec runs.
fn running(spec: &Value) -> Live {
    let mut known = Known::default();
    for planned in plan(spec, &known) {
        let mut object = KnownObject { uid: format!("uid-{}", planned.key.name), ..KnownObject::default() };
        let tasks = &planned.plan.tasks;
        object.status.installed = task::wanted_install(tasks).map(str::to_owned);
        known.objects.insert(planned.key, object);
    }
    let planned = plan(spec, &known);
    let mut live = Live { secrets: Some(BTreeMap::new()), ..Live::default() };
    for wanted in desired(&planned) {
        let Desired { key, body, .. } = wanted;
        if key.kind == SECRET {
            let keys = body["stringData"].as_object().unwrap().keys().cloned().collect();
            let secret = LiveSecret { keys: Some(keys), ..LiveSecret::default() };
            live.secrets.as_mut().unwrap().insert((key.namespace, key.name), secret);
        } else {
            live.objects.insert(key, body);
        }
    }
    for planned in &planned {
        let mut object = live
            .objects
            .remove(&planned.key)
            .unwrap_or_else(|| serde_json::to_value(&planned.object).unwrap());
        object["metadata"]["uid"] = json!(planned.instance.uid);
        object["status"] = serde_json::to_value(&known.objects[&planned.key].status).unwrap();
        live.objects.insert(planned.key.clone(), object);
    }
    live
}

fn found(spec: &Value, live: &Live) -> Vec<Change> {
    let planned = plan(spec, &live.known());
    changes(&planned, &desired(&planned), live)
}

fn titles(changes: &[Change]) -> Vec<String> {
    let sign = |change: &Change| match change.action {
        Action::Create => "+",
        Action::Change(_) => "~",
        Action::Delete => "-",
    };
    changes
        .iter()
        .map(|change| format!("{} {} {}", sign(change), change.key.kind.kind, change.key.name))
        .collect()
}

#[test]
fn an_unchanged_cloud_has_no_changes() {
    let spec = json!({ "keystone": { "notifications": { "enabled": true } } });
    assert_eq!(titles(&found(&spec, &running(&spec))), Vec::<String>::new());
}

#[test]
fn all_objects_of_a_new_cloud_are_created() {
    let all = found(&json!({}), &Live { secrets: Some(BTreeMap::new()), ..Live::default() });
    assert!(all.iter().all(|change| change.action == Action::Create));
    assert_eq!(titles(&all)[0], "+ OpenStackControlPlane cloud");
    assert!(titles(&all).contains(&"+ Secret cloud-keystone-admin".to_owned()));
}

#[test]
fn more_replicas_replace_no_pod() {
    let changes = found(&json!({ "keystone": { "replicas": 2 } }), &running(&json!({})));
    assert_eq!(
        titles(&changes),
        [
            "~ OpenStackControlPlane cloud",
            "~ Keystone cloud-keystone",
            "~ Deployment cloud-keystone",
            "+ PodDisruptionBudget cloud-keystone"
        ]
    );
    assert!(changes.iter().all(|change| change.restarts.is_none()));
}

#[test]
fn a_changed_file_shows_its_lines_and_restarts_the_pods_that_mount_it() {
    let spec =
        json!({ "keystone": { "extraConfig": { "keystone.conf": { "DEFAULT": { "debug": "true" } } } } });
    let changes = found(&spec, &running(&json!({})));
    let file = changes.iter().find(|change| change.key.kind == CONFIG_MAP).unwrap();
    let lines = vec![Line::Added("debug = true".to_owned())];
    let hunk = Hunk { place: "keystone.conf [DEFAULT]".to_owned(), lines };
    assert_eq!(file.action, Action::Change(vec![hunk]));
    let restarted: Vec<&Change> = changes.iter().filter(|change| change.restarts.is_some()).collect();
    assert_eq!(titles(&restarted.into_iter().cloned().collect::<Vec<_>>()), ["~ Deployment cloud-keystone"]);
    assert!(!titles(&changes).iter().any(|title| title.starts_with(['+', '-'])), "{:?}", titles(&changes));
}

#[test]
fn a_daemon_set_restarts_one_pod_per_node() {
    let mut live = running(&json!({}));
    for (key, object) in &mut live.objects {
        if key.kind == DAEMON_SET {
            object["status"] = json!({ "desiredNumberScheduled": 3 });
        }
    }
    let changes = found(&json!({ "images": { "tag": "2" } }), &live);
    let sets: Vec<&Change> = changes.iter().filter(|change| change.key.kind == DAEMON_SET).collect();
    assert!(!sets.is_empty());
    for change in sets {
        assert_eq!(change.restarts, Some(3), "{}", change.key);
    }
}

#[test]
fn another_image_runs_the_migrations() {
    let changes = found(&json!({ "keystone": { "image": { "tag": "2" } } }), &running(&json!({})));
    let all = titles(&changes);
    for task in ["db-expand", "db-migrate", "db-contract"] {
        assert!(all.contains(&format!("+ Job cloud-keystone-{task}")), "{all:?}");
    }
    assert!(all.contains(&"~ Job cloud-keystone-bootstrap".to_owned()), "{all:?}");
}

#[test]
fn a_disabled_service_is_deleted_with_its_objects() {
    let changes = found(&json!({ "memcached": { "enabled": false } }), &running(&json!({})));
    let gone: Vec<String> = titles(&changes).into_iter().filter(|title| title.starts_with('-')).collect();
    assert_eq!(
        gone,
        ["- Memcached cloud-memcached", "- Service cloud-memcached", "- StatefulSet cloud-memcached"]
    );
}

#[test]
fn a_volume_is_deleted_with_its_service_and_not_with_its_backend() {
    let volume = json!({ "pvc": { "deletionPolicy": "Delete" } });
    let live = running(&json!({ "glance": { "storage": volume } }));
    let claims = |spec: &Value| -> Vec<Change> {
        let changes = found(spec, &live).into_iter();
        changes.filter(|change| change.key.kind == PERSISTENT_VOLUME_CLAIM).collect()
    };
    let swift = json!({ "glance": { "storage": { "backend": "swift" } } });
    assert_eq!(titles(&claims(&swift)), Vec::<String>::new());
    assert_eq!(claims(&json!({ "glance": { "enabled": false } })).len(), 1);
}

#[test]
fn a_task_that_depends_on_a_password_is_compared_by_its_container() {
    let mut live = running(&json!({}));
    let mut jobs = live.objects.iter_mut().filter(|(key, _)| key.name == "cloud-keystone-bootstrap");
    jobs.next().unwrap().1["metadata"]["annotations"][TASK_ANNOTATION] = json!("of-another-password");
    assert_eq!(titles(&found(&json!({}), &live)), Vec::<String>::new());
}

#[test]
fn unreadable_secrets_are_not_compared() {
    let live = Live { secrets: None, ..running(&json!({})) };
    assert_eq!(titles(&found(&json!({}), &live)), Vec::<String>::new());
    let mut live = running(&json!({}));
    let place = ("n".to_owned(), "cloud-keystone-admin".to_owned());
    live.secrets.as_mut().unwrap().get_mut(&place).unwrap().keys = Some(BTreeSet::new());
    let changes = found(&json!({}), &live);
    assert_eq!(titles(&changes), ["~ Secret cloud-keystone-admin"]);
}
