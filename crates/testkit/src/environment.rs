//! A clock that moves only on request, and deterministic random values.

use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use openstack_operator_engine::ports::{CertificateRequest, Environment, KeyPair, PortResult, Signer};
use openstack_operator_model::plan::Encoding;

use crate::lock;

/// Start time of every world, and creation time of all its objects.
pub(crate) const START: &str = "2026-01-01T00:00:00Z";
/// Prefix of generated values only.
pub(crate) const GENERATED: &str = "Zq";
const PRIVATE_KEY_LENGTH: usize = 32;

#[derive(Debug)]
pub struct FakeEnvironment {
    state: Mutex<State>,
}

#[derive(Clone, Debug)]
struct State {
    now: Timestamp,
    generated: Vec<String>,
}

impl Default for FakeEnvironment {
    fn default() -> Self {
        let now = START.parse().expect("the constant is a time");
        Self { state: Mutex::new(State { now, generated: Vec::new() }) }
    }
}

impl FakeEnvironment {
    /// Moves the clock forward.
    pub fn advance(&self, duration: Duration) {
        lock(&self.state).now += duration;
    }

    pub(crate) fn fork(&self) -> Self {
        Self { state: Mutex::new(lock(&self.state).clone()) }
    }

    /// Every password and key that was generated, oldest first.
    pub fn generated(&self) -> Vec<String> {
        lock(&self.state).generated.clone()
    }

    /// A unique value of letters and digits: each starts with its number.
    fn generate(&self, length: usize, end: &str) -> String {
        let mut state = lock(&self.state);
        let number = format!("{GENERATED}{:04}", state.generated.len() + 1);
        assert!(length >= number.len(), "{length} characters cannot distinguish generated values");
        let value = format!("{number:A<length$}{end}");
        state.generated.push(value.clone());
        value
    }
}

impl Environment for FakeEnvironment {
    fn now(&self) -> Timestamp {
        lock(&self.state).now
    }

    fn password(&self, length: usize) -> String {
        self.generate(length, "")
    }

    fn bytes(&self, length: usize, _encoding: Encoding) -> String {
        // 43 characters and the padding are 32 bytes. The unused bits of the last character must be 0, as in `A`.
        let characters = (length * 8).div_ceil(6);
        self.generate(characters, &"=".repeat(characters.next_multiple_of(4) - characters))
    }

    fn uuid(&self) -> String {
        let mut state = lock(&self.state);
        let value = format!("{:08x}-0000-4000-8000-000000000000", state.generated.len() + 1);
        state.generated.push(value.clone());
        value
    }

    /// Says who signed it, for whom, and until when.
    fn certificate(&self, request: &CertificateRequest<'_>) -> PortResult<KeyPair> {
        let CertificateRequest { common_name, alternative_names, not_after, signer, .. } = request;
        let (private, signed_by) = match signer {
            Signer::Itself(Some(key)) => ((*key).to_owned(), "itself"),
            Signer::Itself(None) => (self.generate(PRIVATE_KEY_LENGTH, ""), "itself"),
            Signer::Authority(authority) => {
                (self.generate(PRIVATE_KEY_LENGTH, ""), authority.public.as_str())
            }
        };
        let names = alternative_names.join(" ");
        let public = format!("certificate of {common_name} [{names}] until {not_after} by ({signed_by})");
        Ok(KeyPair { public, private })
    }

    fn ssh_key(&self) -> PortResult<KeyPair> {
        let private = self.generate(PRIVATE_KEY_LENGTH, "");
        Ok(KeyPair { public: format!("ssh-ed25519 {}", lock(&self.state).generated.len()), private })
    }

    fn jitter(&self) -> f64 {
        0.5
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_URL_SAFE;

    use super::*;

    #[test]
    fn the_clock_moves_on_request() {
        let environment = FakeEnvironment::default();
        assert_eq!(environment.now().to_string(), START);
        environment.advance(Duration::from_secs(90));
        assert_eq!(environment.now().to_string(), "2026-01-01T00:01:30Z");
    }

    #[test]
    fn generated_values_have_the_right_form_and_differ() {
        let environment = FakeEnvironment::default();
        let password = environment.password(32);
        assert_eq!(password.len(), 32);
        assert!(password.chars().all(|character| character.is_ascii_alphanumeric()));
        let key = environment.bytes(32, Encoding::Base64Url);
        assert_eq!(BASE64_URL_SAFE.decode(&key).unwrap().len(), 32);
        assert_ne!(password, environment.password(32));
        assert_eq!(environment.generated().len(), 3);
    }
}
