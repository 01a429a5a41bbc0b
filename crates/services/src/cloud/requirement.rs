//! Required parts, as CEL rules of a cloud.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::ValidationRule;
use openstack_operator_model::kind::Kind;

use super::{AnyPart, Presence};
use crate::inputs::rules::validation;
use crate::inputs::{Input, Needed};
use crate::{keystone, mariadb, memcached, rabbitmq};

/// A part that another part requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirement {
    kind: Kind,
    /// Field of the cloud that describes an existing service instead.
    instead: Option<&'static str>,
}

pub(super) fn requirements(inputs: Vec<Input<'_>>) -> Vec<Requirement> {
    let required = |input: Input<'_>| match input {
        Input::Database { needed: Needed::Always, .. } => {
            Some(Requirement { kind: mariadb::KIND, instead: Some("database") })
        }
        Input::Messaging { needed: Needed::Always, .. } => {
            Some(Requirement { kind: rabbitmq::KIND, instead: Some("messaging") })
        }
        Input::Identity(_) | Input::IdentityAddress(_) => {
            Some(Requirement { kind: keystone::KIND, instead: Some("identity") })
        }
        Input::Service { kind, link, .. } if link.needed() == Some(Needed::Always) => {
            Some(Requirement { kind, instead: None })
        }
        _ => None,
    };
    inputs.into_iter().filter_map(required).collect()
}

/// Kinds of all parts that provide inputs, required or not.
pub(super) fn sources(inputs: Vec<Input<'_>>) -> Vec<Kind> {
    let source = |input: Input<'_>| match input {
        Input::Database { .. } => Some(mariadb::KIND),
        Input::Messaging { .. } => Some(rabbitmq::KIND),
        Input::Cache(_) => Some(memcached::KIND),
        Input::Identity(_) | Input::IdentityAddress(_) => Some(keystone::KIND),
        Input::Service { kind, .. } => Some(kind),
        _ => None,
    };
    inputs.into_iter().filter_map(source).collect()
}

/// A part with its alternative and its dependents.
struct NeededPart {
    part: &'static dyn AnyPart,
    instead: Option<&'static str>,
    dependents: Vec<&'static dyn AnyPart>,
}

/// One rule for each required part.
pub(crate) fn rules(parts: &[&'static dyn AnyPart]) -> Vec<ValidationRule> {
    let mut needed: BTreeMap<&str, NeededPart> = BTreeMap::new();
    for part in parts {
        for Requirement { kind, instead } in part.requirements() {
            let Some(other) = parts.iter().find(|other| other.kind() == kind) else { continue };
            let entry = needed.entry(other.field());
            entry
                .or_insert(NeededPart { part: *other, instead, dependents: Vec::new() })
                .dependents
                .push(*part);
        }
    }
    needed.into_values().map(|needed| rule(&needed)).collect()
}

fn rule(needed: &NeededPart) -> ValidationRule {
    let NeededPart { part, instead, dependents } = needed;
    let field = part.field();
    let unused: Vec<String> =
        dependents.iter().map(|dependent| format!("!{}", enabled(*dependent))).collect();
    let existing = instead.map(|instead| format!("has(self.spec.{instead}) || ")).unwrap_or_default();
    let fields: Vec<&str> = dependents.iter().map(|dependent| dependent.field()).collect();
    let remedy =
        instead.map(|instead| format!("describe an existing one in spec.{instead}, ")).unwrap_or_default();
    validation(
        format!("{existing}{} || {}", enabled(*part), unused.join(" && ")),
        format!(
            "spec.{field} is disabled, but required by {}: set spec.{field}.enabled to true, {remedy}or disable those as well",
            fields.join(", ")
        ),
    )
}

/// CEL expression: the cloud has the part.
fn enabled(part: &dyn AnyPart) -> String {
    let field = format!("self.spec.{}", part.field());
    match part.presence() {
        Presence::ByDefault => format!("(!has({field}) || !has({field}.enabled) || {field}.enabled)"),
        Presence::OnRequest => format!("(has({field}) && has({field}.enabled) && {field}.enabled)"),
    }
}
