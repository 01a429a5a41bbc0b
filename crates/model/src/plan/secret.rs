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
    /// A certificate, its key and the certificate of its authority, as `CERTIFICATE_KEYS`.
    Certificate(Certificate),
    /// An ed25519 key pair in the format of OpenSSH, generated once, as `SSH_KEYS`.
    SshKey,
}

/// Keys of a Secret with a certificate: the certificate, its private key, and the certificate of its authority.
pub const CERTIFICATE_KEYS: [&str; 3] = ["tls.crt", "tls.key", "ca.crt"];
/// Keys of a Secret with an SSH key: the private and the public key.
pub const SSH_KEYS: [&str; 2] = ["ssh-privatekey", "ssh-publickey"];

impl SecretContent {
    /// Whether it contains keys of a ring.
    pub fn has_keys_of_ring(&self) -> bool {
        let Self::Entries(entries) = self else { return false };
        entries.values().any(|entry| match entry {
            Entry::Template(pieces) => pieces.iter().any(|piece| matches!(piece, Piece::Keys { .. })),
            Entry::Password { .. } | Entry::Bytes { .. } | Entry::Uuid | Entry::Text(_) => false,
        })
    }
}

/// Source of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// Generated once, of letters and digits.
    Password {
        length: usize,
    },
    /// Generated once, of random bytes.
    Bytes {
        length: usize,
        encoding: Encoding,
    },
    /// Generated once.
    Uuid,
    Text(String),
    /// Concatenation of texts and values of Secrets.
    Template(Vec<Piece>),
}

impl Entry {
    /// Whether its value exists only in the Secret.
    pub fn is_generated(&self) -> bool {
        match self {
            Self::Password { .. } | Self::Bytes { .. } | Self::Uuid => true,
            Self::Text(_) | Self::Template(_) => false,
        }
    }
}

/// Form of random bytes in a Secret, with padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Base64,
    /// The form of Fernet keys.
    Base64Url,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    Text(String),
    /// A value, unchanged.
    Value(SecretKey),
    /// A value with reserved characters of URLs escaped.
    Escaped(SecretKey),
    /// A value of an oslo.config option: one line, with `$` doubled, because it would name another option.
    Option(SecretKey),
    /// Every key of a ring between two texts: the key that signs first, the staged one last.
    Keys {
        ring: String,
        before: String,
        after: String,
    },
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

/// A certificate for servers and clients. It is renewed, and pods that mount it with `Change::Roll` restart, before it
/// expires and when one of these fields or its authority changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Certificate {
    pub common_name: String,
    /// DNS names and IP addresses.
    pub alternative_names: Vec<String>,
    pub lifetime_days: u32,
    pub issuer: Issuer,
}

/// What signs a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Issuer {
    /// Itself: the certificate is an authority. A renewal keeps its private key.
    Itself,
    /// The authority in this Secret.
    Secret(String),
}
