//! `pause`, `resume` and `reconcile`.

use serde_json::{Value, json};

use crate::fixture::{cloud, ready};
use crate::{run, stderr, stdout};

const KEYSTONE: &str = "/apis/openstack.k8s.io/v1alpha1/namespaces/openstack/keystones/cloud-keystone";

fn annotation(patch: &Value, name: &str) -> Value {
    patch["metadata"]["annotations"][name].clone()
}

#[test]
fn pause_and_resume_set_and_remove_the_annotation_of_one_object() {
    let server = cloud(&ready());
    let output = run(&server, &["pause", "keystone/cloud-keystone"]);
    assert_eq!(stdout(&output), "Keystone openstack/cloud-keystone: paused\n", "{}", stderr(&output));
    let output = run(&server, &["resume", "cloud-keystone"]);
    assert_eq!(stdout(&output), "Keystone openstack/cloud-keystone: resumed\n", "{}", stderr(&output));
    let patches = server.contents.lock().unwrap().patches.clone();
    let expected = [json!("true"), Value::Null].map(|value| {
        (KEYSTONE.to_owned(), json!({ "metadata": { "annotations": { "openstack.k8s.io/pause": value } } }))
    });
    assert_eq!(patches, expected);
}

#[test]
fn reconcile_annotates_a_cloud_and_its_services() {
    let server = cloud(&ready());
    let output = run(&server, &["reconcile", "cloud"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let patches = server.contents.lock().unwrap().patches.clone();
    assert_eq!(patches.len(), 3, "{patches:?}");
    for (path, patch) in &patches {
        assert!(annotation(patch, "openstack.k8s.io/reconcile").is_string(), "{path}: {patch}");
    }
    run(&server, &["pause", "cloud", "--with-parts"]);
    assert_eq!(server.contents.lock().unwrap().patches.len(), 6);
}

#[test]
fn an_object_that_does_not_exist_is_an_error() {
    let server = cloud(&ready());
    let output = run(&server, &["pause", "nova/cloud-nova"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stderr(&output), "error: there is no object nova/cloud-nova in namespace openstack\n");
    assert!(server.contents.lock().unwrap().patches.is_empty());
}
