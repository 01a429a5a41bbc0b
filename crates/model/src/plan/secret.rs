//! Secrets that the operator writes, described without their values.

use std::collections::BTreeMap;

/// A Secret that the operator writes.
#[derive(Clone, Debug, PartialEq)]
pub struct SecretPlan {
    pub name: String,
    pub content: SecretContent,
    /// Whether it is kept when the object is deleted, because retained data is unreadable without it.
    pub retained: bool,
    /// Whether a new one cannot replace it once the object has served, because data depends on its values. If it is
    /// lost, the object stalls until the user restores it or accepts the loss.
    pub irreplaceable: bool,
}

impl SecretPlan {
    /// A Secret that is deleted with its object.
    pub fn with_entries<const N: usize>(name: &str, entries: [(&str, Entry); N]) -> Self {
        let entries = entries.map(|(key, entry)| (key.to_owned(), entry)).into();
        let content = SecretContent::Entries(entries);
        Self { name: name.to_owned(), content, retained: false, irreplaceable: false }
    }

    /// A Secret with `username` and a generated `password`.
    pub fn login(name: &str, user: &str) -> Self {
        let password = Entry::Password { length: 32 };
        Self::with_entries(name, [("username", Entry::Text(user.to_owned())), ("password", password)])
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum SecretContent {
    Entries(BTreeMap<String, Entry>),
    KeyRing(KeyRing),
}

/// Source of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// Generated once, of letters and digits.
    Password {
        length: usize,
    },
    Text(String),
    /// Concatenation of texts and values of Secrets.
    Template(Vec<Piece>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    Text(String),
    /// A value, unchanged.
    Value(SecretKey),
    /// A value with reserved characters of URLs escaped.
    Escaped(SecretKey),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretKey {
    pub secret: String,
    pub key: String,
}

impl SecretKey {
    pub fn new(secret: impl Into<String>, key: impl Into<String>) -> Self {
        Self { secret: secret.into(), key: key.into() }
    }
}

/// Numbered keys of a Fernet repository: 0 is staged, the highest signs, the others still verify.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyRing {
    /// Condition that reports whether the keys exist, e.g. `FernetKeysReady`.
    pub condition: &'static str,
    pub max_active_keys: u32,
    /// Time in seconds that a key must still verify after its last signature.
    pub lifetime_seconds: i64,
    /// Cron expression, in UTC.
    pub schedule: String,
    /// Value that the user changes to request an immediate rotation.
    pub request: Option<String>,
}
