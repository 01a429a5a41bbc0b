//! Agents of the network service, through its API: one Open vSwitch agent per node, and L3 and DHCP agents on some
//! nodes.

use openstack_operator_engine::ports::{AdminState, Agent};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::agents::DISABLED_REASON;
use crate::http::{Body, Failure, Response};
use crate::identity::session::Session;

const VERSION: &str = "v2.0";
const SWITCH: &str = "Open vSwitch agent";

/// An agent type with scheduled work, which another agent of the type can take over.
struct Role {
    agent_type: &'static str,
    /// Names of the scheduled resource in paths and responses.
    path: &'static str,
    plural: &'static str,
    singular: &'static str,
    /// Path of the agents that host a resource.
    holders: &'static str,
    /// Whether two agents may host the same resource, so that the successor starts before the old agent stops.
    active_active: bool,
}

const ROLES: [Role; 2] = [
    Role {
        agent_type: "L3 agent",
        path: "l3-routers",
        plural: "routers",
        singular: "router",
        holders: "l3-agents",
        active_active: false,
    },
    Role {
        agent_type: "DHCP agent",
        path: "dhcp-networks",
        plural: "networks",
        singular: "network",
        holders: "dhcp-agents",
        active_active: true,
    },
];

pub(super) struct Network<'a>(pub(super) Session<'a>);

#[derive(Deserialize)]
struct AgentRecord {
    id: String,
    agent_type: String,
    host: String,
    alive: bool,
    admin_state_up: bool,
    #[serde(default)]
    description: Option<String>,
}

impl AgentRecord {
    fn role(&self) -> Option<&'static Role> {
        ROLES.iter().find(|role| role.agent_type == self.agent_type)
    }
}

#[derive(Deserialize)]
struct Identifier {
    id: String,
}

#[derive(Deserialize)]
struct Port {
    id: String,
    device_owner: String,
}

