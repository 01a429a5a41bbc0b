//! Agent registries against fakes of the Compute API and OVSDB.

use std::collections::BTreeMap;

use openstack_operator_engine::ports::{AdminState, Login, PortError};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::testing::{FakeResponse, FakeService, Outcome, Request, Server, failure};

/// An identity service and a compute service in one.
struct Cloud {
    services: BTreeMap<String, Value>,
    /// Hosts that belong to a cell.
    mapped: Vec<&'static str>,
    instances: Vec<Value>,
}

impl FakeService for Cloud {
    fn respond(&mut self, request: &Request) -> FakeResponse {
        match (&request.method, request.segments().as_slice()) {
            (&Method::POST, ["v3", "auth", "tokens"]) => {
                let token = json!({ "token": { "expires_at": "2999-01-01T00:00:00Z" } });
                FakeResponse::new(201, token).header("x-subject-token", "token")
            }
            _ if request.header("x-auth-token") != "token" => FakeResponse::empty(401),
            _ if request.header("openstack-api-version") != "compute 2.53" => FakeResponse::empty(406),
            (&Method::GET, ["v2.1", "os-services"]) => {
                let wanted = |service: &&Value| {
                    request.field("host").is_none_or(|host| service["host"].as_str() == Some(host))
                };
                let services: Vec<&Value> = self.services.values().filter(wanted).collect();
                FakeResponse::new(200, json!({ "services": services }))
            }
            // One hypervisor on each page.
            (&Method::GET, ["v2.1", "os-hypervisors", "detail"]) => {
                let first = request.field("marker").map_or(0, str::len);
                let page = self.mapped.iter().skip(first).take(1);
                let page =
                    page.map(|host| json!({ "id": "i".repeat(first + 1), "service": { "host": host } }));
                FakeResponse::new(200, json!({ "hypervisors": page.collect::<Vec<_>>() }))
            }
            (&Method::PUT, ["v2.1", "os-services", id]) => match self.services.get_mut(*id) {
                Some(service) => {
                    service["status"] = request.body["status"].clone();
                    service["disabled_reason"] = request.body["disabled_reason"].clone();
                    FakeResponse::new(200, json!({ "service": service }))
                }
                None => FakeResponse::empty(404),
            },
            (&Method::DELETE, ["v2.1", "os-services", id]) => {
                if !self.instances.is_empty() {
                    let message = json!({ "conflictingRequest": { "message": "it hosts instances" } });
                    return FakeResponse::new(409, message);
                }
                FakeResponse::empty(if self.services.remove(*id).is_some() { 204 } else { 404 })
            }
            (&Method::GET, ["v2.1", "servers"]) => {
                FakeResponse::new(200, json!({ "servers": self.instances }))
            }
            _ => FakeResponse::empty(404),
        }
    }
}

fn service(id: &str, host: &str) -> (String, Value) {
    let service = json!({
        "id": id, "binary": "sample-compute", "host": host, "state": "up", "status": "enabled",
        "disabled_reason": null,
    });
    (id.to_owned(), service)
}

async fn start() -> Result<(Server<Cloud>, NodeAgents, RegistryLogin), Box<dyn std::error::Error>> {
    let mut services = BTreeMap::from([service("1", "node-a"), service("2", "node-b")]);
    let (id, mut scheduler) = service("3", "scheduler-0");
    scheduler["binary"] = json!("sample-scheduler");
    services.insert(id, scheduler);
    let mapped = vec!["node-a", "node-b"];
    let server = Server::start(Cloud { services, mapped, instances: Vec::new() }).await?;
    let administrator = Login { username: "admin".to_owned(), password: "secret".to_owned() };
    let identity = IdentityLogin { url: format!("{}/v3", server.url), administrator };
    let registry = RegistryLogin::Hypervisors { url: format!("{}/v2.1", server.url), identity };
    Ok((server, NodeAgents::new()?, registry))
}

fn agent(node: &str, up: bool, admin_state: AdminState) -> Agent {
    Agent { node: node.to_owned(), up, admin_state }
}

#[tokio::test]
async fn only_compute_services_are_listed() -> Outcome {
    let (server, agents, registry) = start().await?;
    server.change(|cloud| {
        for service in cloud.services.values_mut().filter(|service| service["host"] == "node-b") {
            service["state"] = json!("down");
            service["status"] = json!("disabled");
            service["disabled_reason"] = json!("broken fan");
        }
    });
    let found = agents.list(&registry).await?;
    assert_eq!(
        found,
        [agent("node-a", true, AdminState::Enabled), agent("node-b", false, AdminState::Unmanaged)]
    );
    Ok(())
}

#[tokio::test]
async fn a_hypervisor_is_up_once_its_host_belongs_to_a_cell() -> Outcome {
    let (server, agents, registry) = start().await?;
    server.change(|cloud| cloud.mapped = vec!["node-b"]);
    let found = agents.list(&registry).await?;
    assert_eq!(
        found,
        [agent("node-a", false, AdminState::Enabled), agent("node-b", true, AdminState::Enabled)]
    );
    Ok(())
}

