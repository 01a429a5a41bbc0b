//! Undoing effects: removes what an object created on other servers, and nothing that belongs to others.

use openstack_operator_model::common::Reference;
use openstack_operator_model::plan::Domain;
use openstack_operator_model::status::{DatabaseServer, Effect, EffectKind, IdentityServer, Provides};

use crate::claim::{Adoption, Claim};
use crate::engine::{Engine, Key};
use crate::gather::{self, is_true};
use crate::ports::PortResult;

/// Outcome of undoing an effect.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum UndoOutcome {
    Done,
    /// The server is not available now.
    Unreachable,
}

impl Engine {
    /// Undoes effects of an earlier spec. Effects on unreachable servers stay recorded and are retried.
    pub(crate) async fn undo_unwanted(
        &self,
        key: &Key,
        wanted: &[Effect],
        recorded: &mut Vec<Effect>,
    ) -> PortResult<()> {
        let is_wanted = |effect: &Effect| wanted.iter().any(|wanted| wanted.matches(effect));
        for effect in recorded.clone().iter().filter(|effect| !is_wanted(effect)) {
            // If only the deletion policy differs, just the record changes.
            let same = wanted.iter().any(|other| effect.covers(other));
            if same || self.undo(key, effect).await? == UndoOutcome::Done {
                recorded.retain(|known| known != effect);
            }
        }
        Ok(())
    }

    /// Undoes one effect. Effects on a server that is deleted, or being deleted, need no undoing.
    pub(crate) async fn undo(&self, key: &Key, effect: &Effect) -> PortResult<UndoOutcome> {
        if effect.retained {
            return Ok(UndoOutcome::Done);
        }
        if let Some(address) = &effect.address {
            let done = self.undo_on_external_server(key, effect, address).await?;
            return Ok(if done.is_some() { UndoOutcome::Done } else { UndoOutcome::Unreachable });
        }
        let Some(kind) = self.kind(&effect.provider.kind) else { return Ok(UndoOutcome::Done) };
        let provider = self.ports.cluster.get(kind, &key.namespace, &effect.provider.name).await?;
        let Some(provider) = provider.filter(|provider| provider.metadata.deletion_timestamp.is_none())
        else {
            return Ok(UndoOutcome::Done);
        };
        let status = match gather::status(&provider.data) {
            Ok(status) if is_true(&status, "Available") => status,
            // The server was never available, so nothing was created on it.
            Ok(status) if !status.served => return Ok(UndoOutcome::Done),
            Ok(_) => return Ok(UndoOutcome::Unreachable),
            Err(error) => {
                let Reference { kind, name } = &effect.provider;
                tracing::warn!(
                    kind,
                    name,
                    error = &error as &dyn std::error::Error,
                    "failed to read the status of the server that holds an effect"
                );
                return Ok(UndoOutcome::Unreachable);
            }
        };
        let done = self.undo_on(key, effect, &status.provides).await?;
        Ok(if done.is_some() { UndoOutcome::Done } else { UndoOutcome::Unreachable })
    }

    /// Undoes an effect on an external server, with the administrator's Secret that the effect names.
    async fn undo_on_external_server(
        &self,
        key: &Key,
        effect: &Effect,
        address: &str,
    ) -> PortResult<Option<()>> {
        let secret = effect.provider.name.clone();
        let provides = match effect.kind {
            EffectKind::Database | EffectKind::DatabaseUser => {
                let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
                let port = port.parse().unwrap_or_default();
                let server = DatabaseServer { host: host.to_owned(), port, admin_port: port, secret };
                Provides { database: Some(server), ..Provides::default() }
            }
            EffectKind::CatalogService
            | EffectKind::IdentityUser
            | EffectKind::IdentityDomain
            | EffectKind::IdentityRole => {
                let server = IdentityServer {
                    internal_url: address.to_owned(),
                    public_url: address.to_owned(),
                    region: String::new(),
                    username: None,
                    secret: Some(secret),
                    secret_key: "password".to_owned(),
                };
                Provides { identity: Some(server), ..Provides::default() }
            }
            // The operator never creates virtual hosts on external servers.
            EffectKind::MessagingHost | EffectKind::MessagingUser => return Ok(Some(())),
        };
        self.undo_on(key, effect, &provides).await
    }

    async fn undo_on(&self, key: &Key, effect: &Effect, provides: &Provides) -> PortResult<Option<()>> {
        match effect.kind {
            EffectKind::Database | EffectKind::DatabaseUser => self.undo_sql(key, effect, provides).await,
            EffectKind::MessagingHost | EffectKind::MessagingUser => {
                self.undo_messaging(key, effect, provides).await
            }
            EffectKind::CatalogService
            | EffectKind::IdentityUser
            | EffectKind::IdentityDomain
            | EffectKind::IdentityRole => self.undo_identity(key, effect, provides).await,
        }
    }

    async fn undo_sql(&self, key: &Key, effect: &Effect, provides: &Provides) -> PortResult<Option<()>> {
        let Some(server) = &provides.database else { return Ok(None) };
        let Some(server) = self.sql_server(&key.namespace, server).await? else { return Ok(None) };
        let claim = claim(key, effect);
        Ok(ignore_failure(match effect.kind {
            EffectKind::Database => self.ports.sql.drop_database(&server, &effect.name, &claim).await,
            _ => self.ports.sql.drop_user(&server, &effect.name, &claim).await,
        }))
    }

    async fn undo_messaging(
        &self,
        key: &Key,
        effect: &Effect,
        provides: &Provides,
    ) -> PortResult<Option<()>> {
        let Some(server) = &provides.messaging else { return Ok(None) };
        let Some(server) = self.bus_server(&key.namespace, server).await? else { return Ok(None) };
        let claim = claim(key, effect);
        Ok(ignore_failure(match effect.kind {
            EffectKind::MessagingHost => {
                self.ports.bus.drop_virtual_host(&server, &effect.name, &claim).await
            }
            _ => self.ports.bus.drop_user(&server, &effect.name, &claim).await,
        }))
    }

    async fn undo_identity(&self, key: &Key, effect: &Effect, provides: &Provides) -> PortResult<Option<()>> {
        let Some(server) = &provides.identity else { return Ok(None) };
        let Some(login) = self.identity_login(&key.namespace, server).await? else { return Ok(None) };
        let (identity, name, claim) = (&self.ports.identity, &effect.name, claim(key, effect));
        Ok(ignore_failure(match effect.kind {
            EffectKind::CatalogService => {
                identity.drop_service(&login, name, effect.region.as_deref(), &claim).await
            }
            EffectKind::IdentityDomain => identity.drop_domain(&login, name, &claim).await,
            EffectKind::IdentityRole => identity.release_role(&login, name, &claim.owner).await,
            _ => {
                let domain = Domain::from(effect.domain.as_deref());
                identity.drop_user(&login, &domain, name, &claim).await
            }
        }))
    }
}

/// The claim to a recorded resource. A resource without an owner belongs to the object only once that is confirmed: an
/// older operator created it, or its owner was lost.
fn claim(key: &Key, effect: &Effect) -> Claim {
    let adoption = if effect.pending { Adoption::Nothing } else { Adoption::Unowned };
    Claim { owner: key.to_string(), adoption }
}

/// Treats a server that rejects the request or does not answer as unreachable, so that deletion does not wait for it
/// forever.
fn ignore_failure(result: PortResult<()>) -> Option<()> {
    result
        .inspect_err(|error| {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                "failed to undo an effect; the operator retries"
            );
        })
        .ok()
}
