//! Findings about a cluster before a cloud runs on it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::need::{Labels, NodeNeed, selects};
use openstack_operator_model::node::{NOT_READY, Node, describe};
use serde_json::Value;

use super::answer::{Answer, Unreadable, scope};
use super::definitions::{self, Definitions};
use super::operator::{self, OperatorFacts};
use super::requirements::{Claim, Gateways, Privilege, Requirements, SecretRequirement};
use super::{Finding, Findings, MINIMUM_KUBERNETES, holds, items, text};
use crate::live::LiveSecret;

const ENFORCE_LABEL: &str = "pod-security.kubernetes.io/enforce";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const ASK: &str = "ask an administrator of the cluster to run this check";

/// Facts about a cluster.
#[derive(Clone, Debug)]
pub(crate) struct ClusterFacts {
    pub(crate) now: Timestamp,
    /// As the API server reports it, e.g. `v1.36.3`.
    pub(crate) version: String,
    pub(crate) permissions: Vec<Permission>,
    pub(crate) definitions: Answer<Vec<Value>>,
    pub(crate) gateways: Answer<Vec<Value>>,
    pub(crate) storage_classes: Answer<Vec<Value>>,
    pub(crate) nodes: Answer<Vec<Value>>,
    pub(crate) namespaces: BTreeMap<String, Answer<Option<Value>>>,
    /// By namespace and name, without values.
    pub(crate) secrets: BTreeMap<(String, String), Answer<Option<LiveSecret>>>,
    pub(crate) operator: OperatorFacts,
}

/// A permission of the caller.
#[derive(Clone, Debug)]
pub(crate) struct Permission {
    pub(crate) verb: &'static str,
    pub(crate) kind: Kind,
    pub(crate) namespace: Option<String>,
    pub(crate) allowed: Answer<bool>,
}

/// Whether a cluster is fit for clouds with these requirements.
pub(crate) fn check(facts: &ClusterFacts, required: &Requirements) -> Vec<Finding> {
    let groups = [
        ("Kubernetes", kubernetes as fn(&ClusterFacts, &Requirements, &mut Findings)),
        ("Operator", operator_group),
        ("Namespace", namespaces),
        ("Gateway", gateways),
        ("Storage", storage),
        ("Nodes", nodes),
        ("Secrets", secrets),
    ];
    let findings = groups.into_iter().flat_map(|(group, check)| {
        let mut findings = Findings::new(group);
        check(facts, required, &mut findings);
        findings.into_list()
    });
    findings.collect()
}