#[tokio::test]
async fn a_hypervisor_is_disabled_enabled_and_removed() -> Outcome {
    let (server, agents, registry) = start().await?;
    agents.set_enabled(&registry, "node-a", false).await?;
    let found = agents.list(&registry).await?;
    assert_eq!(
        found,
        [agent("node-a", true, AdminState::DisabledByOperator), agent("node-b", true, AdminState::Enabled)]
    );
    agents.set_enabled(&registry, "node-a", true).await?;
    assert_eq!(agents.list(&registry).await?[0].admin_state, AdminState::Enabled);
    server.change(|cloud| cloud.instances = vec![json!({ "id": "7", "name": "web" })]);
    assert_eq!(agents.holdings(&registry, "node-a").await?, ["web (7)"]);
    let requests = server.requests();
    let query = requests.iter().find(|request| request.segments().ends_with(&["servers"]));
    assert_eq!(query.and_then(|request| request.field("host")), Some("node-a"));
    let error = failure(agents.remove(&registry, "node-a").await)?;
    assert!(matches!(error, PortError::Conflict { .. }), "{error:?}");
    server.change(|cloud| cloud.instances.clear());
    agents.remove(&registry, "node-a").await?;
    agents.remove(&registry, "node-a").await?;
    assert_eq!(agents.list(&registry).await?.len(), 1);
    Ok(())
}

/// A database that first sends an echo request, and then its response in two pieces. Returns its address and the
/// received request.
async fn database(
    response: Value,
) -> std::io::Result<(String, tokio::task::JoinHandle<std::io::Result<Value>>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("tcp:{}", listener.local_addr()?);
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        let mut request = vec![0; 16_384];
        let length = stream.read(&mut request).await?;
        let text =
            json!({ "id": "echo", "method": "echo", "params": [] }).to_string() + &response.to_string();
        let (first, second) = text.split_at(text.len() / 2);
        stream.write_all(first.as_bytes()).await?;
        stream.flush().await?;
        tokio::task::yield_now().await;
        stream.write_all(second.as_bytes()).await?;
        Ok(serde_json::from_slice(request.get(..length).unwrap_or_default()).unwrap_or_default())
    });
    Ok((address, served))
}

fn chassis(members: &[&str]) -> RegistryLogin {
    let southbound = members.iter().map(|&member| member.to_owned()).collect();
    RegistryLogin::Chassis { southbound, database: "Sample" }
}

#[tokio::test]
async fn a_chassis_is_up_if_it_has_seen_the_current_configuration() -> Outcome {
    let id = |number: usize| json!(["uuid", format!("{number}")]);
    let rows = json!({ "id": 0, "error": null, "result": [
        { "rows": [
            { "_uuid": id(1), "hostname": "node-a" },
            { "_uuid": id(2), "hostname": "node-b" },
            { "_uuid": id(3), "hostname": "node-c" },
        ] },
        { "rows": [{ "chassis": id(1), "nb_cfg": 9 }, { "chassis": id(2), "nb_cfg": 7 }] },
        { "rows": [{ "nb_cfg": 9 }] },
    ] });
    let (address, request) = database(rows).await?;
    install_and_list(&address, &[("node-a", true), ("node-b", false), ("node-c", false)]).await?;
    let request = request.await??;
    assert_eq!((&request["method"], &request["params"][0]), (&json!("transact"), &json!("Sample")));
    Ok(())
}

async fn install_and_list(address: &str, expected: &[(&str, bool)]) -> Outcome {
    crate::testing::install_tls_provider();
    // The first member is down: nothing listens on port 1.
    let found = NodeAgents::new()?.list(&chassis(&["tcp:127.0.0.1:1", address])).await?;
    let expected: Vec<Agent> =
        expected.iter().map(|&(node, up)| agent(node, up, AdminState::Unmanaged)).collect();
    assert_eq!(found, expected);
    Ok(())
}

#[tokio::test]
async fn a_failed_transaction_reports_the_cause() -> Outcome {
    crate::testing::install_tls_provider();
    let rejection = json!({ "id": 0, "error": null, "result": [
        null, null, { "error": "referential integrity violation", "details": "still bound" },
    ] });
    let (address, _) = database(rejection).await?;
    let agents = NodeAgents::new()?;
    let error = failure(agents.remove(&chassis(&[&address]), "node-a").await)?;
    let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    assert!(cause.contains("still bound"), "{error:?}");
    let error = failure(agents.list(&chassis(&["10.0.0.1:6642"])).await)?;
    assert!(matches!(error, PortError::Rejected { .. }), "{error:?}");
    let error = failure(agents.list(&chassis(&["tcp:127.0.0.1:1"])).await)?;
    assert!(matches!(error, PortError::Unavailable { .. }), "{error:?}");
    Ok(())
}
