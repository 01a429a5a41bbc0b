//! `check` and `check --pre`.

use serde_json::{Value, json};

use crate::fixture::{cloud, cluster, ready, stalled};
use crate::{run, stderr, stdout};

#[test]
fn a_healthy_cloud_passes_and_ends_with_0() {
    let server = cloud(&ready());
    let output = run(&server, &["check", "-n", "openstack"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    for line in [
        "Operator\n✓ Deployment openstack-operator/openstack-operator is available\n✓ operator-pod is the leader\n",
        "✓ Keystone openstack/cloud-keystone is Ready\n",
        "✓ MariaDB cloud-mariadb (server): 1 of 1 members are ready\n",
        ", 0 warnings, 0 failed\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert!(!text.contains('\u{1b}'), "no colours without a terminal: {text}");
}

#[test]
fn a_stalled_object_fails_with_a_hint_and_ends_with_1() {
    let server = cloud(&stalled());
    let output = run(&server, &["check", "cloud", "-n", "openstack"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains(
            "✗ Keystone openstack/cloud-keystone is Stalled: spec.fernet: must be less\n    hint: "
        ),
        "{text}"
    );
    let output = run(&server, &["check", "-n", "openstack", "-o", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &report["failed"]), (Some(1), &json!(1)));
}

#[test]
fn a_cloud_that_does_not_exist_and_a_list_that_is_forbidden_are_errors() {
    let server = cloud(&ready());
    let output = run(&server, &["check", "other", "-n", "openstack"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("there is no cloud named \"other\" in namespace openstack"));
    server.forbid("/apis/openstack.k8s.io/v1alpha1/keystones");
    let output = run(&server, &["check", "-A"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stderr(&output), "error: forbidden: cannot list keystones cluster-wide; pass -n NAMESPACE\n");
}

#[test]
fn a_cluster_is_checked_before_a_cloud_is_created() {
    let server = cluster();
    let labels = json!({ "pod-security.kubernetes.io/enforce": "privileged" });
    server.add("/api/v1/namespaces", [json!({ "metadata": { "name": "openstack", "labels": labels } })]);
    server.add(
        "/api/v1/nodes",
        [json!({
            "metadata": { "name": "a", "labels": { "node-role.kubernetes.io/hypervisor": "" } },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        })],
    );
    server.add("/apis/storage.k8s.io/v1/storageclasses", [json!({
        "metadata": { "name": "fast", "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } },
    })]);
    server.add("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", []);
    let output = run(&server, &["check", "--pre"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}{}", stderr(&output));
    assert!(text.contains("✓ Kubernetes v1.36.3 is supported"), "{text}");
    assert!(text.contains("✗ the cluster does not serve the Gateway API\n"), "{text}");
    server.add(
        "/apis/gateway.networking.k8s.io/v1/gateways",
        [json!({
            "metadata": { "name": "g", "namespace": "infra" },
            "status": { "conditions": [{ "type": "Programmed", "status": "True" }] },
        })],
    );
    let output = run(&server, &["check", "--pre"]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
}

#[test]
fn a_file_is_checked_for_what_its_cloud_needs() {
    let server = cluster();
    let cloud = "apiVersion: openstack.k8s.io/v1alpha1\nkind: OpenStackControlPlane\nmetadata: {name: cloud}\nspec:\n  \
                 storageClassName: gold\n  gatewayRef: {name: edge, namespace: infra}\n  publicDomain: example.org\n  \
                 nova: {enabled: false}\n  neutron: {enabled: false}\n  ovn: {enabled: false}\n  compute: {enabled: false}\n  \
                 placement: {enabled: false}\n  glance: {enabled: false}\n";
    std::fs::write(server.directory().join("cloud.yaml"), cloud).unwrap();
    server.add("/apis/storage.k8s.io/v1/storageclasses", []);
    server.add("/apis/gateway.networking.k8s.io/v1/gateways", []);
    let output = run(&server, &["check", "--pre", "-f", "cloud.yaml"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}{}", stderr(&output));
    assert!(text.contains("✗ StorageClass gold does not exist\n"), "{text}");
    assert!(text.contains("✗ Gateway infra/edge does not exist\n"), "{text}");
}

#[test]
fn a_cluster_that_does_not_answer_is_an_error() {
    let server = cluster();
    let missing = server.directory().join("none");
    let output = run(&server, &["check", "--pre", "--kubeconfig", missing.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).starts_with("error: failed to read the kubeconfig"), "{}", stderr(&output));
}
