//! Progress of live objects.

use serde_json::json;

use super::*;
use crate::kind::{CONFIG_MAP, POD_DISRUPTION_BUDGET};

#[test]
fn a_rollout_is_done_when_all_pods_are_updated_and_ready() {
    let live = |updated: i64, available: i64, total: i64| {
        json!({
            "metadata": { "generation": 2 }, "spec": { "replicas": 2 },
            "status": { "observedGeneration": 2, "updatedReplicas": updated, "availableReplicas": available,
                        "replicas": total }
        })
    };
    assert_eq!(assess(DEPLOYMENT, "x", &live(2, 2, 2)), Progress::Done);
    assert_eq!(
        assess(DEPLOYMENT, "x", &live(1, 2, 3)),
        Progress::waiting("Deployment x: 1 of 2 pods updated")
    );
    assert_eq!(assess(DEPLOYMENT, "x", &live(2, 1, 2)), Progress::waiting("Deployment x: 1 of 2 pods ready"));
    assert_eq!(
        assess(DEPLOYMENT, "x", &live(2, 2, 3)),
        Progress::waiting("Deployment x: waiting for an old pod to stop")
    );
}

#[test]
fn a_rollout_is_degraded_when_only_pods_of_lost_nodes_are_missing() {
    let live = |updated: i64, ready: i64| {
        json!({ "metadata": { "generation": 1 }, "spec": { "replicas": 3 }, "status": {
            "observedGeneration": 1, "updatedReplicas": updated, "readyReplicas": ready,
            "availableReplicas": ready, "replicas": 3, "currentRevision": "a", "updateRevision": "a" } })
    };
    let lost = |count, required| LostPods { count, nodes: vec!["b".to_owned()], required };
    let degraded = Progress::degraded("node b is not Ready");
    assert_eq!(rollout(STATEFUL_SET, "x", &live(3, 3), &lost(1, 2)), Progress::Done);
    assert_eq!(rollout(STATEFUL_SET, "x", &live(3, 2), &lost(1, 2)), degraded);
    assert_eq!(rollout(STATEFUL_SET, "x", &live(2, 2), &lost(1, 2)), degraded, "its pod is evicted");
    assert_eq!(rollout(DEPLOYMENT, "x", &live(3, 1), &lost(2, 1)), degraded);
    for (kind, updated, ready, lost, why) in [
        (STATEFUL_SET, 3, 1, lost(2, 2), "it has no majority"),
        (STATEFUL_SET, 3, 1, lost(1, 1), "another pod is missing"),
        (STATEFUL_SET, 1, 2, lost(1, 2), "a rollout is running"),
        (DEPLOYMENT, 2, 2, lost(1, 1), "a rollout is running"),
        (DEPLOYMENT, 3, 0, lost(3, 0), "it does not serve"),
        (DEPLOYMENT, 3, 2, LostPods::default(), "no node is lost"),
    ] {
        assert!(!rollout(kind, "x", &live(updated, ready), &lost).is_met(), "{why}");
    }
    let mut rolling = live(2, 2);
    rolling["status"]["updateRevision"] = json!("b");
    assert!(!rollout(STATEFUL_SET, "x", &rolling, &lost(1, 2)).is_met());
}

#[test]
fn a_generation_that_the_controller_has_not_observed_is_not_done() {
    let live = json!({
        "metadata": { "generation": 3 }, "spec": { "replicas": 1 },
        "status": { "observedGeneration": 2, "updatedReplicas": 1, "readyReplicas": 1, "replicas": 1 }
    });
    assert_ne!(assess(STATEFUL_SET, "x", &live), Progress::Done);
}

#[test]
fn a_daemon_set_is_done_when_all_pods_are_updated_and_ready() {
    let live = |wanted: i64, updated: i64, ready: i64| {
        json!({ "metadata": { "generation": 1 }, "status": { "observedGeneration": 1,
            "desiredNumberScheduled": wanted, "updatedNumberScheduled": updated, "numberReady": ready } })
    };
    let message = |wanted, updated, ready| match assess(DAEMON_SET, "x", &live(wanted, updated, ready)) {
        Progress::Waiting { message, .. } => message,
        _ => String::new(),
    };
    assert_eq!(assess(DAEMON_SET, "x", &live(2, 2, 2)), Progress::Done);
    assert_eq!(message(2, 1, 2), "DaemonSet x: 1 of 2 pods updated");
    assert_eq!(message(2, 2, 1), "DaemonSet x: 1 of 2 pods ready");
    assert!(message(0, 0, 0).contains("no node has the labels"));
    assert_ne!(assess(DAEMON_SET, "x", &json!({ "metadata": { "generation": 1 } })), Progress::Done);
}

