//! Roster: which agents have registered for the nodes of an object, and how those leave whose nodes are chosen no more.

use std::collections::BTreeMap;
use std::time::Duration;

use openstack_operator_model::condition::Progress;
use openstack_operator_model::node::{self, NOT_READY};
use openstack_operator_model::plan::{NodeAgents, Registry};
use openstack_operator_model::status::{NodeState, NodeStatus};

use crate::claim::not_available;
use crate::engine::{Engine, Key};
use crate::gather::{self, Gathered};
use crate::member;
use crate::phase::Planned;
use crate::ports::{Admission, Agent, PortResult, RegistryLogin};
use crate::work::Work;

/// No watch tells when an agent registers, or lets go of what it holds.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// How much of what a node holds is told.
const MOST_HELD: usize = 20;

impl Engine {
    /// Looks which nodes of the roster have an agent, and takes those that leave one step further.
    pub(crate) async fn check_roster(
        &self,
        planned: &Planned<'_>,
        roster: &NodeAgents,
        work: &mut Work,
    ) -> PortResult<Progress> {
        let Planned { key, plan, gathered, .. } = planned;
        let own = key.is(&roster.provider);
        if own && work.findings.available != Some(true) || gathered.unavailable.contains(&roster.provider) {
            return Ok(not_available(&roster.provider));
        }
        let Some(registry) = self.registry(&key.namespace, &roster.registry).await? else {
            return Ok(Progress::waiting("the administrator's Secret is not there yet"));
        };
        let agents = self.ports.agents.list(&registry).await?;
        let agents: BTreeMap<&str, &Agent> =
            agents.iter().map(|agent| (agent.node.as_str(), agent)).collect();
        // Who runs nothing itself, as one of many agents, asks for no pods.
        let mut found =
            if plan.workloads.is_empty() { BTreeMap::new() } else { self.findings_of_nodes(key).await? };
        let mut rows = Vec::new();
        for node in &roster.nodes {
            let agent = agents.get(node.as_str());
            if agent.is_some_and(|agent| agent.admission == Admission::Closed) {
                self.ports.agents.admit(&registry, node, true).await?;
                tracing::info!(node, "gives the node work again");
            }
            let state = match agent {
                None => NodeState::Missing,
                Some(agent) if agent.up => NodeState::Up,
                Some(_) => NodeState::Down,
            };
            rows.push(NodeStatus { name: node.clone(), state, holds: Vec::new(), found: found.remove(node) });
        }
        let before = work.status.nodes.clone();
        for row in before.iter().filter(|row| !roster.nodes.contains(&row.name)) {
            let Some(agent) = agents.get(row.name.as_str()) else { continue };
            if !self.is_chosen_elsewhere(key, &row.name).await? {
                rows.extend(self.part_with(key, &registry, row, agent).await?);
            }
        }
        rows.sort_by(|one, other| one.name.cmp(&other.name));
        // Pods of nodes that are on their way out are planned from what the status says.
        work.again |= leaving(&rows) != leaving(&before);
        let lost = self.lost_agents(gathered, &rows).await?;
        // Nor does one tell when the agent of a node that is not Ready is found to be down.
        let is_moving = rows.iter().any(|row| !row.state.is_chosen());
        if is_moving || !lost.is_empty() || !gathered.lost_nodes.is_empty() {
            work.sooner(Some(LOOK_AGAIN));
        }
        work.status.nodes = rows;
        // An object that runs nothing itself stands for one agent of many.
        let serves = work.status.nodes.iter().any(|row| row.state == NodeState::Up)
            || plan.workloads.is_empty() && agents.values().any(|agent| agent.up);
        Ok(progress(&work.status.nodes, if serves { &lost } else { &[] }))
    }

    /// Nodes that have no agent because they are not Ready.
    async fn lost_agents(&self, gathered: &Gathered, rows: &[NodeStatus]) -> PortResult<Vec<String>> {
        let mut lost = Vec::new();
        for row in rows.iter().filter(|row| matches!(row.state, NodeState::Missing | NodeState::Down)) {
            if self.is_lost(gathered, &row.name).await? {
                lost.push(row.name.clone());
            }
        }
        Ok(lost)
    }

