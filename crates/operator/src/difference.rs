//! Differences between a live object and a manifest, in the fields that the operator owns.

use openstack_operator_model::lower::{APPLIED_ANNOTATION, MANAGER, SECRETS_ANNOTATION};
use openstack_operator_model::quantity;
use serde_json::{Map, Value};

pub(crate) use crate::difference::hunk::{Hunk, Line, file_hunks, hunks};
use crate::difference::pairing::{Owned, keys_of, same};

mod hunk;
mod pairing;

/// An object before and after, reduced to the compared fields.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    pub(crate) before: Value,
    pub(crate) after: Value,
}

impl Difference {
    /// Compares the fields of a manifest with those of the live object, and finds fields that the operator applied earlier
    /// and no longer applies.
    pub(crate) fn new(live: &Value, wanted: &Value) -> Self {
        let mut live = live.clone();
        let mut after = wanted.clone();
        carry_over(&mut live, &mut after);
        let owned = owned_fields(&live);
        let before = restrict(&live, Some(&after), owned).unwrap_or(Value::Null);
        harmonize(&before, &mut after);
        Self { before, after }
    }

    pub(crate) fn hunks(&self) -> Vec<Hunk> {
        hunks(&self.before, &self.after)
    }

    /// Whether the pod template differs.
    pub(crate) fn changes_pods(&self) -> bool {
        self.before.pointer("/spec/template") != self.after.pointer("/spec/template")
    }
}

/// Copies annotations that only the operator can compute: hashes of Secrets and of its last apply.
fn carry_over(live: &mut Value, wanted: &mut Value) {
    if let Some(Value::Object(annotations)) = live.pointer_mut("/metadata/annotations") {
        annotations.remove(APPLIED_ANNOTATION);
    }
    let revision = live
        .pointer("/spec/template/metadata/annotations")
        .and_then(|annotations| annotations.get(SECRETS_ANNOTATION))
        .cloned();
    let Some(Value::Object(metadata)) = wanted.pointer_mut("/spec/template/metadata") else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(annotations) = annotations {
        match revision {
            Some(revision) => annotations.insert(SECRETS_ANNOTATION.to_owned(), revision),
            None => annotations.remove(SECRETS_ANNOTATION),
        };
    }
}

/// Fields that the operator last applied, by the managed fields of the object.
fn owned_fields(live: &Value) -> Option<Owned<'_>> {
    let managers = live.pointer("/metadata/managedFields")?.as_array()?;
    let ours = managers.iter().find(|entry| {
        entry["manager"] == MANAGER && entry["operation"] == "Apply" && entry.get("subresource").is_none()
    })?;
    Some(Owned(ours.get("fieldsV1")?))
}

/// The fields of a live value that the manifest has, or that the operator applied earlier.
fn restrict(live: &Value, wanted: Option<&Value>, owned: Option<Owned<'_>>) -> Option<Value> {
    if wanted.is_none() && owned?.is_leaf() {
        return Some(live.clone());
    }
    match (live, wanted) {
        (Value::Object(fields), None | Some(Value::Object(_))) => {
            let part: Map<String, Value> = fields
                .iter()
                .filter_map(|(field, value)| {
                    let wanted = wanted.and_then(|wanted| wanted.get(field));
                    let owned = owned.and_then(|owned| owned.field(field));
                    Some((field.clone(), restrict(value, wanted, owned)?))
                })
                .collect();
            (wanted.is_some() || !part.is_empty()).then_some(Value::Object(part))
        }
        (Value::Array(items), None) => {
            let part: Vec<Value> =
                items.iter().filter_map(|item| restrict(item, None, owned?.item(item))).collect();
            (!part.is_empty()).then_some(Value::Array(part))
        }
        (Value::Array(items), Some(Value::Array(others))) => {
            let Some(keys) = keys_of(items, others, owned) else {
                return Some(restrict_by_position(items, others));
            };
            let part = items.iter().filter_map(|item| {
                let wanted = others.iter().find(|other| same(&keys, item, other));
                restrict(item, wanted, owned.and_then(|owned| owned.item(item)))
            });
            Some(Value::Array(part.collect()))
        }
        _ => Some(live.clone()),
    }
}

fn restrict_by_position(items: &[Value], wanted: &[Value]) -> Value {
    let part = items.iter().enumerate().map(|(index, item)| match wanted.get(index) {
        Some(wanted) => restrict(item, Some(wanted), None).unwrap_or_else(|| item.clone()),
        None => item.clone(),
    });
    Value::Array(part.collect())
}

/// Adopts the notation of the API server for equal values, so that only real differences remain.
fn harmonize(before: &Value, after: &mut Value) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            // The API server drops empty values.
            after.retain(|field, value| before.contains_key(field) || !is_empty(value));
            for (field, value) in after.iter_mut() {
                let Some(before) = before.get(field) else { continue };
                if is_amount(field) && is_same_amount(before, value) {
                    *value = before.clone();
                } else {
                    harmonize(before, value);
                }
            }
        }
        (Value::Array(before), Value::Array(after)) => match keys_of(before, after, None) {
            Some(keys) => {
                for value in after {
                    if let Some(before) = before.iter().find(|before| same(&keys, before, value)) {
                        harmonize(before, value);
                    }
                }
            }
            None => before.iter().zip(after).for_each(|(before, after)| harmonize(before, after)),
        },
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(value) => !value,
        Value::Number(_) => false,
        Value::Null => true,
    }
}

fn is_amount(field: &str) -> bool {
    ["cpu", "memory", "storage"].contains(&field)
}

/// The API server writes an amount of CPU, memory or storage in the shortest way.
fn is_same_amount(one: &Value, other: &Value) -> bool {
    one.as_str().zip(other.as_str()).is_some_and(|(one, other)| quantity::is_same(one, other))
}

#[cfg(test)]
mod tests;
