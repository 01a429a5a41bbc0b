//! Statuses as the API server stores them: fields that an old CRD loses, and fields that only a newer operator knows.

use serde_json::Value;

use crate::apply::is_empty;

/// Path of the first field that is not stored.
pub(crate) fn lost_field(path: &str, sent: &Value, stored: &Value) -> Option<String> {
    match (sent, stored) {
        (Value::Object(sent), Value::Object(stored)) => sent.iter().find_map(|(field, sent)| {
            let path = format!("{path}.{field}");
            match stored.get(field) {
                Some(stored) => lost_field(&path, sent, stored),
                None => (!is_empty(sent)).then_some(path),
            }
        }),
        (Value::Array(sent), Value::Array(stored)) => {
            sent.iter().zip(stored).find_map(|(sent, stored)| lost_field(path, sent, stored))
        }
        (Value::Object(_) | Value::Array(_), _) if !is_empty(sent) => Some(path.to_owned()),
        _ => None,
    }
}

/// Copies fields that this operator does not know from the stored status: server-side apply removes what the next status
/// does not contain. `known` is the part of the stored status that this operator can read.
pub(crate) fn keep_unknown_fields(stored: &Value, known: &Value, next: &mut Value) {
    match (stored, known, next) {
        (Value::Object(stored), Value::Object(known), Value::Object(next)) => {
            for (field, stored) in stored {
                match (known.get(field), next.get_mut(field)) {
                    (Some(known), Some(next)) => keep_unknown_fields(stored, known, next),
                    (None, None) if !is_empty(stored) => {
                        next.insert(field.clone(), stored.clone());
                    }
                    // The operator has removed the field, or has just set it.
                    _ => {}
                }
            }
        }
        (Value::Array(stored), Value::Array(known), Value::Array(next)) => {
            for item in next {
                if let Some(at) = known.iter().position(|known| known == item)
                    && let Some(stored) = stored.get(at)
                {
                    keep_unknown_fields(stored, &known[at], item);
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

    #[test]
    fn the_first_lost_field_is_named_by_its_path() {
        let sent = json!({ "phase": "Ready", "effects": [{ "name": "x", "region": "r" }], "nodes": [] });
        assert_eq!(lost_field("status", &sent, &sent), None);
        let without = |field: &str| {
            let mut stored = sent.clone();
            stored.as_object_mut().unwrap().remove(field);
            lost_field("status", &sent, &stored)
        };
        assert_eq!(without("phase").as_deref(), Some("status.phase"));
        assert_eq!(without("effects").as_deref(), Some("status.effects"));
        assert_eq!(without("nodes"), None, "an empty list is the same as none");
        let stored = json!({ "phase": "Ready", "effects": [{ "name": "x" }], "more": 1 });
        assert_eq!(lost_field("status", &sent, &stored).as_deref(), Some("status.effects.region"));
        assert_eq!(lost_field("status", &sent, &Value::Null).as_deref(), Some("status"));
    }

    #[test]
    fn unknown_fields_stay_and_known_ones_follow_the_operator() {
        let stored = json!({
            "phase": "Ready", "future": { "a": 1 }, "endpoint": "old", "off": false,
            "effects": [{ "name": "x", "color": "red" }, { "name": "y", "color": "blue" }],
        });
        let known =
            json!({ "phase": "Ready", "endpoint": "old", "effects": [{ "name": "x" }, { "name": "y" }] });
        let mut next = json!({ "phase": "Identity", "effects": [{ "name": "y" }, { "name": "z" }] });
        keep_unknown_fields(&stored, &known, &mut next);
        let expected = json!({
            "phase": "Identity", "future": { "a": 1 }, "effects": [{ "name": "y", "color": "blue" }, { "name": "z" }],
        });
        assert_eq!(next, expected);
    }
}
