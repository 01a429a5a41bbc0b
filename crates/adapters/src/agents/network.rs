//! Agents of the network service, by its API. A node has one for its switch, and may have others that route and lease.

use openstack_operator_engine::ports::{AdminState, Agent};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::agents::REASON;
use crate::http::{Answer, Body, Failure};
use crate::identity::session::Session;

const VERSION: &str = "v2.0";
const SWITCH: &str = "Open vSwitch agent";

/// An agent that is given work, which can be taken over by another of its type.
struct Duty {
    agent_type: &'static str,
    /// What its work is called in paths, and in answers.
    path: &'static str,
    plural: &'static str,
    singular: &'static str,
    /// Where it is asked who has a piece of it.
    holders: &'static str,
    /// Whether two may do the same work at once, so that the next can begin before the first ends.
    shared: bool,
}

const DUTIES: [Duty; 2] = [
    Duty {
        agent_type: "L3 agent",
        path: "l3-routers",
        plural: "routers",
        singular: "router",
        holders: "l3-agents",
        shared: false,
    },
    Duty {
        agent_type: "DHCP agent",
        path: "dhcp-networks",
        plural: "networks",
        singular: "network",
        holders: "dhcp-agents",
        shared: true,
    },
];

pub(super) struct Network<'a>(pub(super) Session<'a>);

#[derive(Deserialize)]
struct Entry {
    id: String,
    agent_type: String,
    host: String,
    alive: bool,
    admin_state_up: bool,
    #[serde(default)]
    description: Option<String>,
}

impl Entry {
    fn duty(&self) -> Option<&'static Duty> {
        DUTIES.iter().find(|duty| duty.agent_type == self.agent_type)
    }
}

#[derive(Deserialize)]
struct Identified {
    id: String,
}

#[derive(Deserialize)]
struct Port {
    id: String,
    device_owner: String,
}

impl Network<'_> {
    /// A node is up whose switch is set up by an agent. Others come and go with what the object says of them.
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

    /// Ports of servers, and work that nobody else could take over.
    pub(super) async fn holdings(&self, node: &str) -> Result<Vec<String>, Failure> {
        let query = [("binding:host_id", node), ("fields", "id"), ("fields", "device_owner")];
        let answer = self.0.ask(Method::GET, &[VERSION, "ports"], &query, Body::Empty).await?;
        let ports: Vec<Port> = answer.part(&["ports"])?;
        let servers = ports.into_iter().filter(|port| port.device_owner.starts_with("compute:"));
        let mut holds: Vec<String> = servers.map(|port| format!("port {}", port.id)).collect();
        for agent in self.agents().await?.iter().filter(|agent| agent.host == node) {
            let Some(duty) = agent.duty() else { continue };
            let work = self.work(duty, agent).await?.into_iter();
            holds.extend(work.map(|id| format!("{} {id}", duty.singular)));
        }
        Ok(holds)
    }

    /// One that is given no more work first hands over what it has. It is closed only once it has nothing: a closed agent
    /// drops what it holds.
    pub(super) async fn set_enabled(&self, node: &str, enabled: bool) -> Result<(), Failure> {
        let agents = self.agents().await?;
        for agent in agents.iter().filter(|agent| agent.host == node) {
            let Some(duty) = agent.duty() else { continue };
            if enabled {
                if !agent.admin_state_up && agent.description.as_deref() == Some(REASON) {
                    self.change(agent, &json!({ "admin_state_up": true, "description": "" })).await?;
                }
                continue;
            }
            let others: Vec<&Entry> = agents
                .iter()
                .filter(|other| {
                    other.agent_type == agent.agent_type
                        && other.host != node
                        && other.alive
                        && other.admin_state_up
                })
                .collect();
            if self.hand_over(duty, agent, &others).await? && agent.admin_state_up {
                self.change(agent, &json!({ "admin_state_up": false, "description": REASON })).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn remove(&self, node: &str) -> Result<(), Failure> {
        for agent in self.agents().await?.iter().filter(|agent| agent.host == node) {
            self.ask(Method::DELETE, &["agents", &agent.id], Body::Empty).await?.found()?;
        }
        Ok(())
    }

    /// Returns whether the agent has nothing left.
    async fn hand_over(&self, duty: &Duty, agent: &Entry, others: &[&Entry]) -> Result<bool, Failure> {
        let work = self.work(duty, agent).await?;
        let mut next = others.iter().cycle();
        let mut is_empty = true;
        for id in work {
            let answer = self.ask(Method::GET, &[duty.plural, &id, duty.holders], Body::Empty).await?;
            let holders: Vec<Identified> = answer.part(&["agents"])?;
            let is_served = holders.iter().any(|holder| others.iter().any(|other| other.id == holder.id));
            let taker = if is_served { None } else { next.next() };
            if !is_served && taker.is_none() {
                is_empty = false;
                continue;
            }
            if let Some(taker) = taker.filter(|_| duty.shared) {
                self.give(duty, taker, &id).await?;
            }
            self.ask(Method::DELETE, &["agents", &agent.id, duty.path, &id], Body::Empty).await?.found()?;
            if let Some(taker) = taker.filter(|_| !duty.shared) {
                self.give(duty, taker, &id).await?;
            }
        }
        Ok(is_empty)
    }

    async fn give(&self, duty: &Duty, taker: &Entry, id: &str) -> Result<(), Failure> {
        let body = Body::Plain(json!({ format!("{}_id", duty.singular): id }));
        self.ask(Method::POST, &["agents", &taker.id, duty.path], body).await?.granted()?;
        Ok(())
    }

    /// Ids of what the agent works with.
    async fn work(&self, duty: &Duty, agent: &Entry) -> Result<Vec<String>, Failure> {
        let answer = self.ask(Method::GET, &["agents", &agent.id, duty.path], Body::Empty).await?;
        let work: Vec<Identified> = answer.part(&[duty.plural])?;
        Ok(work.into_iter().map(|piece| piece.id).collect())
    }

    async fn change(&self, agent: &Entry, change: &Value) -> Result<(), Failure> {
        let body = Body::Plain(json!({ "agent": change }));
        self.ask(Method::PUT, &["agents", &agent.id], body).await?.granted()?;
        Ok(())
    }

    async fn agents(&self) -> Result<Vec<Entry>, Failure> {
        self.ask(Method::GET, &["agents"], Body::Empty).await?.part(&["agents"])
    }

    async fn ask(&self, method: Method, path: &[&str], body: Body) -> Result<Answer, Failure> {
        self.0.ask(method, &[&[VERSION], path].concat(), &[], body).await
    }
}

/// Whether a node is given what agents can be given. One whose agents have no such duties can be told nothing.
fn admin_state(agents: &[Entry], node: &str) -> AdminState {
    let mut on_duty = agents.iter().filter(|agent| agent.host == node && agent.duty().is_some()).peekable();
    if on_duty.peek().is_none() {
        return AdminState::Unmanaged;
    }
    let mut closed = false;
    for agent in on_duty {
        if agent.admin_state_up {
            return AdminState::Enabled;
        }
        closed |= agent.description.as_deref() == Some(REASON);
    }
    if closed { AdminState::DisabledByOperator } else { AdminState::Unmanaged }
}

#[cfg(test)]
mod tests;
