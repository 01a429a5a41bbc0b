//! Trees of objects.

use openstack_operator_services::of_kind;
use serde_json::{Value, json};

use super::*;

fn object(kind: &str, name: &str, owner: Option<&str>, status: &Value) -> (Key, DynamicObject) {
    let key = Key { kind: of_kind(kind).unwrap().kind(), namespace: "n".to_owned(), name: name.to_owned() };
    let owners: Vec<Value> = owner
        .map(|uid| json!({ "apiVersion": "v1", "kind": "K", "name": "k", "uid": uid, "controller": true }))
        .into_iter()
        .collect();
    let object = json!({
        "metadata": { "name": name, "namespace": "n", "uid": format!("uid-{name}"), "generation": 2,
                      "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": owners },
        "status": status
    });
    (key, serde_json::from_value(object).unwrap())
}

fn condition(kind: &str, status: &str, message: &str) -> Value {
    json!({ "type": kind, "status": status, "message": message, "reason": "R", "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

fn ready(generation: i64) -> Value {
    json!({ "observedGeneration": generation, "endpoint": "http://k", "conditions": [condition("Ready", "True", "")] })
}

fn waiting() -> Value {
    json!({ "observedGeneration": 2, "phase": "Identity", "conditions": [condition("Ready", "False", "Job x runs")] })
}

fn style() -> Style {
    Style {
        paint: Paint::Plain,
        now: "2026-01-01T00:05:00Z".parse().unwrap(),
        width: usize::MAX,
        names: Names::Plain,
    }
}

#[test]
fn services_are_drawn_below_their_cloud() {
    let objects = [
        object("OpenStackControlPlane", "cloud", None, &waiting()),
        object("MariaDB", "cloud-mariadb", Some("uid-cloud"), &ready(2)),
        object("Keystone", "cloud-keystone", Some("uid-cloud"), &waiting()),
        object("Memcached", "own", None, &ready(1)),
    ];
    let lines = draw(&forest(&objects, None), style());
    assert_eq!(
        lines,
        [
            "… OpenStackControlPlane  cloud           Identity    5m  Job x runs",
            "├─ ✓ MariaDB             cloud-mariadb   Ready       5m  http://k",
            "└─ … Keystone            cloud-keystone  Identity    5m  Job x runs",
            "… Memcached              own             Waiting     5m  not reconciled yet  http://k",
        ]
    );
    let names: Vec<String> = forest(&objects, Some("cloud"))
        .iter()
        .flat_map(Node::flat)
        .map(|node| node.title.name.clone())
        .collect();
    assert_eq!(names, ["cloud", "cloud-mariadb", "cloud-keystone"]);
}

#[test]
fn an_object_is_ready_for_its_current_generation_only() {
    assert!(is_ready(&forest(&[object("Memcached", "m", None, &ready(2))], None)));
    assert!(!is_ready(&forest(&[object("Memcached", "m", None, &ready(1))], None)));
    assert!(!is_ready(&forest(&[object("Memcached", "m", None, &json!({}))], None)));
    assert!(!is_ready(&[]));
}

#[test]
fn an_omitted_service_is_shown_and_does_not_block_ready() {
    let mut status = ready(2);
    status["services"] = json!([{ "kind": "Keystone", "name": "cloud-keystone", "ready": false, "waitingFor": "left out: it needs mariadb" }]);
    let forest = forest(&[object("OpenStackControlPlane", "cloud", None, &status)], None);
    assert!(is_ready(&forest));
    assert_eq!(forest[0].children[0].state, State::LeftOut);
    assert_eq!(forest[0].children[0].summary(), "left out: it needs mariadb");
}

#[test]
fn a_degraded_object_shows_its_losses_and_does_not_block_ready() {
    let status = json!({ "observedGeneration": 2, "conditions": [
        condition("Ready", "True", ""), condition("Degraded", "True", "node b is not Ready")
    ] });
    let forest = forest(&[object("Memcached", "m", None, &status)], None);
    assert!(is_ready(&forest));
    assert_eq!(forest[0].summary(), "Degraded (node b is not Ready)");
    assert_eq!(draw(&forest, style())[0], "! Memcached  m  Degraded    5m  node b is not Ready");
}

#[test]
fn a_stalled_object_shows_its_reason() {
    let status = json!({ "observedGeneration": 2, "conditions": [
        condition("Ready", "False", "spec.x: no"), condition("Stalled", "True", "spec.x: no")
    ] });
    let forest = forest(&[object("Memcached", "m", None, &status)], None);
    assert_eq!(forest[0].state, State::Stalled);
    assert!(draw(&forest, style())[0].starts_with("✗ Memcached  m  Stalled"));
}

#[test]
fn lines_fit_the_terminal_and_ages_have_one_unit() {
    let objects = [object("Memcached", "m", None, &waiting())];
    let narrow = Style { width: 40, ..style() };
    assert!(draw(&forest(&objects, None), narrow)[0].chars().count() <= 40);
    let at = |text: &str| text.parse().unwrap();
    assert_eq!(age(at("2026-01-01T00:00:00Z"), at("2026-01-01T00:01:30Z")), "90s");
    assert_eq!(age(at("2026-01-01T00:00:00Z"), at("2026-01-01T05:00:00Z")), "5h");
    assert_eq!(age(at("2026-01-01T00:00:00Z"), at("2026-01-05T00:00:00Z")), "4d");
}
