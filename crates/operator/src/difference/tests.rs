//! Comparing live objects with manifests.

use serde_json::json;

use super::*;

fn lines(before: &Value, after: &Value) -> Vec<String> {
    let line = |line: &Line| match line {
        Line::Removed(text) => format!("-{text}"),
        Line::Added(text) => format!("+{text}"),
    };
    let one = |hunk: &Hunk| {
        format!("{}: {}", hunk.place, hunk.lines.iter().map(line).collect::<Vec<_>>().join(" "))
    };
    Difference::new(before, after).hunks().iter().map(one).collect()
}

fn managed(fields: &Value) -> Value {
    json!([{ "manager": "openstack-operator", "operation": "Apply", "fieldsV1": fields }])
}

#[test]
fn only_fields_of_the_manifest_are_compared() {
    let live =
        json!({ "spec": { "replicas": 1, "paused": false, "template": { "a": 1 } }, "status": { "x": 1 } });
    assert_eq!(lines(&live, &json!({ "spec": { "replicas": 1 } })), Vec::<String>::new());
    assert_eq!(lines(&live, &json!({ "spec": { "replicas": 3 } })), ["spec: -replicas: 1 +replicas: 3"]);
}

#[test]
fn a_field_that_the_operator_no_longer_applies_is_removed() {
    let live = json!({
        "metadata": { "managedFields": managed(&json!({ "f:spec": { "f:replicas": {}, "f:nodeSelector": {} } })) },
        "spec": { "replicas": 1, "nodeSelector": { "a": "b" }, "schedulerName": "default" }
    });
    assert_eq!(lines(&live, &json!({ "spec": { "replicas": 1 } })), ["spec: -nodeSelector: -  a: b"]);
}

#[test]
fn items_of_a_list_are_paired_by_their_keys() {
    let live = json!({ "spec": { "containers": [
        { "name": "a", "image": "x:1", "terminationMessagePath": "/t" }, { "name": "b", "image": "y:1" }
    ] } });
    let wanted = json!({ "spec": { "containers": [{ "name": "a", "image": "x:2" }, { "name": "b", "image": "y:1" }] } });
    assert_eq!(lines(&live, &wanted), ["spec.containers[a]: -image: x:1 +image: x:2"]);
}

#[test]
fn items_of_other_managers_are_not_compared() {
    let owned = json!({ "f:spec": { "f:containers": { "k:{\"name\":\"a\"}": { ".": {}, "f:name": {}, "f:image": {} } } } });
    let live = json!({
        "metadata": { "managedFields": managed(&owned) },
        "spec": { "containers": [{ "name": "a", "image": "x:1" }, { "name": "injected", "image": "z" }] }
    });
    assert_eq!(
        lines(&live, &json!({ "spec": { "containers": [{ "name": "a", "image": "x:1" }] } })),
        Vec::<String>::new()
    );
}

#[test]
fn equal_quantities_are_equal_in_any_notation() {
    let live = json!({ "limits": { "cpu": "1", "memory": "1Gi" }, "args": ["1"] });
    assert_eq!(
        lines(&live, &json!({ "limits": { "cpu": "1000m", "memory": "1024Mi" } })),
        Vec::<String>::new()
    );
    assert_eq!(lines(&live, &json!({ "limits": { "cpu": "1.5" } })), ["limits: -cpu: \"1\" +cpu: \"1.5\""]);
    assert_eq!(lines(&live, &json!({ "args": ["1000m"] })).len(), 1);
}

#[test]
fn annotations_of_the_operator_are_not_shown() {
    let live = json!({
        "metadata": { "annotations": { "openstack.k8s.io/applied": "x" },
                      "managedFields": managed(&json!({
                          "f:metadata": { "f:annotations": { "f:openstack.k8s.io/applied": {} } },
                          "f:spec": { "f:template": { "f:metadata": { "f:annotations": { "f:openstack.k8s.io/secrets": {} } } } }
                      })) },
        "spec": { "template": { "metadata": { "annotations": { "openstack.k8s.io/secrets": "y" }, "labels": { "a": "b" } } } }
    });
    let wanted = json!({ "spec": { "template": { "metadata": { "labels": { "a": "b" } } } } });
    assert_eq!(lines(&live, &wanted), Vec::<String>::new());
    assert!(!Difference::new(&live, &wanted).changes_pods());
}

#[test]
fn pods_change_with_their_template_only() {
    let live = json!({ "spec": { "replicas": 1, "template": { "spec": { "image": "a" } } } });
    assert!(
        !Difference::new(
            &live,
            &json!({ "spec": { "replicas": 2, "template": { "spec": { "image": "a" } } } })
        )
        .changes_pods()
    );
    assert!(
        Difference::new(&live, &json!({ "spec": { "template": { "spec": { "image": "b" } } } }))
            .changes_pods()
    );
}

#[test]
fn files_differ_by_lines_under_their_sections() {
    let (before, after) = (
        "[DEFAULT]\ndebug = false\n\n[cache]\na = 1\n",
        "[DEFAULT]\ndebug = true\n\n[cache]\na = 1\nb = 2\n",
    );
    let found = file_hunks("keystone.conf", before, after);
    assert_eq!(
        found.iter().map(|hunk| hunk.place.as_str()).collect::<Vec<_>>(),
        ["keystone.conf [DEFAULT]", "keystone.conf [cache]"]
    );
    assert_eq!(found[0].lines, [Line::Removed("debug = false".into()), Line::Added("debug = true".into())]);
}
