//! Service catalog: regions, services and endpoints.

use openstack_operator_engine::claim::{Adoption, Claim, Found};
use openstack_operator_engine::ports::IdentityService;
use openstack_operator_model::plan::{CatalogEndpoint, CatalogService};
use openstack_operator_model::status::EffectKind;
use serde::Deserialize;
use serde_json::json;

use crate::http::{Body, Failure};
use crate::identity::session::{ENDPOINTS, REGIONS, SERVICES, Session};

#[derive(Deserialize)]
struct Service {
    id: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    description: Option<String>,
    enabled: bool,
}

#[derive(Deserialize)]
struct Endpoint {
    id: String,
    interface: String,
    region_id: Option<String>,
    url: String,
    enabled: bool,
    #[serde(default)]
    description: Option<String>,
}

impl Endpoint {
    fn owner(&self) -> Found<'_> {
        Found::marked(self.description.as_deref())
    }
}

#[derive(Deserialize)]
struct Region {
    id: String,
}

/// Ensures a service and its endpoints in one region. Endpoints in other regions are not touched. The service itself has
/// no owner, because regions share it.
pub(super) async fn ensure_service(
    session: &Session<'_>,
    IdentityService { entry: wanted, claim }: &IdentityService,
) -> Result<bool, Failure> {
    let found = find_service(session, wanted).await?;
    let present = match &found {
        Some(service) => endpoints(session, service, Some(&wanted.region)).await?,
        None => Vec::new(),
    };
    for endpoint in &present {
        claim.admit(EffectKind::CatalogService, &wanted.service_type, endpoint.owner())?;
    }
    let body = json!({
        "type": wanted.service_type,
        "name": wanted.name,
        "description": wanted.description,
        "enabled": true,
    });
    let (id, mut wrote) = match found {
        None => (session.create(&SERVICES, Body::Plain(body)).await?, true),
        Some(service) if is_current(&service, wanted) => (service.id, false),
        Some(service) => {
            session.update(&SERVICES, &service.id, Body::Plain(body)).await?;
            (service.id, true)
        }
    };
    let place = Place { service: &id, region: &wanted.region, claim };
    for endpoint in &wanted.endpoints {
        wrote |= ensure_endpoint(session, &place, endpoint, &present).await?;
    }
    Ok(wrote)
}

/// Succeeds if the service does not exist, belongs to another object, or is removed concurrently.
pub(super) async fn drop_service(
    session: &Session<'_>,
    service_type: &str,
    region: Option<&str>,
    claim: &Claim,
) -> Result<(), Failure> {
    let services: Vec<Service> = session.list(&SERVICES, &[("type", service_type)]).await?;
    for service in services {
        let all = endpoints(session, &service, None).await?;
        let is_in_region = |endpoint: &&Endpoint| region.is_none() || endpoint.region_id.as_deref() == region;
        let is_own = |endpoint: &&Endpoint| {
            claim.may_remove(EffectKind::CatalogService, service_type, endpoint.owner())
        };
        let own: Vec<&Endpoint> = all.iter().filter(is_in_region).filter(is_own).collect();
        for endpoint in &own {
            session.remove(&ENDPOINTS, &endpoint.id).await?;
        }
        // Nothing says who created a service without endpoints.
        let is_known = !all.is_empty() || claim.adoption != Adoption::Nothing;
        if own.len() == all.len() && is_known {
            session.remove(&SERVICES, &service.id).await?;
        }
    }
    Ok(())
}

/// Endpoints of a service in a region, or in all regions.
async fn endpoints(
    session: &Session<'_>,
    service: &Service,
    region: Option<&str>,
) -> Result<Vec<Endpoint>, Failure> {
    let mut endpoints: Vec<Endpoint> = session.list(&ENDPOINTS, &[("service_id", &service.id)]).await?;
    endpoints.retain(|endpoint| region.is_none() || endpoint.region_id.as_deref() == region);
    Ok(endpoints)
}

/// Of several services with the type, prefers the one with the wanted name.
async fn find_service(session: &Session<'_>, wanted: &CatalogService) -> Result<Option<Service>, Failure> {
    let mut services: Vec<Service> = session.list(&SERVICES, &[("type", &wanted.service_type)]).await?;
    let with_name = services.iter().position(|service| service.name.as_ref() == Some(&wanted.name));
    Ok(if services.is_empty() { None } else { Some(services.swap_remove(with_name.unwrap_or(0))) })
}

fn is_current(service: &Service, wanted: &CatalogService) -> bool {
    service.enabled
        && service.name.as_ref() == Some(&wanted.name)
        && service.description.as_deref().unwrap_or_default() == wanted.description
}

/// Where endpoints belong, and to whom.
struct Place<'a> {
    service: &'a str,
    region: &'a str,
    claim: &'a Claim,
}

/// Ensures exactly one endpoint of the interface, since clients would use any of several.
async fn ensure_endpoint(
    session: &Session<'_>,
    Place { service, region, claim }: &Place<'_>,
    wanted: &CatalogEndpoint,
    present: &[Endpoint],
) -> Result<bool, Failure> {
    let interface = wanted.interface.name();
    let is_current = |endpoint: &Endpoint| {
        endpoint.enabled && endpoint.url == wanted.url && endpoint.owner() == Found::Owned(&claim.owner)
    };
    let same: Vec<&Endpoint> = present.iter().filter(|endpoint| endpoint.interface == interface).collect();
    let Some(kept) = same.iter().find(|endpoint| is_current(endpoint)).or(same.first()) else {
        ensure_region(session, region).await?;
        let body = json!({
            "service_id": service,
            "region_id": region,
            "interface": interface,
            "url": wanted.url,
            "enabled": true,
            "description": claim.mark(),
        });
        session.create(&ENDPOINTS, Body::Plain(body)).await?;
        return Ok(true);
    };
    let mut wrote = false;
    if !is_current(kept) {
        let body = json!({"url": wanted.url, "enabled": true, "description": claim.mark()});
        session.update(&ENDPOINTS, &kept.id, Body::Plain(body)).await?;
        wrote = true;
    }
    for endpoint in same.iter().filter(|endpoint| endpoint.id != kept.id) {
        session.remove(&ENDPOINTS, &endpoint.id).await?;
        wrote = true;
    }
    Ok(wrote)
}

async fn ensure_region(session: &Session<'_>, region: &str) -> Result<(), Failure> {
    let regions: Vec<Region> = session.list(&REGIONS, &[]).await?;
    if !regions.iter().any(|present| present.id == region) {
        session.create(&REGIONS, Body::Plain(json!({"id": region}))).await?;
    }
    Ok(())
}
