//! Plan: the desired state of one object. A service builds it and lowering turns it into manifests.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use crate::common::{PodAdditions, Reference, Resources, Scheduling, Scheme, Toleration, TolerationOperator};
use crate::kind::Kind;
use crate::release::Release;
use crate::status::{DatabaseServer, IdentityServer, MessagingServer, Provides, Stage};

pub use crate::plan::identity::*;
pub use crate::plan::network::*;
pub use crate::plan::pod::*;
pub use crate::plan::secret::*;
pub use crate::plan::task::*;

mod identity;
mod network;
mod pod;
mod secret;
mod task;

/// The complete desired state of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Secrets that the operator writes.
    pub secrets: Vec<SecretPlan>,
    pub databases: Vec<Database>,
    pub messaging: Vec<Messaging>,
    /// Configuration files by name. A change restarts the pods that mount the file and no others.
    pub files: BTreeMap<FileName, File>,
    /// Files that change in running pods without a restart.
    pub live_files: BTreeMap<FileName, String>,
    pub volumes: Vec<Volume>,
    pub tasks: Vec<Task>,
    /// Commands that run again and again. They do not affect readiness.
    pub schedules: Vec<Schedule>,
    pub workloads: Vec<Workload>,
    /// How to ask the members of the cluster for their views; none if the operator does not ask them.
    pub member_protocol: Option<MemberProtocol>,
    pub routes: Vec<Route>,
    pub catalog: Option<Catalog>,
    /// Agents on nodes that register with a service.
    pub agents: Option<NodeAgents>,
    /// Child objects of the operator.
    pub children: Vec<Child>,
    /// Children that cannot be deployed, with the reason.
    pub skipped: Vec<Skipped>,
    /// Change of the children to another release, while some of them have not changed yet.
    pub upgrade: Option<Upgrade>,
    /// Remarks for the user that do not affect readiness.
    pub remarks: Vec<String>,
    pub provides: Provides,
    /// URL of the service.
    pub endpoint: Option<String>,
    /// Image pull Secrets.
    pub pull_secrets: Vec<String>,
    /// Additions of the user to all pods.
    pub additions: PodAdditions,
}

impl Plan {
    /// Whether the object runs containers.
    pub fn has_pods(&self) -> bool {
        self.containers().next().is_some()
    }

    /// Whether the object, or one of its children, runs containers.
    pub fn has_images(&self) -> bool {
        self.has_pods() || !self.children.is_empty()
    }

    /// Every container of the object.
    pub fn containers(&self) -> impl Iterator<Item = &Container> {
        let pods = self.workloads.iter().map(|workload| &workload.pod);
        let tasks = self.tasks.iter().map(|task| &task.container);
        let schedules = self.schedules.iter().map(|schedule| &schedule.container);
        pods.flat_map(|pod| pod.setup.iter().chain(&pod.containers)).chain(tasks).chain(schedules)
    }
}

/// Change of the children of an object to another release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    /// Release that all children have reached.
    pub from: Release,
    pub to: Release,
    /// Children that have not changed yet. A wave starts when all children of earlier ones are Ready.
    pub waves: Vec<Vec<Reference>>,
}

/// Name of a configuration file, unique within a plan.
pub type FileName = String;

/// Content of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum File {
    Text(String),
    /// Not text, e.g. an image or an archive.
    Bytes(Vec<u8>),
}

impl File {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }

    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Bytes(_) => None,
        }
    }
}

impl From<String> for File {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for File {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// Part of an object name, usually a literal.
pub type NamePart = Cow<'static, str>;

/// A volume that several pods share.
#[derive(Clone, Debug, PartialEq)]
pub struct Volume {
    /// Suffix of the name of the PersistentVolumeClaim.
    pub name: &'static str,
    pub size: String,
    pub class: Option<String>,
    /// Whether pods on several nodes write to it.
    pub shared: bool,
    /// Whether it is kept when the object is deleted.
    pub retained: bool,
}

/// A database and its user on the server of another object.
#[derive(Clone, Debug, PartialEq)]
pub struct Database {
    pub provider: Reference,
    pub server: DatabaseServer,
    pub database: String,
    pub charset: Charset,
    /// Secret with `username` and `password` of the user.
    pub secret: String,
    /// Whether the database is kept when the object is deleted.
    pub retained: bool,
}

/// Character set of a new database. An existing database is not converted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Charset {
    /// Up to three bytes per character, which the migrations of most services expect.
    #[default]
    Utf8mb3,
    Utf8mb4,
}

impl Charset {
    pub fn name(self) -> &'static str {
        match self {
            Self::Utf8mb3 => "utf8mb3",
            Self::Utf8mb4 => "utf8mb4",
        }
    }

