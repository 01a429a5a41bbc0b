//! CRDs and statuses of another version of the operator, and writes of a former leader.

use openstack_operator_engine::engine::{Engine, Outcome};
use openstack_operator_model::kind::{DEPLOYMENT, Kind};
use openstack_operator_services::{control_plane, keystone, mariadb};
use openstack_operator_testkit::{OldCrd, World};
use serde_json::{Value, json};

use crate::driver::{
    NAMESPACE, assert_same, cloud, condition, converge, engine, get, is_ready, key, keys, new_cloud, object,
    round, statuses, writes,
};
use crate::test_services::WIDGET;

fn reports(world: &World, kind: Kind, name: &str) -> usize {
    let report = format!("write_status {} {name}", kind.kind);
    writes(world).iter().filter(|call| **call == report).count()
}

fn stalled_events(world: &World, name: &str) -> usize {
    let events = world.cluster.announcements();
    events.iter().filter(|one| one.name == name && one.event.reason == "Stalled").count()
}

/// Expects the object to report an old CRD that does not have a field, and not to be written again.
async fn assert_outdated(world: &World, engine: &Engine, kind: Kind, name: &str, problem: &str) {
    let (stalled, reason, message) = condition(world, kind, name, "Stalled");
    assert_eq!((stalled.as_str(), reason.as_str()), ("True", "OutdatedCRD"), "{message}");
    let crd = format!("the CRD {}.openstack.k8s.io is older than the operator: it ", kind.plural);
    assert!(message.starts_with(&crd) && message.contains(problem), "{message}");
    assert!(message.ends_with("apply the CRDs of this operator version"), "{message}");
    let before = get(world, kind, name);
    let events = stalled_events(world, name);
    world.script.clear_log();
    for _ in 0..5 {
        let outcome = engine.reconcile(&key(kind, name)).await;
        let Outcome::Failed { message: found } = outcome else {
            panic!("it is retried with increasing delay: {outcome:?}")
        };
        assert!(found.ends_with(&message), "{found}");
    }
    assert_eq!(reports(world, kind, name), 0, "{:?}", writes(world));
    assert_eq!(get(world, kind, name), before);
    assert_eq!(stalled_events(world, name), events, "one Event");
}

#[tokio::test]
async fn a_crd_that_drops_a_field_is_reported_and_does_not_cause_a_loop_of_writes() {
    for (kind, name, field) in [
        (keystone::KIND, "cloud-keystone", "effects"),
        (keystone::KIND, "cloud-keystone", "installed"),
        (keystone::KIND, "cloud-keystone", "databases"),
        (mariadb::KIND, "cloud-mariadb", "memory"),
        (mariadb::KIND, "cloud-mariadb", "provides"),
        (control_plane::KIND, "cloud", "services"),
    ] {
        let world = new_cloud();
        let running = engine(&world);
        world.cluster.install_old_crd(kind, &format!("/{field}"), OldCrd::Drops);
        for _ in 0..40 {
            round(&world, &running).await;
        }
        let written = reports(&world, kind, name);
        assert!(written <= 20, "{written} writes of the status of {name} without {field}");
        let problem = format!("does not have status.{field}");
        assert_outdated(&world, &running, kind, name, &problem).await;
        assert_outdated(&world, &engine(&world), kind, name, &problem).await;
        world.cluster.update_crds();
        converge(&world, &running).await;
        assert!(is_ready(&world, control_plane::KIND, "cloud"), "{}", statuses(&world, &running));
        let (whole, _) = cloud().await;
        assert_same(&world.fingerprint(), &whole.fingerprint(), || format!("without {field}"));
    }
}

#[tokio::test]
async fn a_crd_that_rejects_a_value_is_reported() {
    let world = new_cloud();
    let running = engine(&world);
    world.cluster.install_old_crd(keystone::KIND, "/effects", OldCrd::Rejects);
    for _ in 0..20 {
        round(&world, &running).await;
    }
    let problem = "does not accept the status (status/effects: Unsupported value)";
    assert_outdated(&world, &running, keystone::KIND, "cloud-keystone", problem).await;
    world.cluster.update_crds();
    converge(&world, &running).await;
    assert!(is_ready(&world, control_plane::KIND, "cloud"));
}

