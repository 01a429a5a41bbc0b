//! Findings about clusters, from facts as the API server returns them.

use openstack_operator_model::common::Toleration;
use serde_json::json;

use super::super::Verdict::{self, Failed, Passed, Warning};
use super::super::requirements::Nodes;
use super::*;
use crate::check::operator::VERSION;
use crate::installation;

fn operator() -> OperatorFacts {
    OperatorFacts {
        deployments: Ok(vec![json!({
            "metadata": { "name": "openstack-operator", "namespace": "openstack-operator" },
            "spec": { "template": { "spec": { "containers": [{ "image": "r/operator:1" }] } } },
            "status": { "availableReplicas": 1 },
        })]),
        versions: Ok(vec![VERSION.to_owned()]),
        lease: Ok(Some(json!({ "spec": {
            "holderIdentity": "pod-a", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z",
        } }))),
    }
}

fn node(name: &str, ready: &str, taints: &Value) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "node-role.kubernetes.io/hypervisor": "" } },
        "spec": { "taints": taints },
        "status": { "conditions": [{ "type": "Ready", "status": ready }] },
    })
}

fn gateway(programmed: &str) -> Value {
    json!({
        "metadata": { "name": "g", "namespace": "infra" },
        "spec": { "listeners": [{ "name": "web", "allowedRoutes": { "namespaces": { "from": "All" } } }] },
        "status": { "conditions": [{ "type": "Programmed", "status": programmed }] },
    })
}

/// A cluster that is fit for a cloud.
fn facts() -> ClusterFacts {
    let namespace =
        json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "privileged" } } });
    let permission =
        Permission { verb: "create", kind: crate::foreign::NAMESPACE, namespace: None, allowed: Ok(true) };
    ClusterFacts {
        now: "2026-01-01T00:00:10Z".parse().unwrap(),
        version: "v1.36.3".to_owned(),
        permissions: vec![permission],
        definitions: Ok(Vec::new()),
        gateways: Ok(vec![gateway("True")]),
        storage_classes: Ok(vec![json!({
            "metadata": { "name": "fast", "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } },
        })]),
        nodes: Ok(vec![node("a", "True", &json!([]))]),
        namespaces: BTreeMap::from([("openstack".to_owned(), Ok(Some(namespace)))]),
        secrets: BTreeMap::new(),
        operator: operator(),
    }
}

fn required() -> Requirements {
    Requirements::of_defaults("openstack")
}

/// The findings of a group that did not pass, as verdict and message.
fn problems(facts: &ClusterFacts, required: &Requirements) -> Vec<(Verdict, String)> {
    let findings = check(facts, required).into_iter().filter(|finding| finding.verdict != Passed);
    findings
        .map(|finding| {
            assert!(finding.hint.is_some_and(|hint| !hint.is_empty()), "{} has no hint", finding.message);
            (finding.verdict, finding.message)
        })
        .collect()
}

