//! `status`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fixture::{cloud, ready, stalled, status};
use crate::{run, stderr, stdout};

#[test]
fn the_tree_ends_with_0_unless_an_object_is_stalled() {
    let waiting = status(&[("Ready", "False", "Waiting", "Job x runs")]);
    for (keystone, code, line) in
        [(ready(), 0, "└─ ✓ Keystone"), (waiting, 0, "└─ … Keystone"), (stalled(), 1, "└─ ✗ Keystone")]
    {
        let server = cloud(&keystone);
        let output = run(&server, &["status"]);
        let text = stdout(&output);
        assert_eq!(output.status.code(), Some(code), "{text}{}", stderr(&output));
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn waiting_for_a_stalled_object_ends_early_with_its_reason() {
    let server = cloud(&stalled());
    let start = Instant::now();
    let output = run(&server, &["status", "--wait", "--timeout", "5m"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(start.elapsed() < Duration::from_mins(1), "{:?}", start.elapsed());
    let expected = "error: Stalled:\n  Keystone openstack/cloud-keystone: spec.fernet: must be less\n";
    assert_eq!(stderr(&output), expected);
}

#[test]
fn waiting_ends_when_all_objects_are_ready_or_the_time_is_over() {
    let output = run(&cloud(&ready()), &["status", "--watch"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("Keystone openstack/cloud-keystone: Ready\n"), "{}", stdout(&output));
    let waiting = status(&[("Ready", "False", "Waiting", "Job x runs")]);
    let output = run(&cloud(&waiting), &["status", "--wait", "--timeout", "1s"]);
    assert_eq!(output.status.code(), Some(1));
    let expected = "error: not Ready after 1 s:\n  Keystone openstack/cloud-keystone: Job x runs\n";
    assert_eq!(stderr(&output), expected);
}

#[test]
fn json_is_the_same_tree() {
    let server = cloud(&stalled());
    let output = run(&server, &["status", "cloud", "-o", "json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["ready"], &document["stalled"]), (&json!(false), &json!(true)));
    let keystone = &document["objects"][0]["parts"][1];
    assert_eq!(
        (&keystone["kind"], &keystone["state"], &keystone["reason"]),
        (&json!("Keystone"), &json!("Stalled"), &json!("InvalidSpec"))
    );
}

#[test]
fn a_list_that_is_forbidden_names_the_way_out() {
    let server = cloud(&ready());
    server.forbid("/apis/openstack.k8s.io/v1alpha1/keystones");
    for arguments in [&["status", "-A"][..], &["status", "-A", "--wait"]] {
        let output = run(&server, arguments);
        assert_eq!(output.status.code(), Some(2));
        let expected = "error: forbidden: cannot list keystones cluster-wide; pass -n NAMESPACE\n";
        assert_eq!(stderr(&output), expected);
    }
}
