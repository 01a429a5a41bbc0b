//! Objects of a small cloud in a cluster.

use openstack_operator_services::kinds;
use serde_json::{Value, json};

use crate::api_server::ApiServer;

const GROUP: &str = "/apis/openstack.k8s.io/v1alpha1/namespaces/openstack";

/// A cluster with the operator and a cloud: a control plane, its Keystone and its MariaDB.
pub(crate) fn cloud(keystone: &Value) -> ApiServer {
    let server = cluster();
    for kind in kinds() {
        server.add(&format!("{GROUP}/{}", kind.plural), []);
    }
    server.add(
        &format!("{GROUP}/openstackcontrolplanes"),
        [object("OpenStackControlPlane", "cloud", None, &ready())],
    );
    server
        .add(&format!("{GROUP}/keystones"), [object("Keystone", "cloud-keystone", Some("cloud"), keystone)]);
    server.add(&format!("{GROUP}/mariadbs"), [object("MariaDB", "cloud-mariadb", Some("cloud"), &ready())]);
    server.add("/apis/gateway.networking.k8s.io/v1/namespaces/openstack/httproutes", []);
    server.add("/apis/apps/v1/namespaces/openstack/statefulsets", [json!({
        "metadata": {
            "name": "cloud-mariadb", "namespace": "openstack",
            "labels": { "openstack.k8s.io/kind": "MariaDB", "app.kubernetes.io/component": "server",
                        "app.kubernetes.io/managed-by": "openstack-operator" },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "MariaDB", "name": "cloud-mariadb", "uid": "uid-cloud-mariadb" }],
        },
        "spec": { "replicas": 1 }, "status": { "readyReplicas": 1 },
    })]);
    server
}

/// A cluster with the operator.
pub(crate) fn cluster() -> ApiServer {
    let server = ApiServer::start();
    let labels = json!({ "app.kubernetes.io/name": "openstack-operator" });
    server.add("/apis/apps/v1/namespaces/openstack-operator/deployments", [json!({
        "metadata": { "name": "openstack-operator", "namespace": "openstack-operator", "labels": labels },
        "spec": { "template": { "spec": { "containers": [{ "name": "operator", "image": "r/operator:1" }] } } },
        "status": { "availableReplicas": 1 },
    })]);
    server.add(
        "/api/v1/namespaces/openstack-operator/pods",
        [json!({
            "metadata": { "name": "operator-pod", "namespace": "openstack-operator", "labels": labels },
            "spec": { "containers": [{ "name": "operator" }] }, "status": { "phase": "Running" },
        })],
    );
    server.add_text(
        "/api/v1/namespaces/openstack-operator/pods/operator-pod:8080/proxy/metrics",
        concat!("openstack_operator_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1\n"),
    );
    let now = jiff::Timestamp::now().to_string();
    server.add(
        "/apis/coordination.k8s.io/v1/namespaces/openstack-operator/leases",
        [json!({
            "metadata": { "name": "openstack-operator", "namespace": "openstack-operator" },
            "spec": { "holderIdentity": "operator-pod", "leaseDurationSeconds": 15, "renewTime": now },
        })],
    );
    server
}

pub(crate) fn object(kind: &str, name: &str, owner: Option<&str>, status: &Value) -> Value {
    let owners: Vec<Value> = owner
        .map(|owner| json!({ "apiVersion": "v1", "kind": "OpenStackControlPlane", "name": owner, "uid": format!("uid-{owner}") }))
        .into_iter()
        .collect();
    json!({
        "apiVersion": "openstack.k8s.io/v1alpha1", "kind": kind,
        "metadata": { "name": name, "namespace": "openstack", "uid": format!("uid-{name}"), "generation": 1,
                      "ownerReferences": owners, "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": {}, "status": status,
    })
}

pub(crate) fn ready() -> Value {
    status(&[("Ready", "True", "Succeeded", ""), ("Available", "True", "Succeeded", "")])
}

pub(crate) fn stalled() -> Value {
    let message = "spec.fernet: must be less";
    status(&[("Ready", "False", "InvalidSpec", message), ("Stalled", "True", "InvalidSpec", message)])
}

pub(crate) fn status(conditions: &[(&str, &str, &str, &str)]) -> Value {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(kind, status, reason, message)| {
            json!({ "type": kind, "status": status, "reason": reason, "message": message,
                    "lastTransitionTime": "2026-01-01T00:00:00Z" })
        })
        .collect();
    json!({ "observedGeneration": 1, "conditions": conditions })
}
