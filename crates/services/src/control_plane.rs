//! The control plane: one object that stands for a whole cloud, and consists of one object for each of its parts.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use kube::CustomResourceExt;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::name;
use openstack_operator_model::need::Needs;
use openstack_operator_model::plan::{Child, Plan, Skipped};
use openstack_operator_model::service::{self, Context, Invalid};

use crate::PARTS;
use crate::cloud::{self, Cloud, Settled};

pub use spec::*;

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

    fn needs(_object: &OpenStackControlPlane) -> Needs {
        Needs::default()
    }

    fn plan(context: &Context<'_, OpenStackControlPlane>) -> Result<Plan, Invalid> {
        let spec = &context.object.spec;
        let cloud = Cloud::new(context.name, spec, PARTS.iter().copied());
        let mut plan = Plan::default();
        for part in PARTS.iter().filter(|part| cloud.has(part.kind())) {
            let kind = part.kind();
            let name = name::part(context.name, part.field());
            match part.settle(spec.block(part.field()), &cloud)? {
                Settled::Child { spec, entrance } => {
                    plan.endpoint = plan.endpoint.or(entrance);
                    plan.children.push(Child { kind, name, stage: Some(part.stage()), spec });
                }
                Settled::LeftOut(reason) => plan.skipped.push(Skipped { kind, name, reason }),
            }
        }
        Ok(plan)
    }
}

/// Adds to the schema a block for each part, and the rules that concern several of them.
fn add_parts(schema: &mut JSONSchemaProps) {
    let rules = schema.x_kubernetes_validations.get_or_insert_default();
    rules.extend(cloud::rules(PARTS));
    rules.extend(PARTS.iter().flat_map(|part| part.cloud_rules()));
    let spec = schema.properties.as_mut().and_then(|fields| fields.get_mut("spec"));
    if let Some(spec) = spec {
        let blocks = PARTS.iter().map(|part| (part.field().to_owned(), part.block()));
        spec.properties.get_or_insert_default().extend(blocks);
    }
}
