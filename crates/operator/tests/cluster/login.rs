//! `login`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::api_server::ApiServer;
use crate::fixture::{cloud, ready};
use crate::{run, stderr, stdout};

fn server() -> ApiServer {
    let mut keystone = ready();
    keystone["provides"] = json!({ "identity": {
        "internalUrl": "http://in/v3", "publicUrl": "https://keystone.example/v3", "region": "RegionOne",
        "username": "admin", "secret": "cloud-keystone-admin", "secretKey": "password",
    } });
    let server = cloud(&keystone);
    let secret =
        json!({ "metadata": { "name": "cloud-keystone-admin" }, "data": { "password": "cGFzc3dvcmQ=" } });
    server.add("/api/v1/namespaces/openstack/secrets", [secret]);
    server
}

#[test]
fn the_cloud_is_added_to_the_file_of_the_clients() {
    let server = server();
    let path = server.directory().join(".config/openstack/clouds.yaml");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "clouds:\n  other:\n    auth: {}\n").unwrap();
    let output = run(&server, &["login"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("export OS_CLOUD=cloud\n"), "{}", stdout(&output));
    assert!(!stdout(&output).contains("password"), "{}", stdout(&output));
    let written: Value = serde_saphyr::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(written["clouds"]["other"], json!({ "auth": {} }));
    assert_eq!(written["clouds"]["cloud"]["auth"]["password"], "password");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_file_that_cannot_be_parsed_stays_as_it_is() {
    let server = server();
    let path = server.directory().join("clouds.yaml");
    fs::write(&path, "clouds: [\n").unwrap();
    let output = run(&server, &["login", "--output", "clouds.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    let expected = "error: failed to add the cloud to clouds.yaml: correct the file, or give --output FILE: \
                    the file is not valid YAML";
    assert!(text.starts_with(expected), "{text}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "clouds: [\n");
}

#[test]
fn standard_output_gets_the_cloud_alone() {
    let server = server();
    let output = run(&server, &["login", "--output", "-", "--cloud", "mine"]);
    let written: Value = serde_saphyr::from_str(&stdout(&output)).unwrap();
    assert_eq!(written["clouds"]["mine"]["auth"]["auth_url"], "https://keystone.example/v3");
    assert!(!server.directory().join(".config").exists());
}
