//! Random values for Secrets, generated without the operator.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use openstack_operator_model::plan::{Entry, Piece, SecretContent, SecretPlan};
use rand::Rng;
use rand::distr::{Alphanumeric, SampleString};

/// Values by Secret and key.
#[derive(Default)]
pub(crate) struct Values(BTreeMap<(String, String), String>);

impl Values {
    /// Generates the values of a Secret. Templates may refer to earlier values.
    pub(crate) fn make(&mut self, plan: &SecretPlan) -> Result<BTreeMap<String, String>> {
        let mut made = BTreeMap::new();
        match &plan.content {
            SecretContent::KeyRing(_) => {
                let key = || URL_SAFE.encode(rand::rng().random::<[u8; 32]>());
                made.extend(["0", "1"].map(|number| (number.to_owned(), key())));
            }
            SecretContent::Certificate(_) | SecretContent::SshKey => {
                bail!("no service of the benchmark needs {}", plan.name)
            }
            SecretContent::Entries(entries) => {
                // A template may precede the values that it refers to.
                let (templates, plain): (Vec<_>, Vec<_>) =
                    entries.iter().partition(|(_, entry)| matches!(entry, Entry::Template(_)));
                for (key, entry) in plain.into_iter().chain(templates) {
                    let value = self.value(entry)?;
                    self.0.insert((plan.name.clone(), key.clone()), value.clone());
                    made.insert(key.clone(), value);
                }
            }
        }
        Ok(made)
    }

    pub(crate) fn get(&self, secret: &str, key: &str) -> Result<&str> {
        let value = self.0.get(&(secret.to_owned(), key.to_owned()));
        value.map(String::as_str).with_context(|| format!("Secret {secret} has no key {key}"))
    }

    fn value(&self, entry: &Entry) -> Result<String> {
        match entry {
            Entry::Password { length } => Ok(Alphanumeric.sample_string(&mut rand::rng(), *length)),
            Entry::Bytes { .. } | Entry::Uuid => bail!("no service of the benchmark needs this value"),
            Entry::Text(text) => Ok(text.clone()),
            Entry::Template(pieces) => pieces.iter().map(|piece| self.piece(piece)).collect(),
        }
    }

    /// All values are letters and digits, which need no escaping.
    fn piece(&self, piece: &Piece) -> Result<String> {
        match piece {
            Piece::Text(text) => Ok(text.clone()),
            Piece::Value(key) | Piece::Escaped(key) | Piece::Option(key) => {
                self.get(&key.secret, &key.key).map(str::to_owned)
            }
            Piece::Keys { .. } => bail!("no service of the benchmark needs the keys of a ring"),
        }
    }
}

#[cfg(test)]
mod tests {
    use openstack_operator_model::plan::SecretKey;

    use super::*;

    #[test]
    fn a_template_is_filled_with_the_other_values() {
        let pieces =
            vec![Piece::Text("a://".to_owned()), Piece::Escaped(SecretKey::new("database", "username"))];
        let entries = BTreeMap::from([
            ("connection".to_owned(), Entry::Template(pieces)),
            ("password".to_owned(), Entry::Password { length: 32 }),
            ("username".to_owned(), Entry::Text("keystone".to_owned())),
        ]);
        let content = SecretContent::Entries(entries);
        let plan = SecretPlan { name: "database".to_owned(), content, retained: false, irreplaceable: false };
        let mut values = Values::default();
        let made = values.make(&plan).unwrap();
        assert_eq!(made["connection"], "a://keystone");
        assert_eq!(made["password"].len(), 32);
        assert!(values.get("database", "nothing").is_err());
    }
}
