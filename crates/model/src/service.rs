//! Interface between services and the engine: a kind, its needs, and a pure function from an object to its plan.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::DynamicObject;
use kube::{CustomResourceExt, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::image::ImageDefaults;
use crate::kind::Kind;
use crate::name;
use crate::need::{Needs, Resolved};
use crate::plan::Plan;
use crate::release::{Release, Runtime};
use crate::schema;

/// An invalid spec. A retry does not help; the user must change the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Field, e.g. `spec.fernet.rotationSchedule`.
    pub path: String,
    pub reason: String,
}

impl Invalid {
    pub fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { path: path.into(), reason: reason.into() }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path, self.reason)
    }
}

impl std::error::Error for Invalid {}

/// Settings of the operator for all objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    pub images: ImageDefaults,
    /// Domain of the cluster's Services.
    pub cluster_domain: String,
}

/// Inputs of planning.
pub struct Context<'a, K> {
    pub object: &'a K,
    pub name: &'a str,
    pub namespace: &'a str,
    pub inputs: &'a Resolved,
    pub site: &'a Site,
    /// What the pods of the object run.
    pub runtime: Runtime,
    /// Earlier decisions from `status.memory`.
    pub memory: &'a BTreeMap<String, String>,
}

/// A service: data and pure functions.
pub trait Service: 'static {
    type Object: Resource<DynamicType = ()> + CustomResourceExt + DeserializeOwned + Send + Sync;
    const KIND: Kind;
    /// Name of the service, e.g. for labels.
    const NAME: &'static str;
    /// Maximum length of the name of an object, so that the names of its children fit.
    const LONGEST_NAME: usize = name::LONGEST_INSTANCE;
    /// Whether [`Service::direct`] instructs the members of the service.
    const DIRECTS: bool = false;
    /// Software that its pods run on nodes and that a node can have only once, e.g. `Open vSwitch`.
    const NODE_CLAIM: Option<&'static str> = None;

    /// Definition of the kind, without the parts that all kinds have in common.
    fn definition() -> CustomResourceDefinition {
        Self::Object::crd()
    }

    fn needs(object: &Self::Object) -> Needs;
    fn plan(context: &Context<'_, Self::Object>) -> Result<Plan, Invalid>;

    /// Decides on the members of a cluster from their reports.
    fn direct(_object: &Self::Object, _members: &[Member], _memory: &BTreeMap<String, String>) -> Direction {
        Direction::default()
    }
}

/// State of one pod of a service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Member {
    pub name: String,
    pub uid: String,
    pub component: String,
    /// Node of the pod, once it is scheduled.
    pub node: Option<String>,
    /// Whether the pod is unschedulable, or its node is not Ready.
    pub stranded: bool,
    pub ready: bool,
    /// Whether its main container has passed its startup probe, so that a report of an earlier container is outdated.
    pub started: bool,
    /// Number of restarts of its main container.
    pub restarts: i32,
    /// Termination message of its init container, or of its main container if that ended later.
    pub report: Option<String>,
    pub annotations: BTreeMap<String, String>,
    /// What the member says over its own protocol; none if it does not respond.
    pub view: Option<MemberView>,
}

/// What a running member says about its cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum MemberView {
    Sql(SqlView),
    Bus(BusView),
}

/// Members of a cluster of message brokers, by the names of their nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusView {
    /// All members, including those that do not run.
    pub known: BTreeSet<String>,
    pub running: BTreeSet<String>,
}

/// State of replication of a database server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SqlView {
    /// Whether it belongs to the component with a quorum, the only one that accepts queries.
    pub primary: bool,
    pub replication: Replication,
    /// Number of members of its component.
    pub size: usize,
    /// Position of the last transaction.
    pub committed: i64,
    /// UUID of the cluster's history.
    pub history: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replication {
    Synced,
    /// It sends its data to a joining member.
    Donor,
    #[default]
    Joining,
}

/// Instructions for members, and decisions to record first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Direction {
    pub memory: BTreeMap<String, String>,
    pub orders: Vec<Order>,
    pub commands: Vec<Command>,
    /// Reason why a required instruction cannot be given yet.
    pub waiting: Option<String>,
    /// What the user must do, because no instruction can be given without a decision of the user.
    pub stalled: Option<String>,
    /// Remarks for the user that do not affect readiness.
    pub remarks: Vec<String>,
    /// When to ask the members again, because no watch reports a change.
    pub poll: Option<Duration>,
}

