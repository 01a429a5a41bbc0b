//! Agents on nodes, through their registries: the Compute API, the Networking API, or OVN's southbound database.

use async_trait::async_trait;
use openstack_operator_engine::ports::{Agent, Agents, IdentityLogin, PortResult, RegistryLogin};
use reqwest::Client;

use crate::agents::chassis::Southbound;
use crate::agents::hypervisor::Hypervisors;
use crate::agents::network::Network;
use crate::http;
use crate::identity::session::{Session, Tokens};

mod chassis;
mod hypervisor;
mod network;
mod ovsdb;

/// Identifies agents that the operator has disabled. The registries store it: after a change the operator would no
/// longer enable such agents.
const DISABLED_REASON: &str = "openstack-operator: the node is no longer chosen";

/// Clients of all registries. Administrator tokens are reused until shortly before they expire.
pub struct NodeAgents {
    client: Client,
    tokens: Tokens,
}

impl NodeAgents {
    /// Requires a process-wide TLS provider.
    pub fn new() -> PortResult<Self> {
        let client = http::client()
            .map_err(|failure| failure.into_port_error("create an HTTP client for agent registries"))?;
        Ok(Self { client, tokens: Tokens::default() })
    }

    fn hypervisors<'a>(&'a self, url: &'a str, identity: &'a IdentityLogin) -> Hypervisors<'a> {
        Hypervisors(
            Session::new(&self.client, &self.tokens, identity).for_service(url, Some(hypervisor::VERSION)),
        )
    }

    fn network<'a>(&'a self, url: &'a str, identity: &'a IdentityLogin) -> Network<'a> {
        Network(Session::new(&self.client, &self.tokens, identity).for_service(url, None))
    }
}

#[async_trait]
impl Agents for NodeAgents {
    async fn list(&self, registry: &RegistryLogin) -> PortResult<Vec<Agent>> {
        match registry {
            RegistryLogin::Hypervisors { url, identity } => self
                .hypervisors(url, identity)
                .list()
                .await
                .map_err(|failure| failure.into_port_error("list hypervisors")),
            RegistryLogin::Network { url, identity } => self
                .network(url, identity)
                .list()
                .await
                .map_err(|failure| failure.into_port_error("list network agents")),
            RegistryLogin::Chassis { southbound, database } => Southbound { members: southbound, database }
                .list()
                .await
                .map_err(|failure| failure.into_port_error("list chassis in the southbound database")),
        }
    }

    async fn holdings(&self, registry: &RegistryLogin, node: &str) -> PortResult<Vec<String>> {
        match registry {
            RegistryLogin::Hypervisors { url, identity } => self
                .hypervisors(url, identity)
                .instances(node)
                .await
                .map_err(|failure| failure.into_port_error(&format!("list instances on {node}"))),
            RegistryLogin::Network { url, identity } => {
                self.network(url, identity).holdings(node).await.map_err(|failure| {
                    failure
                        .into_port_error(&format!("list ports, routers and networks of the agents on {node}"))
                })
            }
            RegistryLogin::Chassis { southbound, database } => Southbound { members: southbound, database }
                .ports(node)
                .await
                .map_err(|failure| failure.into_port_error(&format!("list ports bound to {node}"))),
        }
    }

    async fn set_enabled(&self, registry: &RegistryLogin, node: &str, enabled: bool) -> PortResult<()> {
        match registry {
            RegistryLogin::Hypervisors { url, identity } => {
                let action =
                    format!("{} the compute service on {node}", if enabled { "enable" } else { "disable" });
                let hypervisors = self.hypervisors(url, identity);
                hypervisors
                    .set_enabled(node, enabled)
                    .await
                    .map_err(|failure| failure.into_port_error(&action))
            }
            RegistryLogin::Network { url, identity } => {
                let action =
                    format!("{} the network agents on {node}", if enabled { "enable" } else { "drain" });
                let network = self.network(url, identity);
                network.set_enabled(node, enabled).await.map_err(|failure| failure.into_port_error(&action))
            }
            // OVN does not schedule work to chassis.
            RegistryLogin::Chassis { .. } => Ok(()),
        }
    }

    async fn remove(&self, registry: &RegistryLogin, node: &str) -> PortResult<()> {
        let action = format!("remove the agent records of {node}");
        match registry {
            RegistryLogin::Hypervisors { url, identity } => {
                let hypervisors = self.hypervisors(url, identity);
                hypervisors.remove(node).await.map_err(|failure| failure.into_port_error(&action))
            }
            RegistryLogin::Network { url, identity } => {
                let network = self.network(url, identity);
                network.remove(node).await.map_err(|failure| failure.into_port_error(&action))
            }
            RegistryLogin::Chassis { southbound, database } => {
                let southbound = Southbound { members: southbound, database };
                southbound.remove(node).await.map_err(|failure| failure.into_port_error(&action))
            }
        }
    }
}

#[cfg(test)]
mod tests;
