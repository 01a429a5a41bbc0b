//! Network agents against a fake of the Networking API.

use std::collections::{BTreeMap, BTreeSet};

use openstack_operator_engine::ports::{AdminState, Agent, Agents, IdentityLogin, Login, RegistryLogin};
use reqwest::Method;
use serde_json::{Value, json};

use crate::agents::NodeAgents;
use crate::testing::{FakeResponse, FakeService, Outcome, Request, Server};

/// An identity service and a network service in one.
#[derive(Default)]
struct Cloud {
    agents: BTreeMap<String, Value>,
    /// Resources by agent id.
    work: BTreeMap<String, BTreeSet<String>>,
    ports: Vec<Value>,
}

impl Cloud {
    fn agent(mut self, id: &str, agent_type: &str, host: &str) -> Self {
        let agent = json!({
            "id": id, "agent_type": agent_type, "host": host, "alive": true, "admin_state_up": true,
            "description": null,
        });
        self.agents.insert(id.to_owned(), agent);
        self
    }

    fn hosting(mut self, id: &str, work: &[&str]) -> Self {
        self.work.insert(id.to_owned(), work.iter().map(|&piece| piece.to_owned()).collect());
        self
    }

    /// Agents that host a resource.
    fn holders(&self, piece: &str) -> Vec<&Value> {
        let has = |id: &String| self.work.get(id).is_some_and(|work| work.contains(piece));
        self.agents.iter().filter(|(id, _)| has(id)).map(|(_, agent)| agent).collect()
    }

    fn assign(&mut self, id: &str, path: &str, body: &Value) -> FakeResponse {
        let router = path == "l3-routers";
        let piece = body[if router { "router_id" } else { "network_id" }].as_str().unwrap_or_default();
        if router && !self.holders(piece).is_empty() {
            return FakeResponse::new(
                409,
                json!({ "conflictingRequest": { "message": "it already has an agent" } }),
            );
        }
        self.work.entry(id.to_owned()).or_default().insert(piece.to_owned());
        FakeResponse::empty(201)
    }
}

impl FakeService for Cloud {
    fn respond(&mut self, request: &Request) -> FakeResponse {
        let segments = request.segments();
        match (&request.method, segments.as_slice()) {
            (&Method::POST, ["v3", "auth", "tokens"]) => {
                let token = json!({ "token": { "expires_at": "2999-01-01T00:00:00Z" } });
                FakeResponse::new(201, token).header("x-subject-token", "token")
            }
            _ if request.header("x-auth-token") != "token" => FakeResponse::empty(401),
            (&Method::GET, ["v2.0", "ports"]) => FakeResponse::new(200, json!({ "ports": self.ports })),
            (&Method::GET, ["v2.0", "agents"]) => {
                let agents: Vec<&Value> = self.agents.values().collect();
                FakeResponse::new(200, json!({ "agents": agents }))
            }
            (&Method::PUT, ["v2.0", "agents", id]) => match self.agents.get_mut(*id) {
                Some(agent) => {
                    for field in ["admin_state_up", "description"] {
                        agent[field] = request.body["agent"][field].clone();
                    }
                    FakeResponse::new(200, json!({ "agent": agent }))
                }
                None => FakeResponse::empty(404),
            },
            (&Method::DELETE, ["v2.0", "agents", id]) => {
                FakeResponse::empty(if self.agents.remove(*id).is_some() { 204 } else { 404 })
            }
            (&Method::GET, ["v2.0", "agents", id, path]) => {
                let pieces = self.work.get(*id).into_iter().flatten();
                let pieces: Vec<Value> = pieces.map(|piece| json!({ "id": piece })).collect();
                let plural = if *path == "l3-routers" { "routers" } else { "networks" };
                FakeResponse::new(200, json!({ plural: pieces }))
            }
            (&Method::POST, ["v2.0", "agents", id, path]) => self.assign(id, path, &request.body),
            (&Method::DELETE, ["v2.0", "agents", id, _, piece]) => {
                let had = self.work.get_mut(*id).is_some_and(|work| work.remove(*piece));
                FakeResponse::empty(if had { 204 } else { 404 })
            }
            (&Method::GET, ["v2.0", "routers" | "networks", piece, _]) => {
                FakeResponse::new(200, json!({ "agents": self.holders(piece) }))
            }
            _ => FakeResponse::empty(404),
        }
    }
}

async fn start(
    cloud: Cloud,
) -> Result<(Server<Cloud>, NodeAgents, RegistryLogin), Box<dyn std::error::Error>> {
    let server = Server::start(cloud).await?;
    let administrator = Login { username: "admin".to_owned(), password: "secret".to_owned() };
    let identity = IdentityLogin { url: format!("{}/v3", server.url), administrator };
    let registry = RegistryLogin::Network { url: server.url.clone(), identity };
    Ok((server, NodeAgents::new()?, registry))
}