fn problem(facts: &ClusterFacts, required: &Requirements) -> (Verdict, String) {
    let mut found = problems(facts, required);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn a_cluster_that_is_fit_passes_every_check() {
    assert_eq!(problems(&facts(), &required()), []);
    let operator = OperatorFacts { deployments: Ok(Vec::new()), ..operator() };
    let bare = ClusterFacts { operator, ..facts() };
    assert_eq!(problems(&bare, &required()), []);
}

#[test]
fn a_version_below_the_minimum_fails() {
    let (major, minor) = MINIMUM_KUBERNETES;
    for (version, expected) in [
        (format!("v{major}.{minor}.0"), None),
        (format!("v{major}.{}+", minor + 1), None),
        (format!("v{major}.{}.9-vendor.1", minor - 1), Some(Failed)),
        ("unknown".to_owned(), Some(Warning)),
    ] {
        let facts = ClusterFacts { version: version.clone(), ..facts() };
        let verdict = problems(&facts, &required()).first().map(|(verdict, _)| *verdict);
        assert_eq!(verdict, expected, "{version}");
    }
}

#[test]
fn a_missing_permission_fails() {
    let mut facts = facts();
    facts.permissions[0].allowed = Ok(false);
    assert_eq!(
        problem(&facts, &required()),
        (Failed, "forbidden: cannot create namespaces cluster-wide".to_owned())
    );
}

#[test]
fn an_operator_of_another_version_is_a_warning_and_its_definitions_fail() {
    let mut facts = facts();
    facts.operator.versions = Ok(vec!["0.0.9".to_owned()]);
    let (verdict, message) = problem(&facts, &required());
    assert_eq!(
        (verdict, message),
        (Warning, format!("the operator has version 0.0.9, this program {VERSION}"))
    );
    facts.operator.versions = Ok(vec![VERSION.to_owned()]);
    facts.definitions = Ok(installation::crds().into_iter().skip(1).collect());
    assert_eq!(
        problem(&facts, &required()),
        (Failed, "the definitions in the cluster are of another version: openstackcontrolplanes.openstack.k8s.io is missing".to_owned())
    );
}

#[test]
fn an_operator_that_does_not_lead_fails() {
    let mut facts = ClusterFacts { now: "2026-01-01T00:05:00Z".parse().unwrap(), ..facts() };
    assert_eq!(
        problem(&facts, &required()),
        (Failed, "the leader pod-a has not renewed its Lease for 300 s".to_owned())
    );
    facts.operator.lease = Ok(None);
    assert_eq!(problem(&facts, &required()).0, Failed);
}

#[test]
fn the_pod_security_level_of_the_namespace_must_admit_privileged_pods() {
    for (namespace, verdict) in [
        (
            Some(json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "baseline" } } })),
            Failed,
        ),
        (Some(json!({ "metadata": {} })), Warning),
        (None, Warning),
    ] {
        let facts =
            ClusterFacts { namespaces: BTreeMap::from([("openstack".to_owned(), Ok(namespace))]), ..facts() };
        assert_eq!(problem(&facts, &required()).0, verdict);
    }
}

#[test]
fn the_gateway_of_the_cloud_must_be_programmed() {
    let named = |name: &str| Requirements {
        gateways: Gateways::Named(BTreeSet::from([("infra".to_owned(), name.to_owned())])),
        ..required()
    };
    assert_eq!(problems(&facts(), &named("g")), []);
    assert_eq!(problem(&facts(), &named("x")), (Failed, "Gateway infra/x does not exist".to_owned()));
    let facts = |gateways: Answer<Vec<Value>>| ClusterFacts { gateways, ..facts() };
    let pending = facts(Ok(vec![gateway("False")]));
    assert_eq!(problem(&pending, &named("g")), (Failed, "Gateway infra/g is not Programmed".to_owned()));
    assert_eq!(problem(&pending, &required()), (Warning, "no Gateway is Programmed".to_owned()));
    let mut closed = gateway("True");
    closed["spec"]["listeners"][0]["allowedRoutes"]["namespaces"]["from"] = json!("Same");
    assert_eq!(
        problem(&facts(Ok(vec![closed])), &named("g")),
        (Failed, "Gateway infra/g accepts no routes from namespace openstack".to_owned())
    );
    let unserved = facts(Err(Unreadable::NotServed("gateways".to_owned())));
    assert_eq!(problem(&unserved, &required()).0, Failed);
    let without = Requirements { gateways: Gateways::Named(BTreeSet::new()), ..required() };
    assert_eq!(problems(&unserved, &without), []);
}

#[test]
fn storage_classes_must_exist() {
    let claim = |class: Option<&str>, is_shared| Requirements {
        claims: vec![Claim {
            object: "PersistentVolumeClaim images".to_owned(),
            class: class.map(str::to_owned),
            is_shared,
        }],
        ..required()
    };
    assert_eq!(
        problem(&facts(), &claim(Some("slow"), false)),
        (Failed, "StorageClass slow does not exist".to_owned())
    );
    assert_eq!(problems(&facts(), &claim(Some("fast"), true)), [], "a shared volume is a hint only");
    let without = ClusterFacts { storage_classes: Ok(Vec::new()), ..facts() };
    assert_eq!(problem(&without, &claim(None, false)), (Failed, "no StorageClass is the default".to_owned()));
}

