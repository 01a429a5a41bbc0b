//! Plans objects together with the objects below them, each with the outputs of the others.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::{DynamicObject, ObjectMeta, TypeMeta};
use openstack_operator_engine::engine::{Key, instance};
use openstack_operator_model::common::Reference;
use openstack_operator_model::lower::{self, Instance, Manifests, Observed, SecretFacts};
use openstack_operator_model::need::{
    Labels, Needs, NodeNeed, ObjectNeed, PartState, Resolved, service_name_and_namespace,
};
use openstack_operator_model::node::Node;
use openstack_operator_model::plan::{Child, Plan};
use openstack_operator_model::service::{AnyObject, AnyService, Invalid, Site};
use openstack_operator_model::status::{NodeStatus, Provides, Status};
use openstack_operator_services::{ALL, of_kind};
use serde_json::{Value, json};

use crate::input::{Document, Origin, Problem, Problems};

/// Facts about a cluster, empty without one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    pub(crate) objects: BTreeMap<Key, KnownObject>,
    /// By namespace and name.
    pub(crate) secrets: BTreeMap<(String, String), SecretFacts>,
    /// Addresses of Services, by namespace and name.
    pub(crate) addresses: BTreeMap<(String, String), String>,
    /// None if they are not readable.
    pub(crate) nodes: Option<BTreeMap<String, Node>>,
}

/// Facts about an object that exists.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownObject {
    pub(crate) uid: String,
    pub(crate) generation: Option<i64>,
    pub(crate) spec: Value,
    pub(crate) status: Status,
}

/// An object with its plan and manifests.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    /// The file of the object, or of the object that it is a part of.
    pub(crate) origin: Origin,
    pub(crate) key: Key,
    /// The object that this one is a part of; none for an object of a file.
    pub(crate) parent: Option<Key>,
    pub(crate) object: DynamicObject,
    pub(crate) needs: Needs,
    pub(crate) instance: Instance,
    pub(crate) plan: Plan,
    pub(crate) manifests: Manifests,
}

/// Plans all objects and the objects below them. Outputs of an object count as available.
pub(crate) fn plan_all(
    documents: Vec<Document>,
    site: &Site,
    known: &Known,
) -> Result<Vec<Planned>, Problems> {
    let mut planning = Planning::new(site, known);
    for document in documents {
        planning.add(Written {
            origin: document.origin,
            key: document.key,
            parent: None,
            object: document.object,
        });
    }
    while planning.advance() {}
    planning.finish()
}

/// An object that is not planned yet.
struct Pending {
    written: Written,
    service: &'static dyn AnyService,
    decoded: Box<dyn AnyObject>,
}

/// An object from a file or from the plan of another object.
struct Written {
    origin: Origin,
    key: Key,
    parent: Option<Key>,
    object: DynamicObject,
}

impl Written {
    fn problem(&self, invalid: Invalid) -> Problem {
        problem(&self.origin, &self.key, self.parent.as_ref(), invalid)
    }

    fn decode(self) -> Result<Pending, Problem> {
        let decoded = service(&self.key).and_then(|service| Ok((service, service.decode(&self.object)?)));
        match decoded {
            Ok((service, decoded)) => Ok(Pending { written: self, service, decoded }),
            Err(invalid) => Err(self.problem(invalid)),
        }
    }
}

impl Planned {
    pub(crate) fn problem(&self, invalid: Invalid) -> Problem {
        problem(&self.origin, &self.key, self.parent.as_ref(), invalid)
    }
}

fn problem(origin: &Origin, key: &Key, parent: Option<&Key>, invalid: Invalid) -> Problem {
    let part = parent.map(|parent| format!(", part of {parent}")).unwrap_or_default();
    Problem { origin: origin.clone(), object: Some(format!("{key}{part}")), invalid }
}

struct Planning<'a> {
    site: &'a Site,
    known: &'a Known,
    pending: Vec<Pending>,
    /// All objects so far.
    seen: BTreeSet<Key>,
    provided: BTreeMap<Key, Provides>,
    planned: Vec<Planned>,
    problems: Vec<Problem>,
}

