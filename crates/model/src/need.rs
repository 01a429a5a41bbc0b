//! Inputs that must be read before an object can be planned.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::Value;

use crate::common::{Dependency, NameReference, Reference, Scheduling, Toleration};
use crate::kind::Kind;
use crate::node::Node;
use crate::release::Release;
use crate::service::Invalid;
use crate::status::{
    CacheServers, ComputeServer, DatabaseServer, IdentityServer, MessagingServer, NetworkServer, NodeState,
    NodeStatus, NotificationServer, Provides, Status,
};

/// All inputs that an object needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Needs {
    pub objects: Vec<ObjectNeed>,
    pub secrets: Vec<SecretNeed>,
    /// Objects with a condition that must be True, from which nothing is read.
    pub after: Vec<Dependency>,
    /// Objects that only some workloads wait for.
    pub later: Vec<Reference>,
    /// Objects that some tasks wait for. Deletion does not follow this order, because they may use this object.
    pub before_tasks: Vec<Reference>,
    /// Services whose cluster IPs are needed, as `name` or `name.namespace`.
    pub addresses: Vec<String>,
    /// Kinds of objects in the same namespace that users create to configure this object.
    pub peers: Vec<Kind>,
    /// Objects that this one consists of, whose state planning reads if they exist.
    pub parts: Vec<Reference>,
    /// Nodes that run pods of the object.
    pub nodes: Option<NodeNeed>,
}

/// Nodes for the pods of a `DaemonSet`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeNeed {
    /// Labels of the nodes.
    pub labels: Labels,
    /// Tolerations of the pods.
    pub tolerations: Vec<Toleration>,
}

impl NodeNeed {
    /// Whether the node matches. A node with a taint that the pods do not tolerate never runs one, so waiting for its
    /// agent would never end.
    pub fn chooses(&self, node: &Node) -> bool {
        selects(&self.labels, &node.labels) && node.admits(&self.tolerations)
    }
}

pub type Labels = BTreeMap<String, String>;

/// Whether the labels match the selector.
pub fn selects(selector: &Labels, labels: &Labels) -> bool {
    selector.iter().all(|(label, value)| labels.get(label) == Some(value))
}

/// Name and namespace of a Service in `Needs.addresses`. The default is the namespace of the object.
pub fn service_name_and_namespace<'a>(address: &'a str, namespace: &'a str) -> (&'a str, &'a str) {
    let mut parts = address.split('.');
    (parts.next().unwrap_or_default(), parts.next().unwrap_or(namespace))
}

/// An object whose connection details are needed.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectNeed {
    /// Field of the spec that names it.
    pub field: String,
    pub kind: Kind,
    /// Namespace, if it differs from that of the object.
    pub namespace: Option<String>,
    pub name: String,
}

/// A Secret that the user provides.
#[derive(Clone, Debug, PartialEq)]
pub struct SecretNeed {
    pub field: String,
    pub name: String,
    pub keys: Vec<String>,
}

impl Needs {
    #[must_use]
    pub fn object(mut self, field: &str, kind: Kind, reference: Option<&NameReference>) -> Self {
        self.objects.extend(reference.map(|reference| ObjectNeed {
            field: field.to_owned(),
            kind,
            namespace: reference.namespace.clone(),
            name: reference.name.clone(),
        }));
        self
    }

    #[must_use]
    pub fn secret(mut self, field: &str, name: Option<&str>, keys: &[&str]) -> Self {
        let keys = keys.iter().map(|&key| key.to_owned()).collect();
        let need = |name: &str| SecretNeed { field: field.to_owned(), name: name.to_owned(), keys };
        self.secrets.extend(name.map(need));
        self
    }

    #[must_use]
    pub fn later(mut self, kind: Kind, name: Option<&str>) -> Self {
        self.later.extend(name.map(|name| Reference::new(kind, name)));
        self
    }

    #[must_use]
    pub fn before_tasks(mut self, kind: Kind, name: Option<&str>) -> Self {
        self.before_tasks.extend(name.map(|name| Reference::new(kind, name)));
        self
    }

    /// Nodes that match this scheduling.
    #[must_use]
    pub fn nodes(mut self, scheduling: &Scheduling) -> Self {
        let Scheduling { node_selector, tolerations, .. } = scheduling;
        self.nodes = Some(NodeNeed { labels: node_selector.clone(), tolerations: tolerations.clone() });
        self
    }

    #[must_use]
    pub fn after(mut self, dependencies: &[Dependency]) -> Self {
        self.after.extend_from_slice(dependencies);
        self
    }

