//! Roster: compares registered agents with the selected nodes, and retires the agents of nodes that are no longer
//! selected.

use std::collections::BTreeMap;
use std::time::Duration;

use openstack_operator_model::condition::Progress;
use openstack_operator_model::node::{self, NOT_READY};
use openstack_operator_model::plan::{NodeAgents, Registry};
use openstack_operator_model::status::{NodeState, NodeStatus};

use crate::effect::not_available;
use crate::engine::{Engine, Key};
use crate::gather::{self, Gathered};
use crate::member;
use crate::phase::Planned;
use crate::ports::{AdminState, Agent, PortResult, RegistryLogin};
use crate::work::Work;

/// Registries cannot be watched.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// A new cloud is not Ready before its first agent has registered and reports that it is up.
const FIRST_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum number of a node's holdings in the status.
const MAX_HOLDINGS: usize = 20;

impl Engine {
    /// Checks the agents of all nodes of the roster, and advances the departure of leaving nodes by one step.
    pub(crate) async fn check_roster(
        &self,
        planned: &Planned<'_>,
        roster: &NodeAgents,
        work: &mut Work,
    ) -> PortResult<Progress> {
        let Planned { key, plan, gathered, .. } = planned;
        let is_provider = key.matches(&roster.provider);
        if is_provider && work.findings.available != Some(true)
            || gathered.unavailable.contains(&roster.provider)
        {
            return Ok(not_available(&roster.provider));
        }
        let Some(registry) = self.registry(&key.namespace, &roster.registry).await? else {
            return Ok(Progress::waiting(
                "the Secret of the cloud administrator does not exist yet or is incomplete",
            ));
        };
        let agents = self.ports.agents.list(&registry).await?;
        let agents: BTreeMap<&str, &Agent> =
            agents.iter().map(|agent| (agent.node.as_str(), agent)).collect();
        // An object without workloads, such as one agent of many, has no pods.
        let mut messages = if plan.workloads.is_empty() {
            BTreeMap::new()
        } else {
            self.setup_messages_by_node(key).await?
        };
        let mut rows = Vec::new();
        for node in &roster.nodes {
            let agent = agents.get(node.as_str());
            if agent.is_some_and(|agent| agent.admin_state == AdminState::DisabledByOperator) {
                self.ports.agents.set_enabled(&registry, node, true).await?;
                tracing::info!(node, "enabled scheduling to the node again");
            }
            let state = match agent {
                None => NodeState::Missing,
                Some(agent) if agent.up => NodeState::Up,
                Some(_) => NodeState::Down,
            };
            rows.push(NodeStatus {
                name: node.clone(),
                state,
                holds: Vec::new(),
                found: messages.remove(node),
            });
        }
        let before = work.status.nodes.clone();
        for row in before.iter().filter(|row| !roster.nodes.contains(&row.name)) {
            let Some(agent) = agents.get(row.name.as_str()) else { continue };
            if !self.is_selected_elsewhere(key, &row.name).await? {
                rows.extend(self.retire_agent(key, &registry, row, agent).await?);
            }
        }
        rows.sort_by(|left, right| left.name.cmp(&right.name));
        // The plan takes leaving nodes from the status.
        work.requeue_now |= leaving(&rows) != leaving(&before);
        let lost = self.lost_agents(gathered, &rows).await?;
        // No watch event follows when an agent of a node that is not Ready goes down.
        let has_leaving = rows.iter().any(|row| !row.state.is_chosen());
        if has_leaving || !lost.is_empty() || !gathered.lost_nodes.is_empty() {
            work.recheck_within(Some(POLL_INTERVAL));
        }
        work.status.nodes = rows;
        // An object without workloads represents one agent of many.
        let serves = work.status.nodes.iter().any(|row| row.state == NodeState::Up)
            || plan.workloads.is_empty() && agents.values().any(|agent| agent.up);
        Ok(progress(&work.status.nodes, if serves { &lost } else { &[] }))
    }

    /// Nodes whose agent is missing or down because the node is not Ready.
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

