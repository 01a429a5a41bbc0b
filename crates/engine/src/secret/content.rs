//! Content of Secrets: values, what is lost of them, and their revision.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use kube::core::DynamicObject;
use openstack_operator_model::lower::ROTATIONS_ANNOTATION;
use openstack_operator_model::name;
use openstack_operator_model::plan::{CERTIFICATE_KEYS, SSH_KEYS, SecretContent};
use serde_json::Value;
use sha2::Sha256;

/// Key of the hash of the values. Unlike the uid, a backup restores it with the Secret, and then no pod restarts.
pub(super) const REVISION_KEY: &str = "openstack.k8s.io/revision-key";

pub(crate) type Values = BTreeMap<String, String>;

/// The values of a Secret.
pub(super) fn values(secret: &DynamicObject) -> Values {
    let data = secret.data.get("data").and_then(Value::as_object);
    data.into_iter()
        .flatten()
        .filter_map(|(key, value)| {
            let bytes = STANDARD.decode(value.as_str()?).ok()?;
            Some((key.clone(), String::from_utf8(bytes).ok()?))
        })
        .collect()
}

/// The first difference of a Secret from the planned values, without any value.
pub(super) fn unlike(known: &Values, wanted: &Values) -> Option<String> {
    let (key, _) = wanted.iter().find(|(key, value)| known.get(*key) != Some(value))?;
    Some(match known.get(key) {
        None => format!("has no key {key}"),
        Some(_) => format!("its key {key} does not have the planned value"),
    })
}

/// Whether a Secret has lost values that were generated. A staged key has not encrypted anything yet.
pub(super) fn is_lost(content: &SecretContent, live: Option<&DynamicObject>, known: &Values) -> bool {
    match content {
        SecretContent::Entries(entries) => {
            entries.iter().any(|(key, entry)| entry.is_generated() && is_missing(known, key))
        }
        SecretContent::Certificate(_) => CERTIFICATE_KEYS.iter().any(|key| is_missing(known, key)),
        SecretContent::SshKey => SSH_KEYS.iter().any(|key| is_missing(known, key)),
        SecretContent::KeyRing(_) => {
            let primary = known.keys().filter_map(|number| number.parse::<u32>().ok()).max().unwrap_or(0);
            let annotations = live.and_then(|live| live.metadata.annotations.as_ref());
            let rotations = annotations.and_then(|all| all.get(ROTATIONS_ANNOTATION)?.parse::<u32>().ok());
            primary <= rotations.unwrap_or(0)
        }
    }
}

fn is_missing(known: &Values, key: &str) -> bool {
    known.get(key).is_none_or(String::is_empty)
}

/// Keyed hash of the values of a Secret. Only users with access to the Secret know the key, so that the hash does not help to
/// guess a weak password.
pub(super) fn revision(secret: &DynamicObject) -> String {
    let key = revision_key(secret).map(String::as_bytes).unwrap_or_default();
    let data = secret.data.get("data").map(ToString::to_string).unwrap_or_default();
    match Hmac::<Sha256>::new_from_slice(key) {
        Ok(mac) => name::hash(mac.chain_update(data).finalize().into_bytes()),
        // Keys of any length are accepted.
        Err(_) => String::new(),
    }
}

/// The key of a Secret that the user or an older operator wrote is its uid.
pub(super) fn revision_key(secret: &DynamicObject) -> Option<&String> {
    let written = secret.metadata.annotations.as_ref().and_then(|all| all.get(REVISION_KEY));
    written.or(secret.metadata.uid.as_ref())
}
