//! The control plane: one object for a whole cloud, with one child object per part.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, ValidationRule,
};
use kube::CustomResourceExt;
use openstack_operator_model::common::Reference;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::name;
use openstack_operator_model::need::Needs;
use openstack_operator_model::plan::Plan;
use openstack_operator_model::release::Release;
use openstack_operator_model::service::{self, Context, Invalid};
use openstack_operator_model::status::Status;

use crate::PARTS;
use crate::cloud::{self, AnyPart};
use crate::inputs::ALL_COMPONENTS;
use crate::inputs::rules::validation;

pub use spec::*;

mod children;
mod spec;

pub const KIND: Kind = Kind::own("OpenStackControlPlane", "openstackcontrolplanes");

pub struct Service;

impl service::Service for Service {
    type Object = OpenStackControlPlane;
    const KIND: Kind = KIND;
    const NAME: &'static str = "controlplane";
    const LONGEST_NAME: usize = name::LONGEST_PARENT;

    fn definition() -> CustomResourceDefinition {
        let mut definition = OpenStackControlPlane::crd();
        for version in &mut definition.spec.versions {
            let schema = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
            if let Some(schema) = schema {
                add_parts(schema);
            }
        }
        definition
    }

    /// While its services have different releases, planning reads their states.
    fn needs(object: &OpenStackControlPlane) -> Needs {
        let OpenStackControlPlane { metadata, spec, status } = object;
        if status.as_ref().is_some_and(|status| have_reached(spec.release, status)) {
            return Needs::default();
        }
        let cloud = metadata.name.as_deref().unwrap_or_default();
        let parts = PARTS.iter().filter(|part| spec.has(**part));
        let reference = |part: &&dyn AnyPart| Reference::new(part.kind(), name::part(cloud, part.field()));
        Needs { parts: parts.map(reference).collect(), ..Needs::default() }
    }

    fn plan(context: &Context<'_, OpenStackControlPlane>) -> Result<Plan, Invalid> {
        check_components(&context.object.spec)?;
        children::plan(context, PARTS)
    }
}

/// Whether the cloud and all its services have this release and no other.
fn have_reached(release: Release, status: &Status) -> bool {
    let mut others = status.services.iter().filter_map(|service| service.release);
    status.release == Some(release) && others.all(|known| known == release)
}

/// All components of all parts as `service/component`.
fn components() -> Vec<String> {
    let qualified = |part: &&'static dyn AnyPart| {
        let service = part.field();
        part.components().into_iter().map(move |component| format!("{service}/{component}"))
    };
    PARTS.iter().flat_map(qualified).collect()
}

fn check_components(spec: &OpenStackControlPlaneSpec) -> Result<(), Invalid> {
    if spec.components.is_empty() {
        return Ok(());
    }
    let known = components();
    for (index, given) in spec.components.iter().enumerate() {
        let name = format!("{}/{}", given.service, given.component);
        if !known.contains(&name) {
            let reason = format!("unknown component {name}: known components are {}", known.join(", "));
            return Err(Invalid::new(format!("spec.components[{index}]"), reason));
        }
    }
    Ok(())
}

/// Rule that a component exists. It compares names one by one, because API servers estimate the cost of comparing
/// concatenated strings as too high.
fn components_rule() -> ValidationRule {
    let quoted = |names: &[&str]| names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(",");
    let all: Vec<&str> = PARTS.iter().map(|part| part.field()).collect();
    let mut ways =
        vec![format!("self.component == '{ALL_COMPONENTS}' && self.service in [{}]", quoted(&all))];
    for part in PARTS {
        let mut components = part.components();
        components.retain(|component| *component != ALL_COMPONENTS);
        if !components.is_empty() {
            let service = part.field();
            ways.push(format!("self.service == '{service}' && self.component in [{}]", quoted(&components)));
        }
    }
    let message = "components: unknown component: see the fields of the kind of the service";
    validation(ways.join(" || "), message.to_owned())
}

/// Rule that the release of a cloud that has served goes only to the next one. While an upgrade runs, the status still has
/// the former release; planning rejects the way back once a service has changed.
fn release_rule() -> ValidationRule {
    let step = |from: &Release| {
        let next = from.next()?;
        let (from, next) = (from.number(), next.number());
        Some(format!("oldSelf.status.release == '{from}' && self.spec.release == '{next}'"))
    };
    let mut ways = vec![
        "self.spec.release == oldSelf.spec.release".to_owned(),
        "!has(oldSelf.status) || !has(oldSelf.status.release)".to_owned(),
        "!has(oldSelf.status.served) || !oldSelf.status.served".to_owned(),
        "self.spec.release == oldSelf.status.release".to_owned(),
    ];
    ways.extend(Release::ALL.iter().filter_map(step));
    let message = "spec.release can only change from the release in status.release to the next one: a cloud cannot skip \
                   a release or go back";
    validation(ways.join(" || "), message.to_owned())
}

/// Adds the blocks of all parts and the rules across parts to the schema.
fn add_parts(schema: &mut JSONSchemaProps) {
    let rules = schema.x_kubernetes_validations.get_or_insert_default();
    rules.extend(cloud::rules(PARTS));
    rules.extend(PARTS.iter().flat_map(|part| part.cloud_rules()));
    rules.push(release_rule());
    let Some(fields) = &mut schema.properties else { return };
    if let Some(known) = fields.get_mut("status").and_then(|status| status.properties.as_mut()) {
        // A cloud provides nothing and has no agents; its parts do.
        known.retain(|field, _| !["provides", "nodes", "effects", "unreachable"].contains(&field.as_str()));
    }
    if let Some(spec) = fields.get_mut("spec") {
        let components = spec.properties.as_mut().and_then(|fields| fields.get_mut("components"));
        if let Some(JSONSchemaPropsOrArray::Schema(item)) = components.and_then(|list| list.items.as_mut()) {
            item.x_kubernetes_validations.get_or_insert_default().push(components_rule());
        }
        let blocks = PARTS.iter().map(|part| (part.field().to_owned(), part.block()));
        spec.properties.get_or_insert_default().extend(blocks);
    }
}
