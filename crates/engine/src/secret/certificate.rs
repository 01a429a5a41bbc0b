//! Certificates: issued once, and renewed before they expire or when their content changes.

use jiff::{SignedDuration, Timestamp};
use kube::core::DynamicObject;
use openstack_operator_model::condition::Progress;
use openstack_operator_model::lower::Instance;
use openstack_operator_model::name;
use openstack_operator_model::plan::{CERTIFICATE_KEYS, Certificate, Issuer};

use super::{Made, Values};
use crate::engine::Engine;
use crate::ports::{CertificateRequest, KeyPair, PortResult, Signer};

/// Hash of what a certificate was issued for.
const ISSUED_FOR: &str = "openstack.k8s.io/issued-for";
const NOT_AFTER: &str = "openstack.k8s.io/not-after";
/// Clocks of nodes may be behind.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);

impl Engine {
    /// Issues a certificate, or keeps the existing one in the first two thirds of its lifetime. An authority keeps its key,
    /// so that the certificates it has signed stay valid.
    pub(super) async fn renew_certificate(
        &self,
        instance: &Instance,
        certificate: &Certificate,
        live: Option<&DynamicObject>,
        known: Values,
    ) -> PortResult<Result<Made, Progress>> {
        let [public, private, authority] = CERTIFICATE_KEYS;
        let issuer = match &certificate.issuer {
            Issuer::Itself => None,
            Issuer::Secret(secret) => {
                let mut found = self.secret_values(&instance.namespace, secret).await?;
                let (Some(public), Some(private)) = (found.remove(public), found.remove(private)) else {
                    let message = format!("Secret {secret} has no certificate authority");
                    return Ok(Err(Progress::waiting(message)));
                };
                Some(KeyPair { public, private })
            }
        };
        let now = self.ports.environment.now();
        let lifetime = SignedDuration::from_hours(24 * i64::from(certificate.lifetime_days));
        let issued_for = issued_for(certificate, issuer.as_ref());
        if let Some(not_after) = still_valid(live, &known, &issued_for) {
            let renewal = not_after.saturating_sub(lifetime / 3).unwrap_or(not_after);
            if now < renewal {
                let due = Some(now.duration_until(renewal).unsigned_abs());
                return Ok(Ok(Made { values: known, annotations: annotations(issued_for, not_after), due }));
            }
        }
        let not_after = now.saturating_add(lifetime).unwrap_or(Timestamp::MAX);
        let signer = match &issuer {
            None => Signer::Itself(known.get(private).map(String::as_str).filter(|key| !key.is_empty())),
            Some(issuer) => Signer::Authority(issuer),
        };
        let issued = self.ports.environment.certificate(&CertificateRequest {
            common_name: &certificate.common_name,
            alternative_names: &certificate.alternative_names,
            not_before: now.saturating_sub(CLOCK_SKEW).unwrap_or(now),
            not_after,
            signer,
        })?;
        let trusted = issuer.map_or_else(|| issued.public.clone(), |issuer| issuer.public);
        let values = Values::from([
            (public.to_owned(), issued.public),
            (private.to_owned(), issued.private),
            (authority.to_owned(), trusted),
        ]);
        let due = Some((lifetime / 3 * 2).unsigned_abs());
        Ok(Ok(Made { values, annotations: annotations(issued_for, not_after), due }))
    }
}

fn issued_for(certificate: &Certificate, issuer: Option<&KeyPair>) -> String {
    name::hash(format!("{certificate:?}\n{}", issuer.map_or("", |issuer| &issuer.public)))
}

/// Until when an existing certificate with the wanted content is valid.
fn still_valid(live: Option<&DynamicObject>, known: &Values, issued_for: &str) -> Option<Timestamp> {
    let annotations = live?.metadata.annotations.as_ref()?;
    let is_whole = CERTIFICATE_KEYS.iter().all(|key| known.get(*key).is_some_and(|value| !value.is_empty()));
    let is_same = annotations.get(ISSUED_FOR).is_some_and(|hash| hash == issued_for);
    if is_whole && is_same { annotations.get(NOT_AFTER)?.parse().ok() } else { None }
}

fn annotations(issued_for: String, not_after: Timestamp) -> Values {
    Values::from([(ISSUED_FOR.to_owned(), issued_for), (NOT_AFTER.to_owned(), not_after.to_string())])
}