fn kubernetes(facts: &ClusterFacts, _: &Requirements, findings: &mut Findings) {
    let (major, minor) = MINIMUM_KUBERNETES;
    let version = &facts.version;
    match parse_version(version) {
        Some(found) if found >= MINIMUM_KUBERNETES => {
            findings.pass(format!("Kubernetes {version} is supported ({major}.{minor} or later)"));
        }
        Some(_) => findings.fail(
            format!("Kubernetes {version} is too old"),
            format!("upgrade the cluster to {major}.{minor} or later"),
        ),
        None => findings.warn(
            format!("the version of Kubernetes is unknown: {version:?}"),
            format!("it must be {major}.{minor} or later"),
        ),
    }
    let mut missing = Vec::new();
    for permission in &facts.permissions {
        let scope = scope(permission.namespace.as_deref());
        let title = format!("{} {} {scope}", permission.verb, permission.kind.plural);
        match &permission.allowed {
            Ok(true) => {}
            Ok(false) => missing.push(title),
            Err(reason) => findings.warn(format!("cannot check whether you can {title}"), reason.to_string()),
        }
    }
    if missing.is_empty() {
        findings.pass("you have the permissions to install the operator and a cloud");
    }
    for title in missing {
        findings.fail(format!("forbidden: cannot {title}"), "install with an account that has cluster-admin");
    }
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim_start_matches('v').split(['.', '+', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn operator_group(facts: &ClusterFacts, _: &Requirements, findings: &mut Findings) {
    let apply = "openstack-operator crds | kubectl apply --server-side -f -";
    match facts.definitions.as_ref().map(|found| definitions::compare(found)) {
        Ok(Definitions::Absent) => findings.pass("no definitions are installed yet"),
        Ok(Definitions::Same) => findings.pass("the definitions in the cluster are those of this version"),
        Ok(Definitions::Different(differences)) => {
            let more = match differences.len() - 1 {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            findings.fail(
                format!("the definitions in the cluster are of another version: {}{more}", differences[0]),
                apply,
            );
        }
        Err(reason) => findings.warn(reason.to_string(), ASK),
    }
    if facts.operator.is_installed() || facts.operator.deployments.is_err() {
        operator::check(&facts.operator, facts.now, findings);
    } else {
        findings.pass("no operator is installed yet");
    }
}

fn namespaces(facts: &ClusterFacts, required: &Requirements, findings: &mut Findings) {
    for (name, privilege) in &required.namespaces {
        let label = format!("kubectl label namespace {name} {ENFORCE_LABEL}=privileged");
        let namespace = match facts.namespaces.get(name) {
            Some(Ok(Some(namespace))) => namespace,
            Some(Ok(None)) | None => {
                let label = match privilege {
                    Privilege::Privileged => format!(" && {label}"),
                    Privilege::Baseline => String::new(),
                };
                let hint = format!("kubectl create namespace {name}{label}");
                findings.warn(format!("namespace {name} does not exist"), hint);
                continue;
            }
            Some(Err(reason)) => {
                findings.warn(reason.to_string(), ASK);
                continue;
            }
        };
        let labels = namespace.pointer("/metadata/labels");
        let level = labels.and_then(|labels| labels.get(ENFORCE_LABEL)).and_then(Value::as_str);
        match (privilege, level) {
            (Privilege::Baseline, _) => findings.pass(format!("namespace {name} exists")),
            (Privilege::Privileged, Some("privileged")) => {
                findings.pass(format!("namespace {name} admits privileged pods"));
            }
            (Privilege::Privileged, Some(other)) => findings.fail(
                format!("namespace {name} rejects privileged pods: its Pod Security level is {other}"),
                format!("{label} --overwrite"),
            ),
            (Privilege::Privileged, None) => findings.warn(
                format!("namespace {name} has no Pod Security level: the default of the cluster decides"),
                label,
            ),
        }
    }
}

fn gateways(facts: &ClusterFacts, required: &Requirements, findings: &mut Findings) {
    let found = match &facts.gateways {
        Ok(found) => found,
        Err(Unreadable::NotServed(_)) => {
            let without = matches!(&required.gateways, Gateways::Named(names) if names.is_empty());
            let hint = "install the Gateway API definitions (standard channel, v1) and a Gateway controller";
            if without {
                findings.pass("the cloud has no public endpoints");
            } else {
                findings.fail("the cluster does not serve the Gateway API", hint);
            }
            return;
        }
        Err(reason) => return findings.warn(reason.to_string(), ASK),
    };
    let title = |gateway: &Value| {
        format!("{}/{}", text(gateway, "/metadata/namespace"), text(gateway, "/metadata/name"))
    };
    let is_programmed = |gateway: &Value| holds(gateway, "/status/conditions", "Programmed");
    match &required.gateways {
        Gateways::Any => match found.iter().find(|gateway| is_programmed(gateway)) {
            Some(gateway) => findings.pass(format!("Gateway {} is Programmed", title(gateway))),
            None => findings.warn(
                "no Gateway is Programmed",
                "create a Gateway for the public endpoints and name it in spec.gatewayRef",
            ),
        },
        Gateways::Named(names) if names.is_empty() => findings.pass("the cloud has no public endpoints"),
        Gateways::Named(names) => {
            for (namespace, name) in names {
                let wanted = format!("{namespace}/{name}");
                let gateway = found.iter().find(|gateway| title(gateway) == wanted);
                gateway_findings(&wanted, gateway, required, findings);
            }
        }
    }
}

fn gateway_findings(title: &str, gateway: Option<&Value>, required: &Requirements, findings: &mut Findings) {
    let Some(gateway) = gateway else {
        let hint = "create it, or name another Gateway in spec.gatewayRef";
        return findings.fail(format!("Gateway {title} does not exist"), hint);
    };
    if holds(gateway, "/status/conditions", "Programmed") {
        findings.pass(format!("Gateway {title} is Programmed"));
    } else {
        findings.fail(
            format!("Gateway {title} is not Programmed"),
            "read its conditions: kubectl describe gateway, and the logs of the Gateway controller",
        );
    }
    let own = text(gateway, "/metadata/namespace");
    let is_open = |namespace: &str| {
        namespace == own
            || items(gateway, "/spec/listeners").any(|listener| {
                matches!(text(listener, "/allowedRoutes/namespaces/from"), "All" | "Selector")
            })
    };
    for namespace in required.namespaces.keys().filter(|namespace| !is_open(namespace)) {
        findings.fail(
            format!("Gateway {title} accepts no routes from namespace {namespace}"),
            "set allowedRoutes.namespaces.from of a listener to All or Selector",
        );
    }
}

fn storage(facts: &ClusterFacts, required: &Requirements, findings: &mut Findings) {
    let classes = match &facts.storage_classes {
        Ok(classes) => classes,
        Err(reason) => return findings.warn(reason.to_string(), ASK),
    };
    let is_default = |class: &&Value| {
        class.pointer("/metadata/annotations").is_some_and(|all| all[DEFAULT_CLASS] == "true")
    };
    let default = classes.iter().find(is_default).map(|class| text(class, "/metadata/name"));
    let wanted: BTreeSet<Option<&str>> = required.claims.iter().map(|claim| claim.class.as_deref()).collect();
    for class in wanted {
        match (class, default) {
            (Some(name), _) if classes.iter().any(|class| text(class, "/metadata/name") == name) => {
                findings.pass(format!("StorageClass {name} exists"));
            }
            (Some(name), _) => findings.fail(
                format!("StorageClass {name} does not exist"),
                "create it, or name another class in spec.storageClassName; kubectl get storageclass lists them",
            ),
            (None, Some(default)) => findings.pass(format!("StorageClass {default} is the default")),
            (None, None) => findings.fail(
                "no StorageClass is the default",
                format!(
                    "kubectl annotate storageclass NAME {DEFAULT_CLASS}=true, or set spec.storageClassName"
                ),
            ),
        }
    }
    for Claim { object, class, .. } in required.claims.iter().filter(|claim| claim.is_shared) {
        let class = class.as_deref().or(default).unwrap_or("the default");
        findings.add(
            super::Verdict::Passed,
            format!("{object} is ReadWriteMany"),
            Some(format!(
                "Kubernetes does not report access modes: make sure that StorageClass {class} supports it"
            )),
        );
    }
}

fn nodes(facts: &ClusterFacts, required: &Requirements, findings: &mut Findings) {
    if required.nodes.is_empty() {
        return;
    }
    let found: BTreeMap<&str, Node> = match &facts.nodes {
        Ok(nodes) => nodes.iter().map(|node| (text(node, "/metadata/name"), read_node(node))).collect(),
        Err(reason) => return findings.warn(reason.to_string(), ASK),
    };
    let mut groups: Vec<(&NodeNeed, Vec<&str>)> = Vec::new();
    for nodes in &required.nodes {
        match groups.iter_mut().find(|(need, _)| **need == nodes.need) {
            Some((_, objects)) => objects.push(&nodes.object),
            None => groups.push((&nodes.need, vec![&nodes.object])),
        }
    }
    for (need, objects) in groups {
        node_group(&found, need, &objects.join(", "), findings);
    }
}

fn node_group(found: &BTreeMap<&str, Node>, need: &NodeNeed, objects: &str, findings: &mut Findings) {
    let labels = need.labels.iter().map(|(label, value)| format!("{label}={value}"));
    let labels = labels.collect::<Vec<_>>().join(",");
    let names = |wanted: &dyn Fn(&Node) -> bool| -> Vec<&str> {
        let selected = found.iter().filter(|(_, node)| selects(&need.labels, &node.labels));
        selected.filter(|(_, node)| wanted(node)).map(|(name, _)| *name).collect()
    };
    let (chosen, tainted) = (names(&|node| need.chooses(node)), names(&|node| !need.chooses(node)));
    let (ready, lost) =
        (names(&|node| need.chooses(node) && node.ready), names(&|node| need.chooses(node) && !node.ready));
    if chosen.is_empty() {
        findings.fail(
            format!("no node for {objects} has the labels {labels} and only tolerated taints"),
            format!(
                "kubectl label node NODE {labels}, or name other labels or tolerations in spec.topologies"
            ),
        );
    } else if ready.is_empty() {
        findings.fail(format!("no node with the labels {labels} is Ready"), "kubectl describe nodes");
    } else {
        findings.pass(format!("Ready nodes with the labels {labels} for {objects}: {}", ready.len()));
    }
    if !lost.is_empty() && !ready.is_empty() {
        findings.warn(describe(&lost, NOT_READY), "kubectl describe node NODE");
    }
    if !tainted.is_empty() && !chosen.is_empty() {
        findings.warn(
            format!("{} and gets no pods of {objects}", describe(&tainted, "tainted")),
            "tolerate the taints in spec.topologies, or remove the labels from the nodes",
        );
    }
}

fn read_node(node: &Value) -> Node {
    let labels = node.pointer("/metadata/labels").cloned().unwrap_or_default();
    Node::new(serde_json::from_value::<Labels>(labels).unwrap_or_default(), node)
}

fn secrets(facts: &ClusterFacts, required: &Requirements, findings: &mut Findings) {
    for SecretRequirement { object, namespace, name, field, keys } in &required.secrets {
        let place = (namespace.clone(), name.clone());
        let create =
            format!("kubectl --namespace {namespace} create secret generic {name} --from-literal=KEY=VALUE");
        match facts.secrets.get(&place) {
            Some(Ok(Some(secret))) => {
                let is_missing =
                    |key: &&String| secret.keys.as_ref().is_some_and(|known| !known.contains(*key));
                match keys.iter().find(is_missing) {
                    None => findings.pass(format!("Secret {namespace}/{name} exists ({field} of {object})")),
                    Some(key) => findings.fail(
                        format!("Secret {namespace}/{name} has no key {key} ({field} of {object})"),
                        "add the key to the Secret",
                    ),
                }
            }
            Some(Ok(None)) | None => {
                findings
                    .fail(format!("Secret {namespace}/{name} does not exist ({field} of {object})"), create);
            }
            Some(Err(reason)) => findings.warn(reason.to_string(), ASK),
        }
    }
}

#[cfg(test)]
mod tests;
