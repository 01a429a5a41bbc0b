//! Validates objects against the schema of their kind as the API server does, and fills in defaults.

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use openstack_operator_model::service::{AnyService, Invalid};
use regex::Regex;
use serde_json::Value;

mod rules;

/// The schema of a service's objects.
pub(crate) fn of(service: &dyn AnyService) -> JSONSchemaProps {
    let version = service.kind().version;
    let mut versions = service.crd().spec.versions.into_iter().filter(|found| found.name == version);
    versions.next().and_then(|found| found.schema?.open_api_v3_schema).unwrap_or_default()
}

/// All reasons for which an API server would reject an object. Transition rules are evaluated if the object exists, against
/// `live`.
pub(crate) fn check(schema: &JSONSchemaProps, object: &Value, live: Option<&Value>) -> Vec<Invalid> {
    let mut object = judged(schema, object);
    let mut problems = Vec::new();
    for (field, value) in object.as_object().into_iter().flatten() {
        // Fields of all objects.
        if ["apiVersion", "kind", "metadata"].contains(&field.as_str()) {
            continue;
        }
        match schema.properties.as_ref().and_then(|known| known.get(field)) {
            Some(schema) => walk(schema, value, field, &mut problems),
            None => problems.push(unknown(schema, field, field)),
        }
    }
    missing(schema, &object, "", &mut problems);
    let live = live.map(|live| {
        // A user's change keeps the status of the object, and rules may compare with it.
        let status = live.get("status").filter(|status| !status.is_null());
        let mut live = judged(schema, live);
        if let Some(status) = status {
            live["status"] = status.clone();
            object["status"] = status.clone();
        }
        live
    });
    rules::check(schema, &object, live.as_ref(), &mut problems);
    problems
}

/// An object as the API server validates it: with defaults, and without the status.
fn judged(schema: &JSONSchemaProps, object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    fill_defaults(schema, &mut object);
    object
}

fn walk(schema: &JSONSchemaProps, value: &Value, path: &str, problems: &mut Vec<Invalid>) {
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
            duplicates(schema, items, path, problems);
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

/// Duplicate items of a list: the same keys in a map, the same values in a set.
fn duplicates(schema: &JSONSchemaProps, items: &[Value], path: &str, problems: &mut Vec<Invalid>) {
    let keys = schema.x_kubernetes_list_map_keys.as_deref().unwrap_or_default();
    let mark = |item: &Value| match schema.x_kubernetes_list_type.as_deref() {
        Some("map") => {
            let marks = keys.iter().map(|key| format!("{key} {}", item.get(key).unwrap_or(&Value::Null)));
            Some(marks.collect::<Vec<_>>().join(", "))
        }
        Some("set") => Some(item.to_string()),
        _ => None,
    };
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let Some(mark) = mark(item) else { return };
        if seen.contains(&mark) {
            let reason = format!("there is another item with {mark}: remove one of them");
            problems.push(Invalid::new(format!("{path}[{index}]"), reason));
        }
        seen.insert(mark);
    }
}

fn wrong_type(schema: &JSONSchemaProps, value: &Value) -> Option<String> {
    let is_integer = value.is_i64() || value.is_u64();
    let accepts_both = schema.x_kubernetes_int_or_string == Some(true);
    let wanted = if accepts_both { "integer or string" } else { schema.type_.as_deref()? };
    let fits = match wanted {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => is_integer,
        "integer or string" => is_integer || value.is_string(),
        "number" => value.is_number(),
        _ => true,
    };
    let accepts_text = accepts_both || wanted == "string";
    let remedy = if accepts_text && !value.is_object() && !value.is_array() {
        format!("; write it in quotes: \"{value}\"")
    } else {
        String::new()
    };
    let wanted = if accepts_both { "a whole number or text".to_owned() } else { format!("of type {wanted}") };
    (!fits).then(|| format!("must be {wanted}, and {value} is not{remedy}"))
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

/// Fills in the defaults of the API server.
pub(crate) fn fill_defaults(schema: &JSONSchemaProps, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // A null is an absent field; an unknown field stays, so that it is reported.
            fields.retain(|field, value| {
                !value.is_null() || matches!(field_schema(schema, field), Field::Unknown)
            });
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
mod corpus;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod tests;
