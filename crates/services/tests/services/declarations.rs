//! Invariants of inputs: needs and blocks agree with the declared inputs.

use openstack_operator_model::common::{NameReference, Reference};
use openstack_operator_model::kind::Kind;
use openstack_operator_model::need::Needs;
use openstack_operator_services::cloud::{AnyPart, Part};
use openstack_operator_services::inputs::{Input, Inputs, Link};
use openstack_operator_services::{
    PARTS, barbican, compute, glance, heat, horizon, keystone, mariadb, memcached, neutron, nova, ovn,
    placement, rabbitmq,
};
use serde_json::Value;

use crate::fixture::{object, rendered};

/// Expected entry in the needs of a service.
#[derive(Debug)]
enum Expected {
    Object(Kind, String),
    Later(Kind, String),
}

impl Expected {
    fn is_in(&self, needs: &Needs) -> bool {
        match self {
            Self::Object(kind, name) => {
                needs.objects.iter().any(|need| need.kind == *kind && need.name == *name)
            }
            Self::Later(kind, name) => needs.later.contains(&Reference::new(*kind, name.clone())),
        }
    }
}

/// Sets an object in all inputs that can reference one.
fn fill(inputs: Vec<Input<'_>>) -> Vec<Expected> {
    let mut expected = Vec::new();
    for (index, input) in inputs.into_iter().enumerate() {
        let name = format!("other-{index}");
        let (kind, reference, link) = match input {
            Input::Database { settings, .. } => (mariadb::KIND, &mut settings.cluster_ref, None),
            Input::Messaging { settings, .. } => (rabbitmq::KIND, &mut settings.cluster_ref, None),
            Input::Cache(settings) => (memcached::KIND, &mut settings.cluster_ref, None),
            Input::Identity(settings) => (keystone::KIND, &mut settings.cluster_ref, None),
            Input::IdentityAddress(address) => (keystone::KIND, &mut address.cluster_ref, None),
            Input::Service { kind, link, reference, .. } => (kind, reference, Some(link)),
            _ => continue,
        };
        *reference = Some(NameReference::new(name.as_str()));
        expected.push(match link {
            Some(Link::WaitsFor) => Expected::Later(kind, name),
            _ => Expected::Object(kind, name),
        });
    }
    expected
}

/// Fields that a cloud fills in, as paths below the spec.
fn settled(input: &Input<'_>) -> Vec<String> {
    let below = |field: &str, names: &[&str]| -> Vec<String> {
        let path =
            |name: &&str| if field.is_empty() { (*name).to_owned() } else { format!("{field}.{name}") };
        names.iter().map(path).collect()
    };
    match input {
        Input::Exposure(_) => below("", &["gatewayRef", "publicScheme"]),
        Input::Region { field, .. } | Input::Topics { field, .. } | Input::Users(field) => {
            vec![(*field).to_owned()]
        }
        Input::Database { field, .. } => {
            below(field, &["clusterRef", "host", "port", "secretRef", "adminSecretRef"])
        }
        Input::Messaging { field, .. } => below(field, &["clusterRef", "hosts", "secretRef", "virtualHost"]),
        Input::Cache(_) => below("cache", &["clusterRef", "servers"]),
        Input::Identity(_) => below("keystone", &["clusterRef", "authUrl", "adminSecretRef"]),
        Input::IdentityAddress(_) => below("keystone", &["clusterRef", "authUrl"]),
        Input::Service { field, .. } => below(field, &["clusterRef"]),
        Input::Scheduling { field, .. } => {
            below(field, &["nodeSelector", "tolerations", "topologySpread", "priorityClassName"])
        }
        Input::Component { field, .. } => {
            below(if *field == "all" { "" } else { field }, &["resources", "image"])
        }
        Input::Pods { .. } => below("", &["dependsOn", "extraMounts", "podLabels", "podAnnotations"]),
        Input::Hostname { .. } | Input::Replicas { .. } | Input::StorageClass(_) => Vec::new(),
    }
}

/// Schema of a field. List items are written `[]`.
fn find<'a>(schema: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(schema, |schema, name| {
        let property = schema["properties"].get(name.trim_end_matches("[]"))?;
        if name.ends_with("[]") { property.get("items") } else { Some(property) }
    })
}

/// Checks a part and returns the number of its inputs from others.
fn check<P: Part>() -> usize {
    let part: &'static dyn AnyPart = *PARTS.iter().find(|part| part.kind() == P::KIND).unwrap();
    let kind = P::KIND.kind;
    let definition = serde_json::to_value(part.crd()).unwrap();
    let whole = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let block = serde_json::to_value(part.block()).unwrap();
    for path in P::Template::declaration().inputs().iter().flat_map(settled) {
        assert!(find(whole, &path).is_some(), "{kind} has no spec.{path}");
        assert!(find(&block, &path).is_none(), "the block of {kind} offers {path}");
    }
    for input in &P::Template::declaration().inputs() {
        if let Input::Scheduling { field, .. } = input {
            let path = format!("{field}.topology");
            let path = path.trim_start_matches('.');
            assert!(find(&block, path).is_some(), "the block of {kind} has no {path}");
            assert!(find(whole, path).is_none(), "{kind} has {path}, which has no effect outside of a cloud");
        }
    }
    let mut template = P::Template::declaration();
    let expected = fill(template.inputs());
    let object = object(part, "test", &serde_json::to_value(&template).unwrap());
    let needs = part.decode(&object).unwrap().needs();
    for expected in &expected {
        assert!(expected.is_in(&needs), "{kind} declares {expected:?}, but needs {needs:?}");
    }
    expected.len()
}

#[test]
fn needs_and_blocks_agree_with_inputs() {
    let checked = [
        check::<mariadb::Service>(),
        check::<rabbitmq::Service>(),
        check::<memcached::Service>(),
        check::<ovn::Service>(),
        check::<keystone::Service>(),
        check::<glance::Service>(),
        check::<placement::Service>(),
        check::<neutron::Service>(),
        check::<nova::Service>(),
        check::<compute::Service>(),
        check::<barbican::Service>(),
        check::<heat::Service>(),
        check::<horizon::Service>(),
    ];
    assert_eq!(checked.len(), PARTS.len(), "a part is not checked");
    assert!(checked.iter().sum::<usize>() > 20, "{checked:?}");
}

#[test]
fn objects_that_workloads_wait_for_are_watched() {
    let mut waits = 0;
    for (case, rendered) in rendered() {
        for workload in &rendered.plan.workloads {
            for reference in &workload.after {
                let later = &rendered.needs.later;
                assert!(later.contains(reference), "{}: {reference:?} is not in {later:?}", case.title);
                waits += 1;
            }
        }
    }
    assert!(waits > 0, "no workload waits for anything");
}
