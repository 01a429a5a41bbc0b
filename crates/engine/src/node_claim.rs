//! Claims of nodes: of all objects whose pods run the same software on a node, one has the node at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::core::DynamicObject;
use openstack_operator_model::condition::{ConditionType, Progress};
use openstack_operator_model::kind::POD;
use openstack_operator_model::lower::{INSTANCE_LABEL, KIND_LABEL};
use openstack_operator_model::node::{self, Node};
use openstack_operator_model::service::AnyService;
use openstack_operator_model::status::Status;

use crate::engine::{Engine, Key, catch_panic};
use crate::gather::{self, Gathered};
use crate::member;
use crate::ports::PortResult;
use crate::work::Work;

/// No watch reports that another object has left a node.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Result of claiming the nodes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The status has recorded all of them before.
    Known,
    /// The status must record some of them before pods start there.
    New,
}

/// Nodes by the software on them, and the objects that claim them at this moment. An object reserves nodes before it reads
/// the claims of others, and until its own status records them, so that of two objects that are reconciled at once one
/// sees the other.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    owners: Mutex<BTreeMap<(&'static str, String), Key>>,
}

impl Reservations {
    /// Reserves nodes for an object. Fails with another object that has reserved one of them.
    fn reserve(&self, key: &Key, software: &'static str, nodes: &BTreeSet<String>) -> Result<(), Key> {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        let places = || nodes.iter().map(move |node| (software, node.clone()));
        if let Some(other) = places().filter_map(|place| owners.get(&place)).find(|other| *other != key) {
            return Err(other.clone());
        }
        owners.extend(places().map(|place| (place, key.clone())));
        Ok(())
    }

    /// Drops the reservations of an object.
    pub(crate) fn forget(&self, key: &Key) {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, owner| owner != key);
    }
}

/// An object that may want the same nodes.
#[derive(Clone, Debug)]
struct Claimant {
    key: Key,
    created: Option<Timestamp>,
    is_deleted: bool,
    /// Nodes that its status records.
    claimed: BTreeSet<String>,
    /// Nodes that its spec selects, of those in question.
    selected: BTreeSet<String>,
}

impl Claimant {
    fn age(&self) -> (Option<Timestamp>, &str, &str, &str) {
        (self.created, &self.key.namespace, &self.key.name, self.key.kind.kind)
    }

    /// Whether it keeps another object from claiming a node: it has claimed the node, or it is older and selects it. A
    /// node moves between objects of one kind and namespace as soon as its labels do.
    fn keeps(&self, node: &String, other: &Self) -> bool {
        let is_selected = self.selected.contains(node);
        let is_peer = self.key.kind == other.key.kind && self.key.namespace == other.key.namespace;
        let has_claimed = self.claimed.contains(node) && (is_selected || !is_peer);
        has_claimed || is_selected && !self.is_deleted && self.age() < other.age()
    }
}

/// The first object that keeps another one from claiming nodes, with these nodes.
fn conflict<'a>(
    own: &Claimant,
    nodes: &BTreeSet<String>,
    others: &'a [Claimant],
) -> Option<(&'a Key, Vec<String>)> {
    others.iter().find_map(|other| {
        let kept: Vec<String> = nodes.iter().filter(|node| other.keeps(node, own)).cloned().collect();
        (!kept.is_empty()).then_some((&other.key, kept))
    })
}

fn conflict_message(software: &str, other: &Key, nodes: &[String]) -> String {
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let state = format!("claimed by {other}, and a node can run {software} only once");
    format!(
        "{}: select other nodes in the spec of one of the two objects, or delete one of them; the operator starts nothing \
         until then",
        node::describe(&nodes, &state)
    )
}

