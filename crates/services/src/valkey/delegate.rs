//! Valkey as an object of the valkey-operator of SAP.

use openstack_operator_model::common::{PodSettings, Resources, Scheduling};
use openstack_operator_model::foreign::{ForeignKind, Readiness};
use openstack_operator_model::kind::Kind;
use openstack_operator_model::plan::{ForeignObject, Plan};
use openstack_operator_model::service::{Context, Invalid};
use openstack_operator_model::status::{KeyValueServer, Provides};
use serde_json::{Map, Value, json};

use super::{CLIENTS, SENTINEL, Valkey, ValkeySpec, ValkeyTemplate, secrets, storage_size};
use crate::{cloud, shared};

pub(super) const VALKEYS: ForeignKind = ForeignKind {
    kind: Kind::new("cache.cs.sap.com", "v1alpha1", "Valkey", "valkeys"),
    project: "the valkey-operator of SAP",
    readiness: Readiness::Field { pointer: "/status/state", ready: &["Ready"], failed: &["Error"] },
};

/// Name by which the Sentinels of the other operator know their primary.
const PRIMARY: &str = "myprimary";
/// Content of the Secret that the other operator writes, in the form that clients read.
const BINDING: &str = "username: default\npassword: {{ .password | quote }}\n";

pub(super) fn plan(context: &Context<'_, Valkey>) -> Result<Plan, Invalid> {
    let ValkeySpec { template, .. } = &context.object.spec;
    if !template.common.extra_config.is_empty() {
        let reason = "has no effect with provider ValkeyOperator: remove it, or set provider to Pods";
        return Err(Invalid::new("spec.extraConfig", reason));
    }
    Ok(Plan {
        foreign: vec![ForeignObject {
            kind: VALKEYS,
            name: context.name.to_owned(),
            spec: Value::Object(spec(context)?),
        }],
        provides: Provides { key_value: Some(provided(context)), ..Provides::default() },
        remarks: remarks(&template.common.pods, template),
        ..Plan::default()
    })
}

/// Where clients connect, and the Secret of the other operator with their login.
fn provided(context: &Context<'_, Valkey>) -> KeyValueServer {
    let has_sentinels = context.object.spec.template.replicas() > 1;
    let name = format!("valkey-{}", context.name);
    let (service, port) =
        if has_sentinels { (name, SENTINEL.number) } else { (format!("{name}-primary"), CLIENTS.number) };
    let secret = Some(secrets(context.name).0);
    KeyValueServer {
        servers: vec![format!("{}:{port}", shared::service_host(context, &service))],
        sentinel: has_sentinels.then(|| PRIMARY.to_owned()),
        database: 0,
        sentinel_secret: secret.clone().filter(|_| has_sentinels),
        secret,
    }
}

fn spec(context: &Context<'_, Valkey>) -> Result<Map<String, Value>, Invalid> {
    let template = &context.object.spec.template;
    let ValkeyTemplate { storage, common, sentinel, .. } = template;
    let has_sentinels = template.replicas() > 1;
    let mut persistence = json!({ "enabled": true, "size": storage_size(context) });
    if let Some(class) = &storage.storage_class {
        persistence["storageClass"] = json!(class);
    }
    let mut fields = cloud::fields(
        "spec",
        &json!({
            "replicas": template.replicas(),
            "sentinel": { "enabled": has_sentinels },
            "persistence": persistence,
            "binding": { "secretName": secrets(context.name).0, "template": BINDING },
        }),
    )?;
    if has_sentinels && sentinel.resources != Resources::default() {
        fields["sentinel"]["resources"] = value(&sentinel.resources)?;
    }
    add_pod_settings(&mut fields, &common.pods)?;
    Ok(fields)
}

/// Settings of pods, as far as the user gives them.
fn add_pod_settings(fields: &mut Map<String, Value>, pods: &PodSettings) -> Result<(), Invalid> {
    let PodSettings { container, scheduling, additions, .. } = pods;
    let Scheduling { node_selector, tolerations, topology_spread, priority_class_name, .. } = scheduling;
    let given = [
        ("resources", value(&container.resources)?),
        ("nodeSelector", value(node_selector)?),
        ("tolerations", value(tolerations)?),
        ("topologySpreadConstraints", value(topology_spread)?),
        ("priorityClassName", value(priority_class_name)?),
        ("podLabels", value(&additions.pod_labels)?),
        ("podAnnotations", value(&additions.pod_annotations)?),
    ];
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    let given = given.into_iter().filter(|(_, value)| !is_empty(value));
    fields.extend(given.map(|(field, value)| (field.to_owned(), value)));
    Ok(())
}

fn value(settings: &impl serde::Serialize) -> Result<Value, Invalid> {
    serde_json::to_value(settings).map_err(|error| Invalid::new("spec", format!("has no JSON form: {error}")))
}

/// Remarks on settings that a cloud gives to all its services and the other operator does not have.
fn remarks(pods: &PodSettings, template: &ValkeyTemplate) -> Vec<String> {
    let has_image = [&pods.container.image, &template.sentinel.image]
        .iter()
        .any(|image| image.repository.is_some() || image.tag.is_some());
    let has_mounts = !pods.additions.extra_mounts.is_empty();
    let ignored = [("image", has_image), ("extraMounts", has_mounts)];
    let ignored = ignored.iter().filter(|(_, is_set)| *is_set);
    ignored.map(|(field, _)| format!("the valkey-operator does not use {field}")).collect()
}
