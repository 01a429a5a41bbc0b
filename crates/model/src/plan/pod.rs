//! Pods and containers.

use super::{Resources, Scheduling, SecretKey};
use crate::common::Scheme;

/// A pod. Its volumes follow from the mounts of its containers.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    /// User and group of every process.
    pub user: i64,
    pub setup: Vec<Container>,
    pub containers: Vec<Container>,
    /// Termination grace period in seconds.
    pub grace_seconds: i64,
    pub scheduling: Scheduling,
    /// Names of the only nodes that may run the pod. Empty for all.
    pub only_on: Vec<String>,
    pub host: Host,
}

impl Pod {
    /// A pod with default settings.
    pub fn new(user: i64, scheduling: &Scheduling, containers: Vec<Container>) -> Self {
        Self {
            user,
            setup: Vec::new(),
            containers,
            grace_seconds: 30,
            scheduling: scheduling.clone(),
            only_on: Vec::new(),
            host: Host::default(),
        }
    }
}

/// Namespaces of the node that a pod shares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Host {
    /// None.
    #[default]
    Isolated,
    /// Network namespace.
    Network,
    /// Network and process namespaces.
    NetworkAndProcesses,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Container {
    pub name: &'static str,
    pub image: String,
    pub command: Vec<String>,
    pub environment: Vec<Variable>,
    pub mounts: Vec<Mount>,
    pub ports: Vec<super::Port>,
    pub probes: Probes,
    pub resources: Resources,
    /// Command that runs before the container is stopped.
    pub before_stop: Option<Vec<String>>,
    pub privilege: Privilege,
}

impl Container {
    /// Secrets that the container reads only at start, so a changed value must restart its pod. A Secret may occur
    /// more than once.
    pub fn rolling_secrets(&self) -> impl Iterator<Item = &String> {
        let from_environment = self.environment.iter().filter_map(|variable| match &variable.value {
            VariableValue::Secret(key) => Some(&key.secret),
            VariableValue::Text(_) | VariableValue::Field(_) => None,
        });
        let from_mounts = self.mounts.iter().filter_map(|mount| match mount {
            Mount::Secret { secret, change: Change::Roll, .. } | Mount::SecretFile { secret, .. } => {
                Some(secret)
            }
            _ => None,
        });
        from_environment.chain(from_mounts)
    }
}

/// Privileges of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Privilege {
    #[default]
    None,
    /// Root with only these capabilities.
    Root(&'static [&'static str]),
    /// Privileged, as the user of the pod.
    Node,
    /// Privileged, as root.
    NodeRoot,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    pub name: String,
    pub value: VariableValue,
}

#[derive(Clone, Debug, PartialEq)]
pub enum VariableValue {
    Text(String),
    Secret(SecretKey),
    /// A field of the pod, e.g. `status.podIP`.
    Field(&'static str),
}

impl Variable {
    pub fn text(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: VariableValue::Text(value.into()) }
    }

    pub fn secret(name: impl Into<String>, secret: impl Into<String>, key: impl Into<String>) -> Self {
        Self { name: name.into(), value: VariableValue::Secret(SecretKey::new(secret, key)) }
    }

    pub fn field(name: impl Into<String>, path: &'static str) -> Self {
        Self { name: name.into(), value: VariableValue::Field(path) }
    }
}

/// A mount of a container.
#[derive(Clone, Debug, PartialEq)]
pub enum Mount {
    /// A configuration file of the plan, mounted at its full path.
    File { file: String, path: String },
    /// A Secret as a directory.
    Secret { secret: String, path: String, change: Change },
    /// One key of a Secret, mounted as a file at its full path. A changed value restarts the pods, because Kubernetes does
    /// not update a file that is mounted alone.
    SecretFile { secret: String, key: String, path: String },
    /// An empty directory with the lifetime of the pod.
    Scratch { name: &'static str, path: String },
    /// A volume claim of the pod.
    Claim { name: &'static str, path: String },
    /// A volume of the plan.
    Volume { name: &'static str, path: String },
    /// A directory or device of the node.
    Host { name: &'static str, path: &'static str, on_host: String, kind: HostPath },
    /// The plan's live files as a directory.
    LiveFiles { path: String },
    /// The pod's annotations as a file named `annotations`, kept up to date.
    Annotations { path: String },
}

/// Type of a host path, and its mount propagation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostPath {
    /// A directory, created if missing.
    Directory,
    /// A directory in which the pod sees later mounts of the node.
    HostToContainer,
    /// A directory in which pod and node see later mounts of each other.
    Bidirectional,
    /// An existing directory.
    Existing,
    Device,
}

/// Effect of a changed Secret on the pods that mount it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The pods restart.
    Roll,
    /// The files change in the running pods.
    Refresh,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Probes {
    pub startup: Option<Probe>,
    pub readiness: Option<Probe>,
    pub liveness: Option<Probe>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    pub check: Check,
    pub period_seconds: i32,
    pub timeout_seconds: i32,
    pub failures: i32,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Check {
    Http { scheme: Scheme, path: &'static str, port: u16 },
    Connect { port: u16 },
    Command(Vec<String>),
}
