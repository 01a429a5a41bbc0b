//! Differences as lines, below the path of the changed field.

use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};

use super::pairing::{keys_of, same};
use crate::yaml::yaml;

/// Lines that change together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hunk {
    /// Path of the object, or file and section.
    pub(crate) place: String,
    pub(crate) lines: Vec<Line>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Removed(String),
    Added(String),
}

/// The changes from one value to another.
pub(crate) fn hunks(before: &Value, after: &Value) -> Vec<Hunk> {
    let mut found = Found::default();
    found.walk("", before, after);
    found.hunks
}

/// The changes of a text file, by section.
pub(crate) fn file_hunks(file: &str, before: &str, after: &str) -> Vec<Hunk> {
    let mut found = Found::default();
    let mut place = file.to_owned();
    for change in TextDiff::from_lines(before, after).iter_all_changes() {
        let text = change.value().trim_end_matches('\n').to_owned();
        if text.starts_with('[') && text.ends_with(']') {
            place = format!("{file} {text}");
        }
        match change.tag() {
            ChangeTag::Equal => {}
            ChangeTag::Delete => found.push(&place, Line::Removed(text)),
            ChangeTag::Insert => found.push(&place, Line::Added(text)),
        }
    }
    found.hunks
}

#[derive(Default)]
struct Found {
    hunks: Vec<Hunk>,
}

impl Found {
    fn push(&mut self, place: &str, line: Line) {
        match self.hunks.last_mut() {
            Some(last) if last.place == place => last.lines.push(line),
            _ => self.hunks.push(Hunk { place: place.to_owned(), lines: vec![line] }),
        }
    }

    fn walk(&mut self, place: &str, before: &Value, after: &Value) {
        match (before, after) {
            _ if before == after => {}
            (Value::Object(old), Value::Object(new)) => {
                let mut fields: Vec<&String> = old.keys().chain(new.keys()).collect();
                fields.sort();
                fields.dedup();
                for field in fields {
                    self.field(place, field, old.get(field), new.get(field));
                }
            }
            (Value::Array(old), Value::Array(new)) => match keys_of(old, new, None) {
                Some(keys) if same_order(&keys, old, new) => self.items(place, &keys, old, new),
                _ => self.texts(place, &yaml(before), &yaml(after)),
            },
            _ => self.texts(place, &yaml(before), &yaml(after)),
        }
    }

    fn field(&mut self, place: &str, field: &str, before: Option<&Value>, after: Option<&Value>) {
        let inner = if place.is_empty() { field.to_owned() } else { format!("{place}.{field}") };
        match (before, after) {
            (Some(before @ (Value::Object(_) | Value::Array(_))), Some(after)) => {
                self.walk(&inner, before, after);
            }
            (Some(Value::String(before)), Some(Value::String(after)))
                if before.contains('\n') && after.contains('\n') =>
            {
                self.hunks.extend(file_hunks(&inner, before, after));
            }
            _ if before == after => {}
            _ => {
                let text = |value: Option<&Value>| {
                    value.map(|value| yaml(&json!({ field: value }))).unwrap_or_default()
                };
                self.texts(place, &text(before), &text(after));
            }
        }
    }

    fn items(&mut self, place: &str, keys: &[String], old: &[Value], new: &[Value]) {
        for item in old {
            match new.iter().find(|other| same(keys, item, other)) {
                Some(other) => self.walk(&format!("{place}[{}]", title(keys, item)), item, other),
                None => self.texts(place, &yaml(&json!([item])), ""),
            }
        }
        for item in new.iter().filter(|item| !old.iter().any(|other| same(keys, item, other))) {
            self.texts(place, "", &yaml(&json!([item])));
        }
    }

    fn texts(&mut self, place: &str, before: &str, after: &str) {
        for change in TextDiff::from_lines(before, after).iter_all_changes() {
            let text = change.value().trim_end_matches('\n').to_owned();
            match change.tag() {
                ChangeTag::Equal => {}
                ChangeTag::Delete => self.push(place, Line::Removed(text)),
                ChangeTag::Insert => self.push(place, Line::Added(text)),
            }
        }
    }
}

/// Whether items of both lists have the same order; otherwise the order is the change.
fn same_order(keys: &[String], old: &[Value], new: &[Value]) -> bool {
    let kept = old.iter().filter(|item| new.iter().any(|other| same(keys, item, other)));
    let still = new.iter().filter(|item| old.iter().any(|other| same(keys, item, other)));
    kept.zip(still).all(|(item, other)| same(keys, item, other))
}

fn title(keys: &[String], item: &Value) -> String {
    let key = keys.first().and_then(|key| item.get(key));
    key.map(|key| key.as_str().map_or_else(|| key.to_string(), str::to_owned)).unwrap_or_default()
}
