//! Hypervisors, by the API of the compute service.

use openstack_operator_engine::ports::{AdminState, Agent};
use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use crate::agents::REASON;
use crate::http::{Body, Failure};
use crate::identity::session::Session;

/// The first in which a service is known by an id that no other cell has.
pub(super) const VERSION: &str = "compute 2.53";
/// How many servers are asked for: enough to tell somebody where to begin.
const PAGE: &str = "100";

pub(super) struct Hypervisors<'a>(pub(super) Session<'a>);

#[derive(Deserialize)]
struct Service {
    id: String,
    binary: String,
    host: String,
    state: String,
    status: String,
    #[serde(default)]
    disabled_reason: Option<String>,
}

#[derive(Deserialize)]
struct Server {
    id: String,
    name: String,
}

impl Hypervisors<'_> {
    pub(super) async fn list(&self) -> Result<Vec<Agent>, Failure> {
        let services = self.services(&[]).await?.into_iter();
        Ok(services
            .map(|service| Agent {
                up: service.state == "up",
                admin_state: match (service.status.as_str(), service.disabled_reason.as_deref()) {
                    ("enabled", _) => AdminState::Enabled,
                    (_, Some(REASON)) => AdminState::DisabledByOperator,
                    _ => AdminState::Unmanaged,
                },
                node: service.host,
            })
            .collect())
    }

    pub(super) async fn servers(&self, node: &str) -> Result<Vec<String>, Failure> {
        let query = [("all_tenants", "true"), ("host", node), ("limit", PAGE)];
        let answer = self.0.ask(Method::GET, &["servers"], &query, Body::Empty).await?;
        let servers: Vec<Server> = answer.part(&["servers"])?;
        Ok(servers.into_iter().map(|server| format!("{} ({})", server.name, server.id)).collect())
    }

    pub(super) async fn set_enabled(&self, node: &str, enabled: bool) -> Result<(), Failure> {
        let change = if enabled {
            json!({ "status": "enabled" })
        } else {
            json!({ "status": "disabled", "disabled_reason": REASON })
        };
        for service in self.services(&[("host", node)]).await? {
            let path = ["os-services", &service.id];
            self.0.ask(Method::PUT, &path, &[], Body::Plain(change.clone())).await?.granted()?;
        }
        Ok(())
    }

    /// With the service goes what it told of its resources.
    pub(super) async fn remove(&self, node: &str) -> Result<(), Failure> {
        for service in self.services(&[("host", node)]).await? {
            self.0.ask(Method::DELETE, &["os-services", &service.id], &[], Body::Empty).await?.found()?;
        }
        Ok(())
    }

    /// The list has everybody who works for the compute service.
    async fn services(&self, query: &[(&str, &str)]) -> Result<Vec<Service>, Failure> {
        let answer = self.0.ask(Method::GET, &["os-services"], query, Body::Empty).await?;
        let mut services: Vec<Service> = answer.part(&["services"])?;
        services.retain(|service| service.binary.ends_with("-compute"));
        Ok(services)
    }
}
