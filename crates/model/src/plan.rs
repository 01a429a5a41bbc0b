//! The desired state of one object: plain data that a service fills in and lowering turns into manifests.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use crate::common::{PodAdditions, Reference, Resources, Scheduling, Toleration, TolerationOperator};
use crate::kind::Kind;
use crate::status::{DatabaseServer, IdentityServer, MessagingServer, Provides, Stage};

pub use crate::plan::pod::*;
pub use crate::plan::secret::*;

mod pod;
mod secret;

/// What an object stands for, in full.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Secrets that the operator writes.
    pub secrets: Vec<SecretPlan>,
    pub databases: Vec<Database>,
    pub messaging: Vec<Messaging>,
    /// Configuration files by name. A change of one rolls the pods that mount it and no others.
    pub files: BTreeMap<FileName, String>,
    /// Files that may change under running pods, and that no pod is replaced for.
    pub live_files: BTreeMap<FileName, String>,
    pub volumes: Vec<Volume>,
    pub tasks: Vec<Task>,
    pub workloads: Vec<Workload>,
    pub routes: Vec<Route>,
    pub catalog: Option<Catalog>,
    /// Agents on nodes, who register themselves somewhere.
    pub agents: Option<NodeAgents>,
    /// Other objects of the operator that this one consists of.
    pub children: Vec<Child>,
    /// Children that cannot be, and why.
    pub skipped: Vec<Skipped>,
    /// What a person should know although the object itself is well.
    pub remarks: Vec<String>,
    pub provides: Provides,
    /// Where the service is reached.
    pub endpoint: Option<String>,
    /// Image pull Secrets.
    pub pull_secrets: Vec<String>,
    /// What the user adds to all pods.
    pub additions: PodAdditions,
}

/// Name of a configuration file, unique within a plan.
pub type FileName = String;

/// A word that is mostly known when the program is written.
pub type NamePart = Cow<'static, str>;

/// A volume that all pods of the workloads that mount it share.
#[derive(Clone, Debug, PartialEq)]
pub struct Volume {
    /// End of the claim's name.
    pub name: &'static str,
    pub size: String,
    pub class: Option<String>,
    /// Whether pods of several nodes write to it at once.
    pub shared: bool,
    /// Whether it outlives the object.
    pub retained: bool,
}

/// A database and its user, on a server of another object.
#[derive(Clone, Debug, PartialEq)]
pub struct Database {
    pub provider: Reference,
    pub server: DatabaseServer,
    pub database: String,
    /// Secret with `username` and `password` of the user.
    pub secret: String,
    /// Whether the database outlives the object.
    pub retained: bool,
}

/// A virtual host and its user, on a message bus of another object.
#[derive(Clone, Debug, PartialEq)]
pub struct Messaging {
    pub provider: Reference,
    pub server: MessagingServer,
    pub virtual_host: String,
    /// Secret with `username` and `password` of the user.
    pub secret: String,
}

/// What the identity service must know.
#[derive(Clone, Debug, PartialEq)]
pub struct Catalog {
    pub provider: Reference,
    pub server: IdentityServer,
    pub projects: Vec<String>,
    pub roles: Vec<String>,
    pub services: Vec<CatalogService>,
    pub users: Vec<IdentityUser>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CatalogService {
    /// Type by the service types authority, e.g. `identity`.
    pub service_type: String,
    pub name: String,
    pub description: String,
    pub region: String,
    pub endpoints: Vec<CatalogEndpoint>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CatalogEndpoint {
    pub interface: Interface,
    pub url: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Interface {
    Public,
    Internal,
    Admin,
}

impl Interface {
    pub fn name(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Internal => "internal",
            Self::Admin => "admin",
        }
    }
}

/// A user with which a service speaks to others, in the default domain.
#[derive(Clone, Debug, PartialEq)]
pub struct IdentityUser {
    pub name: String,
    pub password: SecretKey,
    pub project: String,
    pub roles: Vec<String>,
}

/// Agents that register themselves by the names of their nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeAgents {
    /// Object with which they register.
    pub provider: Reference,
    pub registry: Registry,
    /// Nodes that must have one. One whose node was among them and is no longer is given no more work, is kept for as
    /// long as it still has some, and is then removed.
    pub nodes: Vec<String>,
}

/// Where agents register.
#[derive(Clone, Debug, PartialEq)]
pub enum Registry {
    /// Hypervisors, by the API of the compute service.
    Hypervisors {
        /// Address inside the cluster, with the version.
        url: String,
        identity: IdentityServer,
    },
    /// Agents of the network service, by its API.
    Network {
        /// Address inside the cluster.
        url: String,
        identity: IdentityServer,
    },
    /// Switches, in the database of networks as they are.
    Chassis {
        /// Members, e.g. `tcp:10.96.0.7:6642`.
        southbound: Vec<String>,
        /// Name of the database there.
        database: &'static str,
    },
}

/// A command that runs to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    pub name: &'static str,
    pub stage: TaskStage,
    pub user: i64,
    pub container: Container,
    /// Secrets whose change makes the task run again.
    pub repeat_on: Vec<String>,
}

