//! Gathering: reads what an object needs from other objects, and reports what is missing.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use openstack_operator_model::assess;
use openstack_operator_model::common::{Dependency, Reference};
use openstack_operator_model::condition::Progress;
use openstack_operator_model::kind::{Kind, SECRET, SERVICE};
use openstack_operator_model::need::{
    Needs, NodeNeed, ObjectNeed, PartState, Resolved, SecretNeed, service_name_and_namespace,
};
use openstack_operator_model::status::Status;
use serde_json::Value;

use crate::apply::to_json;
use crate::engine::{Engine, Key};
use crate::ports::PortResult;

/// Inputs of a plan, read from the cluster.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) resolved: Resolved,
    /// Objects that are planned but not Available.
    pub(crate) unavailable: BTreeSet<Reference>,
    /// Objects that workloads wait for and cannot use yet.
    pub(crate) unusable: BTreeSet<Reference>,
    /// Objects that tasks wait for and that are not Ready.
    pub(crate) unready: BTreeSet<Reference>,
    /// Selected nodes that are not Ready.
    pub(crate) lost_nodes: BTreeSet<String>,
    pub(crate) uses: Vec<Reference>,
    /// The first missing input, or the first that only the user can provide.
    pub(crate) progress: Progress,
}

impl Gathered {
    /// Records a missing input that may still appear.
    fn record_missing(&mut self, message: String) {
        self.record(Progress::waiting(message));
    }

    /// Records an input that only the user can provide.
    fn record_required(&mut self, message: String) {
        self.record(Progress::stalled(message));
    }

    fn record(&mut self, progress: Progress) {
        self.progress = std::mem::replace(&mut self.progress, Progress::Done).and(progress);
    }
}

impl Engine {
    /// Reads everything that is needed; `before` is the last status.
    pub(crate) async fn gather(&self, key: &Key, needs: &Needs, before: &Status) -> PortResult<Gathered> {
        self.needs.set(key, needs, &self.kinds());
        let mut gathered = Gathered {
            resolved: Resolved::default(),
            unavailable: BTreeSet::new(),
            unusable: BTreeSet::new(),
            unready: BTreeSet::new(),
            lost_nodes: BTreeSet::new(),
            uses: Vec::new(),
            progress: Progress::Done,
        };
        for need in &needs.objects {
            self.gather_object(key, need, &mut gathered).await?;
        }
        for need in &needs.secrets {
            self.gather_secret(key, need, before, &mut gathered).await?;
        }
        self.gather_readiness(key, needs, &mut gathered).await?;
        for name in &needs.addresses {
            let (service, namespace) = service_name_and_namespace(name, &key.namespace);
            let service = self.ports.cluster.get(SERVICE, namespace, service).await?;
            let address =
                service.as_ref().and_then(|service| service.data.pointer("/spec/clusterIP")?.as_str());
            // Headless Services have no address.
            if let Some(address) = address.filter(|address| *address != "None") {
                gathered.resolved.addresses.insert(name.clone(), address.to_owned());
            }
        }
        for kind in &needs.peers {
            self.gather_peers(key, *kind, &mut gathered.resolved).await?;
        }
        for reference in &needs.parts {
            self.gather_part(key, reference, &mut gathered).await?;
        }
        if let Some(need) = &needs.nodes {
            self.gather_nodes(need, before, &mut gathered).await?;
        }
        gathered.uses.sort();
        gathered.uses.dedup();
        Ok(gathered)
    }

    /// Reads what another object provides.
    async fn gather_object(&self, key: &Key, need: &ObjectNeed, gathered: &mut Gathered) -> PortResult<()> {
        let (kind, name, field) = (need.kind.kind, &need.name, &need.field);
        let reference = Reference::new(need.kind, name);
        let namespace = need.namespace.as_ref().unwrap_or(&key.namespace);
        let object = self.ports.cluster.get(need.kind, namespace, name).await?;
        // The deletion order covers only objects of the same namespace.
        gathered.uses.extend((*namespace == key.namespace).then(|| reference.clone()));
        let Some(object) = object else {
            gathered.record_missing(format!("{kind} {name} does not exist ({field})"));
            return Ok(());
        };
        let status = match status(&object.data) {
            Ok(status) => status,
            Err(error) => {
                gathered.record_required(unreadable_status(&format!("{kind} {name} ({field})"), &error));
                return Ok(());
            }
        };
        if !is_true(&status, "Available") {
            gathered.unavailable.insert(reference);
        }
        if status.provides.is_empty() {
            gathered.record_missing(format!("{kind} {name} is not available yet"));
        } else {
            gathered.resolved.objects.insert((kind.to_owned(), name.clone()), status.provides);
        }
        Ok(())
    }

    /// Checks that a Secret has the keys that are read from it. It may be created later than a new object, but an object
    /// that has served has lost it.
    async fn gather_secret(
        &self,
        key: &Key,
        need: &SecretNeed,
        before: &Status,
        gathered: &mut Gathered,
    ) -> PortResult<()> {
        let SecretNeed { name, field, keys } = need;
        let problem = match self.ports.cluster.get(SECRET, &key.namespace, name).await? {
            None => Some((format!("Secret {name} does not exist ({field})"), "create it")),
            Some(secret) => {
                let has =
                    |key: &String| secret.data.pointer("/data").is_some_and(|data| data.get(key).is_some());
                let missing = keys.iter().find(|key| !has(key));
                missing.map(|key| (format!("Secret {name} has no key {key} ({field})"), "add it"))
            }
        };
        match problem {
            Some((problem, remedy)) if before.served => {
                gathered.record_required(format!("{problem}: {remedy} again"));
            }
            Some((problem, _)) => gathered.record_missing(problem),
            None => {}
        }
        Ok(())
    }