#[test]
fn a_cloud_needs_nodes_that_are_ready_and_not_tainted() {
    let tainted = json!([{ "key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule" }]);
    let nodes = |nodes: Vec<Value>| ClusterFacts { nodes: Ok(nodes), ..facts() };
    let ready = node("a", "True", &json!([]));
    assert_eq!(problem(&nodes(vec![node("m", "True", &tainted)]), &required()).0, Failed);
    assert_eq!(problem(&nodes(Vec::new()), &required()).0, Failed);
    assert_eq!(problem(&nodes(vec![node("a", "False", &json!([]))]), &required()).0, Failed);
    assert_eq!(
        problem(&nodes(vec![ready.clone(), node("b", "Unknown", &json!([]))]), &required()),
        (Warning, "node b is not Ready".to_owned())
    );
    assert_eq!(
        problem(&nodes(vec![ready, node("m", "True", &tainted)]), &required()),
        (Warning, "node m is tainted and gets no pods of a cloud".to_owned())
    );
    let toleration: Toleration = serde_json::from_value(json!({ "operator": "Exists" })).unwrap();
    let mut tolerant = required();
    tolerant.nodes[0].need.tolerations.push(toleration);
    assert_eq!(problems(&nodes(vec![node("m", "True", &tainted)]), &tolerant), []);
}

#[test]
fn nodes_that_several_objects_need_are_checked_once() {
    let mut required = required();
    let need = required.nodes[0].need.clone();
    required.nodes.push(Nodes { object: "OVNNetwork n/x".to_owned(), need });
    let findings = check(&facts(), &required);
    let nodes: Vec<&Finding> = findings.iter().filter(|finding| finding.group == "Nodes").collect();
    assert_eq!(nodes.len(), 1, "{nodes:?}");
}

#[test]
fn secrets_that_the_cloud_references_must_exist_with_their_keys() {
    let required = Requirements {
        secrets: vec![SecretRequirement {
            object: "Keystone n/k".to_owned(),
            namespace: "n".to_owned(),
            name: "admin".to_owned(),
            field: "spec.secret".to_owned(),
            keys: vec!["password".to_owned()],
        }],
        ..required()
    };
    let secret = |keys: &[&str]| {
        let keys = keys.iter().map(|&key| key.to_owned()).collect();
        Ok(Some(LiveSecret { keys: Some(keys), ..LiveSecret::default() }))
    };
    let facts = |secret: Answer<Option<LiveSecret>>| ClusterFacts {
        secrets: BTreeMap::from([(("n".to_owned(), "admin".to_owned()), secret)]),
        ..facts()
    };
    assert_eq!(problems(&facts(secret(&["password"])), &required), []);
    assert!(
        problem(&facts(secret(&["user"])), &required).1.starts_with("Secret n/admin has no key password")
    );
    assert!(problem(&facts(Ok(None)), &required).1.starts_with("Secret n/admin does not exist"));
}

#[test]
fn a_caller_without_permissions_gets_warnings_and_no_failure() {
    let forbidden =
        || Unreadable::Forbidden("forbidden: cannot list nodes cluster-wide; pass -n NAMESPACE".to_owned());
    let facts = ClusterFacts {
        nodes: Err(forbidden()),
        storage_classes: Err(forbidden()),
        gateways: Err(forbidden()),
        definitions: Err(forbidden()),
        operator: OperatorFacts { deployments: Err(forbidden()), ..operator() },
        ..facts()
    };
    let found = problems(&facts, &required());
    assert_eq!(found.len(), 5, "{found:?}");
    assert!(found.iter().all(|(verdict, _)| *verdict == Warning), "{found:?}");
}
