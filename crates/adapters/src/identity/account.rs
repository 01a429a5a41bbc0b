//! Projects, users and role assignments.

use openstack_operator_engine::claim::{Claim, Found};
use openstack_operator_engine::ports::IdentityAccount;
use openstack_operator_model::plan::{Domain, Grant, GrantTarget};
use openstack_operator_model::status::EffectKind;
use reqwest::Method;
use serde_json::json;
use snafu::OptionExt;

use crate::http::{Body, Failure, MissingSnafu};
use crate::identity::DOMAIN;
use crate::identity::directory::{Entry, create_shared, describe, domain_id, enable, find};
use crate::identity::role::find_role;
use crate::identity::session::{DOMAINS, PROJECTS, Session, USERS};

pub(super) async fn ensure_project(session: &Session<'_>, name: &str) -> Result<bool, Failure> {
    let Some(project) = find_project(session, name).await? else {
        let body = json!({"name": name, "domain_id": DOMAIN, "enabled": true});
        return create_shared(session, &PROJECTS, body).await;
    };
    enable(session, &PROJECTS, &project).await
}

/// Ensures that the user exists, is enabled, has the password, and has the roles. Other roles of the user stay.
pub(super) async fn ensure_account(
    session: &Session<'_>,
    account: &IdentityAccount,
) -> Result<bool, Failure> {
    let (user, mut wrote) = ensure_user(session, account).await?;
    for grant in &account.grants {
        wrote |= ensure_grant(session, &user, grant).await?;
    }
    Ok(wrote)
}

/// Succeeds if the user does not exist or belongs to another object.
pub(super) async fn drop_user(
    session: &Session<'_>,
    domain: &Domain,
    name: &str,
    claim: &Claim,
) -> Result<(), Failure> {
    let domain = match domain.name() {
        None => DOMAIN.to_owned(),
        Some(domain) => match find(session, &DOMAINS, domain, &[]).await? {
            Some(domain) => domain.id,
            None => return Ok(()),
        },
    };
    match find_user(session, &domain, name).await? {
        Some(user) if claim.may_remove(EffectKind::IdentityUser, name, user.owner()) => {
            session.remove(&USERS, &user.id).await
        }
        _ => Ok(()),
    }
}

/// Returns the user's id, and whether anything was written.
async fn ensure_user(session: &Session<'_>, account: &IdentityAccount) -> Result<(String, bool), Failure> {
    let IdentityAccount { login, claim, domain, .. } = account;
    let domain = domain_id(session, domain).await?;
    let Some(user) = find_user(session, &domain, &login.username).await? else {
        let body = json!({
            "name": login.username,
            "domain_id": domain,
            "password": login.password,
            "enabled": true,
            "description": claim.mark(),
        });
        return Ok((session.create(&USERS, Body::Secret(body)).await?, true));
    };
    claim.admit(EffectKind::IdentityUser, &login.username, user.owner())?;
    let mut wrote = user.owner() != Found::Owned(&claim.owner);
    if wrote {
        describe(session, &USERS, &user, claim.mark()).await?;
    }
    // Before the password, since a disabled user cannot authenticate with any password.
    wrote |= enable(session, &USERS, &user).await?;
    if !session.has_password(&user.id, &login.password).await? {
        let body = Body::Secret(json!({"password": login.password}));
        session.update(&USERS, &user.id, body).await?;
        wrote = true;
    }
    Ok((user.id, wrote))
}

async fn ensure_grant(session: &Session<'_>, user: &str, grant: &Grant) -> Result<bool, Failure> {
    let Grant { role: name, on } = grant;
    let (collection, target) = match on {
        GrantTarget::Domain(domain) => ("domains", domain_id(session, domain).await?),
        GrantTarget::Project(name) => {
            let project = find_project(session, name).await?;
            ("projects", project.context(MissingSnafu { kind: "project", name })?.id)
        }
    };
    let role = find_role(session, name).await?.context(MissingSnafu { kind: "role", name })?;
    let path = [collection, &target, "users", user, "roles", &role.id];
    let is_missing = session.send(Method::HEAD, &path, &[], Body::Empty).await?.success_if_found()?.is_none();
    if is_missing {
        session.send(Method::PUT, &path, &[], Body::Empty).await?.success()?;
    }
    Ok(is_missing)
}

async fn find_project(session: &Session<'_>, name: &str) -> Result<Option<Entry>, Failure> {
    find(session, &PROJECTS, name, &[("domain_id", DOMAIN)]).await
}

async fn find_user(session: &Session<'_>, domain: &str, name: &str) -> Result<Option<Entry>, Failure> {
    find(session, &USERS, name, &[("domain_id", domain)]).await
}
