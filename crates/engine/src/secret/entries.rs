//! Values of the entries of a Secret: generated, plain, or filled into templates.

use std::collections::BTreeMap;

use openstack_operator_model::condition::Progress;
use openstack_operator_model::lower::Instance;
use openstack_operator_model::plan::{Entry, Piece, SecretKey, SecretPlan};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::Values;
use crate::engine::Engine;
use crate::ports::PortResult;

/// The Secret whose templates are filled in.
struct Template<'a> {
    instance: &'a Instance,
    secret: &'a str,
    /// Its other values.
    own: &'a Values,
}

impl Engine {
    /// The values of the entries of a Secret, or why they are not known yet.
    pub(super) async fn resolve_entries(
        &self,
        instance: &Instance,
        plan: &SecretPlan,
        entries: &BTreeMap<String, Entry>,
        known: &Values,
    ) -> PortResult<Result<Values, Progress>> {
        let environment = &self.ports.environment;
        let mut own = Values::new();
        for (key, entry) in entries {
            let existing = known.get(key).filter(|value| !value.is_empty() && entry.is_generated());
            let value = match (entry, existing) {
                (_, Some(value)) => value.clone(),
                (Entry::Password { length }, None) => environment.password(*length),
                (Entry::Bytes { length, encoding }, None) => environment.bytes(*length, *encoding),
                (Entry::Uuid, None) => environment.uuid(),
                (Entry::Text(text), None) => text.clone(),
                (Entry::Template(_), None) => continue,
            };
            own.insert(key.clone(), value);
        }
        let template = Template { instance, secret: &plan.name, own: &own };
        let mut filled = Values::new();
        for (key, entry) in entries {
            let Entry::Template(pieces) = entry else { continue };
            let mut text = String::new();
            for piece in pieces {
                match self.fill_in(&template, piece).await? {
                    Ok(part) => text.push_str(&part),
                    Err(progress) => return Ok(Err(progress)),
                }
            }
            filled.insert(key.clone(), text);
        }
        own.extend(filled);
        Ok(Ok(own))
    }

    async fn fill_in(&self, template: &Template<'_>, piece: &Piece) -> PortResult<Result<String, Progress>> {
        let source = match piece {
            Piece::Text(text) => return Ok(Ok(text.clone())),
            Piece::Keys { ring, before, after } => {
                let keys = self.keys_of_ring(template, ring).await?;
                let enclose = |key: &String| [before.as_str(), key, after].concat();
                return Ok(keys.map(|keys| keys.iter().map(enclose).collect()));
            }
            Piece::Value(source) | Piece::Escaped(source) | Piece::Option(source) => source,
        };
        let value = if source.secret == template.secret {
            template.own.get(&source.key).cloned()
        } else {
            self.secret_value(&template.instance.namespace, source).await?
        };
        let Some(value) = value else {
            let message = format!("Secret {} has no key {}", source.secret, source.key);
            return Ok(Err(Progress::waiting(message)));
        };
        Ok(match piece {
            Piece::Escaped(_) => Ok(utf8_percent_encode(&value, NON_ALPHANUMERIC).to_string()),
            Piece::Option(_) => option(source, &value),
            Piece::Text(_) | Piece::Keys { .. } | Piece::Value(_) => Ok(value),
        })
    }

    /// The keys of a ring: the one that signs, the others, and the staged one.
    async fn keys_of_ring(
        &self,
        template: &Template<'_>,
        ring: &str,
    ) -> PortResult<Result<Vec<String>, Progress>> {
        let values = self.secret_values(&template.instance.namespace, ring).await?;
        let numbered =
            values.into_iter().filter_map(|(number, key)| Some((number.parse::<u32>().ok()?, key)));
        let sorted: BTreeMap<u32, String> = numbered.collect();
        if sorted.is_empty() {
            return Ok(Err(Progress::waiting(format!("Secret {ring} has no keys"))));
        }
        Ok(Ok(sorted.into_values().rev().collect()))
    }
}

/// A value as an option of oslo.config. A line break would end it, and start an option of its own.
fn option(source: &SecretKey, value: &str) -> Result<String, Progress> {
    if value.contains(['\n', '\r']) {
        let SecretKey { secret, key } = source;
        let message = format!(
            "key {key} of Secret {secret} has a line break, and an option of a configuration file has one line: remove it"
        );
        return Err(Progress::stalled(message));
    }
    Ok(value.replace('$', "$$"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_one_line_that_names_no_other_option() {
        let key = SecretKey::new("s", "password");
        assert_eq!(option(&key, "a$b$$"), Ok("a$$b$$$$".to_owned()));
        for broken in ["a\n", "a\r\nauth = none"] {
            let Err(Progress::Stalled { message }) = option(&key, broken) else { panic!("{broken:?}") };
            assert!(message.starts_with("key password of Secret s has a line break"), "{message}");
            assert!(!message.contains("none"));
        }
    }
}
