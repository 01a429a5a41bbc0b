//! Schema of a block of a cloud: the schema of its kind without the fields that the cloud fills in.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use serde_json::{Map, Value, json};

use crate::inputs::{ALL_COMPONENTS, Input};

/// Field that replaces the scheduling fields in a block.
const TOPOLOGY: &str = "topology";
/// Scheduling fields that a topology replaces.
const SCHEDULING: [&str; 4] = ["nodeSelector", "tolerations", "topologySpread", "priorityClassName"];

/// The schema of a block.
pub(super) fn schema(definition: CustomResourceDefinition, inputs: &[Input<'_>]) -> JSONSchemaProps {
    let kind = definition.spec.names.kind;
    let mut versions = definition.spec.versions.into_iter();
    let schema = versions.find_map(|version| version.schema?.open_api_v3_schema).unwrap_or_default();
    let spec = schema.properties.and_then(|mut fields| fields.remove("spec")).unwrap_or_default();
    // Kubernetes types always serialize.
    let mut block = serde_json::to_value(spec).unwrap_or_default();
    for field in ["release", "images"] {
        remove(&mut block, field);
    }
    // Add topologies before the removals, which delete empty objects.
    for input in inputs {
        if let Input::Scheduling { field, .. } = input {
            insert(&mut block, field, TOPOLOGY, json!({ "type": "string", "maxLength": 63 }));
        }
    }
    for path in inputs.iter().flat_map(settled) {
        remove(&mut block, &path);
    }
    strip(&mut block, &kind);
    insert(&mut block, "", "enabled", json!({ "type": "boolean" }));
    serde_json::from_value(block).unwrap_or_default()
}

/// Fields of a block that the cloud fills in.
fn settled(input: &Input<'_>) -> Vec<String> {
    let below = |field: &str, names: &[&str]| -> Vec<String> {
        let prefix = if field.is_empty() { String::new() } else { format!("{field}.") };
        names.iter().map(|name| format!("{prefix}{name}")).collect()
    };
    match input {
        Input::Exposure(_) => below("", &["gatewayRef", "publicScheme"]),
        Input::Database { field, .. } => {
            below(field, &["clusterRef", "host", "port", "secretRef", "adminSecretRef"])
        }
        Input::Messaging { field, .. }
        | Input::Region { field, .. }
        | Input::Topics { field, .. }
        | Input::Users(field) => vec![(*field).to_owned()],
        Input::Cache(_) => vec!["cache".to_owned()],
        Input::Identity(_) | Input::IdentityAddress(_) => vec!["keystone".to_owned()],
        Input::Service { field, .. } => below(field, &["clusterRef"]),
        Input::Scheduling { field, .. } => below(field, &SCHEDULING),
        Input::Component { field, .. } => {
            let field = if *field == ALL_COMPONENTS { "" } else { field };
            below(field, &["resources", "image"])
        }
        Input::Pods { .. } => below("", &["dependsOn", "extraMounts", "podLabels", "podAnnotations"]),
        Input::Hostname { .. } | Input::Replicas { .. } | Input::StorageClass(_) => Vec::new(),
    }
}

/// Rules that the topologies named in a block exist.
pub(super) fn topology_rules(block: &str, inputs: Vec<Input<'_>>) -> Vec<(String, String)> {
    let rule = |input: Input<'_>| {
        let Input::Scheduling { field, .. } = input else { return None };
        let names = [block].into_iter().chain(field.split('.')).filter(|name| !name.is_empty());
        let mut path = "self.spec".to_owned();
        let absent: Vec<String> = names
            .chain([TOPOLOGY])
            .map(|name| {
                path = format!("{path}.{name}");
                format!("!has({path})")
            })
            .collect();
        Some((
            format!("{} || self.spec.topologies.exists(t, t.name == {path})", absent.join(" || ")),
            format!("{} is not in spec.topologies", path.trim_start_matches("self.")),
        ))
    };
    inputs.into_iter().filter_map(rule).collect()
}

/// Parent schema of the last field of a path, and that field.
fn parent<'a, 'b>(schema: &'a mut Value, path: &'b str) -> Option<(&'a mut Value, &'b str)> {
    let Some((before, last)) = path.rsplit_once('.') else { return Some((schema, path)) };
    Some((descend(schema, before)?, last))
}

fn descend<'a>(schema: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    path.split('.').filter(|name| !name.is_empty()).try_fold(schema, |schema, name| {
        let properties = schema.get_mut("properties")?;
        match name.strip_suffix("[]") {
            Some(list) => properties.get_mut(list)?.get_mut("items"),
            None => properties.get_mut(name),
        }
    })
}

/// Removes a field, the rules that mention it, and its parent if that is empty then.
fn remove(schema: &mut Value, path: &str) {
    let Some((object, field)) = parent(schema, path) else { return };
    let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) else { return };
    properties.remove(field);
    let empty = properties.is_empty();
    if let Some(required) = object.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| name != field);
    }
    if let Some(rules) = object.get_mut("x-kubernetes-validations").and_then(Value::as_array_mut) {
        rules.retain(|rule| !mentions(rule["rule"].as_str().unwrap_or_default(), field));
    }
    if let Some((around, _)) = path.rsplit_once('.').filter(|_| empty) {
        remove(schema, around);
    }
}

/// Whether a rule reads a field of its object.
fn mentions(rule: &str, field: &str) -> bool {
    let path = format!("self.{field}");
    rule.match_indices(&path).any(|(start, _)| {
        let next = rule[start + path.len()..].chars().next();
        !next.is_some_and(|next| next.is_ascii_alphanumeric() || next == '_')
    })
}

fn insert(schema: &mut Value, path: &str, field: &str, property: Value) {
    let Some(object) = descend(schema, path).and_then(Value::as_object_mut) else { return };
    let properties = object.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    properties[field] = property;
}

/// Removes defaults and nested descriptions, which the definition of the kind has.
fn strip(block: &mut Value, kind: &str) {
    let description = block["description"].as_str().unwrap_or_default().to_owned();
    strip_details(block);
    if let Some(fields) = block.as_object_mut() {
        let pointer = format!("{description} See `kubectl explain {}.spec`.", kind.to_lowercase());
        fields.insert("description".to_owned(), Value::String(pointer));
    }
}

fn strip_details(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    for detail in ["description", "default", "format"] {
        fields.remove(detail);
    }
    if fields.get("x-kubernetes-validations").and_then(Value::as_array).is_some_and(Vec::is_empty) {
        fields.remove("x-kubernetes-validations");
    }
    if fields.get("required").and_then(Value::as_array).is_some_and(Vec::is_empty) {
        fields.remove("required");
    }
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(strip_details);
    }
    for nested in ["items", "additionalProperties"] {
        if let Some(schema) = fields.get_mut(nested) {
            strip_details(schema);
        }
    }
}