impl Engine {
    /// Claims all nodes of an object for its software. If another object has one of them, `NodesReady` says so.
    ///
    /// **Invariant:** the status records a node before pods start there, and until they are gone.
    pub(crate) async fn claim_nodes(
        &self,
        key: &Key,
        service: &'static dyn AnyService,
        object: &DynamicObject,
        gathered: &Gathered,
        work: &mut Work,
    ) -> PortResult<Claim> {
        let Some(software) = service.node_claim() else { return Ok(Claim::Known) };
        let wanted = self.wanted_nodes(key, gathered, &work.status).await?;
        let new: BTreeSet<String> = wanted.difference(&work.status.claimed_nodes).cloned().collect();
        if new.is_empty() {
            self.reservations.forget(key);
            work.status.claimed_nodes = wanted;
            return Ok(Claim::Known);
        }
        let checked = match self.reservations.reserve(key, software, &new) {
            Ok(()) => self.check_claim(key, object, software, &new).await,
            Err(other) => Ok(Progress::waiting(format!("{other} claims the same nodes at this moment"))),
        };
        if !matches!(checked, Ok(Progress::Done)) {
            self.reservations.forget(key);
            work.recheck_within(Some(POLL_INTERVAL));
            work.record(ConditionType::NodesReady, checked?);
            return Ok(Claim::Known);
        }
        work.status.claimed_nodes = wanted;
        work.requeue_now = true;
        Ok(Claim::New)
    }

    /// Nodes that run pods of the object, or will.
    async fn wanted_nodes(
        &self,
        key: &Key,
        gathered: &Gathered,
        before: &Status,
    ) -> PortResult<BTreeSet<String>> {
        let resolved = &gathered.resolved;
        let known = before.nodes.iter().map(|row| &row.name);
        let mut wanted: BTreeSet<String> =
            resolved.nodes.keys().chain(resolved.leaving.keys()).chain(known).cloned().collect();
        for node in &before.claimed_nodes {
            if !wanted.contains(node) && self.has_agent_pod(key, node).await? {
                wanted.insert(node.clone());
            }
        }
        Ok(wanted)
    }

    /// Whether no other object has these nodes.
    async fn check_claim(
        &self,
        key: &Key,
        object: &DynamicObject,
        software: &'static str,
        new: &BTreeSet<String>,
    ) -> PortResult<Progress> {
        let mut nodes = BTreeMap::new();
        for name in new {
            nodes.insert(name.clone(), self.node(name).await?.unwrap_or_default());
        }
        let rivals: Vec<&'static dyn AnyService> =
            self.services.iter().copied().filter(|service| service.node_claim() == Some(software)).collect();
        let mut others = Vec::new();
        for service in &rivals {
            let found = self.ports.cluster.list(service.kind(), "", &BTreeMap::new()).await?;
            others.extend(found.iter().map(|object| claimant(*service, object, &nodes)));
        }
        let own = Claimant {
            key: key.clone(),
            created: created(object),
            is_deleted: false,
            claimed: BTreeSet::new(),
            selected: new.clone(),
        };
        others.retain(|other| other.key != *key);
        if let Some((other, kept)) = conflict(&own, new, &others) {
            return Ok(Progress::stalled(conflict_message(software, other, &kept)));
        }
        for service in rivals {
            let labels = BTreeMap::from([(KIND_LABEL.to_owned(), service.kind().kind.to_owned())]);
            let pods = self.ports.cluster.list(POD, "", &labels).await?;
            let exists = |owner: &Key| owner == key || others.iter().any(|other| other.key == *owner);
            let left =
                pods.iter().filter(|pod| member::agent_node(pod).is_some_and(|node| new.contains(node)));
            let mut owners = left.filter_map(|pod| owner(service, pod));
            if let Some(owner) = owners.find(|owner| !exists(owner)) {
                return Ok(Progress::waiting(format!("pods of {owner}, which is deleted, still stop")));
            }
        }
        Ok(Progress::Done)
    }
}

