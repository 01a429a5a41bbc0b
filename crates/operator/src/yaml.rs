//! Values as YAML that is easy to read and to compare.

use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_saphyr::ser_options;

/// Fields that come first.
const FIRST: [&str; 5] = ["apiVersion", "kind", "metadata", "name", "namespace"];

/// One document. Multi-line texts are block scalars, and long lines are not folded: a small change is a change of one line.
pub(crate) fn yaml(value: &Value) -> String {
    let options = ser_options! { folded_wrap_chars: usize::MAX };
    // JSON is valid YAML.
    let written = serde_saphyr::to_string_with_options(&Ordered(value), options);
    let text = written.unwrap_or_else(|_| value.to_string());
    // The serializer indents empty lines of a block; the spaces are removed if the value stays the same.
    let bare = |line: &str| if line.trim().is_empty() { "\n".to_owned() } else { format!("{line}\n") };
    let tidy: String = text.lines().map(bare).collect();
    if serde_saphyr::from_str::<Value>(&tidy).is_ok_and(|same| same == *value) { tidy } else { text }
}

/// Documents with `---` between them.
pub(crate) fn documents(values: &[Value]) -> String {
    values.iter().map(yaml).collect::<Vec<_>>().join("---\n")
}

/// A value with its fields in the usual order.
struct Ordered<'a>(&'a Value);

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for name in FIRST {
                    if let Some(value) = fields.get(name) {
                        map.serialize_entry(name, &Ordered(value))?;
                    }
                }
                for (name, value) in fields.iter().filter(|(name, _)| !FIRST.contains(&name.as_str())) {
                    map.serialize_entry(name, &Ordered(value))?;
                }
                map.end()
            }
            Value::Array(items) => {
                let mut sequence = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    sequence.serialize_element(&Ordered(item))?;
                }
                sequence.end()
            }
            other => other.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn multi_line_texts_are_block_scalars() {
        let value = json!({ "file": "[DEFAULT]\ndebug = true\n\n[database]\n", "text": "true", "number": 5 });
        let expected = "file: |\n  [DEFAULT]\n  debug = true\n\n  [database]\nnumber: 5\ntext: \"true\"\n";
        assert_eq!(yaml(&value), expected);
    }

    #[test]
    fn kind_and_metadata_come_first() {
        let value = json!({ "data": { "a": 1 }, "kind": "K", "apiVersion": "v1", "metadata": { "labels": {}, "name": "x" } });
        assert_eq!(
            yaml(&value),
            "apiVersion: v1\nkind: K\nmetadata:\n  name: x\n  labels: {}\ndata:\n  a: 1\n"
        );
    }

    #[test]
    fn documents_are_separated() {
        assert_eq!(documents(&[json!({ "a": 1 }), json!({ "b": "on" })]), "a: 1\n---\nb: \"on\"\n");
    }
}
