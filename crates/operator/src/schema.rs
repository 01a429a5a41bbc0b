//! Checks objects against the schema of their kind, as the API server would, and fills in its defaults.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use openstack_operator_model::service::{AnyService, Invalid};
use regex::Regex;
use serde_json::Value;

/// The schema of a service's objects.
pub(crate) fn of(service: &dyn AnyService) -> JSONSchemaProps {
    let version = service.kind().version;
    let mut versions = service.crd().spec.versions.into_iter().filter(|found| found.name == version);
    versions.next().and_then(|found| found.schema?.open_api_v3_schema).unwrap_or_default()
}

/// Everything that is wrong with an object. Rules in CEL are not evaluated: only an API server can do that.
pub(crate) fn check(schema: &JSONSchemaProps, object: &Value) -> Vec<Invalid> {
    let mut problems = name_problems(schema, object);
    // The status is the operator's own, and every object has the other three alike.
    for (field, value) in object.as_object().into_iter().flatten() {
        if ["apiVersion", "kind", "metadata", "status"].contains(&field.as_str()) {
            continue;
        }
        match schema.properties.as_ref().and_then(|known| known.get(field)) {
            Some(schema) => walk(schema, value, field, &mut problems),
            None => problems.push(unknown(schema, field, field)),
        }
    }
    missing(schema, object, "", &mut problems);
    problems
}

/// The one rule in CEL that every kind has: which names are short enough for the names of all parts.
fn name_problems(schema: &JSONSchemaProps, object: &Value) -> Vec<Invalid> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let rules = schema.x_kubernetes_validations.iter().flatten();
    rules
        .filter_map(|rule| {
            let pattern = rule.rule.strip_prefix("self.metadata.name.matches('")?.strip_suffix("')")?;
            let matches = Regex::new(pattern).ok()?.is_match(name);
            let reason = rule.message.as_deref().unwrap_or_default().trim_start_matches("metadata.name ");
            (!matches).then(|| Invalid::new("metadata.name", format!("{name:?} {reason}")))
        })
        .collect()
}

fn walk(schema: &JSONSchemaProps, value: &Value, path: &str, problems: &mut Vec<Invalid>) {
    // The API server takes a null for a field that is not there.
    if value.is_null() || schema.x_kubernetes_int_or_string == Some(true) {
        return;
    }
    if let Some(reason) = wrong_type(schema, value).or_else(|| wrong_value(schema, value)) {
        problems.push(Invalid::new(path, reason));
        return;
    }
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let inner = format!("{path}.{}", quoted(field));
                match field_schema(schema, field) {
                    Field::Known(schema) => walk(schema, value, &inner, problems),
                    Field::Free => {}
                    Field::Unknown => problems.push(unknown(schema, &inner, field)),
                }
            }
            missing(schema, value, &format!("{path}."), problems);
        }
        Value::Array(items) => {
            if let Some(JSONSchemaPropsOrArray::Schema(schema)) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    walk(schema, item, &format!("{path}[{index}]"), problems);
                }
            }
        }
        _ => {}
    }
}

enum Field<'a> {
    Known(&'a JSONSchemaProps),
    /// Anything is allowed.
    Free,
    Unknown,
}

fn field_schema<'a>(schema: &'a JSONSchemaProps, field: &str) -> Field<'a> {
    if let Some(known) = schema.properties.as_ref().and_then(|known| known.get(field)) {
        return Field::Known(known);
    }
    match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(schema)) => Field::Known(schema),
        Some(JSONSchemaPropsOrBool::Bool(true)) => Field::Free,
        _ if schema.x_kubernetes_preserve_unknown_fields == Some(true) => Field::Free,
        _ => Field::Unknown,
    }
}

fn quoted(field: &str) -> String {
    if field.contains('.') { format!("{field:?}") } else { field.to_owned() }
}

fn unknown(schema: &JSONSchemaProps, path: &str, field: &str) -> Invalid {
    let known: Vec<&str> = schema.properties.iter().flatten().map(|(name, _)| name.as_str()).collect();
    let reason = match similar::get_close_matches(field, &known, 1, 0.6).first() {
        Some(close) => format!("there is no such field; did you mean {close:?}?"),
        None => format!("there is no such field; there are {}", known.join(", ")),
    };
    Invalid::new(path, reason)
}

fn missing(schema: &JSONSchemaProps, value: &Value, prefix: &str, problems: &mut Vec<Invalid>) {
    for field in schema.required.iter().flatten() {
        if value.get(field).is_none_or(Value::is_null) {
            problems.push(Invalid::new(format!("{prefix}{field}"), "is required"));
        }
    }
}

fn wrong_type(schema: &JSONSchemaProps, value: &Value) -> Option<String> {
    let wanted = schema.type_.as_deref()?;
    let fits = match wanted {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => true,
    };
    let remedy = if wanted == "string" && !value.is_object() && !value.is_array() {
        format!("; write it in quotes: \"{value}\"")
    } else {
        String::new()
    };
    (!fits).then(|| format!("must be of type {wanted}, and {value} is not{remedy}"))
}