/// Two nodes with all agents, and one with only an Open vSwitch agent.
fn cloud() -> Cloud {
    Cloud::default()
        .agent("switch-a", "Open vSwitch agent", "node-a")
        .agent("router-a", "L3 agent", "node-a")
        .agent("lease-a", "DHCP agent", "node-a")
        .agent("metadata-a", "Metadata agent", "node-a")
        .agent("switch-b", "Open vSwitch agent", "node-b")
        .agent("router-b", "L3 agent", "node-b")
        .agent("lease-b", "DHCP agent", "node-b")
        .agent("switch-c", "Open vSwitch agent", "node-c")
}

fn agent(node: &str, up: bool, admin_state: AdminState) -> Agent {
    Agent { node: node.to_owned(), up, admin_state }
}

#[tokio::test]
async fn a_node_is_up_if_its_open_vswitch_agent_is_alive() -> Outcome {
    let mut cloud = cloud();
    for (id, alive) in [("switch-b", false), ("router-a", false)] {
        cloud.agents.entry(id.to_owned()).and_modify(|agent| agent["alive"] = json!(alive));
    }
    for id in ["router-b", "lease-b"] {
        cloud.agents.entry(id.to_owned()).and_modify(|agent| {
            agent["admin_state_up"] = json!(false);
            agent["description"] = json!("broken fan");
        });
    }
    let (_server, agents, registry) = start(cloud).await?;
    let expected = [
        agent("node-a", true, AdminState::Enabled),
        agent("node-b", false, AdminState::Unmanaged),
        agent("node-c", true, AdminState::Unmanaged),
    ];
    assert_eq!(agents.list(&registry).await?, expected);
    Ok(())
}

#[tokio::test]
async fn an_agent_is_drained_before_it_is_disabled() -> Outcome {
    let cloud =
        cloud().hosting("router-a", &["r1", "r2"]).hosting("lease-a", &["n1"]).hosting("lease-b", &["n2"]);
    let (server, agents, registry) = start(cloud).await?;
    agents.set_enabled(&registry, "node-a", false).await?;
    assert_eq!(agents.list(&registry).await?[0].admin_state, AdminState::DisabledByOperator);
    assert_eq!(agents.holdings(&registry, "node-a").await?, Vec::<String>::new());
    server.change(|cloud| {
        assert_eq!(cloud.work["router-b"], BTreeSet::from(["r1".to_owned(), "r2".to_owned()]));
        assert_eq!(cloud.work["lease-b"], BTreeSet::from(["n1".to_owned(), "n2".to_owned()]));
    });
    // A disabled agent drops its resources, so it must have none by then.
    let requests = server.requests();
    let is_disabling = |request: &Request| {
        request.method == Method::PUT && request.segments().ends_with(&["agents", "router-a"])
    };
    let disabling = requests.iter().position(is_disabling);
    let last = requests.iter().rposition(|request| request.segments().ends_with(&["l3-routers", "r2"]));
    assert!(last < disabling, "{last:?} {disabling:?}");
    agents.set_enabled(&registry, "node-a", true).await?;
    assert_eq!(agents.list(&registry).await?[0].admin_state, AdminState::Enabled);
    Ok(())
}

#[tokio::test]
async fn resources_without_another_agent_stay_and_are_reported() -> Outcome {
    let mut cloud =
        cloud().hosting("router-a", &["r1"]).hosting("lease-a", &["n1"]).hosting("lease-b", &["n1"]);
    cloud.agents.entry("router-b".to_owned()).and_modify(|agent| agent["alive"] = json!(false));
    cloud.ports = vec![
        json!({ "id": "p1", "device_owner": "compute:nova" }),
        json!({ "id": "p2", "device_owner": "network:dhcp" }),
    ];
    let (server, agents, registry) = start(cloud).await?;
    agents.set_enabled(&registry, "node-a", false).await?;
    assert_eq!(agents.list(&registry).await?[0].admin_state, AdminState::Enabled);
    assert_eq!(agents.holdings(&registry, "node-a").await?, ["port p1", "router r1"]);
    server.change(|cloud| {
        assert_eq!(cloud.agents["router-a"]["admin_state_up"], true);
        assert_eq!(cloud.agents["lease-a"]["admin_state_up"], false);
    });
    let requests = server.requests();
    let ports = requests.iter().find(|request| request.segments().ends_with(&["ports"]));
    assert_eq!(ports.and_then(|request| request.field("binding%3Ahost_id")), Some("node-a"));
    Ok(())
}

#[tokio::test]
async fn all_agents_of_a_node_are_removed() -> Outcome {
    let (server, agents, registry) = start(cloud()).await?;
    agents.remove(&registry, "node-a").await?;
    agents.remove(&registry, "node-a").await?;
    server.change(|cloud| assert!(cloud.agents.values().all(|agent| agent["host"] != "node-a")));
    assert_eq!(agents.list(&registry).await?.len(), 2);
    Ok(())
}
