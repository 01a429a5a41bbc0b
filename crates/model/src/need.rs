//! What must be read before an object can be planned.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::common::{Dependency, NameReference, Reference, Scheduling, Toleration};
use crate::kind::Kind;
use crate::node::Node;
use crate::service::Invalid;
use crate::status::{
    CacheServers, ComputeServer, DatabaseServer, IdentityServer, MessagingServer, NetworkServer, NodeState,
    NodeStatus, Provides,
};

/// Everything an object needs of others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Needs {
    pub objects: Vec<ObjectNeed>,
    pub secrets: Vec<SecretNeed>,
    /// Objects with a condition that must hold, of which nothing is used.
    pub after: Vec<Dependency>,
    /// Objects that some workloads wait for and others do not.
    pub later: Vec<Reference>,
    /// Services whose addresses others must know as numbers: by name, or by name and namespace with a dot between.
    pub addresses: Vec<String>,
    /// Kinds of objects in the same namespace that somebody else writes to say something of this object.
    pub peers: Vec<Kind>,
    /// Nodes that the object has a part on.
    pub nodes: Option<NodeNeed>,
}

/// Nodes that pods of a `DaemonSet` may be on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeNeed {
    /// Labels that the nodes have.
    pub labels: Labels,
    /// Taints that keep the pods off no node.
    pub tolerations: Vec<Toleration>,
}

impl NodeNeed {
    /// Whether a node is one of them. One whose taints the pods do not tolerate never has a pod, so that waiting for
    /// its agent would never end.
    pub fn chooses(&self, node: &Node) -> bool {
        selects(&self.labels, &node.labels) && node.admits(&self.tolerations)
    }
}

pub type Labels = BTreeMap<String, String>;

/// Whether something with these labels has all that a selector asks for.
pub fn selects(selector: &Labels, labels: &Labels) -> bool {
    selector.iter().all(|(label, value)| labels.get(label) == Some(value))
}

/// Name and namespace of a Service of `Needs.addresses`, for an object in this namespace.
pub fn service_name_and_namespace<'a>(address: &'a str, namespace: &'a str) -> (&'a str, &'a str) {
    let mut words = address.split('.');
    (words.next().unwrap_or_default(), words.next().unwrap_or(namespace))
}

/// An object of which something is used.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectNeed {
    /// Where the spec asks for it.
    pub field: String,
    pub kind: Kind,
    /// Its namespace, where it is another than that of the object.
    pub namespace: Option<String>,
    pub name: String,
}

/// A Secret that somebody else writes.
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

    /// Nodes that pods with this scheduling may be on.
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

    /// All that either of two needs.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.objects.extend(other.objects);
        self.secrets.extend(other.secrets);
        self.after.extend(other.after);
        self.later.extend(other.later);
        self.addresses.extend(other.addresses);
        self.peers.extend(other.peers);
        self.nodes = self.nodes.or(other.nodes);
        self
    }
}

/// What was found of what is needed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resolved {
    /// What other objects provide, by kind and name.
    pub objects: BTreeMap<(String, String), Provides>,
    /// Addresses of the object's own Services by name, as far as they have one.
    pub addresses: BTreeMap<String, String>,
    /// Specs of the peers that the object does not own, by kind and name.
    pub peers: BTreeMap<(String, String), Value>,
    /// Nodes that were asked for, and all their labels.
    pub nodes: BTreeMap<String, Labels>,
    /// Nodes that are no longer among them and cannot be left yet.
    pub leaving: BTreeMap<String, Labels>,
}

impl Resolved {
    /// Nodes that a status says are on their way out, and that are not chosen again.
    pub fn still_leaving<'a>(&self, rows: &'a [NodeStatus]) -> impl Iterator<Item = &'a String> {
        let leaving = rows.iter().filter(|row| row.state == NodeState::Leaving).map(|row| &row.name);
        leaving.filter(|name| !self.nodes.contains_key(*name))
    }

    /// Names of nodes that were asked for.
    pub fn chosen_nodes(&self) -> Vec<String> {
        self.nodes.keys().cloned().collect()
    }

    /// Names of nodes that cannot be left yet.
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

    fn concern<'a, T>(
        &'a self,
        kind: Kind,
        name: &str,
        field: &str,
        concern: &str,
        choose: impl Fn(&'a Provides) -> Option<&'a T>,
    ) -> Result<&'a T, Invalid> {
        self.objects.get(&(kind.kind.to_owned(), name.to_owned())).and_then(choose).ok_or_else(|| {
            Invalid::new(field, format!("{} {name:?} provides no {concern}: name one that does", kind.kind))
        })
    }
}
