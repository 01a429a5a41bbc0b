//! Values as YAML that reads well and compares well, and back.

use serde_json::Value;
use serde_saphyr::ser_options;

/// One document. Texts of several lines are block scalars; long lines stay lines, so that a change of one word
/// shows as a change of one line.
pub(crate) fn yaml(value: &Value) -> String {
    let options = ser_options! { folded_wrap_chars: usize::MAX };
    // JSON is YAML too, only harder to read.
    let text = serde_saphyr::to_string_with_options(value, options).unwrap_or_else(|_| value.to_string());
    // Empty lines of a block come indented. They need not be, unless they mean the spaces.
    let bare = |line: &str| if line.trim().is_empty() { "\n".to_owned() } else { format!("{line}\n") };
    let tidy: String = text.lines().map(bare).collect();
    if serde_saphyr::from_str::<Value>(&tidy).is_ok_and(|same| same == *value) { tidy } else { text }
}

/// Documents with `---` between them.
pub(crate) fn documents(values: &[Value]) -> String {
    values.iter().map(yaml).collect::<Vec<_>>().join("---\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_of_several_lines_are_blocks() {
        let value = json!({ "file": "[DEFAULT]\ndebug = true\n\n[database]\n", "text": "true", "number": 5 });
        let expected =
            "file: |\n  [DEFAULT]\n  debug = true\n\n  [database]\nnumber: 5\ntext: \"true\"\n";
        assert_eq!(yaml(&value), expected);
    }

    #[test]
    fn documents_are_separated() {
        assert_eq!(documents(&[json!({ "a": 1 }), json!({ "b": "on" })]), "a: 1\n---\nb: \"on\"\n");
    }
}
