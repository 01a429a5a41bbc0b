//! Findings about clouds that run: objects, quorum, nodes, Gateways, endpoints and certificates.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::core::DynamicObject;
use openstack_operator_engine::engine::Key;
use openstack_operator_model::assess::assess;
use openstack_operator_model::condition::Progress;
use openstack_operator_model::kind::{HTTP_ROUTE, Kind};
use openstack_operator_model::lower::{COMPONENT_LABEL, KIND_LABEL};
use openstack_operator_model::node::describe;
use openstack_operator_model::status::{NodeState, Status};
use openstack_operator_services::{mariadb, ovn, rabbitmq};
use serde_json::Value;

use super::answer::Answer;
use super::endpoint::{self, Probe};
use super::operator::{self, OperatorFacts};
use super::{Finding, Findings, condition, holds, text};
use crate::tree::{Node, State, forest};

/// Kinds whose StatefulSets are the members of a quorum.
const QUORUM_KINDS: [Kind; 3] = [mariadb::KIND, rabbitmq::KIND, ovn::KIND];

/// Facts about the clouds of a namespace, or one of them.
#[derive(Clone, Debug)]
pub(crate) struct CloudFacts {
    pub(crate) now: Timestamp,
    pub(crate) objects: Vec<(Key, DynamicObject)>,
    pub(crate) stateful_sets: Answer<Vec<Value>>,
    pub(crate) routes: Answer<Vec<Value>>,
    /// Gateways that routes name, by namespace and name.
    pub(crate) gateways: Vec<NamedGateway>,
    pub(crate) probes: Vec<Probe>,
    pub(crate) operator: OperatorFacts,
}

/// A Gateway by namespace and name.
pub(crate) type NamedGateway = ((String, String), Answer<Option<Value>>);

/// The verdict on clouds.
pub(crate) fn check(facts: &CloudFacts) -> Vec<Finding> {
    let groups = [
        ("Operator", operator_group as fn(&CloudFacts, &mut Findings)),
        ("Objects", objects),
        ("Quorum", quorum),
        ("Nodes", nodes),
        ("Gateway", gateways),
        ("Endpoints", endpoints),
        ("Certificates", certificates),
    ];
    let findings = groups.into_iter().flat_map(|(group, check)| {
        let mut findings = Findings::new(group);
        check(facts, &mut findings);
        findings.into_list()
    });
    findings.collect()
}

fn operator_group(facts: &CloudFacts, findings: &mut Findings) {
    operator::check(&facts.operator, facts.now, findings);
}

fn objects(facts: &CloudFacts, findings: &mut Findings) {
    let forest = forest(&facts.objects, None);
    for node in forest.iter().flat_map(Node::flat) {
        object(node, findings);
    }
}

fn object(node: &Node, findings: &mut Findings) {
    let title = &node.title;
    let reference = format!("{}/{}", title.kind.to_lowercase(), title.name);
    match node.state {
        State::Ready => findings.pass(format!("{title} is Ready")),
        State::LeftOut => findings.pass(format!("{title} is left out: {}", node.message)),
        State::Degraded => findings.warn(
            format!("{title} is Degraded: {}", node.message),
            "repair the lost part that the message names, or remove it from the cloud",
        ),
        State::Stalled => match node.reason.as_str() {
            "Paused" => findings.warn(
                format!("{title} is paused"),
                format!("openstack-operator resume {reference} --namespace {}", title.namespace),
            ),
            "Bug" => findings.fail(
                format!("{title} is Stalled: {}", node.message),
                "report it, with the file that openstack-operator bundle writes",
            ),
            _ => findings.fail(
                format!("{title} is Stalled: {}", node.message),
                "correct the field that the message names; openstack-operator plan checks a change before it is applied",
            ),
        },
        State::Waiting => {
            let message = format!("{title} is not Ready: {}", node.message);
            let hint = format!("openstack-operator status --wait --namespace {}", title.namespace);
            if node.is_available { findings.warn(message, hint) } else { findings.fail(message, hint) }
        }
    }
}