    /// One step of retiring an agent: disable scheduling, wait until it hosts nothing and its pods are gone, then
    /// remove its record.
    async fn retire_agent(
        &self,
        key: &Key,
        registry: &RegistryLogin,
        row: &NodeStatus,
        agent: &Agent,
    ) -> PortResult<Option<NodeStatus>> {
        let node = &row.name;
        let was_enabled = agent.admin_state == AdminState::Enabled;
        if was_enabled {
            self.ports.agents.set_enabled(registry, node, false).await?;
            tracing::info!(node, "disabled scheduling to the node, which is no longer selected");
        }
        let mut holds = self.ports.agents.holdings(registry, node).await?;
        holds.sort();
        if holds.len() > MAX_HOLDINGS {
            let more = holds.len() - MAX_HOLDINGS;
            holds.truncate(MAX_HOLDINGS);
            holds.push(format!("and {more} more"));
        }
        // Work scheduled just before may not be listed yet.
        let state = if was_enabled || !holds.is_empty() { NodeState::Leaving } else { NodeState::Left };
        if row.state == NodeState::Left && state == NodeState::Left && !self.has_agent_pod(key, node).await? {
            self.ports.agents.remove(registry, node).await?;
            tracing::info!(node, "removed the agent record of a node that has left");
            return Ok(None);
        }
        Ok(Some(NodeStatus { name: node.clone(), state, holds, found: row.found.clone() }))
    }

    /// Whether another object of the same kind has selected the node: then the node changes owner instead of leaving.
    async fn is_selected_elsewhere(&self, key: &Key, node: &str) -> PortResult<bool> {
        let others = self.ports.cluster.list(key.kind, &key.namespace, &BTreeMap::new()).await?;
        Ok(others.iter().filter(|other| other.metadata.name.as_ref() != Some(&key.name)).any(|other| {
            let rows = gather::status(&other.data).map(|status| status.nodes).unwrap_or_default();
            rows.iter().any(|row| row.name == node && row.state.is_chosen())
        }))
    }

    pub(crate) async fn has_agent_pod(&self, key: &Key, node: &str) -> PortResult<bool> {
        Ok(self.pods(key).await?.iter().any(|pod| member::agent_node(pod) == Some(node)))
    }
}

fn leaving(rows: &[NodeStatus]) -> Vec<&str> {
    rows.iter().filter(|row| row.state == NodeState::Leaving).map(|row| row.name.as_str()).collect()
}

/// Progress of the agents of all nodes except lost ones.
fn progress(rows: &[NodeStatus], lost: &[String]) -> Progress {
    let names_in = |state: NodeState| -> Vec<&str> {
        let rows = rows.iter().filter(|row| row.state == state && !lost.contains(&row.name));
        rows.map(|row| row.name.as_str()).collect()
    };
    let problems = [(NodeState::Missing, "not registered"), (NodeState::Down, "down")];
    let parts: Vec<String> = problems
        .into_iter()
        .map(|(state, adjective)| (names_in(state), adjective))
        .filter(|(names, _)| !names.is_empty())
        .map(|(names, adjective)| node::describe(&names, adjective))
        .collect();
    if !parts.is_empty() {
        let is_used = rows.iter().any(|row| row.state == NodeState::Up);
        let interval = if is_used { POLL_INTERVAL } else { FIRST_POLL_INTERVAL };
        return Progress::Waiting { message: parts.join("; "), after: Some(interval) };
    }
    let losses = lost.iter().map(|name| Progress::degraded(node::describe(&[name], NOT_READY)));
    losses.fold(Progress::Done, Progress::and)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_agent_is_noticed_soon_and_others_are_polled_rarely() {
        let row =
            |name: &str, state| NodeStatus { name: name.to_owned(), state, holds: Vec::new(), found: None };
        let interval = |rows: &[NodeStatus]| match progress(rows, &[]) {
            Progress::Waiting { after, .. } => after,
            other => panic!("{other:?}"),
        };
        let (missing, down) = (row("a", NodeState::Missing), row("a", NodeState::Down));
        assert_eq!(interval(std::slice::from_ref(&missing)), Some(FIRST_POLL_INTERVAL));
        // A hypervisor is down until its first report.
        assert_eq!(interval(&[down]), Some(FIRST_POLL_INTERVAL));
        assert_eq!(interval(&[missing, row("b", NodeState::Up)]), Some(POLL_INTERVAL));
    }
}
