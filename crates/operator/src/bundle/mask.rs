//! Masks values of Secrets in texts.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use regex::Regex;
use serde_json::Value;

pub(crate) const MASK: &str = "<masked>";
/// Shorter values would mask words of ordinary text.
const SHORTEST: usize = 6;
/// Shorter lines of a value with several lines, e.g. `[DEFAULT]` of a file, are no secrets.
const SHORTEST_LINE: usize = 16;
/// Keys whose values are public and appear in ordinary text, e.g. as names of databases.
const PUBLIC_KEYS: [&str; 5] = ["username", "ca.crt", "tls.crt", "namespace", "type"];

/// Fernet tokens of Keystone, which clients may log.
static TOKEN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"gAAAAA[A-Za-z0-9_=-]{20,}").ok());

/// Replaces every value of some Secrets.
pub(crate) struct Masker {
    values: Option<AhoCorasick>,
}

impl Masker {
    pub(crate) fn new(secrets: &[Value]) -> Self {
        let mut values = BTreeSet::new();
        for secret in secrets {
            for (key, value) in secret["data"].as_object().into_iter().flatten() {
                if PUBLIC_KEYS.contains(&key.as_str()) {
                    continue;
                }
                let encoded = value.as_str().unwrap_or_default();
                let Ok(bytes) = STANDARD.decode(encoded) else { continue };
                collect(&String::from_utf8_lossy(&bytes), &mut values);
                add(encoded, &mut values);
            }
        }
        let builder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(values);
        Self { values: builder.ok() }
    }

    /// The text without the values. Without a list of values the text is dropped, so that nothing can leak.
    pub(crate) fn mask(&self, text: &str) -> String {
        let Some(values) = &self.values else { return format!("{MASK}\n") };
        let mut masked = String::with_capacity(text.len());
        values.replace_all_with(text, &mut masked, |_, _, output| {
            output.push_str(MASK);
            true
        });
        match TOKEN.as_ref() {
            Some(token) => token.replace_all(&masked, MASK).into_owned(),
            None => masked,
        }
    }

    /// Masks every string of a document, before it is written in a format that escapes or wraps strings.
    pub(crate) fn mask_strings(&self, document: &mut Value) {
        match document {
            Value::String(text) => *text = self.mask(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.mask_strings(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.mask_strings(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// A value in every form in which it may appear: as it is, encoded, and in parts if it has a structure.
fn collect(value: &str, values: &mut BTreeSet<String>) {
    let value = value.trim();
    add(value, values);
    if value.len() < SHORTEST {
        return;
    }
    add(&utf8_percent_encode(value, NON_ALPHANUMERIC).to_string(), values);
    add(&STANDARD.encode(value), values);
    add(&URL_SAFE_NO_PAD.encode(value), values);
    add(Value::from(value).to_string().trim_matches('"'), values);
    let lines: Vec<&str> = value.lines().map(str::trim).collect();
    if lines.len() > 1 {
        lines.iter().filter(|line| line.len() >= SHORTEST_LINE).for_each(|line| add(line, values));
    }
    if let Ok(document @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(value) {
        collect_leaves(&document, values);
    }
}

fn collect_leaves(document: &Value, values: &mut BTreeSet<String>) {
    match document {
        Value::String(text) => collect(text, values),
        Value::Array(items) => items.iter().for_each(|item| collect_leaves(item, values)),
        Value::Object(fields) => {
            let secret = fields.iter().filter(|(key, _)| !PUBLIC_KEYS.contains(&key.as_str()));
            secret.for_each(|(_, field)| collect_leaves(field, values));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn add(value: &str, values: &mut BTreeSet<String>) {
    if value.len() >= SHORTEST {
        values.insert(value.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn masker(data: &[(&str, &str)]) -> Masker {
        let data: serde_json::Map<String, Value> =
            data.iter().map(|(key, value)| ((*key).to_owned(), json!(STANDARD.encode(value)))).collect();
        Masker::new(&[json!({ "metadata": { "name": "s" }, "data": data })])
    }

    #[test]
    fn a_value_is_masked_in_every_form() {
        let masker = masker(&[("password", "pa/ss w\"rd!\n")]);
        for text in ["pa/ss w\"rd!", "pa%2Fss%20w%22rd%21", "cGEvc3Mgd1wicmQh", r#"pa/ss w\"rd!"#] {
            let encoded =
                if text.starts_with("cGE") { STANDARD.encode("pa/ss w\"rd!") } else { text.to_owned() };
            assert_eq!(masker.mask(&format!("a {encoded} b")), "a <masked> b", "{encoded}");
        }
        assert_eq!(masker.mask(&STANDARD.encode("pa/ss w\"rd!\n")), MASK, "as it is stored");
    }

    #[test]
    fn a_value_inside_another_text_is_masked_and_the_longest_wins() {
        let masker = masker(&[("password", "hunter22"), ("connection", "mysql://k:hunter22@db/k")]);
        assert_eq!(masker.mask("connection = mysql://k:hunter22@db/k\n"), "connection = <masked>\n");
        assert_eq!(masker.mask("url mysql://other:hunter22@db"), "url mysql://other:<masked>@db");
    }

    #[test]
    fn short_values_and_user_names_stay_readable() {
        let masker = masker(&[("username", "keystone"), ("flag", "true"), ("password", "12345")]);
        let text = "keystone is true, 12345\n";
        assert_eq!(masker.mask(text), text);
    }

    #[test]
    fn lines_of_a_file_and_fields_of_a_document_are_masked() {
        let key =
            "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nabc\n-----END PRIVATE KEY-----\n";
        let docker = r#"{"auths":{"r.example":{"username":"someone","password":"token-of-registry"}}}"#;
        let masker = masker(&[("tls.key", key), (".dockerconfigjson", docker)]);
        assert_eq!(masker.mask("key: MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"), "key: <masked>");
        assert_eq!(masker.mask("someone logs in with token-of-registry"), "someone logs in with <masked>");
    }

    #[test]
    fn tokens_are_masked_although_no_secret_holds_them() {
        let masker = masker(&[]);
        assert_eq!(
            masker.mask("token gAAAAABlZ0aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456789-_= used"),
            "token <masked> used"
        );
    }

    #[test]
    fn strings_of_a_document_are_masked_before_it_is_written() {
        let masker = masker(&[("password", "a long password with spaces")]);
        let mut document = json!({ "data": { "file": ["x: a long password with spaces\n"] }, "n": 1 });
        masker.mask_strings(&mut document);
        assert_eq!(document, json!({ "data": { "file": ["x: <masked>\n"] }, "n": 1 }));
    }
}
