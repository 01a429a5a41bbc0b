//! Projects, roles, users and role assignments.

use openstack_operator_engine::claim::{Claim, Found};
use openstack_operator_engine::ports::{IdentityAccount, Login};
use openstack_operator_model::status::EffectKind;
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use snafu::OptionExt;

use crate::http::{Body, Failure, MissingSnafu};
use crate::identity::DOMAIN;
use crate::identity::session::{Collection, PROJECTS, ROLES, Session, USERS};

#[derive(Deserialize)]
struct Entry {
    id: String,
    name: String,
    /// Absent for roles, which cannot be disabled.
    #[serde(default)]
    enabled: Option<bool>,
    #[serde(default)]
    description: Option<String>,
}

impl Entry {
    fn owner(&self) -> Found<'_> {
        Found::marked(self.description.as_deref())
    }

    fn is_disabled(&self) -> bool {
        self.enabled == Some(false)
    }
}

pub(super) async fn ensure_project(session: &Session<'_>, name: &str) -> Result<bool, Failure> {
    let Some(project) = find_project(session, name).await? else {
        let body = json!({"name": name, "domain_id": DOMAIN, "enabled": true});
        return create_shared(session, &PROJECTS, body).await;
    };
    enable(session, &PROJECTS, &project).await
}

pub(super) async fn ensure_role(session: &Session<'_>, name: &str) -> Result<bool, Failure> {
    if find_role(session, name).await?.is_some() {
        return Ok(false);
    }
    create_shared(session, &ROLES, json!({"name": name})).await
}

/// Creates an entry that several objects use, unless another one has created it meanwhile.
async fn create_shared(session: &Session<'_>, collection: &Collection, body: Value) -> Result<bool, Failure> {
    match session.create(collection, Body::Plain(body)).await {
        Err(Failure::Rejection { status: StatusCode::CONFLICT, .. }) => Ok(false),
        created => created.map(|_| true),
    }
}

/// Ensures that the user exists, is enabled, has the password, and has the roles in the project.
pub(super) async fn ensure_account(
    session: &Session<'_>,
    account: &IdentityAccount,
) -> Result<bool, Failure> {
    let (user, mut wrote) = ensure_user(session, &account.login, &account.claim).await?;
    if account.roles.is_empty() {
        return Ok(wrote);
    }
    let project = find_project(session, &account.project)
        .await?
        .context(MissingSnafu { kind: "project", name: &account.project })?;
    for name in &account.roles {
        let role = find_role(session, name).await?.context(MissingSnafu { kind: "role", name })?;
        let path = ["projects", &project.id, "users", &user, "roles", &role.id];
        if session.send(Method::HEAD, &path, &[], Body::Empty).await?.success_if_found()?.is_none() {
            session.send(Method::PUT, &path, &[], Body::Empty).await?.success()?;
            wrote = true;
        }
    }
    Ok(wrote)
}

/// Succeeds if the user does not exist or belongs to another object.
pub(super) async fn drop_user(session: &Session<'_>, name: &str, claim: &Claim) -> Result<(), Failure> {
    match find_user(session, name).await? {
        Some(user) if claim.may_remove(EffectKind::IdentityUser, name, user.owner()) => {
            session.remove(&USERS, &user.id).await
        }
        _ => Ok(()),
    }
}

/// Returns the user's id, and whether anything was written.
async fn ensure_user(session: &Session<'_>, login: &Login, claim: &Claim) -> Result<(String, bool), Failure> {
    let Some(user) = find_user(session, &login.username).await? else {
        let body = json!({
            "name": login.username,
            "domain_id": DOMAIN,
            "password": login.password,
            "enabled": true,
            "description": claim.mark(),
        });
        return Ok((session.create(&USERS, Body::Secret(body)).await?, true));
    };
    claim.admit(EffectKind::IdentityUser, &login.username, user.owner())?;
    let mut wrote = user.owner() != Found::Owned(&claim.owner);
    if wrote {
        session.update(&USERS, &user.id, Body::Plain(json!({"description": claim.mark()}))).await?;
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

async fn enable(session: &Session<'_>, collection: &Collection, entry: &Entry) -> Result<bool, Failure> {
    if entry.is_disabled() {
        session.update(collection, &entry.id, Body::Plain(json!({"enabled": true}))).await?;
    }
    Ok(entry.is_disabled())
}

async fn find_project(session: &Session<'_>, name: &str) -> Result<Option<Entry>, Failure> {
    find(session, &PROJECTS, name, &[("name", name), ("domain_id", DOMAIN)]).await
}

async fn find_user(session: &Session<'_>, name: &str) -> Result<Option<Entry>, Failure> {
    find(session, &USERS, name, &[("name", name), ("domain_id", DOMAIN)]).await
}

/// Lists only global roles: the query has no domain.
async fn find_role(session: &Session<'_>, name: &str) -> Result<Option<Entry>, Failure> {
    find(session, &ROLES, name, &[("name", name)]).await
}

/// Keystone's name filter is case-insensitive.
async fn find(
    session: &Session<'_>,
    collection: &Collection,
    name: &str,
    query: &[(&str, &str)],
) -> Result<Option<Entry>, Failure> {
    let entries: Vec<Entry> = session.list(collection, query).await?;
    Ok(entries.into_iter().find(|entry| entry.name == name))
}
