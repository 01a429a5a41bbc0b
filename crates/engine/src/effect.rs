//! Effects: databases, users, virtual hosts and catalog entries on other servers, ensured and undone over their
//! protocols.

use openstack_operator_model::common::Reference;
use openstack_operator_model::condition::Progress;
use openstack_operator_model::kind::SECRET;
use openstack_operator_model::plan::{Catalog, Database, Entry, Messaging, Plan, SecretContent, SecretKey};
use openstack_operator_model::status::{
    DatabaseServer, Effect, EffectKind, IdentityServer, MessagingServer, Provides,
};

use crate::engine::Engine;
use crate::gather::{self, Gathered, is_true};
use crate::ports::{
    BusGrant, BusServer, IdentityAccount, IdentityEntries, IdentityLogin, Login, PortError, PortResult,
    SqlServer,
};

/// Outcome of undoing an effect.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum UndoOutcome {
    Done,
    /// The server is not available now.
    Unreachable,
}

impl Engine {
    /// All effects of a plan.
    pub(crate) async fn effects(&self, namespace: &str, plan: &Plan) -> PortResult<Vec<Effect>> {
        let mut effects = Vec::new();
        let effect = |kind, provider: &Reference, address: &str, name: &str| Effect {
            kind,
            provider: provider.clone(),
            // The status of a managed server has its address; an external server needs it here.
            address: (provider.kind == SECRET.kind).then(|| address.to_owned()),
            region: None,
            name: name.to_owned(),
            retained: false,
        };
        for Database { provider, server, database, secret, retained } in &plan.databases {
            let address = format!("{}:{}", server.host, server.admin_port);
            let base = effect(EffectKind::Database, provider, &address, database);
            effects.push(Effect { retained: *retained, ..base });
            let user = self.username(namespace, plan, secret).await?;
            effects.push(effect(EffectKind::DatabaseUser, provider, &address, &user));
        }
        for messaging in &plan.messaging {
            let Messaging { provider, server, virtual_host, secret } = messaging;
            let address = &server.management_url;
            effects.push(effect(EffectKind::MessagingHost, provider, address, virtual_host));
            let user = self.username(namespace, plan, secret).await?;
            effects.push(effect(EffectKind::MessagingUser, provider, address, &user));
        }
        if let Some(Catalog { provider, server, services, users, .. }) = &plan.catalog {
            let address = &server.internal_url;
            for service in services {
                let base = effect(EffectKind::CatalogService, provider, address, &service.service_type);
                // Other clouds may register the same service in other regions.
                effects.push(Effect { region: Some(server.region.clone()), ..base });
            }
            for user in users {
                effects.push(effect(EffectKind::IdentityUser, provider, address, &user.name));
            }
        }
        effects.sort();
        Ok(effects)
    }

    /// Username in a Secret: from the plan, or from the Secret itself if the operator does not write it.
    async fn username(&self, namespace: &str, plan: &Plan, secret: &str) -> PortResult<String> {
        let planned = plan.secrets.iter().find(|planned| planned.name == secret);
        if let Some(SecretContent::Entries(entries)) = planned.map(|planned| &planned.content)
            && let Some(Entry::Text(name)) = entries.get("username")
        {
            return Ok(name.clone());
        }
        let name = self.secret_value(namespace, &SecretKey::new(secret, "username")).await?;
        Ok(name.unwrap_or_default())
    }

    /// Undoes effects of an earlier spec. Effects on unreachable servers stay recorded and are retried.
    pub(crate) async fn undo_unwanted(
        &self,
        namespace: &str,
        wanted: &[Effect],
        recorded: &mut Vec<Effect>,
    ) -> PortResult<()> {
        for effect in recorded.clone().iter().filter(|effect| !wanted.contains(effect)) {
            // If only the deletion policy differs, just the record changes.
            let same = wanted.iter().any(|other| {
                let place = effect.region.is_none() || other.region == effect.region;
                other.kind == effect.kind
                    && other.provider == effect.provider
                    && other.name == effect.name
                    && place
            });
            if same || self.undo(namespace, effect).await? == UndoOutcome::Done {
                recorded.retain(|known| known != effect);
            }
        }
        Ok(())
    }