    async fn registry(&self, namespace: &str, registry: &Registry) -> PortResult<Option<RegistryLogin>> {
        Ok(match registry {
            Registry::Hypervisors { url, identity } => {
                let identity = self.identity_login(namespace, identity).await?;
                identity.map(|identity| RegistryLogin::Hypervisors { url: url.clone(), identity })
            }
            Registry::Network { url, identity } => {
                let identity = self.identity_login(namespace, identity).await?;
                identity.map(|identity| RegistryLogin::Network { url: url.clone(), identity })
            }
            Registry::Chassis { southbound, database } => {
                Some(RegistryLogin::Chassis { southbound: southbound.clone(), database })
            }
        })
    }

    /// One step of the way out: no more work, then nothing held, then no pods, then no record.
    async fn part_with(
        &self,
        key: &Key,
        registry: &RegistryLogin,
        row: &NodeStatus,
        agent: &Agent,
    ) -> PortResult<Option<NodeStatus>> {
        let node = &row.name;
        let open = agent.admission == Admission::Open;
        if open {
            self.ports.agents.admit(registry, node, false).await?;
            tracing::info!(node, "gives the node no more work, since it is no longer chosen");
        }
        let mut holds = self.ports.agents.holdings(registry, node).await?;
        holds.sort();
        if holds.len() > MOST_HELD {
            let more = holds.len() - MOST_HELD;
            holds.truncate(MOST_HELD);
            holds.push(format!("and {more} more"));
        }
        // What was given just before may not be told of yet.
        let state = if open || !holds.is_empty() { NodeState::Leaving } else { NodeState::Left };
        if row.state == NodeState::Left && state == NodeState::Left && !self.has_agent_pod(key, node).await? {
            self.ports.agents.remove(registry, node).await?;
            tracing::info!(node, "removed the record of a node that has left");
            return Ok(None);
        }
        Ok(Some(NodeStatus { name: node.clone(), state, holds, found: row.found.clone() }))
    }

    /// Whether another object of the same kind has the node now: then it has not left, but changed hands.
    async fn is_chosen_elsewhere(&self, key: &Key, node: &str) -> PortResult<bool> {
        let others = self.ports.cluster.list(key.kind, &key.namespace, &BTreeMap::new()).await?;
        Ok(others.iter().filter(|other| other.metadata.name.as_ref() != Some(&key.name)).any(|other| {
            let rows = gather::status(&other.data).map(|status| status.nodes).unwrap_or_default();
            rows.iter().any(|row| row.name == node && row.state.is_chosen())
        }))
    }

    async fn has_agent_pod(&self, key: &Key, node: &str) -> PortResult<bool> {
        Ok(self.pods(key).await?.iter().any(|pod| member::agent_node(pod) == Some(node)))
    }
}

fn leaving(rows: &[NodeStatus]) -> Vec<&str> {
    rows.iter().filter(|row| row.state == NodeState::Leaving).map(|row| row.name.as_str()).collect()
}

/// Progress of the agents of all nodes, without those of lost nodes.
fn progress(rows: &[NodeStatus], lost: &[String]) -> Progress {
    let of = |state: NodeState| -> Vec<&str> {
        let rows = rows.iter().filter(|row| row.state == state && !lost.contains(&row.name));
        rows.map(|row| row.name.as_str()).collect()
    };
    let awaited = [(NodeState::Missing, "not registered"), (NodeState::Down, "down")];
    let parts: Vec<String> = awaited
        .into_iter()
        .map(|(state, word)| (of(state), word))
        .filter(|(names, _)| !names.is_empty())
        .map(|(names, word)| node::describe(&names, word))
        .collect();
    if !parts.is_empty() {
        return Progress::Waiting { message: parts.join("; "), after: Some(LOOK_AGAIN) };
    }
    let losses = lost.iter().map(|name| Progress::degraded(node::describe(&[name], NOT_READY)));
    losses.fold(Progress::Done, Progress::and)
}
