//! Example objects from requirement documents, if these exist beside the repository.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// Fields that the operator does not support, with the reason.
const EXCEPTIONS: [(&str, &str, &str); 6] = [
    ("OpenStackControlPlane", "spec.storageBackend", "each service names its own storage"),
    ("OpenStackControlPlane", "spec.tls", "TLS ends at the Gateway"),
    ("OpenStackControlPlane", "spec.cinder", "Cinder is not among the services"),
    ("OpenStackControlPlane", "spec.horizon", "Horizon is not among the services"),
    ("Glance", "spec.storage.rbd.cephClientRef", "the keys are in the Secret of cephSecretRef"),
    ("OVNChassis", "metadata.ownerReferences", "the operator owns the chassis that it writes"),
];

/// Kinds with an example.
const KINDS: [&str; 7] =
    ["OpenStackControlPlane", "Keystone", "Glance", "Placement", "Nova", "Neutron", "OVNChassis"];

/// The examples without status and exceptions, in the operator's API group. A second example of a kind is a fragment,
/// which is merged over the first.
pub fn examples() -> Vec<Value> {
    let mut found: Vec<Value> = Vec::new();
    for path in documents() {
        let text = std::fs::read_to_string(&path).expect("a document can be read");
        for object in read(&text) {
            let first = found.iter().find(|first| first["kind"] == object["kind"]).cloned();
            let object = match first {
                Some(mut merged) => {
                    merge(&mut merged, &object);
                    in_own_group(merged)
                }
                None => adapted(object),
            };
            found.push(object);
        }
    }
    if !found.is_empty() {
        for kind in KINDS {
            assert!(found.iter().any(|object| object["kind"] == kind), "there is no example of {kind}");
        }
        assert_eq!(found.len(), KINDS.len() + 1, "one example of each kind, and a fragment");
    }
    found
}

fn documents() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/seeds");
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let is_meant = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("001_") || name.starts_with("002_")
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_meant).collect();
    paths.sort();
    paths
}

/// All objects of served kinds in the YAML blocks of a document.
fn read(document: &str) -> Vec<Value> {
    let blocks = document.split("```yaml\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    let objects = blocks.flat_map(|block| {
        serde_saphyr::from_multiple::<Value>(block).unwrap_or_else(|error| panic!("{error}\n{block}"))
    });
    objects.filter(is_served).collect()
}

/// Kinds of other operators can have the same names.
fn is_served(object: &Value) -> bool {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let group = text("apiVersion").split('/').next().unwrap_or_default();
    let is_ours =
        group.starts_with("openstack.") || group.contains(".openstack.") || group.starts_with("ovn.");
    is_ours && KINDS.contains(&text("kind"))
}

fn merge(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (field, value) in over {
                merge(base.entry(field).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over.clone(),
    }
}

fn in_own_group(mut object: Value) -> Value {
    object["apiVersion"] = "openstack.k8s.io/v1alpha1".into();
    remove(&mut object, "status");
    object
}

/// An example without exceptions.
fn adapted(object: Value) -> Value {
    let mut object = in_own_group(object);
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    for (_, path, reason) in EXCEPTIONS.iter().filter(|(of, ..)| *of == kind) {
        assert!(remove(&mut object, path), "{kind} has no {path}, which is removed because {reason}");
    }
    object
}

/// Removes a field and returns whether it existed.
fn remove(object: &mut Value, path: &str) -> bool {
    let (parent, field) = match path.rsplit_once('.') {
        Some((parent, field)) => (object.pointer_mut(&format!("/{}", parent.replace('.', "/"))), field),
        None => (Some(object), path),
    };
    parent.and_then(Value::as_object_mut).is_some_and(|fields| fields.remove(field).is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_of_served_kinds_are_read_and_others_are_not() {
        let text = "text\n```yaml\napiVersion: keystone.openstack.example.com/v1\nkind: Keystone\n```\n\
                    ```yaml\napiVersion: example.com/v1\nkind: Keystone\n---\n\
                    apiVersion: ovn.example.com/v1\nkind: OVNCluster\n```\n";
        let found = read(text);
        assert_eq!(found, [json!({ "apiVersion": "keystone.openstack.example.com/v1", "kind": "Keystone" })]);
    }

    #[test]
    fn a_fragment_changes_only_its_fields() {
        let mut base = json!({ "spec": { "a": { "b": 1, "c": [1] } } });
        merge(&mut base, &json!({ "spec": { "a": { "c": [2], "d": 3 } } }));
        assert_eq!(base, json!({ "spec": { "a": { "b": 1, "c": [2], "d": 3 } } }));
        assert!(remove(&mut base, "spec.a.b") && !remove(&mut base, "spec.a.b"));
        assert_eq!(base, json!({ "spec": { "a": { "c": [2], "d": 3 } } }));
    }
}