    /// Union of two needs.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.objects.extend(other.objects);
        self.secrets.extend(other.secrets);
        self.after.extend(other.after);
        self.later.extend(other.later);
        self.before_tasks.extend(other.before_tasks);
        self.addresses.extend(other.addresses);
        self.peers.extend(other.peers);
        self.parts.extend(other.parts);
        self.nodes = self.nodes.or(other.nodes);
        self
    }
}

/// Resolved inputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resolved {
    /// Connection details of other objects by kind and name.
    pub objects: BTreeMap<(String, String), Provides>,
    /// Cluster IPs of Services by name, if assigned.
    pub addresses: BTreeMap<String, String>,
    /// Specs of peers that the object does not own, by kind and name.
    pub peers: BTreeMap<(String, String), Value>,
    /// Existing parts of the object.
    pub parts: BTreeMap<Reference, PartState>,
    /// Selected nodes and their labels.
    pub nodes: BTreeMap<String, Labels>,
    /// Nodes that are no longer selected but still hold resources.
    pub leaving: BTreeMap<String, Labels>,
    /// Nodes that belong to the object by its status.
    pub claimed: BTreeSet<String>,
}

/// State of an object that is part of another one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartState {
    pub spec: Value,
    /// Release that it has reached; none if it has no data yet.
    pub release: Option<Release>,
    /// Whether the operator has fully applied its spec.
    pub ready: bool,
}

impl PartState {
    pub fn new(spec: Value, generation: Option<i64>, status: &Status) -> Self {
        let is_ready = |found: &Condition| found.type_ == "Ready" && found.status == "True";
        let is_current = status.observed_generation == generation;
        let ready = is_current && status.conditions.iter().any(is_ready);
        let release = status.data_release().or(status.release.filter(|_| ready));
        Self { spec, release, ready }
    }
}

impl Resolved {
    /// Nodes that are leaving by their status and are not selected again.
    pub fn still_leaving<'a>(&self, rows: &'a [NodeStatus]) -> impl Iterator<Item = &'a String> {
        let leaving = rows.iter().filter(|row| row.state == NodeState::Leaving).map(|row| &row.name);
        leaving.filter(|name| !self.nodes.contains_key(*name))
    }

    /// Names of the selected nodes.
    pub fn chosen_nodes(&self) -> Vec<String> {
        self.nodes.keys().cloned().collect()
    }

    /// Names of the leaving nodes.
    pub fn leaving_nodes(&self) -> Vec<String> {
        self.leaving.keys().cloned().collect()
    }

    pub fn database(&self, kind: Kind, name: &str, field: &str) -> Result<&DatabaseServer, Invalid> {
        self.concern(kind, name, field, "database", |provides| provides.database.as_ref())
    }

    pub fn messaging(&self, kind: Kind, name: &str, field: &str) -> Result<&MessagingServer, Invalid> {
        self.concern(kind, name, field, "message bus", |provides| provides.messaging.as_ref())
    }

    pub fn cache(&self, kind: Kind, name: &str, field: &str) -> Result<&CacheServers, Invalid> {
        self.concern(kind, name, field, "cache", |provides| provides.cache.as_ref())
    }

    pub fn network(&self, kind: Kind, name: &str, field: &str) -> Result<&NetworkServer, Invalid> {
        self.concern(kind, name, field, "network", |provides| provides.network.as_ref())
    }

    pub fn compute(&self, kind: Kind, name: &str, field: &str) -> Result<&ComputeServer, Invalid> {
        self.concern(kind, name, field, "compute service", |provides| provides.compute.as_ref())
    }

    pub fn identity(&self, kind: Kind, name: &str, field: &str) -> Result<&IdentityServer, Invalid> {
        self.concern(kind, name, field, "identity service", |provides| provides.identity.as_ref())
    }

    pub fn notifications(&self, kind: Kind, name: &str, field: &str) -> Result<&NotificationServer, Invalid> {
        self.concern(kind, name, field, "notifications", |provides| provides.notifications.as_ref())
    }

    fn concern<'a, T>(
        &'a self,
        kind: Kind,
        name: &str,
        field: &str,
        concern: &str,
        choose: impl Fn(&'a Provides) -> Option<&'a T>,
    ) -> Result<&'a T, Invalid> {
        self.objects.get(&(kind.kind.to_owned(), name.to_owned())).and_then(choose).ok_or_else(|| {
            Invalid::new(field, format!("{} {name:?} provides no {concern}: name another object", kind.kind))
        })
    }
}
