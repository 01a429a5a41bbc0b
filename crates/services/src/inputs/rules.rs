//! CEL rules of a kind that follow from its inputs.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, ValidationRule,
};

use super::{Input, Inputs, Link, Needed};

/// Adds the rules that follow from the inputs to a definition.
pub(crate) fn add<T: Inputs>(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    let rules: Vec<ValidationRule> = T::declaration().inputs().iter().filter_map(rule).collect();
    for version in &mut definition.spec.versions {
        let schema = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
        if let Some(schema) = schema {
            schema.x_kubernetes_validations.get_or_insert_default().extend(rules.iter().cloned());
        }
    }
    definition
}

fn rule(input: &Input<'_>) -> Option<ValidationRule> {
    Some(match input {
        Input::Exposure(_) => validation(
            "!has(self.spec.gatewayRef) || has(self.spec.publicHostname)".to_owned(),
            "spec.gatewayRef requires spec.publicHostname, the public host name of the API".to_owned(),
        ),
        Input::Database { field, needed, .. } => required(
            field,
            *needed,
            &["clusterRef", "host", "secretRef"],
            "name a MariaDB in clusterRef, an existing server in host, or a Secret with the host in secretRef",
        ),
        Input::Messaging { field, needed, .. } => required(
            field,
            *needed,
            &["clusterRef", "hosts"],
            "name a RabbitMQ in clusterRef or existing servers in hosts",
        ),
        Input::Identity(_) | Input::IdentityAddress(_) => required(
            "keystone",
            Needed::Always,
            &["clusterRef", "authUrl"],
            "name a Keystone in clusterRef or an existing one in authUrl",
        ),
        Input::Service { field, kind, link: Link::Uses(needed), .. } => {
            required(field, *needed, &["clusterRef"], &format!("name {} in clusterRef", article(kind.kind)))
        }
        Input::Service { link: Link::UsesIfEnabled | Link::WaitsFor, .. }
        | Input::Hostname { .. }
        | Input::Region { .. }
        | Input::Cache(_)
        | Input::Topics { .. }
        | Input::Scheduling { .. }
        | Input::Component { .. }
        | Input::Replicas { .. }
        | Input::StorageClass(_)
        | Input::Users(_)
        | Input::Pods { .. } => return None,
    })
}

fn article(kind: &str) -> String {
    let vowel = kind.starts_with(['A', 'E', 'I', 'O', 'U']);
    format!("{} {kind}", if vowel { "an" } else { "a" })
}

/// Requires one of several fields that name a provider.
fn required(field: &str, needed: Needed, ways: &[&str], remedy: &str) -> ValidationRule {
    let (list, rest) = match field.split_once("[].") {
        Some((list, rest)) => (Some(list), format!("item.{rest}")),
        None => (None, format!("self.spec.{field}")),
    };
    let alternatives: Vec<String> = ways.iter().map(|way| format!("has({rest}.{way})")).collect();
    let mut text = format!("has({rest}) && ({})", alternatives.join(" || "));
    if let Needed::When(condition) = needed {
        text = format!("!({condition}) || {text}");
    }
    if let Some(list) = list {
        text = format!("!has(self.spec.{list}) || self.spec.{list}.all(item, {text})");
    }
    validation(text, format!("spec.{field} is incomplete: {remedy}"))
}

/// A CEL rule with its message.
pub(crate) fn validation(rule: String, message: String) -> ValidationRule {
    ValidationRule { rule, message: Some(message), ..ValidationRule::default() }
}
