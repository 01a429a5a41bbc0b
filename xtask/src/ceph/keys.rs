//! Users and keys of Ceph. The tool generates all keys before the first daemon starts; only Secrets contain them.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rand::{Rng as _, RngCore as _};
use serde_json::{Map, Value, json};

use super::NAMESPACE;
use crate::cloud;
use crate::command::output;
use crate::kubectl::Kubectl;

/// The Secret with all keys, in the namespace of Ceph.
const SECRET: &str = "ceph-keys";
/// The Secret that a cloud refers to, in the namespace of the cloud.
pub(super) const CLOUD_SECRET: &str = "ceph-cluster";
/// The user of the cloud, without its type.
pub(super) const CLOUD_USER: &str = "openstack";

/// A user and its capabilities by the type of daemon.
type User = (&'static str, &'static [(&'static str, &'static str)]);

/// The users that exist from the first start of the monitor on.
const USERS: [User; 7] = [
    ("mon.", &[("mon", "allow *")]),
    ("client.admin", &[("mon", "allow *"), ("mgr", "allow *"), ("osd", "allow *"), ("mds", "allow *")]),
    ("client.bootstrap-osd", &[("mon", "profile bootstrap-osd")]),
    ("mgr.a", &[("mon", "profile mgr"), ("osd", "allow *"), ("mds", "allow *")]),
    ("mds.a", &[("mon", "profile mds"), ("mgr", "profile mds"), ("osd", "allow *"), ("mds", "allow *")]),
    ("client.rgw.a", &[("mon", "allow rw"), ("mgr", "allow rw"), ("osd", "allow rwx")]),
    // `up` adds to these: a keyring cannot contain quotation marks.
    ("client.openstack", &[("mon", "allow r")]),
];

/// The commands of a monitor that need more than the right to read, and that the cloud's user may run: those for pools,
/// file systems, users, and notes about them. It may create a user with any capability, so the limits prevent mistakes
/// and not attacks.
const CLOUD_COMMANDS: [&str; 19] = [
    "auth caps",
    "auth get",
    "auth get-or-create",
    "auth import",
    "auth rm",
    "config-key dump",
    "config-key get",
    "config-key rm",
    "config-key set",
    "fs fail",
    "fs new",
    "fs rm",
    "fs set",
    "osd pool application enable",
    "osd pool create",
    "osd pool delete",
    "osd pool set",
    "osd pool set-quota",
    "osd set-require-min-compat-client",
];

/// The identity of the cluster, and the key of the cloud's user.
pub(super) struct Credentials {
    pub(super) fsid: String,
    key: String,
}

impl Credentials {
    /// The credentials of the existing cluster, or new ones.
    pub(super) fn ensure(kubectl: &Kubectl) -> Result<Self> {
        let get = ["--namespace", NAMESPACE, "get", "secret", SECRET, "--ignore-not-found", "--output=json"];
        let answer = output(kubectl.query().args(get))?;
        if !answer.trim().is_empty() {
            return Self::read(&serde_json::from_str(&answer).context("kubectl did not return JSON")?);
        }
        let claims = ["--namespace", NAMESPACE, "get", "persistentvolumeclaims", "--output=name"];
        if !output(kubectl.query().args(claims))?.trim().is_empty() {
            bail!(
                "Secret {NAMESPACE}/{SECRET} is missing, and the data of Ceph cannot be used without its keys: restore the \
                 Secret, or remove the data with cargo xtask ceph down"
            );
        }
        let (secret, credentials) = generate();
        kubectl.apply_secret(&secret)?;
        Ok(credentials)
    }

    fn read(secret: &Value) -> Result<Self> {
        let value = |name: &str| {
            let encoded = secret["data"][name].as_str();
            let encoded =
                encoded.with_context(|| format!("Secret {NAMESPACE}/{SECRET} has no key {name}"))?;
            let decoded = STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            decoded.with_context(|| format!("key {name} of Secret {NAMESPACE}/{SECRET} is not text"))
        };
        Ok(Self { fsid: value("fsid")?, key: value("client.openstack.key")? })
    }

    /// The Secret that an external `CephStorage` refers to.
    pub(super) fn cloud_secret(&self, monitors: &str) -> Value {
        let values = json!({
            "monitors": monitors,
            "fsid": self.fsid,
            "username": CLOUD_USER,
            "key": self.key,
        });
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": CLOUD_SECRET, "namespace": cloud::NAMESPACE },
            "stringData": values,
        })
    }
}

/// The arguments of `ceph` that set the capabilities of the cloud's user.
pub(super) fn cloud_capabilities() -> Vec<String> {
    let commands = CLOUD_COMMANDS.map(|command| format!("allow command \"{command}\""));
    let monitor = format!("allow r, {}", commands.join(", "));
    let words =
        ["auth", "caps", "client.openstack", "mon", &monitor, "osd", "profile rbd", "mgr", "allow rw"];
    words.map(ToOwned::to_owned).to_vec()
}