impl<'a> Planning<'a> {
    fn new(site: &'a Site, known: &'a Known) -> Self {
        Self {
            site,
            known,
            pending: Vec::new(),
            seen: BTreeSet::new(),
            provided: BTreeMap::new(),
            planned: Vec::new(),
            problems: Vec::new(),
        }
    }

    fn add(&mut self, written: Written) {
        if !self.seen.insert(written.key.clone()) {
            let reason = "there is another object of this kind and name: remove one of them";
            self.problems.push(written.problem(Invalid::new("metadata.name", reason)));
            return;
        }
        match written.decode() {
            Ok(pending) => self.pending.push(pending),
            Err(problem) => self.problems.push(problem),
        }
    }

    /// Plans all objects whose needs are met. Returns whether there was one.
    fn advance(&mut self) -> bool {
        let mut moved = false;
        for pending in std::mem::take(&mut self.pending) {
            let Some(resolved) = self.resolve(&pending) else {
                self.pending.push(pending);
                continue;
            };
            moved = true;
            if let Err(invalid) = self.plan(&pending, &resolved) {
                self.problems.push(pending.written.problem(invalid));
            }
        }
        moved
    }

    /// The needs of an object; none if one is not met.
    fn resolve(&self, pending: &Pending) -> Option<Resolved> {
        let mut resolved = Resolved::default();
        let key = &pending.written.key;
        let needs = pending.decoded.needs();
        for name in needs.addresses {
            let (service, namespace) = service_name_and_namespace(&name, &key.namespace);
            let place = (namespace.to_owned(), service.to_owned());
            // A Service has no address before it exists; its name is the placeholder.
            let address = self.known.addresses.get(&place).cloned();
            resolved.addresses.insert(name.clone(), address.unwrap_or(name));
        }
        if let Some(need) = needs.nodes {
            let known = self.known.objects.get(key);
            let rows = known.map(|known| known.status.nodes.as_slice()).unwrap_or_default();
            resolved.nodes = self.nodes(&need, rows);
            // A new object claims all its nodes.
            resolved.claimed = known.map_or_else(
                || resolved.nodes.keys().cloned().collect(),
                |known| known.status.claimed_nodes.clone(),
            );
            let leaving: Vec<String> = resolved.still_leaving(rows).cloned().collect();
            let labels = |name: &String| Some(self.known.nodes.as_ref()?.get(name)?.labels.clone());
            resolved.leaving =
                leaving.into_iter().map(|name| (name.clone(), labels(&name).unwrap_or_default())).collect();
        }
        for reference in needs.parts {
            let state = self.part(key, &reference);
            resolved.parts.extend(state.map(|state| (reference, state)));
        }
        for need in needs.objects {
            let provides = self.provides(&needed(key, &need))?;
            resolved.objects.insert((need.kind.kind.to_owned(), need.name), provides.clone());
        }
        Some(resolved)
    }

    /// The state of an existing part of an object.
    fn part(&self, of: &Key, reference: &Reference) -> Option<PartState> {
        let kind = of_kind(&reference.kind)?.kind();
        let key = Key { kind, namespace: of.namespace.clone(), name: reference.name.clone() };
        let KnownObject { spec, generation, status, .. } = self.known.objects.get(&key)?;
        Some(PartState::new(spec.clone(), *generation, status))
    }

    /// The selected nodes; those in the status if nodes are not readable.
    fn nodes(&self, need: &NodeNeed, rows: &[NodeStatus]) -> BTreeMap<String, Labels> {
        let Some(nodes) = &self.known.nodes else {
            let chosen = rows.iter().filter(|row| row.state.is_chosen());
            return chosen.map(|row| (row.name.clone(), need.labels.clone())).collect();
        };
        let chosen = nodes.iter().filter(|(_, node)| need.chooses(node));
        chosen.map(|(name, node)| (name.clone(), node.labels.clone())).collect()
    }

    /// The outputs of an object: from its plan, or from its status if it is not planned here.
    fn provides(&self, key: &Key) -> Option<&Provides> {
        self.provided.get(key).or_else(|| {
            let known = self.known.objects.get(key).filter(|_| !self.seen.contains(key))?;
            Some(&known.status.provides).filter(|provides| !provides.is_empty())
        })
    }

