//! Services as parts of a cloud: their declaration, and how the cloud fills in their objects.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, ValidationRule,
};
use kube::{CustomResourceExt, Resource};
use openstack_operator_model::common::NameReference;
use openstack_operator_model::image::Image;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::name;
use openstack_operator_model::need::{Needs, SecretNeed};
use openstack_operator_model::plan::Plan;
use openstack_operator_model::release::{Release, Releases};
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
pub(crate) mod upgrade;

pub(crate) use requirement::rules;
pub use upgrade::Wave;

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
    /// Position in the upgrade of a cloud to another release.
    const WAVE: Wave = Wave::Others;
    /// Releases that have the service.
    const RELEASES: Releases = Releases::ALL;
    /// Whether [`Part::direct`] instructs the members of the service.
    const DIRECTS: bool = false;
    /// Software that its pods run on nodes and that a node can have only once.
    const NODE_CLAIM: Option<&'static str> = None;

    /// Notifications of other parts that this one consumes.
    const SUBSCRIPTIONS: &'static [Subscription] = &[];

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

/// Notifications that a part consumes. The parts that produce them send them to the topic while the cloud has the consumer:
/// without one, they would fill the message bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Topic of this consumer and no other.
    pub topic: &'static str,
    pub producers: Producers,
}

/// Parts whose notifications a consumer gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Producers {
    All,
    Of(&'static [Kind]),
}

impl Producers {
    fn contains(self, kind: Kind) -> bool {
        match self {
            Self::All => true,
            Self::Of(kinds) => kinds.contains(&kind),
        }
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
        reject_ended_service(P::KIND, P::RELEASES, context.runtime.release)?;
        let plan = P::plan(context)?;
        reject_overwritten_secrets(&Self::needs(context.object), &plan)?;
        Ok(plan)
    }

    fn direct(object: &P::Object, members: &[Member], memory: &BTreeMap<String, String>) -> Direction {
        P::direct(object, members, memory)
    }
}

/// Rejects a release that no longer has the service.
fn reject_ended_service(kind: Kind, releases: Releases, wanted: Release) -> Result<(), Invalid> {
    if releases.contains(wanted) {
        return Ok(());
    }
    let (kind, last, wanted) = (kind.kind, releases.last().number(), wanted.number());
    let reason =
        format!("{kind} ends with release {last}: set it to {last}, or delete the object before {wanted}");
    Err(Invalid::new("spec.release", reason))
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
    fn wave(&self) -> Wave;
    fn releases(&self) -> Releases;
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
    /// Notifications of other parts that the part consumes.
    fn subscriptions(&self) -> &'static [Subscription];
    /// Spec of the part, from its block and the settings of the cloud, without release and images.
    fn settle(&self, block: &Value, cloud: &Cloud<'_>) -> Result<Settled, Invalid>;
    /// Images that a spec of the part sets, by component.
    fn component_images(&self, spec: &Value) -> ComponentImages;
    /// Replaces the images of the components of a spec.
    fn with_images(&self, spec: Fields, images: &ComponentImages) -> Result<Fields, Invalid>;
}

/// Images of the components of a part.
pub type ComponentImages = BTreeMap<&'static str, Image>;

/// Fields of a spec.
pub type Fields = Map<String, Value>;

/// Result of settling a block.
#[derive(Debug)]
pub enum Settled {
    Child {
        spec: Fields,
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

    fn wave(&self) -> Wave {
        P::WAVE
    }

    fn releases(&self) -> Releases {
        P::RELEASES
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

    fn subscriptions(&self) -> &'static [Subscription] {
        P::SUBSCRIPTIONS
    }

    fn settle(&self, block: &Value, cloud: &Cloud<'_>) -> Result<Settled, Invalid> {
        let field = format!("spec.{}", P::FIELD);
        let mut template = P::Template::deserialize(block)
            .map_err(|error| Invalid::new(&field, format!("cannot be read: {error}")))?;
        settle::settle_topics(template.inputs(), cloud, P::KIND);
        for input in template.inputs() {
            match settle::settle(input, cloud, P::FIELD) {
                Ok(()) => {}
                Err(settle::Unsettled::LeftOut(reason)) => return Ok(Settled::LeftOut(reason)),
                Err(settle::Unsettled::Invalid(invalid)) => return Err(invalid),
            }
        }
        P::settle(&mut template, cloud);
        let endpoint = P::endpoint(&template);
        Ok(Settled::Child { spec: fields(&field, &template)?, endpoint })
    }

    fn component_images(&self, spec: &Value) -> ComponentImages {
        let mut template = P::Template::deserialize(spec).unwrap_or_default();
        let image = |input: Input<'_>| match input {
            Input::Component { field, settings } => Some((field, settings.image.clone())),
            _ => None,
        };
        template.inputs().into_iter().filter_map(image).collect()
    }

    fn with_images(&self, spec: Fields, images: &ComponentImages) -> Result<Fields, Invalid> {
        let path = format!("spec.{}", P::FIELD);
        let mut template = P::Template::deserialize(Value::Object(spec))
            .map_err(|error| Invalid::new(&path, format!("cannot be read: {error}")))?;
        for input in template.inputs() {
            if let Input::Component { field, settings } = input {
                settings.image = images.get(field).cloned().unwrap_or_default();
            }
        }
        fields(&path, &template)
    }
}

pub(crate) fn fields(field: &str, part: &impl Serialize) -> Result<Fields, Invalid> {
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
    /// Notifications that the enabled parts consume.
    subscriptions: Vec<Subscription>,
}

impl<'a> Cloud<'a> {
    pub(crate) fn new(
        name: &'a str,
        spec: &'a OpenStackControlPlaneSpec,
        parts: impl Iterator<Item = &'static dyn AnyPart>,
    ) -> Self {
        let enabled: Vec<&dyn AnyPart> = parts.filter(|part| spec.has(*part)).collect();
        let subscriptions = enabled.iter().flat_map(|part| part.subscriptions()).copied().collect();
        let parts = enabled.iter().map(|part| (part.kind(), part.field())).collect();
        Self { name, spec, parts, subscriptions }
    }

    /// Topics to which a part sends notifications.
    fn topics(&self, producer: Kind) -> Vec<String> {
        let subscribed = self.subscriptions.iter().filter(|one| one.producers.contains(producer));
        subscribed.map(|one| one.topic.to_owned()).collect()
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

#[cfg(test)]
mod tests;