    /// Whether a server means this character set by the name.
    pub fn has_name(self, name: &str) -> bool {
        // Older servers call utf8mb3 utf8.
        name == self.name() || self == Self::Utf8mb3 && name == "utf8"
    }
}

/// A virtual host and its user on the message bus of another object.
#[derive(Clone, Debug, PartialEq)]
pub struct Messaging {
    pub provider: Reference,
    pub server: MessagingServer,
    pub virtual_host: String,
    /// Secret with `username` and `password` of the user.
    pub secret: String,
}

/// Protocol that each member of a cluster answers on its own address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberProtocol {
    Sql {
        port: u16,
        /// Secret with `username` and `password` of the administrator.
        secret: String,
    },
    /// Management API of a message broker.
    Bus {
        scheme: Scheme,
        port: u16,
        /// Secret with `username` and `password` of the administrator.
        secret: String,
    },
}

/// Agents that register by the names of their nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeAgents {
    /// Object that the agents register with.
    pub provider: Reference,
    pub registry: Registry,
    /// Nodes that must have an agent. The agent of a node that is no longer listed gets no new work, stays while it
    /// holds resources, and is then removed.
    pub nodes: Vec<String>,
}

/// Where agents register.
#[derive(Clone, Debug, PartialEq)]
pub enum Registry {
    /// Hypervisors in the compute API.
    Hypervisors {
        /// Internal URL with the version.
        url: String,
        identity: IdentityServer,
    },
    /// Agents in the networking API.
    Network {
        /// Internal URL.
        url: String,
        identity: IdentityServer,
    },
    /// Chassis in the southbound database.
    Chassis {
        /// Addresses of the members, e.g. `tcp:10.96.0.7:6642`.
        southbound: Vec<String>,
        /// Name of the OVSDB database.
        database: &'static str,
    },
}

/// Pods that run permanently.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Component of the service, e.g. `api`.
    pub component: NamePart,
    /// Suffix of the name of the workload, if the instance has several.
    pub suffix: Option<NamePart>,
    pub controller: Controller,
    pub replicas: i32,
    pub pod: Pod,
    pub services: Vec<NetworkService>,
    /// Objects that must serve before the first start of the pods. Running pods are updated regardless of them.
    pub after: Vec<Reference>,
}

impl Workload {
    /// One of several workloads of an instance, without a Service.
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

    /// A workload with a pod on each node that its scheduling allows.
    pub fn on_nodes(component: &'static str, pod: Pod) -> Self {
        Self::part(component, Controller::DaemonSet, 1, pod)
    }

    /// The same workload for nodes that are leaving. It is a separate workload, so pods of other nodes do not
    /// restart.
    #[must_use]
    pub fn leaving(&self, nodes: &[String]) -> Option<Self> {
        let leaving = |name: &NamePart| NamePart::from(format!("{name}-leaving"));
        // A node may leave because of a taint, but its resources still need the pods.
        let every_taint = Toleration { operator: Some(TolerationOperator::Exists), ..Toleration::default() };
        let scheduling = Scheduling {
            node_selector: BTreeMap::new(),
            tolerations: vec![every_taint],
            ..self.pod.scheduling.clone()
        };
        (!nodes.is_empty()).then(|| Self {
            component: leaving(&self.component),
            suffix: self.suffix.as_ref().map(leaving),
            pod: Pod { only_on: nodes.to_vec(), scheduling, ..self.pod.clone() },
            after: Vec::new(),
            ..self.clone()
        })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Controller {
    Deployment,
    /// A Deployment that stops old pods before it starts new ones, because two at once would conflict.
    Recreate,
    /// Pods with stable names and their own volumes, started in parallel.
    StatefulSet {
        claims: Vec<Claim>,
        volumes_deleted: bool,
    },
    /// A pod on each node that its scheduling allows, updated node by node.
    DaemonSet,
}

/// A volume of each pod of a StatefulSet.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    pub name: &'static str,
    pub size: String,
    pub class: Option<String>,
}

/// A child object of the operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    pub kind: Kind,
    pub name: String,
    /// Startup phase of a service of a cloud. None for other children.
    pub stage: Option<Stage>,
    pub spec: Value,
}

/// A child that cannot be deployed.
#[derive(Clone, Debug, PartialEq)]
pub struct Skipped {
    pub kind: Kind,
    pub name: String,
    pub reason: String,
}
