//! The identity service, through its v3 API.

use async_trait::async_trait;
use openstack_operator_engine::claim::Claim;
use openstack_operator_engine::ports::{Identity, IdentityEntries, IdentityLogin, PortResult};
use openstack_operator_model::plan::Domain;
use reqwest::Client;

use crate::administrator;
use crate::http::{self, Failure};
use crate::identity::session::{Session, Tokens};

mod account;
mod catalog;
mod directory;
mod domain;
mod role;
pub(crate) mod session;

/// Id of the domain that every Keystone has.
const DOMAIN: &str = "default";

/// Client of the v3 API. The administrator's token is reused until shortly before it expires.
pub struct IdentityV3 {
    client: Client,
    tokens: Tokens,
}

impl IdentityV3 {
    /// Requires a process-wide TLS provider.
    pub fn new() -> PortResult<Self> {
        let client = http::client()
            .map_err(|failure| failure.into_port_error("create an HTTP client for the identity service"))?;
        Ok(Self { client, tokens: Tokens::default() })
    }

    fn session<'a>(&'a self, server: &'a IdentityLogin) -> Session<'a> {
        Session::new(&self.client, &self.tokens, server)
    }
}

#[async_trait]
impl Identity for IdentityV3 {
    async fn ensure(&self, server: &IdentityLogin, entries: &IdentityEntries) -> PortResult<bool> {
        let session = self.session(server);
        let mut wrote = ensure_names(&session, entries).await?;
        for service in &entries.services {
            wrote |= catalog::ensure_service(&session, service).await.map_err(|failure| {
                let name = &service.entry.service_type;
                failure.into_port_error(&format!("set up service {name} in the catalog"))
            })?;
        }
        for user in &entries.users {
            let name = &user.login.username;
            let action = format!("set up user {name} in the identity service");
            // The administrator may get roles, but never another password.
            if user.domain == Domain::Default && user.login.password != server.administrator.password {
                administrator::protect(&server.administrator, name, &action)?;
            }
            wrote |= account::ensure_account(&session, user)
                .await
                .map_err(|failure| failure.into_port_error(&action))?;
        }
        Ok(wrote)
    }

    async fn drop_service(
        &self,
        server: &IdentityLogin,
        service_type: &str,
        region: Option<&str>,
        claim: &Claim,
    ) -> PortResult<()> {
        catalog::drop_service(&self.session(server), service_type, region, claim).await.map_err(|failure| {
            failure.into_port_error(&format!("remove service {service_type} from the catalog"))
        })
    }

    async fn drop_user(
        &self,
        server: &IdentityLogin,
        domain: &Domain,
        user: &str,
        claim: &Claim,
    ) -> PortResult<()> {
        let action = format!("remove user {user} from the identity service");
        if *domain == Domain::Default {
            administrator::protect(&server.administrator, user, &action)?;
        }
        account::drop_user(&self.session(server), domain, user, claim)
            .await
            .map_err(|failure| failure.into_port_error(&action))
    }

    async fn drop_domain(&self, server: &IdentityLogin, domain: &str, claim: &Claim) -> PortResult<()> {
        domain::drop_domain(&self.session(server), domain, claim).await.map_err(|failure| {
            failure.into_port_error(&format!("remove domain {domain} from the identity service"))
        })
    }

    async fn release_role(&self, server: &IdentityLogin, role: &str, owner: &str) -> PortResult<()> {
        role::release_role(&self.session(server), role, owner).await.map_err(|failure| {
            failure.into_port_error(&format!("remove role {role} from the identity service"))
        })
    }
}

/// Ensures the domains, projects and roles that users refer to.
async fn ensure_names(session: &Session<'_>, entries: &IdentityEntries) -> PortResult<bool> {
    let error = |kind: &str, name: &str, failure: Failure| {
        failure.into_port_error(&format!("set up {kind} {name} in the identity service"))
    };
    let mut wrote = false;
    for entry in &entries.domains {
        let ensured = domain::ensure_domain(session, entry).await;
        wrote |= ensured.map_err(|failure| error("domain", &entry.name, failure))?;
    }
    for project in &entries.projects {
        let ensured = account::ensure_project(session, project).await;
        wrote |= ensured.map_err(|failure| error("project", project, failure))?;
    }
    for role in &entries.roles {
        let ensured = role::ensure_role(session, role).await;
        wrote |= ensured.map_err(|failure| error("role", role, failure))?;
    }
    for role in &entries.service_roles {
        let ensured = role::ensure_service_role(session, role, &entries.owner).await;
        wrote |= ensured.map_err(|failure| error("role", role, failure))?;
    }
    Ok(wrote)
}

#[cfg(test)]
mod tests;
