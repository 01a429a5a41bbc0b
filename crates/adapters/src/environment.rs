//! System clock and random numbers.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use jiff::Timestamp;
use openstack_operator_engine::ports::Environment;
use rand::Rng;
use rand::distr::{Alphanumeric, SampleString};

const FERNET_KEY_BYTES: usize = 32;

/// The system clock and cryptographic random numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEnvironment;

impl Environment for SystemEnvironment {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn password(&self, length: usize) -> String {
        Alphanumeric.sample_string(&mut rand::rng(), length)
    }

    fn fernet_key(&self) -> String {
        URL_SAFE.encode(rand::rng().random::<[u8; FERNET_KEY_BYTES]>())
    }

    fn jitter(&self) -> f64 {
        rand::rng().random()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_has_the_requested_length_and_only_letters_and_digits() {
        let password = SystemEnvironment.password(1000);
        assert_eq!(password.len(), 1000);
        assert!(password.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        let seen: std::collections::BTreeSet<char> = SystemEnvironment.password(20_000).chars().collect();
        assert_eq!(seen.len(), 62);
    }

    #[test]
    fn two_passwords_differ() {
        assert_ne!(SystemEnvironment.password(32), SystemEnvironment.password(32));
    }

    #[test]
    fn a_fernet_key_is_32_bytes_in_padded_base64() {
        let key = SystemEnvironment.fernet_key();
        assert_eq!(key.len(), 44);
        assert_eq!(URL_SAFE.decode(&key).map(|bytes| bytes.len()), Ok(FERNET_KEY_BYTES));
        assert_ne!(key, SystemEnvironment.fernet_key());
    }

    #[test]
    fn jitter_is_from_0_to_1() {
        assert!((0..1000).all(|_| (0.0..=1.0).contains(&SystemEnvironment.jitter())));
    }
}
