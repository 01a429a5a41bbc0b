//! Pairs items of two lists by their keys, as server-side apply does.

use serde_json::Value;

/// Fields that a manager owns, in the form of `managedFields`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owned<'a>(pub(super) &'a Value);

impl Owned<'_> {
    /// Whether all fields below are owned.
    pub(super) fn is_leaf(self) -> bool {
        self.0.as_object().is_none_or(|fields| fields.keys().all(|field| field == "."))
    }

    pub(super) fn field(self, name: &str) -> Option<Self> {
        self.0.get(format!("f:{name}")).map(Self)
    }

    /// The owned fields of an item of a list.
    pub(super) fn item(self, item: &Value) -> Option<Self> {
        let fields = self.0.as_object()?;
        fields.iter().find(|(name, _)| is_item(name, item)).map(|(_, owned)| Self(owned))
    }

    /// Names of the key fields of items.
    fn keys(self) -> Option<Vec<String>> {
        let name = self.0.as_object()?.keys().find_map(|field| field.strip_prefix("k:"))?;
        let key: Value = serde_json::from_str(name).ok()?;
        Some(key.as_object()?.keys().cloned().collect())
    }
}

fn is_item(name: &str, item: &Value) -> bool {
    if let Some(value) = name.strip_prefix("v:") {
        return serde_json::from_str::<Value>(value).is_ok_and(|value| value == *item);
    }
    let key = name.strip_prefix("k:").and_then(|key| serde_json::from_str::<Value>(key).ok());
    key.as_ref()
        .and_then(Value::as_object)
        .is_some_and(|key| key.iter().all(|(field, value)| item.get(field) == Some(value)))
}

/// The key fields of items; none if they are paired by position.
pub(super) fn keys_of(items: &[Value], others: &[Value], owned: Option<Owned<'_>>) -> Option<Vec<String>> {
    if let Some(keys) = owned.and_then(Owned::keys) {
        return Some(keys);
    }
    let candidates = ["name", "mountPath", "containerPort", "port", "topologyKey", "uid"];
    let is_unique = |list: &[Value], key: &str| {
        let values: Vec<Option<&Value>> = list.iter().map(|item| item.get(key)).collect();
        values.iter().enumerate().all(|(index, value)| value.is_some() && !values[..index].contains(value))
    };
    let both_empty = items.is_empty() && others.is_empty();
    let key = candidates.into_iter().find(|key| is_unique(items, key) && is_unique(others, key))?;
    (!both_empty).then(|| vec![key.to_owned()])
}

/// Whether two items have the same key. A missing key field has its default.
pub(super) fn same(keys: &[String], item: &Value, other: &Value) -> bool {
    let mut known = keys.iter().filter_map(|key| Some((item.get(key)?, other.get(key)?))).peekable();
    known.peek().is_some() && known.all(|(one, another)| one == another)
}
