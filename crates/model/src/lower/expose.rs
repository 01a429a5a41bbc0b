//! Public access as HTTPRoutes of a Gateway.

use gateway_api::httproutes::{
    HttpRouteParentRefs, HttpRouteRules, HttpRouteRulesBackendRefs, HttpRouteRulesFilters,
    HttpRouteRulesFiltersRequestHeaderModifier, HttpRouteRulesFiltersRequestHeaderModifierSet,
    HttpRouteRulesFiltersType, HttpRouteSpec,
};

use super::{Lowering, Manifest, manifest, value};
use crate::common::Scheme;
use crate::kind::HTTP_ROUTE;
use crate::plan::Route;

pub(super) fn manifests(lowering: &Lowering<'_>) -> Vec<Manifest> {
    lowering.plan.routes.iter().map(|route| http_route(lowering, route)).collect()
}

fn http_route(lowering: &Lowering<'_>, route: &Route) -> Manifest {
    let instance = lowering.instance;
    let name = instance.part(route.suffix.as_deref());
    let spec = HttpRouteSpec {
        hostnames: Some(vec![route.hostname.clone()]),
        parent_refs: Some(vec![HttpRouteParentRefs {
            name: route.gateway.name.clone(),
            namespace: route.gateway.namespace.clone(),
            section_name: route.gateway.listener_name.clone(),
            ..HttpRouteParentRefs::default()
        }]),
        rules: Some(vec![HttpRouteRules {
            backend_refs: Some(vec![HttpRouteRulesBackendRefs {
                name: name.clone(),
                port: Some(i32::from(route.port)),
                ..HttpRouteRulesBackendRefs::default()
            }]),
            filters: Some(vec![forwarded_scheme(route.scheme)]),
            ..HttpRouteRules::default()
        }]),
    };
    let metadata = instance.metadata(&name, None);
    manifest(HTTP_ROUTE, &name, &metadata, [("spec", value(&spec))])
}

/// Filter that sets the header from which servers derive their public URLs.
fn forwarded_scheme(scheme: Scheme) -> HttpRouteRulesFilters {
    let header = HttpRouteRulesFiltersRequestHeaderModifierSet {
        name: "X-Forwarded-Proto".to_owned(),
        value: scheme.name().to_owned(),
    };
    HttpRouteRulesFilters {
        r#type: HttpRouteRulesFiltersType::RequestHeaderModifier,
        request_header_modifier: Some(HttpRouteRulesFiltersRequestHeaderModifier {
            set: Some(vec![header]),
            ..HttpRouteRulesFiltersRequestHeaderModifier::default()
        }),
        ..HttpRouteRulesFilters::default()
    }
}
