//! A whole cloud as plans and manifests, computed without a cluster.

use std::collections::{BTreeMap, VecDeque};

use anyhow::{Context, Result, ensure};
use kube::core::{DynamicObject, ObjectMeta, TypeMeta};
use openstack_operator_model::lower::{self, Instance, Manifests, Observed};
use openstack_operator_model::need::Resolved;
use openstack_operator_model::node::Node;
use openstack_operator_model::plan::Plan;
use openstack_operator_model::service::{AnyService, Site};
use openstack_operator_services::of_kind;
use serde_json::json;

/// One object of a cloud.
pub(crate) struct Planned {
    pub(crate) service: &'static dyn AnyService,
    pub(crate) name: String,
    pub(crate) plan: Plan,
    pub(crate) manifests: Manifests,
}

/// The state of the cluster that plans depend on.
#[derive(Default)]
pub(crate) struct Surroundings {
    /// Addresses of Services. Before a Service exists, its name replaces its address.
    pub(crate) addresses: BTreeMap<String, String>,
    pub(crate) nodes: BTreeMap<String, Node>,
}

/// Plans objects and their children, each with the outputs of those before it.
pub(crate) fn plan_cloud(
    written: Vec<DynamicObject>,
    site: &Site,
    surroundings: &Surroundings,
) -> Result<Vec<Planned>> {
    let mut provided = Resolved::default();
    let mut planned = Vec::new();
    let mut pending = VecDeque::from(written);
    let mut put_back = 0;
    while let Some(object) = pending.pop_front() {
        let Some(one) = plan_one(&object, site, surroundings, &provided)? else {
            // A later object provides what this one needs.
            put_back += 1;
            ensure!(put_back <= pending.len(), "nothing provides what {:?} needs", object.metadata.name);
            pending.push_back(object);
            continue;
        };
        put_back = 0;
        let key = (one.service.kind().kind.to_owned(), one.name.clone());
        provided.objects.insert(key, one.plan.provides.clone());
        for child in &one.plan.children {
            pending.push_back(DynamicObject {
                types: Some(TypeMeta {
                    api_version: child.kind.api_version(),
                    kind: child.kind.kind.to_owned(),
                }),
                metadata: ObjectMeta {
                    name: Some(child.name.clone()),
                    namespace: object.metadata.namespace.clone(),
                    ..ObjectMeta::default()
                },
                data: json!({ "spec": child.spec }),
            });
        }
        planned.push(one);
    }
    Ok(planned)
}

/// The plan of one object, if its needs are met.
fn plan_one(
    object: &DynamicObject,
    site: &Site,
    surroundings: &Surroundings,
    provided: &Resolved,
) -> Result<Option<Planned>> {
    let kind = object.types.as_ref().map(|types| types.kind.as_str()).unwrap_or_default();
    let service = of_kind(kind).with_context(|| format!("there is no kind {kind:?}"))?;
    let name = object.metadata.name.clone().with_context(|| format!("a {kind} without a name"))?;
    let mut inputs = Resolved::default();
    let decoded = service.decode(object)?;
    let needs = decoded.needs();
    for need in needs.objects {
        let key = (need.kind.kind.to_owned(), need.name);
        let Some(provides) = provided.objects.get(&key) else { return Ok(None) };
        inputs.objects.insert(key, provides.clone());
    }
    let number = |name: &String| surroundings.addresses.get(name).unwrap_or(name).clone();
    inputs.addresses = needs.addresses.into_iter().map(|name| (name.clone(), number(&name))).collect();
    if let Some(need) = &needs.nodes {
        let chosen = surroundings.nodes.iter().filter(|(_, node)| need.chooses(node));
        inputs.nodes = chosen.map(|(name, node)| (name.clone(), node.labels.clone())).collect();
        // No other cloud exists.
        inputs.claimed = inputs.nodes.keys().cloned().collect();
    }
    let plan = decoded.plan(&inputs, site, &BTreeMap::new())?;
    let instance = Instance {
        kind: service.kind(),
        service: service.name(),
        name: name.clone(),
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
        // Objects that are created by hand have no owner.
        uid: String::new(),
    };
    let manifests = lower::lower(&instance, &plan, &Observed::default());
    Ok(Some(Planned { service, name, plan, manifests }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cloud_is_planned_with_all_its_parts() {
        let cloud = crate::plan::cloud(&json!({})).unwrap();
        let planned = plan_cloud(vec![cloud], &crate::site("r/o"), &Surroundings::default()).unwrap();
        let place = |kind: &str| planned.iter().position(|one| one.service.kind().kind == kind).unwrap();
        assert!(place("OpenStackControlPlane") < place("MariaDB"));
        assert!(place("Nova") < place("Neutron"), "what provides comes first");
        let keystone = &planned[place("Keystone")];
        assert_eq!(keystone.plan.databases[0].provider.name, "cloud-mariadb");
    }
}
