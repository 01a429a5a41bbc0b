//! Secrets that the operator writes, described without their values.

use std::collections::BTreeMap;

/// A Secret to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct SecretPlan {
    pub name: String,
    pub content: SecretContent,
    /// Whether it outlives the object, since data that outlives it cannot be read without it.
    pub retained: bool,
}

impl SecretPlan {
    /// A Secret that goes with its object.
    pub fn with_entries<const N: usize>(name: &str, entries: [(&str, Entry); N]) -> Self {
        let entries = entries.map(|(key, entry)| (key.to_owned(), entry)).into();
        Self { name: name.to_owned(), content: SecretContent::Entries(entries), retained: false }
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

/// How one value comes to be.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// Generated once: letters and digits.
    Password {
        length: usize,
    },
    Text(String),
    /// Put together from texts and from values of Secrets.
    Template(Vec<Piece>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    Text(String),
    /// A value as it is.
    Value(SecretKey),
    /// A value as part of an address, with reserved characters escaped.
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

/// Numbered keys as Fernet repositories have them: 0 is staged, the highest signs, the others still verify.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyRing {
    /// Condition that says whether the keys are in place, e.g. `FernetKeysReady`.
    pub condition: &'static str,
    pub max_active_keys: u32,
    /// For how long after its last signature a key must still verify, in seconds.
    pub lifetime_seconds: i64,
    /// Cron expression, in UTC.
    pub schedule: String,
    /// A word that a person changes to have the keys rotated now.
    pub request: Option<String>,
}
