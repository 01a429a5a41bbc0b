//! Agents of nodes, by where they register: an API of the cloud, or the database of networks as they are.

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

/// By which the operator knows what it has closed itself.
const REASON: &str = "openstack-operator: the node is no longer chosen";

/// Speaks to all. It keeps the administrator's token as long as it is good.
pub struct NodeAgents {
    client: Client,
    tokens: Tokens,
}

impl NodeAgents {
    /// A process-wide TLS provider must be installed before.
    pub fn new() -> PortResult<Self> {
        let client =
            http::client().map_err(|failure| failure.into_port_error("prepare for services with agents"))?;
        Ok(Self { client, tokens: Tokens::default() })
    }

    fn hypervisors<'a>(&'a self, url: &'a str, identity: &'a IdentityLogin) -> Hypervisors<'a> {
        Hypervisors(Session::new(&self.client, &self.tokens, identity).of(url, Some(hypervisor::VERSION)))
    }

    fn network<'a>(&'a self, url: &'a str, identity: &'a IdentityLogin) -> Network<'a> {
        Network(Session::new(&self.client, &self.tokens, identity).of(url, None))
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
                .map_err(|failure| failure.into_port_error("list the hypervisors")),
            RegistryLogin::Network { url, identity } => self
                .network(url, identity)
                .list()
                .await
                .map_err(|failure| failure.into_port_error("list the network agents")),
            RegistryLogin::Chassis { southbound, database } => Southbound { members: southbound, database }
                .list()
                .await
                .map_err(|failure| failure.into_port_error("list the chassis")),
        }
    }

    async fn holdings(&self, registry: &RegistryLogin, node: &str) -> PortResult<Vec<String>> {
        match registry {
            RegistryLogin::Hypervisors { url, identity } => self
                .hypervisors(url, identity)
                .servers(node)
                .await
                .map_err(|failure| failure.into_port_error(&format!("list the servers of {node}"))),
            RegistryLogin::Network { url, identity } => {
                self.network(url, identity).holdings(node).await.map_err(|failure| {
                    failure.into_port_error(&format!("list what the agents of {node} have"))
                })
            }
            RegistryLogin::Chassis { southbound, database } => Southbound { members: southbound, database }
                .ports(node)
                .await
                .map_err(|failure| failure.into_port_error(&format!("list the ports of {node}"))),
        }
    }

    async fn set_enabled(&self, registry: &RegistryLogin, node: &str, enabled: bool) -> PortResult<()> {
        match registry {
            RegistryLogin::Hypervisors { url, identity } => {
                let action = format!("{} {node} for servers", if enabled { "enable" } else { "disable" });
                let hypervisors = self.hypervisors(url, identity);
                hypervisors
                    .set_enabled(node, enabled)
                    .await
                    .map_err(|failure| failure.into_port_error(&action))
            }
            RegistryLogin::Network { url, identity } => {
                let action = format!("{} the agents of {node}", if enabled { "open" } else { "empty" });
                let network = self.network(url, identity);
                network.set_enabled(node, enabled).await.map_err(|failure| failure.into_port_error(&action))
            }
            // Whoever is connected decides where.
            RegistryLogin::Chassis { .. } => Ok(()),
        }
    }

    async fn remove(&self, registry: &RegistryLogin, node: &str) -> PortResult<()> {
        let action = format!("remove the record of {node}");
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
