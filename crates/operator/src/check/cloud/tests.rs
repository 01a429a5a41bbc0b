//! Findings about clouds, from objects as the API server returns them.

use openstack_operator_services::of_kind;
use serde_json::json;

use super::super::Verdict::{self, Failed, Passed, Warning};
use super::*;
use crate::check::operator::VERSION;

fn object(kind: &str, name: &str, status: &Value) -> (Key, DynamicObject) {
    let key = Key { kind: of_kind(kind).unwrap().kind(), namespace: "n".to_owned(), name: name.to_owned() };
    let object = json!({
        "metadata": { "name": name, "namespace": "n", "uid": format!("uid-{name}"), "generation": 1 },
        "status": status,
    });
    (key, serde_json::from_value(object).unwrap())
}

fn status(conditions: &[(&str, &str, &str, &str)]) -> Value {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(kind, status, reason, message)| {
            json!({ "type": kind, "status": status, "reason": reason, "message": message,
                    "lastTransitionTime": "2026-01-01T00:00:00Z" })
        })
        .collect();
    json!({ "observedGeneration": 1, "conditions": conditions })
}

fn ready() -> Value {
    status(&[("Ready", "True", "Succeeded", "")])
}

fn facts(objects: Vec<(Key, DynamicObject)>) -> CloudFacts {
    CloudFacts {
        now: "2026-01-01T00:00:10Z".parse().unwrap(),
        objects,
        stateful_sets: Ok(Vec::new()),
        routes: Ok(Vec::new()),
        gateways: Vec::new(),
        probes: Vec::new(),
        operator: OperatorFacts {
            deployments: Ok(vec![json!({
                "metadata": { "name": "o", "namespace": "o" }, "status": { "availableReplicas": 1 },
            })]),
            versions: Ok(vec![VERSION.to_owned()]),
            lease: Ok(Some(json!({ "spec": { "holderIdentity": "pod", "leaseDurationSeconds": 15,
                                             "renewTime": "2026-01-01T00:00:00Z" } }))),
        },
    }
}

fn problems(facts: &CloudFacts) -> Vec<(Verdict, String)> {
    let findings = check(facts).into_iter().filter(|finding| finding.verdict != Passed);
    findings
        .map(|finding| {
            assert!(finding.hint.is_some_and(|hint| !hint.is_empty()), "{} has no hint", finding.message);
            (finding.verdict, finding.message)
        })
        .collect()
}

