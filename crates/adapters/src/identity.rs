//! The identity service, by its v3 API over HTTP.

use async_trait::async_trait;
use openstack_operator_engine::ports::{Identity, IdentityEntries, IdentityLogin, PortResult};
use reqwest::Client;

use crate::administrator;
use crate::http;
use crate::identity::session::{Session, Tokens};

mod account;
mod catalog;
pub(crate) mod session;

/// The domain that everything the operator makes is in, by its id.
const DOMAIN: &str = "default";

/// Speaks to the v3 API. It keeps the administrator's token as long as it is good.
pub struct IdentityV3 {
    client: Client,
    tokens: Tokens,
}

impl IdentityV3 {
    /// A process-wide TLS provider must be installed before.
    pub fn new() -> PortResult<Self> {
        let client =
            http::client().map_err(|failure| failure.into_port_error("prepare for the identity service"))?;
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
                failure.into_port_error(&format!("set up service {} in the catalog", service.service_type))
            })?;
        }
        for user in &entries.users {
            let name = &user.login.username;
            let action = format!("set up user {name} in the identity service");
            // The administrator may be given roles, but its password is not changed behind the operator's back.
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
    ) -> PortResult<()> {
        catalog::drop_service(&self.session(server), service_type, region).await.map_err(|failure| {
            failure.into_port_error(&format!("remove service {service_type} from the catalog"))
        })
    }

    async fn drop_user(&self, server: &IdentityLogin, user: &str) -> PortResult<()> {
        let action = format!("remove user {user} from the identity service");
        administrator::protect(&server.administrator, user, &action)?;
        account::drop_user(&self.session(server), user)
            .await
            .map_err(|failure| failure.into_port_error(&action))
    }
}

#[cfg(test)]
mod tests;
