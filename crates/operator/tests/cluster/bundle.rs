//! `bundle`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::json;
use tar::Archive;

use crate::api_server::ApiServer;
use crate::fixture::{cloud, stalled};
use crate::{run, stderr, stdout};

const PODS: &str = "/api/v1/namespaces/openstack/pods";

fn server() -> ApiServer {
    let server = cloud(&stalled());
    server.add(
        "/api/v1/namespaces/openstack/secrets",
        [json!({
            "metadata": { "name": "cloud-keystone-database", "namespace": "openstack" },
            "data": { "password": "aHVudGVyMjItaHVudGVyMjI=", "username": "a2V5c3RvbmU=" },
        })],
    );
    server.add("/api/v1/namespaces/openstack-operator/secrets", []);
    server.add(
        "/api/v1/namespaces/openstack/configmaps",
        [json!({
            "metadata": { "name": "config", "namespace": "openstack" },
            "data": { "keystone.conf": "connection = mysql://keystone:hunter22-hunter22@db\n" },
        })],
    );
    server.add("/api/v1/nodes", [json!({ "metadata": { "name": "node-a" } })]);
    server.add(PODS, [json!({
        "metadata": { "name": "api", "namespace": "openstack",
                      "labels": { "app.kubernetes.io/managed-by": "openstack-operator" } },
        "spec": { "containers": [{ "name": "api", "env": [{ "name": "P", "value": "hunter22-hunter22" }] }] },
        "status": { "containerStatuses": [{ "name": "api", "restartCount": 1, "state": { "running": {} } }] },
    })]);
    server.add_text(&format!("{PODS}/api/log"), "login with hunter22-hunter22 failed\n");
    server
}

fn bundle(server: &ApiServer) -> BTreeMap<String, String> {
    let output = run(server, &["bundle", "--output", "b.tar.gz"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stdout(&output), "b.tar.gz\n");
    let file = File::open(server.directory().join("b.tar.gz")).unwrap();
    let mut archive = Archive::new(GzDecoder::new(file));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().components().skip(1).collect::<std::path::PathBuf>();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        (path.display().to_string(), text)
    });
    entries.collect()
}

#[test]
fn a_bundle_has_objects_logs_and_summaries_and_no_secret() {
    let entries = bundle(&server());
    for (path, part) in [
        ("versions.json", "\"kubernetes\": \"v1.36.3\""),
        ("status.txt", "✗ Keystone"),
        ("check.txt", "✗ Keystone openstack/cloud-keystone is Stalled"),
        ("objects/openstack/keystones.yaml", "kind: Keystone"),
        ("objects/openstack/configmaps.yaml", "connection = mysql://keystone:<masked>@db"),
        ("objects/openstack/pods.yaml", "value: <masked>"),
        ("objects/openstack/secrets.yaml", "- password"),
        ("objects/cluster/nodes.yaml", "name: node-a"),
        ("objects/openstack-operator/deployments.yaml", "r/operator:1"),
        ("logs/openstack/api/api.log", "login with <masked> failed\n"),
        ("logs/openstack/api/api.previous.log", "login with <masked> failed\n"),
        ("errors.txt", "the cluster does not serve events"),
    ] {
        let text = entries.get(path).unwrap_or_else(|| panic!("no {path} in {:?}", entries.keys()));
        assert!(text.contains(part), "{path}: {text}");
    }
    for (path, text) in &entries {
        assert!(!text.contains("hunter22") && !text.contains("aHVudGVyMjI"), "{path}: {text}");
    }
}

#[test]
fn without_access_to_secrets_no_text_that_may_hold_one_is_read() {
    let server = server();
    server.forbid("/api/v1/namespaces/openstack/secrets");
    let entries = bundle(&server);
    assert!(entries["errors.txt"].contains("forbidden: cannot list secrets in namespace openstack"));
    let left_out =
        |path: &&String| path.starts_with("logs/openstack/") || path.ends_with("openstack/configmaps.yaml");
    assert_eq!(entries.keys().find(left_out), None);
    assert!(entries.contains_key("objects/openstack/keystones.yaml"));
}
