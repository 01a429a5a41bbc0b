//! Server-side apply and merge patches of objects.

use serde_json::{Map, Value};

/// Maps that Kubernetes declares atomic.
const ATOMIC_MAPS: [&str; 2] = ["selector", "nodeSelector"];

/// Sets every field of the intent. Most maps are merged; everything else is replaced as a whole.
pub(crate) fn set(live: &mut Value, intent: &Value) {
    match (live, intent) {
        (Value::Object(live), Value::Object(intent)) => {
            for (field, value) in intent {
                let field_live = live.entry(field).or_insert(Value::Null);
                if ATOMIC_MAPS.contains(&field.as_str()) {
                    field_live.clone_from(value);
                } else {
                    set(field_live, value);
                }
            }
        }
        (live, intent) => *live = intent.clone(),
    }
}

/// Removes fields of a former intent that no current intent has. `kept` are the current intents.
pub(crate) fn remove(live: &mut Map<String, Value>, former: &Map<String, Value>, kept: &[&Value]) {
    for (field, former) in former {
        let kept: Vec<&Value> = kept.iter().filter_map(|intent| intent.get(field)).collect();
        let gone = match (live.get_mut(field), former) {
            (Some(Value::Object(live)), Value::Object(former)) => {
                remove(live, former, &kept);
                live.is_empty() && kept.is_empty()
            }
            _ => kept.is_empty(),
        };
        if gone {
            live.remove(field);
        }
    }
}

/// JSON merge patch: null deletes, maps are merged, everything else is replaced.
pub(crate) fn patch(live: &mut Map<String, Value>, changes: &Map<String, Value>) {
    for (field, change) in changes {
        match (live.get_mut(field), change) {
            (_, Value::Null) => {
                live.remove(field);
            }
            (Some(Value::Object(live)), Value::Object(change)) => patch(live, change),
            _ => {
                live.insert(field.clone(), without_nulls(change.clone()));
            }
        }
    }
}

/// The API server stores no field that is null.
pub(crate) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(field, value)| (field, without_nulls(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn removed(mut live: Value, former: &Value, kept: &[&Value]) -> Value {
        remove(live.as_object_mut().unwrap(), former.as_object().unwrap(), kept);
        live
    }

    #[test]
    fn maps_are_merged_and_lists_replaced() {
        let mut live = json!({ "a": { "b": 1, "c": [1, 2] }, "d": 1 });
        set(&mut live, &json!({ "a": { "c": [3], "e": {} } }));
        assert_eq!(live, json!({ "a": { "b": 1, "c": [3], "e": {} }, "d": 1 }));
        let mut service = json!({ "selector": { "theirs": "1" } });
        set(&mut service, &json!({ "selector": { "ours": "2" } }));
        assert_eq!(service, json!({ "selector": { "ours": "2" } }));
    }

    #[test]
    fn only_fields_that_no_writer_wants_any_more_are_removed() {
        let live = json!({ "a": { "mine": 1, "shared": 2, "theirs": 3 }, "gone": { "deep": 1 } });
        let former = json!({ "a": { "mine": 1, "shared": 2 }, "gone": { "deep": 1 } });
        let (wanted, others) = (json!({}), json!({ "a": { "shared": 2, "theirs": 3 } }));
        let expected = json!({ "a": { "shared": 2, "theirs": 3 } });
        assert_eq!(removed(live, &former, &[&wanted, &others]), expected);
    }

    #[test]
    fn an_empty_map_stays_while_it_is_wanted() {
        let live = json!({ "volume": { "emptyDir": {} } });
        assert_eq!(removed(live.clone(), &live, &[&live]), live);
        assert_eq!(removed(live.clone(), &live, &[&json!({})]), json!({}));
    }

    #[test]
    fn null_deletes_in_a_patch() {
        let mut live = json!({ "a": { "b": 1, "c": 2 }, "list": ["x", "y"] });
        let changes =
            json!({ "a": { "b": null, "absent": null }, "list": ["y"], "new": { "d": null, "e": 1 } });
        patch(live.as_object_mut().unwrap(), changes.as_object().unwrap());
        assert_eq!(live, json!({ "a": { "c": 2 }, "list": ["y"], "new": { "e": 1 } }));
    }
}
