//! A whole world as one value, equal for two runs with the same result.

use std::collections::{BTreeMap, HashMap};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use openstack_operator_model::kind::SECRET;
use openstack_operator_model::lower::{APPLIED_ANNOTATION, SECRETS_ANNOTATION, TASK_ANNOTATION};
use serde_json::{Map, Value, json};

use crate::environment::GENERATED;
use crate::store::{Key, Store, UID};

/// Annotations derived from generated values, and their placeholders.
const DERIVED: [(&str, &str); 3] =
    [(SECRETS_ANNOTATION, "secrets"), (TASK_ANNOTATION, "task"), (APPLIED_ANNOTATION, "applied")];

/// Objects by kind and name, and other servers by port. Values of Secrets are decoded. Values that differ between
/// runs are replaced by numbered placeholders; equal values get equal placeholders.
pub(crate) fn fingerprint(store: &Store, generated: &[String], servers: &[(&str, Value)]) -> Value {
    let mut mask = Mask::new(store, generated);
    let objects: BTreeMap<String, Value> = store
        .objects()
        .map(|(key, body)| {
            let mut body = body.clone();
            if let Some(metadata) = body["metadata"].as_object_mut() {
                metadata.remove("resourceVersion");
            }
            if key.kind == SECRET {
                decode(&mut body);
            }
            (title(key), body)
        })
        .collect();
    for body in objects.values() {
        mask.learn(body);
    }
    let mut whole: BTreeMap<&str, Value> = servers.iter().cloned().collect();
    whole.insert("objects", json!(objects));
    mask.value(json!(whole))
}

fn title(key: &Key) -> String {
    format!("{} {}/{}", key.kind.kind, key.namespace, key.name)
}

/// Decodes the text values of a Secret.
fn decode(body: &mut Value) {
    for value in body.get_mut("data").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
        let bytes = value.as_str().and_then(|text| BASE64_STANDARD.decode(text).ok());
        if let Some(text) = bytes.and_then(|bytes| String::from_utf8(bytes).ok()) {
            *value = json!(text);
        }
    }
}

struct Mask<'a> {
    generated: &'a [String],
    uids: HashMap<&'a str, String>,
    /// Derived values by annotation.
    derived: HashMap<String, &'static str>,
    /// Placeholders by value.
    given: HashMap<String, String>,
    counts: HashMap<&'static str, usize>,
}

impl<'a> Mask<'a> {
    fn new(store: &'a Store, generated: &'a [String]) -> Self {
        let uids = store.uids().iter().map(|(uid, key)| {
            let lives = store.get(key).is_some_and(|body| body["metadata"]["uid"] == uid.as_str());
            let which = if lives { "" } else { "former " };
            (uid.as_str(), format!("<uid of {which}{}>", title(key)))
        });
        Self {
            generated,
            uids: uids.collect(),
            derived: HashMap::new(),
            given: HashMap::new(),
            counts: HashMap::new(),
        }
    }

    /// Collects derived values from annotations.
    fn learn(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                for (field, value) in fields {
                    let derived = DERIVED.iter().find(|(annotation, _)| annotation == field);
                    if let (Some((_, what)), Value::String(text)) = (derived, value)
                        && !text.is_empty()
                    {
                        self.derived.insert(text.clone(), what);
                    }
                    self.learn(value);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.learn(item)),
            _ => {}
        }
    }

    fn value(&mut self, value: Value) -> Value {
        match value {
            // Sorted, because the numbers of placeholders depend on the order.
            Value::Object(fields) => {
                let sorted: BTreeMap<String, Value> = fields.into_iter().collect();
                sorted.into_iter().map(|(field, value)| (self.text(&field), self.value(value))).collect()
            }
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::String(text) => json!(self.text(&text)),
            other => other,
        }
    }

    fn text(&mut self, text: &str) -> String {
        if let Some(what) = self.derived.get(text).copied() {
            return self.placeholder(what, text);
        }
        let mut text = without_times(text);
        while let Some(start) = text.find(UID) {
            let end = text[start + UID.len()..].find(|character: char| !character.is_ascii_digit());
            let end = end.map_or(text.len(), |length| start + UID.len() + length);
            let name = self.uids.get(&text[start..end]).map_or("<uid of nothing>", String::as_str);
            text.replace_range(start..end, name);
        }
        if text.contains(GENERATED) {
            // Padding is escaped in URLs.
            for value in self.generated.iter().map(|value| value.trim_end_matches('=')) {
                if text.contains(value) {
                    let placeholder = self.placeholder("generated", value);
                    text = text.replace(value, &placeholder);
                }
            }
        }
        text
    }

    fn placeholder(&mut self, category: &'static str, value: &str) -> String {
        let counts = &mut self.counts;
        let given = self.given.entry(value.to_owned()).or_insert_with(|| {
            let count = counts.entry(category).or_default();
            *count += 1;
            format!("<{category} {count}>")
        });
        given.clone()
    }
}

/// Replaces all times of the form `2026-01-01T00:00:00Z`, also inside texts.
fn without_times(text: &str) -> String {
    const DATE: usize = "2026-01-01".len();
    let mut rest = text;
    let mut result = String::new();
    while let Some(middle) = rest.find('T') {
        let start = middle.checked_sub(DATE).filter(|start| rest.is_char_boundary(*start));
        let end = rest[middle..].find('Z').map(|length| middle + length + 1);
        let time = start.zip(end).filter(|(start, end)| rest[*start..*end].parse::<Timestamp>().is_ok());
        let (kept, placeholder, end) = match time {
            Some((start, end)) => (start, "<time>", end),
            None => (middle + 1, "", middle + 1),
        };
        result.push_str(&rest[..kept]);
        result.push_str(placeholder);
        rest = &rest[end..];
    }
    result + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_replaced_wherever_they_are() {
        assert_eq!(without_times("2026-01-01T00:00:00Z"), "<time>");
        assert_eq!(without_times("at 2026-01-01T00:00:00.5Z, Then"), "at <time>, Then");
        let several = r#"{"1":"2026-01-01T00:00:00Z","2":"2026-01-02T00:00:00Z"}"#;
        assert_eq!(without_times(several), r#"{"1":"<time>","2":"<time>"}"#);
        assert_eq!(without_times("a ünicode Text Zoo"), "a ünicode Text Zoo");
    }
}
