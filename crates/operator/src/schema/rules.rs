//! Evaluates the CEL rules of a schema over the whole object.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use kube_cel::{ErrorKind, ValidationError};
use openstack_operator_model::service::Invalid;
use serde_json::Value;

/// Adds the broken rules of an object. Both objects must have all defaults.
pub(super) fn check(
    schema: &JSONSchemaProps,
    object: &Value,
    live: Option<&Value>,
    problems: &mut Vec<Invalid>,
) {
    let schema = match serde_json::to_value(schema) {
        Ok(schema) => schema,
        Err(error) => {
            problems.push(Invalid::new("spec", format!("its rules cannot be compiled: {error}")));
            return;
        }
    };
    let Err(broken) = kube_cel::validate(&schema, object, live) else { return };
    // Values that violate the schema are reported already; rules may fail on them.
    let makes_sense = problems.is_empty();
    let kept = broken.into_iter().filter(|broken| makes_sense || broken.kind == ErrorKind::ValidationFailure);
    problems.extend(kept.map(|broken| problem(&broken, object)));
}

fn problem(broken: &ValidationError, object: &Value) -> Invalid {
    let (path, reason) = match broken.field_path.trim_start_matches('.') {
        // The message of a rule of the whole object starts with its field.
        "" => broken.message.split_once(' ').unwrap_or(("spec", &broken.message)),
        path => (path, broken.message.as_str()),
    };
    let path = path.trim_end_matches(':');
    let pointer = format!("/{}", path.replace(['.', '['], "/").replace(']', ""));
    match object.pointer(&pointer) {
        Some(value @ (Value::String(_) | Value::Number(_) | Value::Bool(_))) => {
            Invalid::new(path, format!("{reason} (it is {value})"))
        }
        _ => Invalid::new(path, reason),
    }
}