fn created(object: &DynamicObject) -> Option<Timestamp> {
    object.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

/// The object of a service that a pod belongs to.
fn owner(service: &dyn AnyService, pod: &DynamicObject) -> Option<Key> {
    let name = pod.metadata.labels.as_ref()?.get(INSTANCE_LABEL)?.clone();
    Some(Key { kind: service.kind(), namespace: pod.metadata.namespace.clone()?, name })
}

/// An object of a service with its claims. An unreadable spec selects nothing: the operator starts nothing for it.
fn claimant(service: &dyn AnyService, object: &DynamicObject, nodes: &BTreeMap<String, Node>) -> Claimant {
    let need = catch_panic("determining needs", || Ok(service.decode(object)?.needs().nodes)).ok().flatten();
    let selected = nodes.iter().filter(|(_, node)| need.as_ref().is_some_and(|need| need.chooses(node)));
    let selected: BTreeSet<String> = selected.map(|(name, _)| name.clone()).collect();
    // An unreadable status may record all of them.
    let claimed =
        gather::status(&object.data).map_or_else(|_| selected.clone(), |status| status.claimed_nodes);
    Claimant {
        key: Key {
            kind: service.kind(),
            namespace: object.metadata.namespace.clone().unwrap_or_default(),
            name: object.metadata.name.clone().unwrap_or_default(),
        },
        created: created(object),
        is_deleted: object.metadata.deletion_timestamp.is_some(),
        claimed,
        selected,
    }
}

#[cfg(test)]
mod tests {
    use openstack_operator_model::kind::Kind;

    use super::*;

    const SWITCH: Kind = Kind::own("Switch", "switches");

    fn nodes(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    /// An object that selects node `a`.
    fn claimant(namespace: &str, second: i64, claimed: &[&str]) -> Claimant {
        Claimant {
            key: Key { kind: SWITCH, namespace: namespace.to_owned(), name: "s".to_owned() },
            created: Timestamp::from_second(second).ok(),
            is_deleted: false,
            claimed: nodes(claimed),
            selected: nodes(&["a"]),
        }
    }

    /// Whether the first object has to wait for the second one.
    fn waits(own: &Claimant, other: &Claimant) -> bool {
        conflict(own, &nodes(&["a"]), std::slice::from_ref(other)).is_some()
    }

    #[test]
    fn the_older_object_claims_a_free_node_and_the_name_decides_between_equally_old_ones() {
        let (first, second) = (claimant("z", 1, &[]), claimant("y", 2, &[]));
        assert!(!waits(&first, &second) && waits(&second, &first));
        let (first, second) = (claimant("y", 1, &[]), claimant("z", 1, &[]));
        assert!(!waits(&first, &second) && waits(&second, &first));
    }

    #[test]
    fn a_claimed_node_stays_with_its_owner_until_that_is_gone() {
        let older = claimant("y", 1, &[]);
        let mut owner = claimant("z", 2, &["a"]);
        assert!(waits(&older, &owner));
        owner.selected.clear();
        assert!(waits(&older, &owner), "its pods stay while the node leaves");
        owner.is_deleted = true;
        assert!(waits(&older, &owner), "its pods stop after it is deleted");
        owner.claimed.clear();
        assert!(!waits(&older, &owner));
    }

    #[test]
    fn a_node_moves_between_objects_of_one_namespace_by_its_labels() {
        let mut before = claimant("y", 1, &["a"]);
        let mut after = claimant("y", 2, &[]);
        after.key.name = "other".to_owned();
        assert!(waits(&after, &before));
        before.selected.clear();
        assert!(!waits(&after, &before));
    }

    #[test]
    fn one_of_two_objects_that_claim_a_node_at_once_gets_it() {
        let reservations = Reservations::default();
        let [first, second] = ["y", "z"].map(|namespace| claimant(namespace, 1, &[]).key);
        assert_eq!(reservations.reserve(&first, "x", &nodes(&["a", "b"])), Ok(()));
        assert_eq!(reservations.reserve(&second, "x", &nodes(&["b", "c"])), Err(first.clone()));
        assert_eq!(reservations.reserve(&second, "other", &nodes(&["b"])), Ok(()));
        assert_eq!(reservations.reserve(&first, "x", &nodes(&["b"])), Ok(()));
        reservations.forget(&first);
        assert_eq!(reservations.reserve(&second, "x", &nodes(&["b", "c"])), Ok(()));
    }

    #[test]
    fn the_message_names_the_object_the_nodes_and_the_remedy() {
        let other = claimant("y", 1, &[]).key;
        assert_eq!(
            conflict_message("Open vSwitch", &other, &["a".to_owned(), "b".to_owned()]),
            "nodes a, b are claimed by Switch y/s, and a node can run Open vSwitch only once: select other nodes in the \
             spec of one of the two objects, or delete one of them; the operator starts nothing until then"
        );
    }
}
