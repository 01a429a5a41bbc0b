//! The list of services as a file, for tools that do not compile them.

use std::collections::{BTreeMap, BTreeSet};

use openstack_operator_engine::engine::Key;
use openstack_operator_model::image::{Family, ImageDefaults};
use openstack_operator_model::name;
use openstack_operator_model::node::Node;
use openstack_operator_model::service::Site;
use openstack_operator_services::cloud::Presence;
use openstack_operator_services::{PARTS, control_plane};
use serde_json::{Value, json};

use crate::input::{Document, Origin, Problems};
use crate::plan_all::{Known, Planned, plan_all};

const CLOUD: &str = "cloud";
/// Registry by which images are recognized in manifests.
const REGISTRY: &str = "registry.invalid";
/// Some images depend on the network backend.
const NETWORK_BACKENDS: [&str; 2] = ["ovn", "ovs"];

/// Every part of a cloud, with the images of the Debian family that its pods run.
pub(crate) fn document() -> Result<String, Problems> {
    let mut images: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for backend in NETWORK_BACKENDS {
        for (part, names) in images_of(backend)? {
            images.entry(part).or_default().extend(names);
        }
    }
    let row = |field: &str, kind: &str, presence: Presence| {
        json!({
            "field": field,
            "kind": kind,
            "byDefault": presence == Presence::ByDefault,
            "images": images.get(&name::part(CLOUD, field)),
        })
    };
    let rows: Vec<Value> =
        PARTS.iter().map(|part| row(part.field(), part.kind().kind, part.presence())).collect();
    // Maps with string keys always have a JSON form.
    let mut text = serde_json::to_string_pretty(&rows).unwrap_or_default();
    text.push('\n');
    Ok(text)
}

/// Images by the name of the part that runs them.
fn images_of(backend: &str) -> Result<BTreeMap<String, BTreeSet<String>>, Problems> {
    let images =
        ImageDefaults { family: Family::Debian, registry: Some(REGISTRY.to_owned()), tags: BTreeMap::new() };
    let site = Site { images, cluster_domain: "cluster.local".to_owned() };
    // Some pods exist only with a node.
    let nodes = BTreeMap::from([("node".to_owned(), Node::new(BTreeMap::new(), &json!({})))]);
    let known = Known { nodes: Some(nodes), ..Known::default() };
    let planned = plan_all(vec![cloud(backend)], &site, &known)?;
    let parents: BTreeMap<&Key, &Key> =
        planned.iter().filter_map(|one| Some((&one.key, one.parent.as_ref()?))).collect();
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for one in &planned {
        let mut part = &one.key;
        while let Some(parent) = parents.get(part).filter(|parent| parent.kind != control_plane::KIND) {
            part = parent;
        }
        found.entry(part.name.clone()).or_default().extend(names(one));
    }
    Ok(found)
}

/// A cloud with every service there is.
fn cloud(backend: &str) -> Document {
    let kind = control_plane::KIND;
    let everywhere = json!({ "name": "compute", "nodeSelector": {} });
    let mut spec = json!({ "networkBackend": backend, "topologies": [everywhere] });
    for part in PARTS {
        spec[part.field()] = json!({ "enabled": true });
    }
    let mut object = kube::core::DynamicObject::new(CLOUD, &kind.resource());
    object.data = json!({ "spec": spec });
    Document {
        origin: Origin { file: "a cloud with every service".to_owned(), document: 1 },
        key: Key { kind, namespace: CLOUD.to_owned(), name: CLOUD.to_owned() },
        object,
    }
}

/// Names of the images that an object's manifests run.
fn names(planned: &Planned) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for manifest in planned.manifests.values().flatten() {
        collect(&manifest.body, &mut found);
    }
    found
}

fn collect(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            let image = fields.get("image").and_then(Value::as_str);
            let name =
                image.and_then(|image| image.strip_prefix(REGISTRY)?.strip_prefix('/')?.split(':').next());
            found.extend(name.map(ToOwned::to_owned));
            fields.values().for_each(|value| collect(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_runs_an_image() {
        let rows: Vec<Value> = serde_json::from_str(&document().unwrap()).unwrap();
        assert_eq!(rows.len(), PARTS.len());
        for row in rows {
            let images = row["images"].as_array().unwrap();
            assert!(!images.is_empty(), "{row}");
        }
    }

    #[test]
    fn pods_that_need_a_node_are_counted() {
        let images = images_of("ovn").unwrap();
        assert!(images["cloud-compute"].contains("libvirt"), "{images:?}");
        assert!(images["cloud-ovn"].contains("ovn"), "{images:?}");
    }
}
