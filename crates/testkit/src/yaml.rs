//! YAML that is easy to compare.

use serde_json::Value;
use serde_saphyr::ser_options;

/// One document. Multi-line texts are block scalars and long lines are not folded, so a small change shows as one
/// changed line.
pub fn yaml(value: &Value) -> String {
    let options = ser_options! { folded_wrap_chars: usize::MAX };
    let text = serde_saphyr::to_string_with_options(value, options).expect("JSON always has a YAML form");
    // Removes the indentation of empty lines in blocks, unless the spaces are content.
    let bare = |line: &str| if line.trim().is_empty() { "\n".to_owned() } else { format!("{line}\n") };
    let tidy: String = text.lines().map(bare).collect();
    if parse(&tidy) == *value { tidy } else { text }
}

/// Documents with `---` between them.
pub fn documents(values: &[Value]) -> String {
    values.iter().map(yaml).collect::<Vec<_>>().join("---\n")
}

/// Parses a document.
pub(crate) fn parse(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("this is no YAML: {error}\n{text}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn multi_line_texts_are_blocks_and_long_lines_are_not_folded() {
        let words = "word ".repeat(40) + "end";
        let value = json!({ "file": "[DEFAULT]\ndebug = true\n\n[database]\n", "long": words, "open": "a\nb",
                            "list": [{ "name": "x", "empty": {} }], "text": "true", "number": 5 });
        let expected = format!(
            "file: |\n  [DEFAULT]\n  debug = true\n\n  [database]\nlist:\n- empty: {{}}\n  name: x\nlong: {words}\n\
             number: 5\nopen: |-\n  a\n  b\ntext: \"true\"\n"
        );
        assert_eq!(yaml(&value), expected);
        assert_eq!(parse(&yaml(&value)), value);
    }

    #[test]
    fn significant_spaces_are_kept() {
        let value = json!({ "text": "a\n   \nb\n" });
        assert_eq!(parse(&yaml(&value)), value);
    }

    #[test]
    fn documents_are_separated() {
        assert_eq!(documents(&[json!({ "a": 1 }), json!({ "b": 2 })]), "a: 1\n---\nb: 2\n");
    }
}