    /// Checks the conditions of objects that this one, or some of its workloads, must wait for.
    async fn gather_readiness(&self, key: &Key, needs: &Needs, gathered: &mut Gathered) -> PortResult<()> {
        for dependency in &needs.after {
            let Dependency { kind, name, condition } = dependency;
            if self.kind(kind).is_none() {
                gathered.record_required(format!("unknown kind {kind} (spec.dependsOn): correct it"));
                continue;
            }
            gathered.uses.push(dependency.reference());
            if !self.is_condition_true(key, &dependency.reference(), condition).await? {
                gathered.record_missing(format!("{kind} {name} is not {condition} (spec.dependsOn)"));
            }
        }
        for reference in &needs.later {
            gathered.uses.push(reference.clone());
            if !self.can_be_used(key, reference).await? {
                gathered.unusable.insert(reference.clone());
            }
        }
        for reference in &needs.before_tasks {
            if !self.is_ready(key, reference).await? {
                gathered.unready.insert(reference.clone());
            }
        }
        Ok(())
    }

    /// Reads the state of a part of the object, if it exists.
    async fn gather_part(&self, key: &Key, reference: &Reference, gathered: &mut Gathered) -> PortResult<()> {
        let Some(kind) = self.kind(&reference.kind) else { return Ok(()) };
        let object = self.ports.cluster.get(kind, &key.namespace, &reference.name).await?;
        let Some(object) = object else { return Ok(()) };
        match status(&object.data) {
            Ok(status) => {
                let spec = object.data.get("spec").cloned().unwrap_or_default();
                let state = PartState::new(spec, object.metadata.generation, &status);
                gathered.resolved.parts.insert(reference.clone(), state);
            }
            Err(error) => {
                let part = format!("{} {}", reference.kind, reference.name);
                gathered.record_required(unreadable_status(&part, &error));
            }
        }
        Ok(())
    }

    async fn gather_nodes(
        &self,
        need: &NodeNeed,
        before: &Status,
        gathered: &mut Gathered,
    ) -> PortResult<()> {
        let resolved = &mut gathered.resolved;
        for (name, node) in self.nodes(&need.labels).await? {
            if !need.chooses(&node) {
                continue;
            }
            if !node.ready {
                gathered.lost_nodes.insert(name.clone());
            }
            resolved.nodes.insert(name, node.labels);
        }
        let leaving: Vec<String> = resolved.still_leaving(&before.nodes).cloned().collect();
        for name in leaving {
            let node = self.node(&name).await?.unwrap_or_default();
            resolved.leaving.insert(name, node.labels);
        }
        resolved.claimed.clone_from(&before.claimed_nodes);
        Ok(())
    }

    /// Reads the specs of objects of a kind that this object does not own.
    async fn gather_peers(&self, key: &Key, kind: Kind, resolved: &mut Resolved) -> PortResult<()> {
        for object in self.ports.cluster.list(kind, &key.namespace, &BTreeMap::new()).await? {
            let mut owners = object.metadata.owner_references.iter().flatten();
            if owners.any(|owner| owner.kind == key.kind.kind && owner.name == key.name) {
                continue;
            }
            let name = object.metadata.name.clone().unwrap_or_default();
            let spec = object.data.get("spec").cloned().unwrap_or_default();
            resolved.peers.insert((kind.kind.to_owned(), name), spec);
        }
        Ok(())
    }

    /// Whether a condition of an object is True.
    async fn is_condition_true(&self, key: &Key, reference: &Reference, condition: &str) -> PortResult<bool> {
        let Some(kind) = self.kind(&reference.kind) else { return Ok(false) };
        let object = self.ports.cluster.get(kind, &key.namespace, &reference.name).await?;
        Ok(object.is_some_and(|object| assess::holds(&object.data, condition)))
    }

    /// Whether an object is Ready with its current spec. A degraded one is: what it has lost may never return.
    async fn is_ready(&self, key: &Key, reference: &Reference) -> PortResult<bool> {
        let Some(kind) = self.kind(&reference.kind) else { return Ok(false) };
        let object = self.ports.cluster.get(kind, &key.namespace, &reference.name).await?;
        Ok(object.is_some_and(|object| assess::assess(kind, &reference.name, &to_json(&object)).is_met()))
    }

    /// Whether pods can use a service: it serves, and the catalog lists it. Its public route and its follow-up tasks do not
    /// matter to them.
    async fn can_be_used(&self, key: &Key, reference: &Reference) -> PortResult<bool> {
        let Some(kind) = self.kind(&reference.kind) else { return Ok(false) };
        let object = self.ports.cluster.get(kind, &key.namespace, &reference.name).await?;
        let Some(Ok(status)) = object.map(|object| status(&object.data)) else { return Ok(false) };
        let is_registered = |found: &Condition| found.type_ != "Registered" || found.status == "True";
        Ok(is_true(&status, "Available") && status.conditions.iter().all(is_registered))
    }
}

fn unreadable_status(object: &str, error: &serde_json::Error) -> String {
    format!(
        "cannot read the status of {object}: {error}; correct it, or run the operator version that wrote it"
    )
}

/// An object's status; empty if it has none. An unreadable status is an error: treating it as empty would lose the
/// record of effects that must be undone.
pub(crate) fn status(data: &Value) -> Result<Status, serde_json::Error> {
    match data.get("status") {
        None | Some(Value::Null) => Ok(Status::default()),
        Some(status) => serde_json::from_value(status.clone()),
    }
}

pub(crate) fn is_true(status: &Status, condition: &str) -> bool {
    status.conditions.iter().any(|found| found.type_ == condition && found.status == "True")
}