fn problem(facts: &CloudFacts) -> (Verdict, String) {
    let mut found = problems(facts);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn a_healthy_cloud_passes() {
    assert_eq!(problems(&facts(vec![object("Keystone", "k", &ready())])), []);
}

#[test]
fn the_verdict_on_an_object_follows_its_conditions() {
    let invalid = "spec.replicas: must be odd";
    let stalled = [("Ready", "False", "InvalidSpec", invalid), ("Stalled", "True", "InvalidSpec", invalid)];
    let paused = [("Ready", "False", "Paused", "paused"), ("Stalled", "True", "Paused", "paused")];
    let degraded = [("Ready", "True", "Succeeded", ""), ("Degraded", "True", "Degraded", "node a is down")];
    let waiting = [("Ready", "False", "Waiting", "Job x runs"), ("Available", "False", "Waiting", "")];
    let updating = [("Ready", "False", "Waiting", "Job x runs"), ("Available", "True", "Succeeded", "")];
    for (conditions, verdict, message) in [
        (&stalled[..], Failed, "Keystone n/k is Stalled: spec.replicas: must be odd"),
        (&paused[..], Warning, "Keystone n/k is paused"),
        (&degraded[..], Warning, "Keystone n/k is Degraded: node a is down"),
        (&waiting[..], Failed, "Keystone n/k is not Ready: Job x runs"),
        (&updating[..], Warning, "Keystone n/k is not Ready: Job x runs"),
    ] {
        let found = problem(&facts(vec![object("Keystone", "k", &status(conditions))]));
        assert_eq!(found, (verdict, message.to_owned()));
    }
}

#[test]
fn a_lost_quorum_fails_and_a_lost_member_is_a_warning() {
    let set = |members: i64, ready: i64| {
        json!({
            "metadata": { "name": "cloud-mariadb", "namespace": "n", "labels": {
                "openstack.k8s.io/kind": "MariaDB", "app.kubernetes.io/component": "server" } },
            "spec": { "replicas": members }, "status": { "readyReplicas": ready },
        })
    };
    for (members, ready, expected) in [
        (1, 1, None),
        (3, 3, None),
        (3, 2, Some((Warning, "2 of 3 members are ready; it survives the loss of 0 more"))),
        (5, 4, Some((Warning, "4 of 5 members are ready; it survives the loss of 1 more"))),
        (3, 1, Some((Failed, "1 of 3 members are ready, and the quorum is 2"))),
        (1, 0, Some((Failed, "0 of 1 members are ready, and the quorum is 1"))),
    ] {
        let facts = CloudFacts { stateful_sets: Ok(vec![set(members, ready)]), ..facts(Vec::new()) };
        let expected: Vec<(Verdict, String)> = expected
            .into_iter()
            .map(|(verdict, end)| (verdict, format!("MariaDB cloud-mariadb (server): {end}")))
            .collect();
        assert_eq!(problems(&facts), expected);
    }
}

#[test]
fn lost_nodes_fail_only_when_no_node_is_left() {
    let nodes = |rows: Value| {
        let mut status = ready();
        status["nodes"] = rows;
        facts(vec![object("NovaCompute", "c", &status)])
    };
    let up = json!({ "name": "a", "state": "Up" });
    let down = json!({ "name": "b", "state": "Down" });
    assert_eq!(problems(&nodes(json!([up]))), []);
    assert_eq!(problem(&nodes(json!([up, down]))), (Warning, "NovaCompute n/c: node b is down".to_owned()));
    assert_eq!(problem(&nodes(json!([down]))).0, Failed);
    assert_eq!(
        problem(&nodes(json!([{ "name": "b", "state": "Missing" }]))).1,
        "NovaCompute n/c: node b is not registered"
    );
    let leaving = json!({ "name": "d", "state": "Leaving", "holds": ["instance x"] });
    assert_eq!(
        problem(&nodes(json!([up, leaving]))),
        (Warning, "NovaCompute n/c: node d is leaving and still holds instance x".to_owned())
    );
}

#[test]
fn gateways_and_routes_must_be_accepted() {
    let route = |status: &str| {
        json!({
            "metadata": { "name": "k", "namespace": "n" },
            "status": { "parents": [{ "conditions": [{ "type": "Accepted", "status": status, "message": "no listener" }] }] },
        })
    };
    let gateway = |status: &str| {
        let conditions = json!([{ "type": "Programmed", "status": status, "message": "no address" }]);
        let place = ("infra".to_owned(), "g".to_owned());
        vec![(place, Ok(Some(json!({ "status": { "conditions": conditions } }))))]
    };
    let facts = |gateways, route| CloudFacts { gateways, routes: Ok(vec![route]), ..facts(Vec::new()) };
    assert_eq!(problems(&facts(gateway("True"), route("True"))), []);
    assert_eq!(
        problem(&facts(gateway("False"), route("True"))),
        (Failed, "Gateway infra/g is not Programmed: no address".to_owned())
    );
    let (verdict, message) = problem(&facts(gateway("True"), route("False")));
    assert!(verdict == Failed && message.contains("no listener"), "{message}");
}

#[test]
fn a_version_skew_is_a_warning() {
    let mut facts = facts(Vec::new());
    facts.operator.versions = Ok(vec![VERSION.to_owned(), "9.0.0".to_owned()]);
    assert_eq!(problem(&facts), (Warning, format!("the operator has version 9.0.0, this program {VERSION}")));
}
