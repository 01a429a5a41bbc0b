//! Domains that belong to objects.

use openstack_operator_engine::claim::{Claim, Found};
use openstack_operator_engine::ports::IdentityDomainEntry;
use openstack_operator_model::status::EffectKind;
use serde_json::json;

use crate::http::{Body, Failure};
use crate::identity::directory::{describe, enable, find};
use crate::identity::session::{DOMAINS, Session};

pub(super) async fn ensure_domain(
    session: &Session<'_>,
    IdentityDomainEntry { name, claim }: &IdentityDomainEntry,
) -> Result<bool, Failure> {
    let Some(domain) = find(session, &DOMAINS, name, &[]).await? else {
        let body = json!({"name": name, "enabled": true, "description": claim.mark()});
        session.create(&DOMAINS, Body::Plain(body)).await?;
        return Ok(true);
    };
    claim.admit(EffectKind::IdentityDomain, name, domain.owner())?;
    let mut wrote = domain.owner() != Found::Owned(&claim.owner);
    if wrote {
        describe(session, &DOMAINS, &domain, claim.mark()).await?;
    }
    wrote |= enable(session, &DOMAINS, &domain).await?;
    Ok(wrote)
}

/// Succeeds if the domain does not exist or belongs to another object.
pub(super) async fn drop_domain(session: &Session<'_>, name: &str, claim: &Claim) -> Result<(), Failure> {
    match find(session, &DOMAINS, name, &[]).await? {
        Some(domain) if claim.may_remove(EffectKind::IdentityDomain, name, domain.owner()) => {
            // Keystone rejects the removal of an enabled domain.
            session.update(&DOMAINS, &domain.id, Body::Plain(json!({"enabled": false}))).await?;
            session.remove(&DOMAINS, &domain.id).await
        }
        _ => Ok(()),
    }
}
