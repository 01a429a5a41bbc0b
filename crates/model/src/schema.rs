//! Parts of schemas that types cannot express: bounds of maps and patterns of quantities.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceValidation, JSONSchemaProps,
    JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::oslo::Overrides;

/// Adds the parts that all kinds have in common to a definition.
pub fn finish(mut crd: CustomResourceDefinition, longest_name: usize) -> CustomResourceDefinition {
    // Kubernetes protects this API group: the API server rejects its kinds without this annotation.
    crd.metadata
        .annotations
        .get_or_insert_default()
        .insert("api-approved.kubernetes.io".to_owned(), "unapproved, experimental-only".to_owned());
    let pattern = format!("^[a-z]([-a-z0-9]{{0,{}}}[a-z0-9])?$", longest_name - 2);
    let name_rule = ValidationRule {
        rule: format!("self.metadata.name.matches('{pattern}')"),
        message: Some(format!(
            "metadata.name must be at most {longest_name} lower-case letters, digits and dashes, and begin with a letter"
        )),
        ..ValidationRule::default()
    };
    for version in &mut crd.spec.versions {
        let columns = version.additional_printer_columns.get_or_insert_default();
        columns.insert(0, column("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status"));
        let has_release = release_of(version.schema.as_ref()).is_some();
        columns.extend(has_release.then(|| CustomResourceColumnDefinition {
            // Only with `-o wide`: it rarely changes.
            priority: Some(1),
            ..column("Release", "string", ".status.release")
        }));
        columns.push(column("Message", "string", ".status.conditions[?(@.type==\"Ready\")].message"));
        columns.push(column("Age", "date", ".metadata.creationTimestamp"));
        let schema = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
        if let Some(schema) = schema {
            tidy(schema);
            // The description of the spec describes the kind; the derived one of the object says nothing.
            let spec = schema.properties.as_ref().and_then(|fields| fields.get("spec"));
            schema.description = spec.and_then(|spec| spec.description.clone());
            schema.x_kubernetes_validations.get_or_insert_default().push(name_rule.clone());
        }
    }
    crd
}

/// Schema of the release in the spec, if the kind has one.
fn release_of(schema: Option<&CustomResourceValidation>) -> Option<&JSONSchemaProps> {
    schema?.open_api_v3_schema.as_ref()?.properties.as_ref()?.get("spec")?.properties.as_ref()?.get("release")
}

/// Removes defaults of objects, because their fields have them already, and formats that Kubernetes does not know. No
/// field is nullable, so the API server drops a null: a stored null would be a third state.
fn tidy(schema: &mut JSONSchemaProps) {
    if let Some(default) = &mut schema.default
        && default.0.is_object()
        && schema.required.is_none()
    {
        default.0 = serde_json::json!({});
    }
    if schema.format.as_deref().is_some_and(|format| format.starts_with("uint")) {
        schema.format = None;
    }
    schema.nullable = None;
    if let Some(values) = &mut schema.enum_ {
        values.retain(|value| !value.0.is_null());
    }
    schema.properties.iter_mut().flat_map(|properties| properties.values_mut()).for_each(tidy);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        tidy(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        tidy(values);
    }
}

fn column(name: &str, kind: &str, path: &str) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        name: name.to_owned(),
        type_: kind.to_owned(),
        json_path: path.to_owned(),
        ..CustomResourceColumnDefinition::default()
    }
}

/// DNS subdomain: name of most objects.
pub const NAME: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// DNS label: name of a namespace.
pub const PLAIN_NAME: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// Key of a label or a taint, with or without a domain before it.
pub const LABEL: &str =
    r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
