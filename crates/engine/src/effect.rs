//! Effects: databases, users, virtual hosts and catalog entries on other servers, ensured over their protocols.

use openstack_operator_model::common::{ADOPT_ANNOTATION, Reference};
use openstack_operator_model::condition::Progress;
use openstack_operator_model::kind::SECRET;
use openstack_operator_model::plan::{Catalog, Database, Entry, Messaging, Plan, SecretContent, SecretKey};
use openstack_operator_model::status::{DatabaseServer, Effect, EffectKind, IdentityServer, MessagingServer};

use crate::claim::Refusal;
use crate::engine::{Engine, Key};
use crate::gather::Gathered;
use crate::ports::{BusGrant, BusServer, IdentityLogin, Login, PortError, PortResult, SqlServer};
use crate::work::Work;

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
            domain: None,
            name: name.to_owned(),
            retained: false,
            pending: true,
        };
        for Database { provider, server, database, secret, retained, .. } in &plan.databases {
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
        if let Some(catalog) = &plan.catalog {
            let Catalog { provider, server, domains, service_roles, services, users, .. } = catalog;
            let identity = |kind, name: &str| effect(kind, provider, &server.internal_url, name);
            effects.extend(services.iter().map(|service| Effect {
                // Other clouds may register the same service in other regions.
                region: Some(server.region.clone()),
                ..identity(EffectKind::CatalogService, &service.service_type)
            }));
            effects.extend(users.iter().map(|user| Effect {
                domain: user.domain.name().map(str::to_owned),
                ..identity(EffectKind::IdentityUser, &user.name)
            }));
            effects.extend(domains.iter().map(|domain| Effect {
                retained: domain.retained,
                ..identity(EffectKind::IdentityDomain, &domain.name)
            }));
            effects.extend(service_roles.iter().map(|role| identity(EffectKind::IdentityRole, role)));
        }
        effects.sort();
        effects.dedup();
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

    pub(crate) async fn ensure_messaging(
        &self,
        messaging: &[Messaging],
        gathered: &Gathered,
        work: &Work,
    ) -> PortResult<Progress> {
        for messaging in messaging {
            if gathered.unavailable.contains(&messaging.provider) {
                return Ok(not_available(&messaging.provider));
            }
            let ensured = self.ensure_virtual_host(messaging, work).await;
            let progress = stalled_if_refused(&work.key, &messaging.provider, ensured)?;
            if !progress.is_met() {
                return Ok(progress);
            }
        }
        Ok(Progress::Done)
    }

    async fn ensure_virtual_host(&self, messaging: &Messaging, work: &Work) -> PortResult<Progress> {
        let namespace = &work.key.namespace;
        let Messaging { provider, server, virtual_host, secret } = messaging;
        let (Some(administered), Some(user)) =
            (self.bus_server(namespace, server).await?, self.login(namespace, secret).await?)
        else {
            return Ok(Progress::waiting(incomplete_secret(&server.secret)));
        };
        let grant = BusGrant {
            virtual_host: virtual_host.clone(),
            virtual_host_claim: work.claim(EffectKind::MessagingHost, provider, virtual_host),
            // Queues that were declared before the cluster grew get members on the new brokers.
            queue_members: server.hosts.len(),
            user_claim: work.claim(EffectKind::MessagingUser, provider, &user.username),
            user,
        };
        if self.ports.bus.ensure(&administered, &grant).await? {
            tracing::info!(virtual_host, "updated virtual host and user");
        }
        Ok(Progress::Done)
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

    pub(crate) async fn bus_server(
        &self,
        namespace: &str,
        server: &MessagingServer,
    ) -> PortResult<Option<BusServer>> {
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

/// Only the user can correct the login of a server that no object manages, or decide on a resource of another owner.
pub(crate) fn stalled_if_refused(
    key: &Key,
    provider: &Reference,
    result: PortResult<Progress>,
) -> PortResult<Progress> {
    match result {
        Err(PortError::LoginRejected { .. }) if provider.kind == SECRET.kind => {
            let message = format!("the server rejects the login of Secret {}: correct it", provider.name);
            Ok(Progress::stalled(message))
        }
        Err(PortError::Foreign { refusal }) => {
            Ok(Progress::stalled(refusal_message(key, provider, &refusal)))
        }
        result => result,
    }
}

fn refusal_message(key: &Key, provider: &Reference, refusal: &Refusal) -> String {
    let Key { kind, name, .. } = key;
    let place = if provider.kind == SECRET.kind {
        format!("the server of Secret {}", provider.name)
    } else {
        format!("{} {}", provider.kind, provider.name)
    };
    let remedy = match &refusal.owner {
        Some(_) => "use another server, or delete one of the two objects",
        None => "remove it",
    };
    format!(
        "{refusal} (on {place}): {remedy}; to take it over, set annotation {ADOPT_ANNOTATION}: {} on {} {name}",
        refusal.name, kind.kind
    )
}

pub(crate) fn incomplete_secret(secret: &str) -> String {
    format!("Secret {secret} does not exist yet or is incomplete")
}

pub(crate) fn not_available(provider: &Reference) -> Progress {
    Progress::waiting(format!("{} {} is not available", provider.kind, provider.name))
}
