//! SSH keys in the format of OpenSSH (PROTOCOL.key of its source), without a passphrase. It is short, and a crate would bring
//! a second implementation of the curve.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use openstack_operator_engine::ports::{KeyPair, PortError, PortResult};

const TYPE: &[u8] = b"ssh-ed25519";
const BLOCK_SIZE: usize = 8;
const LINE_LENGTH: usize = 70;
/// Where ring writes the seed in PKCS #8.
const SEED: std::ops::Range<usize> = 16..48;

pub(super) fn generate() -> PortResult<KeyPair> {
    let rejected = |reason: String| PortError::Rejected { action: "generate an SSH key".to_owned(), reason };
    let key =
        rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).map_err(|error| rejected(error.to_string()))?;
    let seed = key.serialized_der().get(SEED).ok_or_else(|| rejected("the key has no seed".to_owned()))?;
    Ok(encode(seed, key.public_key_raw()))
}

fn encode(seed: &[u8], public: &[u8]) -> KeyPair {
    let public_key = [field(TYPE), field(public)].concat();
    // Two equal numbers show that a passphrase was right; there is none.
    let mut secret = vec![0; 8];
    secret.extend([field(TYPE), field(public), field(&[seed, public].concat()), field(b"")].concat());
    let missing = secret.len().next_multiple_of(BLOCK_SIZE) - secret.len();
    secret.extend((1_u8..).take(missing));
    let whole = [
        b"openssh-key-v1\0".to_vec(),
        field(b"none"),
        field(b"none"),
        field(b""),
        1_u32.to_be_bytes().to_vec(),
        field(&public_key),
        field(&secret),
    ];
    let text = STANDARD.encode(whole.concat());
    let mut private = "-----BEGIN OPENSSH PRIVATE KEY-----\n".to_owned();
    for (index, character) in text.chars().enumerate() {
        if index > 0 && index % LINE_LENGTH == 0 {
            private.push('\n');
        }
        private.push(character);
    }
    private.push_str("\n-----END OPENSSH PRIVATE KEY-----\n");
    KeyPair { public: format!("ssh-ed25519 {}\n", STANDARD.encode(public_key)), private }
}

/// A field with its length.
fn field(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    [length.to_be_bytes().as_slice(), bytes].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key of a seed of zeros, as OpenSSH writes and reads it.
    #[test]
    fn keys_have_the_format_of_openssh() {
        let public = STANDARD.decode("O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik=").unwrap();
        let pair = encode(&[0; 32], &public);
        assert_eq!(
            pair.public,
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDtqJ7zOtqQtYqOo0CpvDXNlMhV3HeJDpjrASKGLWdop\n"
        );
        let lines = [
            "-----BEGIN OPENSSH PRIVATE KEY-----",
            "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW",
            "QyNTUxOQAAACA7aie8zrakLWKjqNAqbw1zZTIVdx3iQ6Y6wEihi1naKQAAAIgAAAAAAAAA",
            "AAAAAAtzc2gtZWQyNTUxOQAAACA7aie8zrakLWKjqNAqbw1zZTIVdx3iQ6Y6wEihi1naKQ",
            "AAAEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAADtqJ7zOtqQtYqOo0CpvDXNl",
            "MhV3HeJDpjrASKGLWdopAAAAAAECAwQF",
            "-----END OPENSSH PRIVATE KEY-----",
        ];
        assert_eq!(pair.private, lines.map(|line| format!("{line}\n")).concat());
    }

    #[test]
    fn a_private_key_contains_its_public_key_and_two_keys_differ() {
        let (one, other) = (generate().unwrap(), generate().unwrap());
        assert_ne!(one, other);
        let public = STANDARD.decode(one.public.trim().trim_start_matches("ssh-ed25519 ")).unwrap();
        assert_eq!(public.len(), 51);
        let body: String = one.private.lines().filter(|line| !line.starts_with('-')).collect();
        let private = STANDARD.decode(body).unwrap();
        assert_eq!(private.windows(public.len()).filter(|part| *part == public).count(), 2);
    }
}