    pub(crate) async fn ensure_messaging(
        &self,
        namespace: &str,
        messaging: &[Messaging],
        gathered: &Gathered,
    ) -> PortResult<Progress> {
        for claim in messaging {
            if gathered.unavailable.contains(&claim.provider) {
                return Ok(not_available(&claim.provider));
            }
            let (Some(server), Some(user)) = (
                self.bus_server(namespace, &claim.server).await?,
                self.login(namespace, &claim.secret).await?,
            ) else {
                return Ok(Progress::waiting(incomplete_secret(&claim.server.secret)));
            };
            // Queues that were declared before the cluster grew get members on the new brokers.
            let queue_members = claim.server.hosts.len();
            let grant = BusGrant { virtual_host: claim.virtual_host.clone(), queue_members, user };
            if self.ports.bus.ensure(&server, &grant).await? {
                tracing::info!(virtual_host = claim.virtual_host, "updated virtual host and user");
            }
        }
        Ok(Progress::Done)
    }

    pub(crate) async fn ensure_catalog(
        &self,
        namespace: &str,
        catalog: &Catalog,
        gathered: &Gathered,
    ) -> PortResult<Progress> {
        if gathered.unavailable.contains(&catalog.provider) {
            return Ok(not_available(&catalog.provider));
        }
        let Some(login) = self.identity_login(namespace, &catalog.server).await? else {
            let secret = catalog.server.secret.as_deref().unwrap_or_default();
            return Ok(Progress::waiting(incomplete_secret(secret)));
        };
        let mut entries = IdentityEntries {
            projects: catalog.projects.clone(),
            roles: catalog.roles.clone(),
            services: catalog.services.clone(),
            users: Vec::new(),
        };
        for user in &catalog.users {
            let Some(password) = self.secret_value(namespace, &user.password).await? else {
                return Ok(Progress::waiting(incomplete_secret(&user.password.secret)));
            };
            entries.users.push(IdentityAccount {
                login: Login { username: user.name.clone(), password },
                project: user.project.clone(),
                roles: user.roles.clone(),
            });
        }
        let ensured = self.ports.identity.ensure(&login, &entries).await.map(|wrote| {
            if wrote {
                tracing::info!("updated the service catalog");
            }
            Progress::Done
        });
        require_login(&catalog.provider, ensured)
    }

    /// Undoes one effect. Effects on a server that is deleted, or being deleted, need no undoing.
    pub(crate) async fn undo(&self, namespace: &str, effect: &Effect) -> PortResult<UndoOutcome> {
        if effect.retained {
            return Ok(UndoOutcome::Done);
        }
        if let Some(address) = &effect.address {
            let done = self.undo_on_external_server(namespace, effect, address).await?;
            return Ok(if done.is_some() { UndoOutcome::Done } else { UndoOutcome::Unreachable });
        }
        let Some(kind) = self.kind(&effect.provider.kind) else { return Ok(UndoOutcome::Done) };
        let provider = self.ports.cluster.get(kind, namespace, &effect.provider.name).await?;
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
        let done = self.undo_on(namespace, effect, &status.provides).await?;
        Ok(if done.is_some() { UndoOutcome::Done } else { UndoOutcome::Unreachable })
    }