/// When a task runs. Where an image changes, data formats are widened before the rollout and narrowed after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskStage {
    /// Once, where nothing is installed yet; the workloads wait for it.
    Install,
    /// Before the rollout of another image.
    Expand,
    /// After `Expand`, before the rollout.
    Migrate,
    /// Beside the first workloads.
    Bootstrap,
    /// After the rollout of another image.
    Contract,
    /// After each rotation of a key ring.
    Rotate { ring: String },
}

/// Pods that run until told otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// What the pods are within the service, e.g. `api`.
    pub component: NamePart,
    /// End of the workload's name, where the instance has more than one.
    pub suffix: Option<NamePart>,
    pub controller: Controller,
    pub replicas: i32,
    pub pod: Pod,
    pub services: Vec<NetworkService>,
    /// Objects that must be Ready before the pods are started for the first time. What once runs is kept running and
    /// changed whatever becomes of them.
    pub after: Vec<Reference>,
}

impl Workload {
    /// A workload beside others of the same instance, without an address.
    pub fn part(component: &'static str, controller: Controller, replicas: i32, pod: Pod) -> Self {
        Self {
            component: component.into(),
            suffix: Some(component.into()),
            controller,
            replicas,
            pod,
            services: Vec::new(),
            after: Vec::new(),
        }
    }

    /// A workload with a pod on every node that its scheduling allows.
    pub fn on_nodes(component: &'static str, pod: Pod) -> Self {
        Self::part(component, Controller::DaemonSet, 1, pod)
    }

    /// The same on nodes that are no longer chosen and cannot be left yet. It is another workload, so that pods of other
    /// nodes are not replaced for it.
    #[must_use]
    pub fn leaving(&self, nodes: &[String]) -> Option<Self> {
        let word = |word: &NamePart| NamePart::from(format!("{word}-leaving"));
        // A node may leave because of a taint, and what it holds needs the pods nevertheless.
        let every_taint = Toleration { operator: Some(TolerationOperator::Exists), ..Toleration::default() };
        let scheduling = Scheduling {
            node_selector: BTreeMap::new(),
            tolerations: vec![every_taint],
            ..self.pod.scheduling.clone()
        };
        (!nodes.is_empty()).then(|| Self {
            component: word(&self.component),
            suffix: self.suffix.as_ref().map(word),
            pod: Pod { only_on: nodes.to_vec(), scheduling, ..self.pod.clone() },
            after: Vec::new(),
            ..self.clone()
        })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Controller {
    Deployment,
    /// A Deployment whose old pods go before new ones come, since two at once would harm each other.
    Recreate,
    /// Pods with names and volumes of their own, all started at once.
    StatefulSet {
        claims: Vec<Claim>,
        volumes_deleted: bool,
    },
    /// A pod on every node that its scheduling allows, replaced node by node.
    DaemonSet,
}

/// A volume of each pod of a set.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    pub name: &'static str,
    pub size: String,
    pub class: Option<String>,
}

/// An address of a workload's pods.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkService {
    /// End of the Service's name; none for the instance's main address.
    pub suffix: Option<NamePart>,
    pub ports: Vec<Port>,
    /// Gives every pod a name, also before it is ready, instead of one address for all.
    pub headless: bool,
    /// Sends everything to one pod.
    pub pod: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    pub name: &'static str,
    pub number: u16,
}

/// A way in from outside.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    pub hostname: String,
    pub gateway: crate::common::GatewayReference,
    /// End of the Service's name that it leads to, and of its own; none for the instance's main address.
    pub suffix: Option<NamePart>,
    pub port: u16,
}

/// Another object of the operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    pub kind: Kind,
    pub name: String,
    /// When the child is due in a cloud that it is a service of; none where it is a mere part.
    pub stage: Option<Stage>,
    pub spec: Value,
}

/// A child that was asked for and cannot be.
#[derive(Clone, Debug, PartialEq)]
pub struct Skipped {
    pub kind: Kind,
    pub name: String,
    pub reason: String,
}
