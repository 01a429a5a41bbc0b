//! Roles: those that every cloud has, and those of services, which name the objects that need them.

use openstack_operator_engine::claim::Sharers;
use serde_json::{Value, json};

use crate::http::Failure;
use crate::identity::directory::{Entry, create_shared, describe, find};
use crate::identity::session::{ROLE_ASSIGNMENTS, ROLES, Session};

pub(super) async fn ensure_role(session: &Session<'_>, name: &str) -> Result<bool, Failure> {
    if find_role(session, name).await?.is_some() {
        return Ok(false);
    }
    create_shared(session, &ROLES, json!({"name": name})).await
}

/// Ensures that the role exists and names the object. A role that no object has created is used as it is.
pub(super) async fn ensure_service_role(
    session: &Session<'_>,
    name: &str,
    owner: &str,
) -> Result<bool, Failure> {
    let mut role = find_role(session, name).await?;
    if role.is_none() {
        let mut sharers = Sharers::default();
        sharers.add(owner);
        if create_shared(session, &ROLES, json!({"name": name, "description": sharers.mark()})).await? {
            return Ok(true);
        }
        role = find_role(session, name).await?;
    }
    let Some((role, mut sharers)) = role.and_then(with_sharers) else { return Ok(false) };
    let is_new = sharers.add(owner);
    if is_new {
        describe(session, &ROLES, &role, sharers.mark()).await?;
    }
    Ok(is_new)
}

/// Removes the object from those that need the role, and the role with the last of them. Keystone would also remove all
/// assignments of the role, so that a role that a user holds stays.
pub(super) async fn release_role(session: &Session<'_>, name: &str, owner: &str) -> Result<(), Failure> {
    let role = find_role(session, name).await?;
    let Some((role, mut sharers)) = role.and_then(with_sharers) else { return Ok(()) };
    let was_needed = sharers.remove(owner);
    if sharers.is_empty() && !is_assigned(session, &role).await? {
        return session.remove(&ROLES, &role.id).await;
    }
    if was_needed {
        describe(session, &ROLES, &role, sharers.mark()).await?;
    }
    Ok(())
}

/// Lists only global roles: the query has no domain.
pub(super) async fn find_role(session: &Session<'_>, name: &str) -> Result<Option<Entry>, Failure> {
    find(session, &ROLES, name, &[]).await
}

fn with_sharers(role: Entry) -> Option<(Entry, Sharers)> {
    let sharers = Sharers::read(role.description.as_deref())?;
    Some((role, sharers))
}

async fn is_assigned(session: &Session<'_>, role: &Entry) -> Result<bool, Failure> {
    let assignments: Vec<Value> = session.list(&ROLE_ASSIGNMENTS, &[("role.id", &role.id)]).await?;
    Ok(!assignments.is_empty())
}