    /// Undoes an effect on an external server, with the administrator's Secret that the effect names.
    async fn undo_on_external_server(
        &self,
        namespace: &str,
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
            EffectKind::CatalogService | EffectKind::IdentityUser => {
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
        self.undo_on(namespace, effect, &provides).await
    }

    async fn undo_on(&self, namespace: &str, effect: &Effect, provides: &Provides) -> PortResult<Option<()>> {
        match effect.kind {
            EffectKind::Database | EffectKind::DatabaseUser => {
                self.undo_sql(namespace, effect, provides).await
            }
            EffectKind::MessagingHost | EffectKind::MessagingUser => {
                self.undo_messaging(namespace, effect, provides).await
            }
            EffectKind::CatalogService | EffectKind::IdentityUser => {
                self.undo_identity(namespace, effect, provides).await
            }
        }
    }

    async fn undo_sql(
        &self,
        namespace: &str,
        effect: &Effect,
        provides: &Provides,
    ) -> PortResult<Option<()>> {
        let Some(server) = &provides.database else { return Ok(None) };
        let Some(server) = self.sql_server(namespace, server).await? else { return Ok(None) };
        Ok(ignore_failure(match effect.kind {
            EffectKind::Database => self.ports.sql.drop_database(&server, &effect.name).await,
            _ => self.ports.sql.drop_user(&server, &effect.name).await,
        }))
    }

    async fn undo_messaging(
        &self,
        namespace: &str,
        effect: &Effect,
        provides: &Provides,
    ) -> PortResult<Option<()>> {
        let Some(server) = &provides.messaging else { return Ok(None) };
        let Some(server) = self.bus_server(namespace, server).await? else { return Ok(None) };
        Ok(ignore_failure(match effect.kind {
            EffectKind::MessagingHost => self.ports.bus.drop_virtual_host(&server, &effect.name).await,
            _ => self.ports.bus.drop_user(&server, &effect.name).await,
        }))
    }

    async fn undo_identity(
        &self,
        namespace: &str,
        effect: &Effect,
        provides: &Provides,
    ) -> PortResult<Option<()>> {
        let Some(server) = &provides.identity else { return Ok(None) };
        let Some(login) = self.identity_login(namespace, server).await? else { return Ok(None) };
        Ok(ignore_failure(match effect.kind {
            EffectKind::CatalogService => {
                self.ports.identity.drop_service(&login, &effect.name, effect.region.as_deref()).await
            }
            _ => self.ports.identity.drop_user(&login, &effect.name).await,
        }))
    }

    pub(crate) async fn sql_server(
        &self,
        namespace: &str,
        server: &DatabaseServer,
    ) -> PortResult<Option<SqlServer>> {
        let login = self.login(namespace, &server.secret).await?;
        Ok(login.map(|administrator| SqlServer {
            host: server.host.clone(),
            port: server.admin_port,
            administrator,
        }))
    }

    async fn bus_server(&self, namespace: &str, server: &MessagingServer) -> PortResult<Option<BusServer>> {
        let login = self.login(namespace, &server.secret).await?;
        let management_url = server.management_url.clone();
        Ok(login.map(|administrator| BusServer { management_url, administrator }))
    }

    pub(crate) async fn identity_login(
        &self,
        namespace: &str,
        server: &IdentityServer,
    ) -> PortResult<Option<IdentityLogin>> {
        let Some(secret) = &server.secret else { return Ok(None) };
        let values = self.secret_values(namespace, secret).await?;
        let username = server.username.clone().or_else(|| values.get("username").cloned());
        let password = values.get(&server.secret_key).cloned();
        Ok(username.zip(password).map(|(username, password)| IdentityLogin {
            url: server.internal_url.clone(),
            administrator: Login { username, password },
        }))
    }

    pub(crate) async fn login(&self, namespace: &str, secret: &str) -> PortResult<Option<Login>> {
        let mut values = self.secret_values(namespace, secret).await?;
        let (username, password) = (values.remove("username"), values.remove("password"));
        Ok(username.zip(password).map(|(username, password)| Login { username, password }))
    }
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

/// Only the user can correct the login of a server that no object manages.
pub(crate) fn require_login(provider: &Reference, result: PortResult<Progress>) -> PortResult<Progress> {
    match result {
        Err(PortError::LoginRejected { .. }) if provider.kind == SECRET.kind => {
            let message = format!("the server rejects the login of Secret {}: correct it", provider.name);
            Ok(Progress::stalled(message))
        }
        result => result,
    }
}

pub(crate) fn incomplete_secret(secret: &str) -> String {
    format!("Secret {secret} does not exist yet or is incomplete")
}

pub(crate) fn not_available(provider: &Reference) -> Progress {
    Progress::waiting(format!("{} {} is not available", provider.kind, provider.name))
}