#[test]
fn a_daemon_set_is_degraded_when_only_pods_of_lost_nodes_are_missing() {
    let live = |wanted: i64, updated: i64, ready: i64| {
        json!({ "metadata": { "generation": 1 }, "status": { "observedGeneration": 1,
            "desiredNumberScheduled": wanted, "updatedNumberScheduled": updated, "numberReady": ready } })
    };
    let found = |wanted, updated, ready| daemon_set("x", &live(wanted, updated, ready), &["b".to_owned()]);
    let degraded = Progress::degraded("node b is not Ready");
    assert_eq!(found(2, 2, 2), Progress::Done);
    assert_eq!(found(2, 2, 1), degraded);
    assert_eq!(found(2, 1, 1), degraded, "a rollout does not wait for it");
    assert_eq!(found(3, 3, 1), Progress::waiting("DaemonSet x: 1 of 3 pods ready"));
    assert_eq!(found(3, 1, 2), Progress::waiting("DaemonSet x: 1 of 3 pods updated"));
    assert_eq!(found(1, 1, 0), Progress::waiting("DaemonSet x: 0 of 1 pods ready"), "none is left");
    assert_eq!(daemon_set("x", &live(2, 2, 1), &[]), Progress::waiting("DaemonSet x: 1 of 2 pods ready"));
    let mut unobserved = live(2, 2, 1);
    unobserved["metadata"]["generation"] = json!(2);
    assert!(!daemon_set("x", &unobserved, &["b".to_owned()]).is_met());
}

#[test]
fn jobs_complete_or_fail() {
    let live = |kind: &str| json!({ "status": { "conditions": [{ "type": kind, "status": "True" }] } });
    assert_eq!(assess(JOB, "x", &live("Complete")), Progress::Done);
    assert!(matches!(assess(JOB, "x", &live("Failed")), Progress::Failed { .. }));
    assert_eq!(assess(JOB, "x", &json!({})), Progress::waiting("Job x runs"));
}

#[test]
fn a_schedule_is_done_when_it_exists_and_its_last_failure_is_reported() {
    let live = |status: Value| json!({ "status": status });
    let (three, four) = ("2026-01-01T03:00:00Z", "2026-01-01T04:00:00Z");
    for (status, has_failed) in [
        (json!({}), false),
        (json!({ "lastScheduleTime": three, "active": [{ "name": "x-1" }] }), false),
        (json!({ "lastScheduleTime": three, "lastSuccessfulTime": "2026-01-01T03:00:07Z" }), false),
        (json!({ "lastScheduleTime": three }), true),
        (json!({ "lastScheduleTime": four, "lastSuccessfulTime": "2026-01-01T03:00:07Z" }), true),
    ] {
        let live = live(status);
        assert_eq!(assess(CRON_JOB, "x", &live), Progress::Done);
        assert_eq!(failed_schedule(CRON_JOB, "x", &live).is_some(), has_failed, "{live}");
        assert_eq!(failed_schedule(JOB, "x", &live), None);
    }
}

#[test]
fn a_route_waits_for_its_gateway_and_stalls_if_it_is_rejected() {
    let answered =
        json!({ "status": { "parents": [{ "conditions": [{ "type": "Accepted", "status": "True" }] }] } });
    assert_eq!(assess(HTTP_ROUTE, "x", &answered), Progress::Done);
    assert!(matches!(assess(HTTP_ROUTE, "x", &json!({})), Progress::Waiting { .. }));
    let mut rejected = answered;
    let verdict = &mut rejected["status"]["parents"][0]["conditions"][0];
    *verdict = json!({ "type": "Accepted", "status": "False", "message": "no listener" });
    assert!(matches!(assess(HTTP_ROUTE, "x", &rejected), Progress::Stalled { .. }));
    rejected["status"]["parents"][0]["conditions"][0]["reason"] = json!("Pending");
    assert!(matches!(assess(HTTP_ROUTE, "x", &rejected), Progress::Waiting { .. }));
}

#[test]
fn a_service_for_outside_waits_for_its_address() {
    let mut live = json!({ "spec": { "type": "LoadBalancer" }, "status": { "loadBalancer": {} } });
    assert!(matches!(assess(SERVICE, "x", &live), Progress::Waiting { .. }));
    live["status"]["loadBalancer"]["ingress"] = json!([{ "ip": "192.0.2.1" }]);
    assert_eq!(assess(SERVICE, "x", &live), Progress::Done);
    assert_eq!(assess(SERVICE, "x", &json!({ "spec": { "type": "ClusterIP" } })), Progress::Done);
}

#[test]
fn objects_without_progress_are_done_when_they_exist() {
    assert_eq!(assess(CONFIG_MAP, "x", &json!({})), Progress::Done);
    let conditions =
        json!({ "status": { "conditions": [{ "type": "DisruptionAllowed", "status": "False" }] } });
    assert_eq!(assess(SERVICE, "x", &conditions), Progress::Done);
    assert_eq!(assess(POD_DISRUPTION_BUDGET, "x", &conditions), Progress::Done);
}

#[test]
fn an_own_object_is_done_when_it_is_ready_at_its_current_generation() {
    let live = |observed: i64| {
        json!({ "metadata": { "generation": 2 }, "status": { "observedGeneration": observed,
                "conditions": [{ "type": "Ready", "status": "True", "message": "" }] } })
    };
    let kind = Kind::own("Thing", "things");
    assert_eq!(assess(kind, "x", &live(2)), Progress::Done);
    assert_ne!(assess(kind, "x", &live(1)), Progress::Done);
    let mut lost = live(2);
    let degraded = json!({ "type": "Degraded", "status": "True", "message": "node b is not Ready" });
    lost["status"]["conditions"].as_array_mut().unwrap().push(degraded);
    assert_eq!(assess(kind, "x", &lost), Progress::degraded("Thing x: node b is not Ready"));
    lost["status"]["conditions"][0]["status"] = json!("False");
    assert!(!assess(kind, "x", &lost).is_met());
}