#[tokio::test]
async fn a_running_cloud_keeps_its_records_under_an_old_crd_and_can_be_deleted() {
    let (world, engine) = cloud().await;
    let before = get(&world, keystone::KIND, "cloud-keystone")["status"].clone();
    world.cluster.install_old_crd(keystone::KIND, "/databases", OldCrd::Drops);
    world.delete_object(DEPLOYMENT, NAMESPACE, "cloud-keystone");
    for _ in 0..5 {
        round(&world, &engine).await;
    }
    assert!(world.object(DEPLOYMENT, NAMESPACE, "cloud-keystone").is_some(), "it is still repaired");
    let after = get(&world, keystone::KIND, "cloud-keystone")["status"].clone();
    for record in ["effects", "installed", "served", "uses", "provides"] {
        assert_eq!(after[record], before[record], "{record}");
    }
    assert_eq!(condition(&world, keystone::KIND, "cloud-keystone", "Stalled").1, "OutdatedCRD");
    world.delete_object(control_plane::KIND, NAMESPACE, "cloud");
    for _ in 0..20 {
        round(&world, &engine).await;
    }
    assert!(keys(&world, &engine).is_empty(), "{}", statuses(&world, &engine));
    assert!(world.sql.state("cloud-mariadb.openstack.svc").users.is_empty());
}

/// The status as a newer operator leaves it.
fn newer(world: &World, change: impl FnOnce(&mut Value)) -> Value {
    let mut status = get(world, keystone::KIND, "cloud-keystone")["status"].clone();
    change(&mut status);
    world.set_status(keystone::KIND, NAMESPACE, "cloud-keystone", status.clone());
    status
}

#[tokio::test]
async fn a_status_with_unknown_values_is_reported_and_kept() {
    let (world, engine) = cloud().await;
    let newer = newer(&world, |status| {
        status["effects"][0]["what"] = json!("Teapot");
        status["future"] = json!({ "a": 1 });
    });
    for deleted in [false, true] {
        for _ in 0..5 {
            let outcome = engine.reconcile(&key(keystone::KIND, "cloud-keystone")).await;
            assert!(matches!(outcome, Outcome::Failed { .. }), "deleted {deleted}: {outcome:?}");
        }
        let mut status = get(&world, keystone::KIND, "cloud-keystone")["status"].clone();
        let (stalled, reason, message) = condition(&world, keystone::KIND, "cloud-keystone", "Stalled");
        assert_eq!((stalled.as_str(), reason.as_str()), ("True", "UnreadableStatus"));
        for part in ["Teapot", "a newer operator version has written it", "run that version again"] {
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(condition(&world, keystone::KIND, "cloud-keystone", "Ready").0, "False");
        assert_eq!(condition(&world, keystone::KIND, "cloud-keystone", "DatabaseReady").0, "True");
        for field in ["conditions", "observedGeneration"] {
            status[field] = newer[field].clone();
        }
        assert_eq!(status, newer, "deleted {deleted}");
        let expected =
            ["write_status Keystone cloud-keystone", "publish Keystone cloud-keystone"].map(str::to_owned);
        // A deletion increments the generation that the status reports.
        assert_eq!(writes(&world), if deleted { &expected[..1] } else { &expected[..] });
        world.script.clear_log();
        if !deleted {
            world.delete_object(keystone::KIND, NAMESPACE, "cloud-keystone");
        }
    }
}

#[tokio::test]
async fn unknown_fields_of_a_status_survive_the_writes_of_an_older_operator() {
    let (world, engine) = cloud().await;
    let newer = newer(&world, |status| {
        status["future"] = json!({ "a": 1 });
        status["effects"][0]["color"] = json!("red");
        status["provides"]["identity"]["color"] = json!("blue");
    });
    world.delete_object(DEPLOYMENT, NAMESPACE, "cloud-keystone");
    converge(&world, &engine).await;
    assert!(reports(&world, keystone::KIND, "cloud-keystone") >= 2, "it was not ready meanwhile");
    assert!(is_ready(&world, keystone::KIND, "cloud-keystone"));
    let after = get(&world, keystone::KIND, "cloud-keystone")["status"].clone();
    for field in ["future", "effects", "provides"] {
        assert_eq!(after[field], newer[field], "{field}");
    }
    world.script.clear_log();
    converge(&world, &engine).await;
    assert_eq!(writes(&world), [""; 0], "unknown fields are no reason to write");
}

#[tokio::test]
async fn a_late_status_of_a_former_leader_does_not_replace_a_newer_one() {
    let (world, former) = cloud().await;
    world.apply_object(&object(WIDGET, "widget", &json!({})));
    let widget = key(WIDGET, "widget");
    // The new leader reconciles on a copy of the cluster; its status arrives before that of the former leader.
    let copy = world.fork();
    let leader = engine(&copy);
    leader.reconcile(&widget).await;
    leader.reconcile(&widget).await;
    let newer = get(&copy, WIDGET, "widget")["status"].clone();
    assert!(!newer["effects"].as_array().unwrap().is_empty());
    world.cluster.compete(WIDGET, NAMESPACE, "widget", newer.clone());
    let outcome = former.reconcile(&widget).await;
    assert!(matches!(outcome, Outcome::Waiting { after: Some(after) } if after.is_zero()), "{outcome:?}");
    assert_eq!(get(&world, WIDGET, "widget")["status"], newer);
    converge(&world, &former).await;
    assert!(is_ready(&world, WIDGET, "widget"));
}