fn quorum(facts: &CloudFacts, findings: &mut Findings) {
    let sets = match &facts.stateful_sets {
        Ok(sets) => sets,
        Err(reason) => return findings.warn(reason.to_string(), "the members of databases are not checked"),
    };
    for set in sets {
        let label = |name: &str| {
            set.pointer("/metadata/labels").map_or("", |labels| labels[name].as_str().unwrap_or(""))
        };
        if !QUORUM_KINDS.iter().any(|kind| kind.kind == label(KIND_LABEL)) {
            continue;
        }
        let members = set.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
        let ready = set.pointer("/status/readyReplicas").and_then(Value::as_i64).unwrap_or(0);
        let needed = members / 2 + 1;
        let (namespace, name) = (text(set, "/metadata/namespace"), text(set, "/metadata/name"));
        let title = format!("{} {name} ({})", label(KIND_LABEL), label(COMPONENT_LABEL));
        let pods = format!(
            "kubectl --namespace {namespace} get pods; kubectl --namespace {namespace} logs {name}-0"
        );
        if ready == members {
            findings.pass(format!("{title}: {ready} of {members} members are ready"));
        } else if ready >= needed {
            let spare = ready - needed;
            findings.warn(
                format!(
                    "{title}: {ready} of {members} members are ready; it survives the loss of {spare} more"
                ),
                pods,
            );
        } else {
            findings.fail(
                format!("{title}: {ready} of {members} members are ready, and the quorum is {needed}"),
                pods,
            );
        }
    }
}

fn nodes(facts: &CloudFacts, findings: &mut Findings) {
    for (key, object) in &facts.objects {
        let status: Status = serde_json::from_value(object.data["status"].clone()).unwrap_or_default();
        let names = |state: NodeState| -> Vec<&str> {
            status.nodes.iter().filter(|row| row.state == state).map(|row| row.name.as_str()).collect()
        };
        if status.nodes.is_empty() {
            continue;
        }
        let up = names(NodeState::Up).len();
        let chosen = status.nodes.iter().filter(|row| row.state.is_chosen()).count();
        if up == chosen {
            findings.pass(format!("{key}: the agents of {up} nodes are up"));
        }
        let hint = |name: &str| {
            format!("kubectl --namespace {} get pods --field-selector spec.nodeName={name}", key.namespace)
        };
        let states = [(NodeState::Down, "down"), (NodeState::Missing, "not registered")];
        for (state, description) in states {
            let found = names(state);
            let Some(first) = found.first() else { continue };
            let message = format!("{key}: {}", describe(&found, description));
            if up > 0 { findings.warn(message, hint(first)) } else { findings.fail(message, hint(first)) }
        }
        for row in status.nodes.iter().filter(|row| row.state == NodeState::Leaving) {
            findings.warn(
                format!("{key}: node {} is leaving and still holds {}", row.name, row.holds.join(", ")),
                "migrate or delete them, or select the node again",
            );
        }
    }
}

fn gateways(facts: &CloudFacts, findings: &mut Findings) {
    for ((namespace, name), gateway) in &facts.gateways {
        let title = format!("Gateway {namespace}/{name}");
        let hint = format!("kubectl --namespace {namespace} describe gateway {name}");
        match gateway {
            Ok(Some(gateway)) if holds(gateway, "/status/conditions", "Programmed") => {
                findings.pass(format!("{title} is Programmed"));
            }
            Ok(Some(gateway)) => {
                let reason = condition(gateway, "/status/conditions", "Programmed")
                    .map_or("its controller has not answered", |condition| text(condition, "/message"));
                findings.fail(format!("{title} is not Programmed: {reason}"), hint);
            }
            Ok(None) => {
                findings.fail(format!("{title} does not exist"), "create it, or change spec.gatewayRef");
            }
            Err(reason) => findings.warn(reason.to_string(), "the Gateway is not checked"),
        }
    }
    let routes = match &facts.routes {
        Ok(routes) => routes,
        Err(reason) => return findings.warn(reason.to_string(), "the routes are not checked"),
    };
    let mut accepted = BTreeSet::new();
    for route in routes {
        let (namespace, name) = (text(route, "/metadata/namespace"), text(route, "/metadata/name"));
        match assess(HTTP_ROUTE, name, route) {
            Progress::Done | Progress::Degraded { .. } => _ = accepted.insert(name),
            Progress::Waiting { message, .. }
            | Progress::Failed { message }
            | Progress::Stalled { message } => {
                findings.fail(message, format!("kubectl --namespace {namespace} describe httproute {name}"));
            }
            Progress::NotReached => {}
        }
    }
    if !accepted.is_empty() {
        findings.pass(format!("{} of {} HTTPRoutes are accepted", accepted.len(), routes.len()));
    }
}

fn endpoints(facts: &CloudFacts, findings: &mut Findings) {
    endpoint::check(&facts.probes, findings);
}

fn certificates(facts: &CloudFacts, findings: &mut Findings) {
    endpoint::check_certificates(&facts.probes, facts.now, findings);
}

#[cfg(test)]
mod tests;
