//! Registries of agents in memory.

use std::collections::BTreeMap;

use async_trait::async_trait;
use openstack_operator_engine::ports::{AdminState, Agent, Agents, Login, PortResult, RegistryLogin};
use serde::Serialize;

use crate::server::{FakeServer, ServerState};

/// Registries by address, or by all addresses of their members.
pub type FakeAgents = FakeServer<AgentState>;

/// Agents by node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AgentState {
    pub agents: BTreeMap<String, AgentEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AgentEntry {
    pub up: bool,
    /// Whether the scheduler may use it.
    pub enabled: bool,
    pub holds: Vec<String>,
}

impl AgentEntry {
    /// An agent that has just registered.
    pub fn new() -> Self {
        Self { up: true, enabled: true, holds: Vec::new() }
    }
}

impl Default for AgentEntry {
    fn default() -> Self {
        Self::new()
    }
}

impl ServerState for AgentState {
    const PORT: &'static str = "agents";
}

fn address(registry: &RegistryLogin) -> (String, Login) {
    match registry {
        RegistryLogin::Hypervisors { url, identity } | RegistryLogin::Network { url, identity } => {
            (url.clone(), identity.administrator.clone())
        }
        RegistryLogin::Chassis { southbound, .. } => {
            let anonymous = Login { username: String::new(), password: String::new() };
            (southbound.join(","), anonymous)
        }
    }
}

#[async_trait]
impl Agents for FakeAgents {
    async fn list(&self, registry: &RegistryLogin) -> PortResult<Vec<Agent>> {
        let (address, login) = address(registry);
        self.call("list", "", (&address, &login), |_| Ok(()))?;
        let admin_state = |entry: &AgentEntry| match (registry, entry.enabled) {
            (RegistryLogin::Chassis { .. }, _) => AdminState::Unmanaged,
            (_, true) => AdminState::Enabled,
            (_, false) => AdminState::DisabledByOperator,
        };
        let agents = self.state(&address).agents.into_iter();
        Ok(agents
            .map(|(node, entry)| Agent { node, up: entry.up, admin_state: admin_state(&entry) })
            .collect())
    }

    async fn holdings(&self, registry: &RegistryLogin, node: &str) -> PortResult<Vec<String>> {
        let (address, login) = address(registry);
        self.call("holdings", node, (&address, &login), |_| Ok(()))?;
        Ok(self.state(&address).agents.get(node).map(|entry| entry.holds.clone()).unwrap_or_default())
    }

    async fn set_enabled(&self, registry: &RegistryLogin, node: &str, enabled: bool) -> PortResult<()> {
        let (address, login) = address(registry);
        self.call("set_enabled", node, (&address, &login), |state| {
            if let Some(entry) = state.agents.get_mut(node) {
                entry.enabled = enabled;
            }
            Ok(())
        })?;
        Ok(())
    }

    async fn remove(&self, registry: &RegistryLogin, node: &str) -> PortResult<()> {
        let (address, login) = address(registry);
        self.call("remove", node, (&address, &login), |state| {
            state.agents.remove(node);
            Ok(())
        })?;
        Ok(())
    }
}
