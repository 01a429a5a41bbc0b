//! Every field of a spec has a description.

use openstack_operator_services::PARTS;
use serde_json::Value;

use crate::schema::{definitions, parts, root};

#[test]
fn every_field_of_every_spec_has_a_description() {
    let mut silent = Vec::new();
    let mut described = 0;
    for definition in definitions() {
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap();
        parts("", &root(&definition)["properties"]["spec"], &mut |path, schema| {
            for (field, property) in schema["properties"].as_object().into_iter().flatten() {
                let path = format!("{path}.{field}");
                // The kind of a block describes its fields.
                if kind == "OpenStackControlPlane" && is_in_block(&path) {
                    continue;
                }
                let text = property["description"].as_str().unwrap_or_default();
                if text.trim().is_empty() {
                    silent.push(format!("{kind}.spec{path}"));
                } else {
                    described += 1;
                }
            }
        });
    }
    assert!(silent.is_empty(), "{} fields have no description:\n{}", silent.len(), silent.join("\n"));
    assert!(described > 300, "only {described} fields were seen");
}

fn is_in_block(path: &str) -> bool {
    PARTS.iter().any(|part| path.starts_with(&format!(".{}.", part.field())))
}

#[test]
fn blocks_of_a_cloud_point_to_their_kinds() {
    for part in PARTS {
        let block = serde_json::to_value(part.block()).unwrap();
        let text = block["description"].as_str().unwrap_or_default();
        let pointer = format!("`kubectl explain {}.spec`", part.kind().kind.to_lowercase());
        assert!(text.contains(&pointer), "{}: {text}", part.field());
        let mut repeated = Vec::new();
        parts("", &block, &mut |path, schema: &Value| {
            if !path.is_empty() && schema.get("description").is_some() {
                repeated.push(path.to_owned());
            }
        });
        assert!(repeated.is_empty(), "{}: {repeated:?}", part.field());
    }
}