    fn plan(&mut self, pending: &Pending, resolved: &Resolved) -> Result<(), Invalid> {
        let Pending { written, service, decoded } = pending;
        let known = self.known.objects.get(&written.key).cloned().unwrap_or_default();
        let plan = decoded.plan(resolved, self.site, &known.status.memory)?;
        if plan.has_images() {
            known.status.check_runtime(decoded.runtime(self.site))?;
        }
        let namespace = &written.key.namespace;
        let facts = |(place, facts): (&(String, String), &SecretFacts)| {
            (place.0 == *namespace).then(|| (place.1.clone(), facts.clone()))
        };
        let observed = Observed {
            installed: known.status.installed,
            secrets: self.known.secrets.iter().filter_map(facts).collect(),
            ..Observed::default()
        };
        let instance = Instance { uid: known.uid, ..instance(*service, &written.object) };
        let manifests = lower::lower(&instance, &plan, &observed);
        self.provided.insert(written.key.clone(), plan.provides.clone());
        for child in &plan.children {
            self.add(part(written, child));
        }
        self.planned.push(Planned {
            origin: written.origin.clone(),
            key: written.key.clone(),
            parent: written.parent.clone(),
            object: written.object.clone(),
            needs: decoded.needs(),
            instance,
            plan,
            manifests,
        });
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<Planned>, Problems> {
        let waiting: BTreeSet<Key> = self.pending.iter().map(|pending| pending.written.key.clone()).collect();
        let planned: BTreeSet<Key> = self.planned.iter().map(|planned| planned.key.clone()).collect();
        let (mut unmet, mut circular) = (Vec::new(), Vec::new());
        for Pending { written, decoded, .. } in &self.pending {
            for need in decoded.needs().objects {
                let key = needed(&written.key, &need);
                let is_known_to_fail =
                    self.seen.contains(&key) && !planned.contains(&key) && !waiting.contains(&key);
                // An invalid object is reported itself, not for every object that needs it.
                if self.provides(&key).is_none() && !is_known_to_fail {
                    let waits = waiting.contains(&key);
                    let problem = written.problem(unprovided(&need, &key, waits));
                    if waits { circular.push(problem) } else { unmet.push(problem) }
                }
            }
        }
        // Objects form a circle only if none of them waits for something else.
        if self.problems.is_empty() && unmet.is_empty() {
            unmet = circular;
        }
        self.problems.extend(unmet);
        if self.problems.is_empty() { Ok(self.planned) } else { Err(Problems(self.problems)) }
    }
}

fn unprovided(need: &ObjectNeed, key: &Key, waits: bool) -> Invalid {
    let reason = if waits {
        format!("needs {key}, which in turn needs this object")
    } else {
        format!(
            "there is no {} {:?} in namespace {:?}: add it, or reference another",
            need.kind.kind, need.name, key.namespace
        )
    };
    Invalid::new(&need.field, reason)
}

fn needed(of: &Key, need: &ObjectNeed) -> Key {
    let namespace = need.namespace.as_ref().unwrap_or(&of.namespace).clone();
    Key { kind: need.kind, namespace, name: need.name.clone() }
}

fn service(key: &Key) -> Result<&'static dyn AnyService, Invalid> {
    let found = ALL.iter().copied().find(|service| service.kind() == key.kind);
    found.ok_or_else(|| Invalid::new("kind", format!("there is no kind {}", key.kind.kind)))
}

/// A child as an object.
fn part(parent: &Written, child: &Child) -> Written {
    let namespace = parent.key.namespace.clone();
    let object = DynamicObject {
        types: Some(TypeMeta { api_version: child.kind.api_version(), kind: child.kind.kind.to_owned() }),
        metadata: ObjectMeta {
            name: Some(child.name.clone()),
            namespace: Some(namespace.clone()),
            ..ObjectMeta::default()
        },
        data: json!({ "spec": child.spec }),
    };
    Written {
        origin: parent.origin.clone(),
        key: Key { kind: child.kind, namespace, name: child.name.clone() },
        parent: Some(parent.key.clone()),
        object,
    }
}

#[cfg(test)]
mod tests;
