//! X.509 certificates with ECDSA keys.

use std::time::SystemTime;

use openstack_operator_engine::ports::{self, CertificateRequest, PortError, PortResult, Signer};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

/// Issues a certificate. A request that cannot be fulfilled, e.g. with a key that is none, fails again until it changes.
pub(super) fn issue(request: &CertificateRequest<'_>) -> PortResult<ports::KeyPair> {
    try_issue(request).map_err(|error| PortError::Rejected {
        action: format!("issue the certificate of {}", request.common_name),
        reason: error.to_string(),
    })
}

fn try_issue(request: &CertificateRequest<'_>) -> Result<ports::KeyPair, rcgen::Error> {
    let mut parameters = CertificateParams::new(request.alternative_names)?;
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, request.common_name);
    parameters.not_before = SystemTime::from(request.not_before).into();
    parameters.not_after = SystemTime::from(request.not_after).into();
    let (certificate, key) = match &request.signer {
        Signer::Itself(existing) => {
            parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            let key = existing.map_or_else(KeyPair::generate, KeyPair::from_pem)?;
            (parameters.self_signed(&key)?, key)
        }
        Signer::Authority(authority) => {
            parameters.use_authority_key_identifier_extension = true;
            parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
            parameters.extended_key_usages =
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            let issuer = Issuer::from_ca_cert_pem(&authority.public, KeyPair::from_pem(&authority.private)?)?;
            let key = KeyPair::generate()?;
            (parameters.signed_by(&key, &issuer)?, key)
        }
    };
    Ok(ports::KeyPair { public: certificate.pem(), private: key.serialize_pem() })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use x509_parser::pem::Pem;
    use x509_parser::prelude::*;

    use super::*;

    fn request<'a>(name: &'a str, names: &'a [String], signer: Signer<'a>) -> CertificateRequest<'a> {
        let day = |text: &str| text.parse::<Timestamp>().unwrap();
        let (not_before, not_after) = (day("2026-01-01T00:00:00Z"), day("2026-03-01T00:00:00Z"));
        CertificateRequest { common_name: name, alternative_names: names, not_before, not_after, signer }
    }

    fn read<T>(pem: &str, check: impl FnOnce(&X509Certificate<'_>) -> T) -> T {
        let (pem, _) = Pem::read(std::io::Cursor::new(pem.as_bytes())).unwrap();
        check(&pem.parse_x509().unwrap())
    }

    #[test]
    fn an_authority_signs_certificates_and_a_renewed_one_keeps_its_key() {
        let authority = issue(&request("test authority", &[], Signer::Itself(None))).unwrap();
        let renewed =
            issue(&request("test authority", &[], Signer::Itself(Some(&authority.private)))).unwrap();
        assert_ne!(authority.public, renewed.public);
        assert_eq!(authority.private, renewed.private);
        let names = ["api.example.com".to_owned(), "10.0.0.1".to_owned()];
        let leaf = issue(&request("api", &names, Signer::Authority(&authority))).unwrap();
        for authority in [&authority.public, &renewed.public] {
            read(authority, |authority| {
                assert!(authority.is_ca());
                authority.verify_signature(None).unwrap();
                read(&leaf.public, |leaf| leaf.verify_signature(Some(authority.public_key())).unwrap());
            });
        }
        read(&leaf.public, |leaf| {
            assert!(!leaf.is_ca());
            assert_eq!(leaf.issuer().to_string(), "CN=test authority");
            assert_eq!(leaf.subject().to_string(), "CN=api");
            let validity = leaf.validity();
            assert_eq!(
                (validity.not_before.timestamp(), validity.not_after.timestamp()),
                (1_767_225_600, 1_772_323_200)
            );
            let names = leaf.subject_alternative_name().unwrap().unwrap().value.general_names.clone();
            assert_eq!(
                names,
                [GeneralName::DNSName("api.example.com"), GeneralName::IPAddress(&[10, 0, 0, 1])]
            );
        });
    }

    #[test]
    fn a_request_that_cannot_be_fulfilled_is_rejected_without_the_key() {
        let authority = ports::KeyPair { public: "none".to_owned(), private: "hunter2".to_owned() };
        for signer in [Signer::Itself(Some("hunter2")), Signer::Authority(&authority)] {
            let Err(error @ PortError::Rejected { .. }) = issue(&request("api", &[], signer)) else {
                panic!("it was issued")
            };
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        assert!(!format!("{authority:?}").contains("hunter2"));
    }
}
