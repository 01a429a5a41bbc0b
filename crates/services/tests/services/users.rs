//! Containers run as the user of their image.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use openstack_operator_model::lower::Observed;
use serde_json::{Value, json};

use crate::fixture::cases;

/// User ID of each image of the Debian family, 0 for root.
fn users() -> BTreeMap<String, i64> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../images/images.toml");
    let table: toml::Table = toml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let rows = |name: &str| table[name].as_array().unwrap().clone();
    let text = |row: &toml::Value, field: &str| row[field].as_str().unwrap().to_owned();
    let mut numbers: BTreeMap<String, i64> =
        rows("user").iter().map(|row| (text(row, "name"), row["id"].as_integer().unwrap())).collect();
    numbers.insert("root".to_owned(), 0);
    rows("image").iter().map(|row| (text(row, "name"), numbers[&text(row, "user")])).collect()
}

/// A spec with images of the Debian family only.
fn with_debian_images(spec: &Value) -> Value {
    let mut spec = spec.clone();
    remove_images(&mut spec);
    spec["images"] = json!({ "family": "debian" });
    spec
}

fn remove_images(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("image");
            fields.values_mut().for_each(remove_images);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_images),
        _ => {}
    }
}

#[test]
fn containers_run_as_the_users_of_their_images() {
    let users = users();
    let mut seen = BTreeSet::new();
    // A chassis has no pods, and the parts of a cloud are separate cases.
    let with_pods = |kind: &str| kind != "OVNChassis" && kind != "OpenStackControlPlane";
    for mut case in cases().into_iter().filter(|case| with_pods(case.service.kind().kind)) {
        case.spec = with_debian_images(&case.spec);
        for manifest in case.render(&Observed::default()).unwrap().manifests {
            let Some(pod) = manifest.body.pointer("/spec/template/spec") else { continue };
            let list = |field: &str| pod[field].as_array().cloned().unwrap_or_default();
            for container in list("initContainers").iter().chain(&list("containers")) {
                let reference = container["image"].as_str().unwrap();
                let image = reference.rsplit('/').next().unwrap().split(':').next().unwrap();
                let own = &container["securityContext"]["runAsUser"];
                let user = own.as_i64().or_else(|| pod["securityContext"]["runAsUser"].as_i64());
                let title = format!("{}: {}, {}", case.title, manifest.name, container["name"]);
                let expected =
                    users.get(image).unwrap_or_else(|| panic!("{title}: there is no image {image}"));
                // Another test checks which node pods are root.
                if user != Some(0) {
                    assert_eq!(user, Some(*expected), "{title}: image {image}");
                    seen.insert(image.to_owned());
                }
            }
        }
    }
    for image in
        ["mariadb", "rabbitmq", "memcached", "keystone", "glance", "placement", "neutron", "nova", "ovn"]
    {
        assert!(seen.contains(image), "no container of {image} was seen: {seen:?}");
    }
}
