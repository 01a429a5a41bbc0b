//! Pods and containers, in the few words that services need.

use super::{Resources, Scheduling, SecretKey};

/// A pod. Its volumes follow from what its containers mount.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    /// User and group of every process.
    pub user: i64,
    pub setup: Vec<Container>,
    pub containers: Vec<Container>,
    /// How long an orderly end may take, in seconds.
    pub grace_seconds: i64,
    pub scheduling: Scheduling,
    /// Nodes by name, where others must not have it.
    pub only_on: Vec<String>,
    pub host: Host,
}

impl Pod {
    /// A pod that is nothing special.
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

/// What of its node a pod is part of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Host {
    /// Nothing.
    #[default]
    Isolated,
    /// The node's network.
    Network,
    /// The node's network, and its processes.
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
    /// Runs before the container is told to stop.
    pub before_stop: Option<Vec<String>>,
    pub privilege: Privilege,
}

impl Container {
    /// Secrets that the container reads only at start, so that another value must replace its pod. A Secret may be
    /// named more than once.
    pub fn rolling_secrets(&self) -> impl Iterator<Item = &String> {
        let from_environment = self.environment.iter().filter_map(|variable| match &variable.value {
            VariableValue::Secret(key) => Some(&key.secret),
            VariableValue::Text(_) | VariableValue::Field(_) => None,
        });
        let from_mounts = self.mounts.iter().filter_map(|mount| match mount {
            Mount::Secret { secret, change: Change::Roll, .. } => Some(secret),
            _ => None,
        });
        from_environment.chain(from_mounts)
    }
}

/// What a container may do beyond what every process may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Privilege {
    #[default]
    None,
    /// It is root, with these capabilities and no way to more.
    Root(&'static [&'static str]),
    /// Everything on the node, as the pod's user.
    Node,
    /// Everything on the node, as root.
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

/// Something that a container sees under a path.
#[derive(Clone, Debug, PartialEq)]
pub enum Mount {
    /// A configuration file of the plan, at its full path.
    File { file: String, path: String },
    /// A Secret as a directory.
    Secret { secret: String, path: String, change: Change },
    /// An empty directory for as long as the pod lives.
    Scratch { name: &'static str, path: String },
    /// The pod's own volume.
    Claim { name: &'static str, path: String },
    /// A volume of the plan.
    Volume { name: &'static str, path: String },
    /// A directory of the node, or one of its devices.
    Host { name: &'static str, path: &'static str, on_host: String, kind: HostPath },
    /// The plan's live files as a directory.
    LiveFiles { path: String },
    /// The pod's annotations as a file named `annotations`, kept up to date.
    Annotations { path: String },
}

/// What a path of the node is, and which mounts below it are seen on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostPath {
    /// A directory, made where it is missing.
    Directory,
    /// A directory below which the pod sees later mounts of the node.
    HostToContainer,
    /// A directory below which later mounts of either side are seen by both.
    Bidirectional,
    /// A directory that every node has.
    Existing,
    Device,
}

/// What a changed Secret does to the pods that mount it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The pods are replaced.
    Roll,
    /// The files are replaced under the running pods.
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
    Http { path: &'static str, port: u16 },
    Connect { port: u16 },
    Command(Vec<String>),
}
