//! System clock, random numbers, and keys made of them.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use jiff::Timestamp;
use openstack_operator_engine::ports::{CertificateRequest, Environment, KeyPair, PortResult};
use openstack_operator_model::plan::Encoding;
use rand::distr::{Alphanumeric, SampleString};
use rand::{Rng, RngCore};

mod certificate;
mod ssh;

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

    fn bytes(&self, length: usize, encoding: Encoding) -> String {
        let mut bytes = vec![0; length];
        rand::rng().fill_bytes(&mut bytes);
        match encoding {
            Encoding::Base64 => STANDARD.encode(bytes),
            Encoding::Base64Url => URL_SAFE.encode(bytes),
        }
    }

    fn uuid(&self) -> String {
        let bits: u128 = rand::rng().random();
        // Version 4 and variant 1 of RFC 9562.
        let bits = (bits & !((0xf000 << 64) | (0xc000 << 48))) | (0x4000 << 64) | (0x8000 << 48);
        let digits = format!("{bits:032x}");
        [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
    }

    fn certificate(&self, request: &CertificateRequest<'_>) -> PortResult<KeyPair> {
        certificate::issue(request)
    }

    fn ssh_key(&self) -> PortResult<KeyPair> {
        ssh::generate()
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
    fn random_bytes_have_the_requested_length_and_padded_encoding() {
        let fernet = SystemEnvironment.bytes(32, Encoding::Base64Url);
        assert_eq!(fernet.len(), 44);
        assert_eq!(URL_SAFE.decode(&fernet).map(|bytes| bytes.len()), Ok(32));
        assert_ne!(fernet, SystemEnvironment.bytes(32, Encoding::Base64Url));
        let long = SystemEnvironment.bytes(1000, Encoding::Base64);
        assert_eq!(STANDARD.decode(&long).map(|bytes| bytes.len()), Ok(1000));
        assert!(URL_SAFE.decode(&long).is_err(), "the alphabets differ");
    }

    #[test]
    fn a_uuid_is_random_with_version_4() {
        let uuid = SystemEnvironment.uuid();
        let parts: Vec<&str> = uuid.split('-').collect();
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{uuid}");
        assert!(parts[2].starts_with('4') && parts[3].starts_with(['8', '9', 'a', 'b']), "{uuid}");
        assert!(uuid.chars().all(|c| c == '-' || c.is_ascii_digit() || ('a'..='f').contains(&c)), "{uuid}");
        assert_ne!(uuid, SystemEnvironment.uuid());
    }

    #[test]
    fn jitter_is_from_0_to_1() {
        assert!((0..1000).all(|_| (0.0..=1.0).contains(&SystemEnvironment.jitter())));
    }
}
