//! Hypervisors, through the Compute API.

use std::collections::BTreeSet;

use openstack_operator_engine::ports::{AdminState, Agent};
use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use crate::agents::DISABLED_REASON;
use crate::http::{Body, Failure};
use crate::identity::session::Session;

/// The first microversion with service ids that are unique across cells.
pub(super) const VERSION: &str = "compute 2.53";
/// Number of instances to list; the status shows only some of them.
const PAGE: &str = "100";
const HYPERVISOR_PAGE: &str = "500";

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
struct Hypervisor {
    id: String,
    service: HypervisorService,
}

#[derive(Deserialize)]
struct HypervisorService {
    host: String,
}

#[derive(Deserialize)]
struct Instance {
    id: String,
    name: String,
}

impl Hypervisors<'_> {
    pub(super) async fn list(&self) -> Result<Vec<Agent>, Failure> {
        let services = self.services(&[]).await?.into_iter();
        let mapped = self.mapped_hosts().await?;
        Ok(services
            .map(|service| Agent {
                up: service.state == "up" && mapped.contains(&service.host),
                admin_state: match (service.status.as_str(), service.disabled_reason.as_deref()) {
                    ("enabled", _) => AdminState::Enabled,
                    (_, Some(DISABLED_REASON)) => AdminState::DisabledByOperator,
                    _ => AdminState::Unmanaged,
                },
                node: service.host,
            })
            .collect())
    }

    /// Hosts that belong to a cell. The scheduler ignores others, and the API lists no hypervisors of them.
    async fn mapped_hosts(&self) -> Result<BTreeSet<String>, Failure> {
        let mut hosts = BTreeSet::new();
        let mut marker: Option<String> = None;
        loop {
            let mut query = vec![("limit", HYPERVISOR_PAGE)];
            query.extend(marker.as_deref().map(|marker| ("marker", marker)));
            let response =
                self.0.send(Method::GET, &["os-hypervisors", "detail"], &query, Body::Empty).await?;
            let page: Vec<Hypervisor> = response.field(&["hypervisors"])?;
            let Some(last) = page.last() else { return Ok(hosts) };
            marker = Some(last.id.clone());
            hosts.extend(page.into_iter().map(|hypervisor| hypervisor.service.host));
        }
    }

    pub(super) async fn instances(&self, node: &str) -> Result<Vec<String>, Failure> {
        let query = [("all_tenants", "true"), ("host", node), ("limit", PAGE)];
        let response = self.0.send(Method::GET, &["servers"], &query, Body::Empty).await?;
        let instances: Vec<Instance> = response.field(&["servers"])?;
        Ok(instances.into_iter().map(|instance| format!("{} ({})", instance.name, instance.id)).collect())
    }

    pub(super) async fn set_enabled(&self, node: &str, enabled: bool) -> Result<(), Failure> {
        let change = if enabled {
            json!({ "status": "enabled" })
        } else {
            json!({ "status": "disabled", "disabled_reason": DISABLED_REASON })
        };
        for service in self.services(&[("host", node)]).await? {
            let path = ["os-services", &service.id];
            self.0.send(Method::PUT, &path, &[], Body::Plain(change.clone())).await?.success()?;
        }
        Ok(())
    }

    /// The Compute API also deletes the resource provider of the node.
    pub(super) async fn remove(&self, node: &str) -> Result<(), Failure> {
        for service in self.services(&[("host", node)]).await? {
            self.0
                .send(Method::DELETE, &["os-services", &service.id], &[], Body::Empty)
                .await?
                .success_if_found()?;
        }
        Ok(())
    }

    /// Compute services; the API also lists schedulers and conductors.
    async fn services(&self, query: &[(&str, &str)]) -> Result<Vec<Service>, Failure> {
        let response = self.0.send(Method::GET, &["os-services"], query, Body::Empty).await?;
        let mut services: Vec<Service> = response.field(&["services"])?;
        services.retain(|service| service.binary.ends_with("-compute"));
        Ok(services)
    }
}
