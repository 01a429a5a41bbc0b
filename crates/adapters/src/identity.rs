//! The identity service, through its v3 API.

use async_trait::async_trait;
use openstack_operator_engine::claim::Claim;
use openstack_operator_engine::ports::{Identity, IdentityEntries, IdentityLogin, PortResult};
use reqwest::Client;

use crate::administrator;
use crate::http;
use crate::identity::session::{Session, Tokens};

mod account;
mod catalog;
pub(crate) mod session;

/// Id of the domain that the operator uses.
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
        let mut wrote = false;
        for project in &entries.projects {
            wrote |= account::ensure_project(&session, project).await.map_err(|failure| {
                failure.into_port_error(&format!("set up project {project} in the identity service"))
            })?;
        }
        for role in &entries.roles {
            wrote |= account::ensure_role(&session, role).await.map_err(|failure| {
                failure.into_port_error(&format!("set up role {role} in the identity service"))
            })?;
        }
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
            if user.login.password != server.administrator.password {
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

    async fn drop_user(&self, server: &IdentityLogin, user: &str, claim: &Claim) -> PortResult<()> {
        let action = format!("remove user {user} from the identity service");
        administrator::protect(&server.administrator, user, &action)?;
        account::drop_user(&self.session(server), user, claim)
            .await
            .map_err(|failure| failure.into_port_error(&action))
    }
}

#[cfg(test)]
mod tests;
