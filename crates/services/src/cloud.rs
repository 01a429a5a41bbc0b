//! Services as parts of a cloud: their declaration, and how the cloud fills in their objects.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, ValidationRule,
};
use kube::{CustomResourceExt, Resource};
use openstack_operator_model::common::{NameReference, Origin};
use openstack_operator_model::kind::Kind;
use openstack_operator_model::name;
use openstack_operator_model::need::{Needs, SecretNeed};
use openstack_operator_model::plan::Plan;
use openstack_operator_model::service::{self, AnyService, Context, Direction, Entry, Invalid, Member};
use openstack_operator_model::status::Stage;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::control_plane::OpenStackControlPlaneSpec;
use crate::inputs::rules::validation;
use crate::inputs::{self, Input, Inputs};

mod block;
mod requirement;
mod settle;

pub(crate) use requirement::rules;

/// A service that is part of a cloud: data and pure functions.
pub trait Part: 'static {
    type Object: Resource<DynamicType = ()> + CustomResourceExt + DeserializeOwned + Send + Sync;
    /// Settings of its objects without release and images.
    type Template: Inputs + Clone + Serialize + DeserializeOwned;
    const KIND: Kind;
    /// Name of the service, e.g. for labels.
    const NAME: &'static str;
    /// Field of its block in a cloud.
    const FIELD: &'static str = Self::NAME;
    const STAGE: Stage;
    const PRESENCE: Presence = Presence::OnRequest;
    /// Whether [`Part::direct`] instructs the members of the service.
    const DIRECTS: bool = false;
    /// Software that its pods run on nodes and that a node can have only once.
    const NODE_CLAIM: Option<&'static str> = None;

    fn template(object: &Self::Object) -> &Self::Template;

    /// Whether the settings of the cloud replace the service by something else.
    fn is_replaced(_cloud: &OpenStackControlPlaneSpec) -> bool {
        false
    }

    /// Rules of the cloud that concern the service, as pairs of CEL and message.
    fn cloud_rules() -> Vec<(String, String)> {
        Vec::new()
    }

    /// Fills in settings that inputs cannot express.
    fn settle(_template: &mut Self::Template, _cloud: &Cloud<'_>) {}

    /// Public URL of the cloud, if this service provides it.
    fn endpoint(_template: &Self::Template) -> Option<String> {
        None
    }

    /// Needs beyond the inputs of the settings.
    fn needs(_object: &Self::Object) -> Needs {
        Needs::default()
    }

    fn plan(context: &Context<'_, Self::Object>) -> Result<Plan, Invalid>;

    /// Decides on the members of a cluster from their reports.
    fn direct(_object: &Self::Object, _members: &[Member], _memory: &BTreeMap<String, String>) -> Direction {
        Direction::default()
    }
}

/// Whether a cloud has the service without its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    ByDefault,
    OnRequest,
}

/// Adapts a [`Part`] to a service of the engine.
pub struct Deployed<P>(PhantomData<fn() -> P>);

impl<P: Part> service::Service for Deployed<P> {
    type Object = P::Object;
    const KIND: Kind = P::KIND;
    const NAME: &'static str = P::NAME;
    const DIRECTS: bool = P::DIRECTS;
    const NODE_CLAIM: Option<&'static str> = P::NODE_CLAIM;

    fn definition() -> CustomResourceDefinition {
        inputs::rules::add::<P::Template>(P::Object::crd())
    }

    fn needs(object: &P::Object) -> Needs {
        inputs::needs(P::template(object)).and(P::needs(object))
    }

    fn plan(context: &Context<'_, P::Object>) -> Result<Plan, Invalid> {
        let plan = P::plan(context)?;
        reject_overwritten_secrets(&Self::needs(context.object), &plan)?;
        Ok(plan)
    }

    fn direct(object: &P::Object, members: &[Member], memory: &BTreeMap<String, String>) -> Direction {
        P::direct(object, members, memory)
    }
}

/// Rejects a user Secret with the name of a Secret that the operator writes, because it would be overwritten.
fn reject_overwritten_secrets(needs: &Needs, plan: &Plan) -> Result<(), Invalid> {
    let is_written = |name: &str| plan.secrets.iter().any(|secret| secret.name == name);
    match needs.secrets.iter().find(|need| is_written(&need.name)) {
        None => Ok(()),
        Some(SecretNeed { field, name, .. }) => {
            let reason =
                format!("{name:?} is the name of a Secret that the operator writes: choose another name");
            Err(Invalid::new(format!("{field}.name"), reason))
        }
    }
}