fn wrong_value(schema: &JSONSchemaProps, value: &Value) -> Option<String> {
    if let Some(allowed) = &schema.enum_
        && !allowed.iter().any(|allowed| allowed.0 == *value)
    {
        let allowed: Vec<String> = allowed.iter().map(|allowed| allowed.0.to_string()).collect();
        return Some(format!("must be one of {}, and {value} is not", allowed.join(", ")));
    }
    match value {
        Value::String(text) => {
            let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
            out_of_bounds("character", length, schema.min_length, schema.max_length).or_else(|| {
                let pattern = schema.pattern.as_deref()?;
                let matches = Regex::new(pattern).ok()?.is_match(text);
                (!matches).then(|| format!("{value} does not have the form {pattern}"))
            })
        }
        Value::Number(number) => {
            let number = number.as_f64()?;
            let too_small = schema.minimum.filter(|&minimum| number < minimum);
            let too_large = schema.maximum.filter(|&maximum| number > maximum);
            let least = too_small.map(|minimum| format!("must be at least {minimum}, and {value} is not"));
            least
                .or_else(|| too_large.map(|maximum| format!("must be at most {maximum}, and {value} is not")))
        }
        Value::Array(items) => {
            let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
            out_of_bounds("item", count, schema.min_items, schema.max_items)
        }
        Value::Object(fields) => {
            let count = i64::try_from(fields.len()).unwrap_or(i64::MAX);
            out_of_bounds("entry", count, schema.min_properties, schema.max_properties)
        }
        Value::Null | Value::Bool(_) => None,
    }
}

fn out_of_bounds(what: &str, count: i64, minimum: Option<i64>, maximum: Option<i64>) -> Option<String> {
    let few = minimum.filter(|&minimum| count < minimum);
    let many = maximum.filter(|&maximum| count > maximum);
    let least = few.map(|minimum| format!("has {count} {what}(s), and needs at least {minimum}"));
    least.or_else(|| many.map(|maximum| format!("has {count} {what}(s), and may have at most {maximum}")))
}

/// Fills in what the API server would fill in.
pub(crate) fn fill_defaults(schema: &JSONSchemaProps, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            for (field, schema) in schema.properties.iter().flatten() {
                if let Some(default) = &schema.default {
                    fields.entry(field).or_insert_with(|| default.0.clone());
                }
            }
            for (field, value) in fields {
                if let Field::Known(schema) = field_schema(schema, field) {
                    fill_defaults(schema, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(JSONSchemaPropsOrArray::Schema(schema)) = &schema.items {
                for item in items {
                    fill_defaults(schema, item);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problems(kind: &str, object: &Value) -> Vec<String> {
        let service = openstack_operator_services::of_kind(kind).unwrap();
        check(&of(service), object).iter().map(ToString::to_string).collect()
    }

    fn plane(spec: &Value) -> Vec<String> {
        problems("OpenStackControlPlane", &json!({ "metadata": { "name": "cloud" }, "spec": spec }))
    }

    #[test]
    fn what_is_right_has_no_problems() {
        assert_eq!(plane(&json!({})), Vec::<String>::new());
        assert_eq!(
            plane(&json!({ "keystone": { "replicas": 3, "policy": { "a:b": "role:x" } } })),
            Vec::<String>::new()
        );
    }

    #[test]
    fn an_unknown_field_is_named_with_the_one_that_was_meant() {
        assert_eq!(
            plane(&json!({ "keystone": { "replica": 3 } })),
            ["spec.keystone.replica: there is no such field; did you mean \"replicas\"?"]
        );
    }

    #[test]
    fn values_are_held_to_their_bounds() {
        let found = plane(&json!({
            "keystone": { "replicas": 0, "publicHostname": "A_b" }, "networkBackend": "vlan",
            "region": 5, "mariadb": { "replicas": "three" }
        }));
        let all = found.join("\n");
        assert_eq!(found.len(), 5, "{all}");
        assert!(all.contains("spec.keystone.replicas: must be at least 1, and 0 is not"), "{all}");
        assert!(all.contains("spec.keystone.publicHostname: \"A_b\" does not have the form"), "{all}");
        assert!(all.contains("spec.networkBackend: must be one of \"ovn\", \"ovs\""), "{all}");
        assert!(
            all.contains("spec.region: must be of type string, and 5 is not; write it in quotes: \"5\""),
            "{all}"
        );
        assert!(all.contains("spec.mariadb.replicas: must be of type integer"), "{all}");
    }

    #[test]
    fn names_that_are_too_long_and_specs_that_are_missing_are_refused() {
        let found = problems("Keystone", &json!({ "metadata": { "name": "k".repeat(60) } }));
        assert!(found[0].starts_with("metadata.name: \"kkk"), "{found:?}");
        assert!(found[0].contains("must be at most 40"), "{found:?}");
        assert!(found.iter().any(|problem| problem == "spec: is required"), "{found:?}");
    }

    #[test]
    fn defaults_are_filled_in_at_every_level() {
        let schema = of(openstack_operator_services::of_kind("Keystone").unwrap());
        let mut object = json!({ "spec": { "fernet": { "maxActiveKeys": 5 }, "gatewayRef": null } });
        fill_defaults(&schema, &mut object);
        assert_eq!(object["spec"]["replicas"], 1);
        assert_eq!(object["spec"]["fernet"]["rotationSchedule"], "0 0 * * 0");
        assert_eq!(object["spec"].get("gatewayRef"), None);
    }
}