impl Network<'_> {
    /// A node is up if its Open vSwitch agent is alive. Other agents are optional.
    pub(super) async fn list(&self) -> Result<Vec<Agent>, Failure> {
        let agents = self.agents().await?;
        let switches = agents.iter().filter(|agent| agent.agent_type == SWITCH);
        Ok(switches
            .map(|switch| Agent {
                node: switch.host.clone(),
                up: switch.alive,
                admin_state: admin_state(&agents, &switch.host),
            })
            .collect())
    }

    /// Ports of instances, and resources that no other agent could take over.
    pub(super) async fn holdings(&self, node: &str) -> Result<Vec<String>, Failure> {
        let query = [("binding:host_id", node), ("fields", "id"), ("fields", "device_owner")];
        let response = self.0.send(Method::GET, &[VERSION, "ports"], &query, Body::Empty).await?;
        let ports: Vec<Port> = response.field(&["ports"])?;
        let bound = ports.into_iter().filter(|port| port.device_owner.starts_with("compute:"));
        let mut holds: Vec<String> = bound.map(|port| format!("port {}", port.id)).collect();
        for agent in self.agents().await?.iter().filter(|agent| agent.host == node) {
            let Some(role) = agent.role() else { continue };
            let assignments = self.assignments(role, agent).await?.into_iter();
            holds.extend(assignments.map(|id| format!("{} {id}", role.singular)));
        }
        Ok(holds)
    }

    /// Disabling first reassigns all resources of an agent. The agent is disabled only when it hosts nothing, since a
    /// disabled agent drops its resources.
    pub(super) async fn set_enabled(&self, node: &str, enabled: bool) -> Result<(), Failure> {
        let agents = self.agents().await?;
        for agent in agents.iter().filter(|agent| agent.host == node) {
            let Some(role) = agent.role() else { continue };
            if enabled {
                if !agent.admin_state_up && agent.description.as_deref() == Some(DISABLED_REASON) {
                    self.change(agent, &json!({ "admin_state_up": true, "description": "" })).await?;
                }
                continue;
            }
            let others: Vec<&AgentRecord> = agents
                .iter()
                .filter(|other| {
                    other.agent_type == agent.agent_type
                        && other.host != node
                        && other.alive
                        && other.admin_state_up
                })
                .collect();
            if self.reassign(role, agent, &others).await? && agent.admin_state_up {
                self.change(agent, &json!({ "admin_state_up": false, "description": DISABLED_REASON }))
                    .await?;
            }
        }
        Ok(())
    }

    pub(super) async fn remove(&self, node: &str) -> Result<(), Failure> {
        for agent in self.agents().await?.iter().filter(|agent| agent.host == node) {
            self.send(Method::DELETE, &["agents", &agent.id], Body::Empty).await?.success_if_found()?;
        }
        Ok(())
    }

    /// Moves all resources to other agents. Returns whether none is left.
    async fn reassign(
        &self,
        role: &Role,
        agent: &AgentRecord,
        others: &[&AgentRecord],
    ) -> Result<bool, Failure> {
        let assignments = self.assignments(role, agent).await?;
        let mut candidates = others.iter().cycle();
        let mut is_empty = true;
        for id in assignments {
            let response = self.send(Method::GET, &[role.plural, &id, role.holders], Body::Empty).await?;
            let holders: Vec<Identifier> = response.field(&["agents"])?;
            let is_covered = holders.iter().any(|holder| others.iter().any(|other| other.id == holder.id));
            let successor = if is_covered { None } else { candidates.next() };
            if !is_covered && successor.is_none() {
                is_empty = false;
                continue;
            }
            if let Some(successor) = successor.filter(|_| role.active_active) {
                self.assign(role, successor, &id).await?;
            }
            self.send(Method::DELETE, &["agents", &agent.id, role.path, &id], Body::Empty)
                .await?
                .success_if_found()?;
            if let Some(successor) = successor.filter(|_| !role.active_active) {
                self.assign(role, successor, &id).await?;
            }
        }
        Ok(is_empty)
    }

    async fn assign(&self, role: &Role, successor: &AgentRecord, id: &str) -> Result<(), Failure> {
        let body = Body::Plain(json!({ format!("{}_id", role.singular): id }));
        self.send(Method::POST, &["agents", &successor.id, role.path], body).await?.success()?;
        Ok(())
    }

    /// Ids of the resources that an agent hosts.
    async fn assignments(&self, role: &Role, agent: &AgentRecord) -> Result<Vec<String>, Failure> {
        let response = self.send(Method::GET, &["agents", &agent.id, role.path], Body::Empty).await?;
        let assigned: Vec<Identifier> = response.field(&[role.plural])?;
        Ok(assigned.into_iter().map(|resource| resource.id).collect())
    }

    async fn change(&self, agent: &AgentRecord, change: &Value) -> Result<(), Failure> {
        let body = Body::Plain(json!({ "agent": change }));
        self.send(Method::PUT, &["agents", &agent.id], body).await?.success()?;
        Ok(())
    }

    async fn agents(&self) -> Result<Vec<AgentRecord>, Failure> {
        self.send(Method::GET, &["agents"], Body::Empty).await?.field(&["agents"])
    }

    async fn send(&self, method: Method, path: &[&str], body: Body) -> Result<Response, Failure> {
        self.0.send(method, &[&[VERSION], path].concat(), &[], body).await
    }
}

/// Admin state of the agents of a node. Agents without scheduled work cannot be disabled.
fn admin_state(agents: &[AgentRecord], node: &str) -> AdminState {
    let mut scheduled = agents.iter().filter(|agent| agent.host == node && agent.role().is_some()).peekable();
    if scheduled.peek().is_none() {
        return AdminState::Unmanaged;
    }
    let mut disabled_by_operator = false;
    for agent in scheduled {
        if agent.admin_state_up {
            return AdminState::Enabled;
        }
        disabled_by_operator |= agent.description.as_deref() == Some(DISABLED_REASON);
    }
    if disabled_by_operator { AdminState::DisabledByOperator } else { AdminState::Unmanaged }
}

#[cfg(test)]
mod tests;