/// A part whose types the control plane does not know.
pub trait AnyPart: AnyService {
    fn field(&self) -> &'static str;
    fn stage(&self) -> Stage;
    fn presence(&self) -> Presence;
    fn is_replaced(&self, cloud: &OpenStackControlPlaneSpec) -> bool;
    /// Schema of the part's block.
    fn block(&self) -> JSONSchemaProps;
    /// Rules of the cloud that concern the part.
    fn cloud_rules(&self) -> Vec<ValidationRule>;
    /// Fields of the part's components.
    fn components(&self) -> Vec<&'static str>;
    /// Kinds that the part requires, each with the setting of the cloud that replaces it.
    fn requirements(&self) -> Vec<requirement::Requirement>;
    /// Kinds that the part uses if the cloud has them.
    fn sources(&self) -> Vec<Kind>;
    /// Spec of the part, from its block and the settings of the cloud.
    fn settle(&self, block: &Value, cloud: &Cloud<'_>) -> Result<Settled, Invalid>;
}

/// Result of settling a block.
#[derive(Debug)]
pub enum Settled {
    Child {
        spec: Value,
        /// Public URL of the cloud.
        endpoint: Option<String>,
    },
    /// The part cannot be deployed, for this reason.
    LeftOut(String),
}

impl<P: Part> AnyPart for Entry<Deployed<P>> {
    fn field(&self) -> &'static str {
        P::FIELD
    }

    fn stage(&self) -> Stage {
        P::STAGE
    }

    fn presence(&self) -> Presence {
        P::PRESENCE
    }

    fn is_replaced(&self, cloud: &OpenStackControlPlaneSpec) -> bool {
        P::is_replaced(cloud)
    }

    fn block(&self) -> JSONSchemaProps {
        block::schema(P::Object::crd(), &P::Template::declaration().inputs())
    }

    fn cloud_rules(&self) -> Vec<ValidationRule> {
        let own = P::cloud_rules().into_iter();
        let topologies = block::topology_rules(P::FIELD, P::Template::declaration().inputs());
        own.chain(topologies).map(|(rule, message)| validation(rule, message)).collect()
    }

    fn components(&self) -> Vec<&'static str> {
        let mut declaration = P::Template::declaration();
        let fields = declaration.inputs().into_iter().filter_map(|input| match input {
            Input::Component { field, .. } => Some(field),
            _ => None,
        });
        fields.collect()
    }

    fn requirements(&self) -> Vec<requirement::Requirement> {
        requirement::requirements(P::Template::declaration().inputs())
    }

    fn sources(&self) -> Vec<Kind> {
        requirement::sources(P::Template::declaration().inputs())
    }

    fn settle(&self, block: &Value, cloud: &Cloud<'_>) -> Result<Settled, Invalid> {
        let field = format!("spec.{}", P::FIELD);
        let mut template = P::Template::deserialize(block)
            .map_err(|error| Invalid::new(&field, format!("cannot be read: {error}")))?;
        for input in template.inputs() {
            match settle::settle(input, cloud, P::FIELD) {
                Ok(()) => {}
                Err(settle::Unsettled::LeftOut(reason)) => return Ok(Settled::LeftOut(reason)),
                Err(settle::Unsettled::Invalid(invalid)) => return Err(invalid),
            }
        }
        P::settle(&mut template, cloud);
        let endpoint = P::endpoint(&template);
        let origin = Origin { release: cloud.spec.release, images: cloud.spec.images.clone() };
        let mut spec = fields(&field, &template)?;
        spec.extend(fields(&field, &origin)?);
        Ok(Settled::Child { spec: Value::Object(spec), endpoint })
    }
}

fn fields(field: &str, part: &impl Serialize) -> Result<Map<String, Value>, Invalid> {
    match serde_json::to_value(part) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Ok(Map::new()),
        Err(error) => Err(Invalid::new(field, format!("has no JSON form: {error}"))),
    }
}

/// A cloud with its parts.
pub struct Cloud<'a> {
    name: &'a str,
    pub(crate) spec: &'a OpenStackControlPlaneSpec,
    /// Fields of the enabled parts by kind.
    parts: BTreeMap<Kind, &'static str>,
}

impl<'a> Cloud<'a> {
    pub(crate) fn new(
        name: &'a str,
        spec: &'a OpenStackControlPlaneSpec,
        parts: impl Iterator<Item = &'static dyn AnyPart>,
    ) -> Self {
        let parts = parts.filter(|part| spec.has(*part)).map(|part| (part.kind(), part.field())).collect();
        Self { name, spec, parts }
    }

    pub(crate) fn has(&self, kind: Kind) -> bool {
        self.parts.contains_key(&kind)
    }

    /// Reference to the object of a kind, if the cloud has one.
    fn reference(&self, kind: Kind) -> Option<NameReference> {
        let field = self.parts.get(&kind)?;
        Some(NameReference::new(name::part(self.name, field)))
    }
}