/// Value of a label or a taint.
pub const LABEL_VALUE: &str = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
/// Key of a Secret.
pub const SECRET_KEY: &str = r"^[-._a-zA-Z0-9]+$";
/// Registry and path of an image.
pub const IMAGE: &str = r"^[a-zA-Z0-9]([-a-zA-Z0-9._/:]*[a-zA-Z0-9])?$";
/// Tag or digest of an image.
pub const IMAGE_TAG: &str = r"^[a-zA-Z0-9_][-a-zA-Z0-9_.:]*$";
/// Host name or address.
pub const HOST: &str = r"^[a-zA-Z0-9]([-.a-zA-Z0-9]*[a-zA-Z0-9])?$";
/// Host name or address with a port.
pub const HOST_PORT: &str = r"^[a-zA-Z0-9]([-.a-zA-Z0-9]*[a-zA-Z0-9])?:[0-9]{1,5}$";
/// Absolute path.
pub const ABSOLUTE_PATH: &str = r"^/[^:]*$";
/// Cron expression: five fields of numbers, or of names of months and weekdays.
pub const SCHEDULE: &str = r"^([0-9*/,-]+\s+){3}([0-9*/,-]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)+\s+([0-9*/,-]|SUN|MON|TUE|WED|THU|FRI|SAT)+$";
/// CPU quantity without sign and exponent.
const CPU: &str = r"^([1-9][0-9]*m|[0-9]+(\.[0-9]{1,3})?)$";
/// Memory or storage quantity of at least one byte.
const SIZE: &str = r"^[1-9][0-9]*(\.[0-9]+)?(k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?$";

/// Rule: requests do not exceed limits.
pub const REQUESTS_WITHIN_LIMITS: &str = "!has(self.requests) || !has(self.limits) || \
    (!has(self.requests.cpu) || !has(self.limits.cpu) || quantity(string(self.requests.cpu)).compareTo(quantity(string(self.limits.cpu))) <= 0) && \
    (!has(self.requests.memory) || !has(self.limits.memory) || quantity(string(self.requests.memory)).compareTo(quantity(string(self.limits.memory))) <= 0)";

pub fn cpu(_: &mut SchemaGenerator) -> Schema {
    quantity(CPU)
}

pub fn size(_: &mut SchemaGenerator) -> Schema {
    quantity(SIZE)
}

/// Manifests write quantities as numbers or as strings.
fn quantity(pattern: &str) -> Schema {
    json_schema!({ "x-kubernetes-int-or-string": true, "minimum": 1, "maxLength": 20, "pattern": pattern })
}

/// A number or a string, as a string.
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self(text)),
            Value::Number(number) => Ok(Self(number.to_string())),
            other => Err(D::Error::custom(format!("{other} is neither a number nor a string"))),
        }
    }
}

/// Reads a number or a string.
pub fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Text::deserialize(deserializer).map(|text| text.0)
}

/// Reads an optional number or string.
pub fn read_optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<Text>::deserialize(deserializer)?.map(|text| text.0))
}

/// Reads options with number or string values, by file and section.
pub fn read_extra_config<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Overrides>, D::Error> {
    type Files = BTreeMap<String, BTreeMap<String, BTreeMap<String, Text>>>;
    let options = |options: BTreeMap<String, Text>| {
        options.into_iter().map(|(option, value)| (option, value.0)).collect()
    };
    let sections = |sections: BTreeMap<String, BTreeMap<String, Text>>| {
        sections.into_iter().map(|(section, given)| (section, options(given))).collect()
    };
    Ok(Files::deserialize(deserializer)?.into_iter().map(|(file, given)| (file, sections(given))).collect())
}

/// Reads options with number or string values.
pub fn read_options<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let options = BTreeMap::<String, Text>::deserialize(deserializer)?;
    Ok(options.into_iter().map(|(option, value)| (option, value.0)).collect())
}

pub fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "maxProperties": 16,
        "additionalProperties": { "type": "string", "maxLength": 63, "pattern": LABEL_VALUE },
        "x-kubernetes-validations": [{
            "rule": format!("self.all(key, key.matches(r'{LABEL}'))"),
            "message": "nodeSelector has an invalid label key",
        }],
    })
}

/// Schema of options by file and section.
pub fn extra_config(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "maxProperties": 16,
        "additionalProperties": {
            "type": "object", "maxProperties": 64,
            "additionalProperties": {
                "type": "object", "maxProperties": 128,
                "additionalProperties": { "x-kubernetes-int-or-string": true, "maxLength": 4096 }
            }
        }
    })
}

/// Schema of options without files and sections.
pub fn options(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "maxProperties": 128,
        "additionalProperties": { "x-kubernetes-int-or-string": true, "maxLength": 16384 }
    })
}

pub fn pod_labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "maxProperties": 16,
        "additionalProperties": { "type": "string", "maxLength": 63, "pattern": LABEL_VALUE },
    })
}

pub fn pod_annotations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "maxProperties": 16,
        "additionalProperties": { "type": "string", "maxLength": 4096 },
    })
}

pub fn policy(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "maxProperties": 512,
        "additionalProperties": { "type": "string", "maxLength": 4096 }
    })
}