/// A Secret with a key for every user.
pub(super) fn generate() -> (Value, Credentials) {
    let seconds = u32::try_from(jiff::Timestamp::now().as_second()).unwrap_or(0);
    let mut values = Map::new();
    let mut all = String::new();
    let mut cloud_key = String::new();
    for (user, capabilities) in USERS {
        let mut random = [0; 16];
        rand::rng().fill_bytes(&mut random);
        let key = key(seconds, random);
        let keyring = keyring(user, capabilities, &key);
        all.push_str(&keyring);
        values.insert(format!("{}.keyring", user.trim_end_matches('.')), keyring.into());
        if user == "client.openstack" {
            cloud_key = key;
        }
    }
    let credentials = Credentials { fsid: uuid(rand::rng().random()), key: cloud_key };
    values.insert("keyring".to_owned(), all.into());
    values.insert("fsid".to_owned(), credentials.fsid.clone().into());
    values.insert("client.openstack.key".to_owned(), credentials.key.clone().into());
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": SECRET, "namespace": NAMESPACE },
        "stringData": values,
    });
    (secret, credentials)
}

/// A key as Ceph encodes it: type AES, the time of its creation in seconds and nanoseconds, the length, and the bytes.
fn key(seconds: u32, random: [u8; 16]) -> String {
    let mut bytes = Vec::with_capacity(28);
    bytes.extend(1_u16.to_le_bytes());
    bytes.extend(seconds.to_le_bytes());
    bytes.extend(0_u32.to_le_bytes());
    bytes.extend(16_u16.to_le_bytes());
    bytes.extend(random);
    STANDARD.encode(bytes)
}

fn keyring(user: &str, capabilities: &[(&str, &str)], key: &str) -> String {
    let mut text = format!("[{user}]\n\tkey = {key}\n");
    for (daemon, capability) in capabilities {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\tcaps {daemon} = \"{capability}\"");
    }
    text
}

/// A random UUID.
fn uuid(random: u128) -> String {
    let bits = (random & !(0xf << 76 | 0x3 << 62)) | 0x4 << 76 | 0x2 << 62;
    let digits = format!("{bits:032x}");
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Secret as the API server returns it.
    fn stored(secret: &Value) -> Value {
        let values = secret["stringData"].as_object().into_iter().flatten();
        let data: Map<String, Value> = values
            .map(|(name, value)| (name.clone(), STANDARD.encode(value.as_str().unwrap_or_default()).into()))
            .collect();
        json!({ "data": data })
    }

    #[test]
    fn a_key_has_the_encoding_of_ceph() {
        let key = key(0x5566_7788, [7; 16]);
        assert_eq!(key.len(), 40);
        let bytes = STANDARD.decode(key).unwrap_or_default();
        assert_eq!(bytes[..12], [1, 0, 0x88, 0x77, 0x66, 0x55, 0, 0, 0, 0, 16, 0]);
        assert_eq!(bytes[12..], [7; 16]);
    }

    #[test]
    fn a_uuid_has_its_version() {
        assert_eq!(uuid(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(uuid(0), "00000000-0000-4000-8000-000000000000");
    }

    #[test]
    fn every_user_has_a_keyring_of_its_own() {
        let (secret, _) = generate();
        let text = |name: &str| secret["stringData"][name].as_str().unwrap_or_default().to_owned();
        for (user, _) in USERS {
            let keyring = text(&format!("{}.keyring", user.trim_end_matches('.')));
            assert!(keyring.starts_with(&format!("[{user}]\n\tkey = ")), "{user}");
            assert_eq!(keyring.matches("key = ").count(), 1, "{user}");
            assert!(text("keyring").contains(&keyring), "{user}");
        }
    }

    #[test]
    fn a_later_run_reads_the_generated_credentials() -> Result<()> {
        let (secret, generated) = generate();
        let read = Credentials::read(&stored(&secret))?;
        assert_eq!((&read.fsid, &read.key), (&generated.fsid, &generated.key));
        let error = Credentials::read(&json!({ "data": {} })).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("Secret ceph/ceph-keys has no key fsid"));
        Ok(())
    }

    #[test]
    fn the_secret_of_the_cloud_names_monitors_user_and_key() {
        let credentials = Credentials { fsid: "f".to_owned(), key: "k".to_owned() };
        let secret = credentials.cloud_secret("10.96.0.60:3300");
        assert_eq!(secret["metadata"], json!({ "name": "ceph-cluster", "namespace": "openstack" }));
        let expected =
            json!({ "monitors": "10.96.0.60:3300", "fsid": "f", "username": "openstack", "key": "k" });
        assert_eq!(secret["stringData"], expected);
    }

    #[test]
    fn the_user_of_the_cloud_is_no_administrator() {
        let arguments = cloud_capabilities();
        assert_eq!(arguments[..3], ["auth", "caps", "client.openstack"]);
        assert!(arguments.iter().all(|argument| !argument.contains('*')), "{arguments:?}");
    }
}
