//! Entries that are found by their names: domains, projects, roles and users.

use openstack_operator_engine::claim::Found;
use openstack_operator_model::plan::Domain;
use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use snafu::OptionExt;

use crate::http::{Body, Failure, MissingSnafu};
use crate::identity::DOMAIN;
use crate::identity::session::{Collection, DOMAINS, Session};

#[derive(Deserialize)]
pub(super) struct Entry {
    pub(super) id: String,
    name: String,
    /// Absent for roles, which cannot be disabled.
    #[serde(default)]
    enabled: Option<bool>,
    #[serde(default)]
    pub(super) description: Option<String>,
}

impl Entry {
    pub(super) fn owner(&self) -> Found<'_> {
        Found::marked(self.description.as_deref())
    }

    fn is_disabled(&self) -> bool {
        self.enabled == Some(false)
    }
}

/// Keystone's name filter is case-insensitive.
pub(super) async fn find(
    session: &Session<'_>,
    collection: &Collection,
    name: &str,
    query: &[(&str, &str)],
) -> Result<Option<Entry>, Failure> {
    let query = [&[("name", name)], query].concat();
    let entries: Vec<Entry> = session.list(collection, &query).await?;
    Ok(entries.into_iter().find(|entry| entry.name == name))
}

/// Id of a domain. It is an error if the domain does not exist yet.
pub(super) async fn domain_id(session: &Session<'_>, domain: &Domain) -> Result<String, Failure> {
    let Some(name) = domain.name() else { return Ok(DOMAIN.to_owned()) };
    let found = find(session, &DOMAINS, name, &[]).await?;
    Ok(found.context(MissingSnafu { kind: "domain", name })?.id)
}

/// Creates an entry that several objects use. Returns false if another one has created it meanwhile.
pub(super) async fn create_shared(
    session: &Session<'_>,
    collection: &Collection,
    body: Value,
) -> Result<bool, Failure> {
    match session.create(collection, Body::Plain(body)).await {
        Err(Failure::Rejection { status: StatusCode::CONFLICT, .. }) => Ok(false),
        created => created.map(|_| true),
    }
}

pub(super) async fn describe(
    session: &Session<'_>,
    collection: &Collection,
    entry: &Entry,
    description: String,
) -> Result<(), Failure> {
    session.update(collection, &entry.id, Body::Plain(json!({"description": description}))).await
}

pub(super) async fn enable(
    session: &Session<'_>,
    collection: &Collection,
    entry: &Entry,
) -> Result<bool, Failure> {
    if entry.is_disabled() {
        session.update(collection, &entry.id, Body::Plain(json!({"enabled": true}))).await?;
    }
    Ok(entry.is_disabled())
}