/// An instruction for a pod, as an annotation. Without a value the annotation is removed.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    pub pod: String,
    pub uid: String,
    pub annotation: &'static str,
    pub value: Option<String>,
}

/// An instruction for a member that does not go through an annotation.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Makes the component of the member, which lost its quorum, the one that serves.
    RestoreQuorum { pod: String },
    /// Deletes the pod, so that the member reports again.
    Restart { pod: String, uid: String },
}

/// A service whose types the engine does not know.
pub trait AnyService: Send + Sync {
    fn kind(&self) -> Kind;
    fn name(&self) -> &'static str;
    fn crd(&self) -> CustomResourceDefinition;
    fn directs(&self) -> bool;
    /// Software on its nodes that each node can have only once. The nodes are those of [`Needs::nodes`].
    fn node_claim(&self) -> Option<&'static str> {
        None
    }
    /// Decodes an object of the kind of the service, once per reconcile.
    fn decode(&self, object: &DynamicObject) -> Result<Box<dyn AnyObject>, Invalid>;
}

/// An object whose type the engine does not know.
pub trait AnyObject: Send + Sync {
    fn needs(&self) -> Needs;

    /// What the pods of the object run. By default, for an object without a release and images.
    fn runtime(&self, site: &Site) -> Runtime {
        Runtime { release: Release::default(), family: site.images.family }
    }

    fn plan(
        &self,
        inputs: &Resolved,
        site: &Site,
        memory: &BTreeMap<String, String>,
    ) -> Result<Plan, Invalid>;

    /// Decides on the members of a cluster from their reports.
    fn direct(&self, _members: &[Member], _memory: &BTreeMap<String, String>) -> Direction {
        Direction::default()
    }
}

/// Adapts a [`Service`] to [`AnyService`].
pub struct Entry<S>(PhantomData<fn() -> S>);

impl<S> Entry<S> {
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<S> Default for Entry<S> {
    fn default() -> Self {
        Self::new()
    }
}

/// A decoded object of a service.
struct Decoded<S: Service> {
    object: S::Object,
    name: String,
    namespace: String,
    /// The spec as the API server stores it.
    spec: Value,
}

impl<S: Service> AnyObject for Decoded<S> {
    fn needs(&self) -> Needs {
        S::needs(&self.object)
    }

    fn runtime(&self, site: &Site) -> Runtime {
        site.images.runtime(&self.spec)
    }

    fn plan(
        &self,
        inputs: &Resolved,
        site: &Site,
        memory: &BTreeMap<String, String>,
    ) -> Result<Plan, Invalid> {
        let Self { object, name, namespace, .. } = self;
        let runtime = self.runtime(site);
        S::plan(&Context { object, name, namespace, inputs, site, runtime, memory })
    }

    fn direct(&self, members: &[Member], memory: &BTreeMap<String, String>) -> Direction {
        S::direct(&self.object, members, memory)
    }
}

impl<S: Service> AnyService for Entry<S> {
    fn kind(&self) -> Kind {
        S::KIND
    }

    fn name(&self) -> &'static str {
        S::NAME
    }

    fn crd(&self) -> CustomResourceDefinition {
        schema::finish(S::definition(), S::LONGEST_NAME)
    }

    fn directs(&self) -> bool {
        S::DIRECTS
    }

    fn node_claim(&self) -> Option<&'static str> {
        S::NODE_CLAIM
    }

    fn decode(&self, object: &DynamicObject) -> Result<Box<dyn AnyObject>, Invalid> {
        // The object goes through JSON, so each type sees exactly what the API server stores.
        let value = serde_json::to_value(object)
            .map_err(|error| Invalid::new("metadata", format!("cannot be read: {error}")))?;
        let typed = serde_json::from_value(value).map_err(|error| {
            Invalid::new("spec", format!("cannot be read as a {}: {error}", S::KIND.kind))
        })?;
        Ok(Box::new(Decoded::<S> {
            object: typed,
            name: object.metadata.name.clone().unwrap_or_default(),
            namespace: object.metadata.namespace.clone().unwrap_or_else(|| "default".to_owned()),
            spec: object.data.get("spec").cloned().unwrap_or_default(),
        }))
    }
}
