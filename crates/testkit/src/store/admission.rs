//! Admission of requests by the API server.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use openstack_operator_model::kind::{
    CONFIG_MAP, DAEMON_SET, DEPLOYMENT, JOB, Kind, SECRET, SERVICE, STATEFUL_SET,
};
use serde_json::{Map, Value, json};

use super::{Key, Rejection};
use crate::merge;

/// Metadata that only the API server writes.
const SERVER_FIELDS: [&str; 6] =
    ["uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields"];

/// Intent of a request without fields of the API server.
pub(super) fn intent(key: &Key, body: &Value) -> Result<Value, Rejection> {
    let mut intent = merge::without_nulls(body.clone());
    let actual = |pointer: &str| body.pointer(pointer).and_then(Value::as_str);
    let api_version = key.kind.api_version();
    for (field, expected) in [("/apiVersion", api_version.as_str()), ("/kind", key.kind.kind)] {
        if actual(field) != Some(expected) {
            return Err(Rejection::Refused(format!("{field} is {:?}, not {expected:?}", actual(field))));
        }
    }
    for (field, expected) in [("/metadata/name", &key.name), ("/metadata/namespace", &key.namespace)] {
        if actual(field).is_some_and(|actual| actual != expected.as_str()) {
            return Err(Rejection::Refused(format!("{field} is {:?}, not {expected:?}", actual(field))));
        }
    }
    if let Value::Object(fields) = &mut intent {
        // A subresource with its own call.
        fields.remove("status");
        if key.kind == SECRET {
            encode_texts(fields);
        }
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        if let Value::Object(metadata) = metadata {
            drop_server_fields(metadata);
            metadata.insert("name".to_owned(), json!(key.name));
            metadata.insert("namespace".to_owned(), json!(key.namespace));
        }
    }
    Ok(intent)
}

pub(super) fn drop_server_fields(metadata: &mut Map<String, Value>) {
    metadata.retain(|field, _| !SERVER_FIELDS.contains(&field.as_str()));
}

/// `stringData` is written to `data`.
fn encode_texts(fields: &mut Map<String, Value>) {
    let Some(Value::Object(texts)) = fields.remove("stringData") else { return };
    let data = fields.entry("data").or_insert_with(|| json!({}));
    for (name, text) in &texts {
        data[name] = json!(BASE64_STANDARD.encode(text.as_str().unwrap_or_default()));
    }
}

/// Assigns a cluster IP to a Service: the same one for the same name, so that worlds can be compared.
pub(super) fn assign_address(key: &Key, body: &mut Value) {
    if key.kind == SERVICE && body.pointer("/spec/clusterIP").is_none() {
        let number = key.name.bytes().fold(0_u16, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let [high, low] = number.to_be_bytes();
        body["spec"]["clusterIP"] = json!(format!("10.96.{high}.{low}"));
    }
}

/// A UID or version in the metadata of the request is a precondition.
pub(super) fn preconditions(metadata: Option<&Value>, live: Option<&Value>) -> Result<(), Rejection> {
    for field in ["uid", "resourceVersion"] {
        let expected = metadata.and_then(|metadata| metadata.get(field)).filter(|value| !value.is_null());
        let found = live.and_then(|live| live["metadata"].get(field));
        if expected.is_some() && expected != found {
            return Err(Rejection::Conflict);
        }
    }
    Ok(())
}

pub(super) fn immutable_fields(kind: Kind, live: &Value, next: &Value) -> Result<(), Rejection> {
    let sealed = live.get("immutable") == Some(&Value::Bool(true));
    let fields: &[&str] = match kind {
        JOB => &["/spec/template", "/spec/selector"],
        DEPLOYMENT | DAEMON_SET => &["/spec/selector"],
        SERVICE => &["/spec/clusterIP"],
        STATEFUL_SET => &[
            "/spec/volumeClaimTemplates",
            "/spec/serviceName",
            "/spec/selector",
            "/spec/podManagementPolicy",
        ],
        CONFIG_MAP | SECRET if sealed => &["/data", "/binaryData", "/immutable"],
        _ => &[],
    };
    match fields.iter().find(|field| live.pointer(field) != next.pointer(field)) {
        Some(field) => Err(Rejection::Refused(format!("field {field} is immutable"))),
        None => Ok(()),
    }
}
