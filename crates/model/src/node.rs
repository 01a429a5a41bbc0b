//! Labels, taints and readiness of nodes.

use k8s_openapi::api::core::v1::{NodeCondition, Taint};
use serde_json::Value;

use crate::common::{TaintEffect, Toleration, TolerationOperator};
use crate::need::Labels;

/// State of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    pub labels: Labels,
    pub taints: Vec<Taint>,
    /// Whether the Ready condition is True. A node that does not report is not Ready.
    pub ready: bool,
}

/// Taints with which Kubernetes reports the conditions of a node. They are temporary and do not control placement.
const CONDITION_TAINTS: [&str; 7] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/network-unavailable",
];

impl Node {
    /// Reads a Node object, with or without its metadata.
    pub fn new(labels: Labels, object: &Value) -> Self {
        let conditions: Vec<NodeCondition> = list(object, "/status/conditions");
        Self {
            labels,
            taints: list(object, "/spec/taints"),
            ready: conditions
                .iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True"),
        }
    }

    /// Whether pods with these tolerations can run on the node.
    pub fn admits(&self, tolerations: &[Toleration]) -> bool {
        self.repelling().all(|taint| {
            CONDITION_TAINTS.contains(&taint.key.as_str())
                || tolerations.iter().any(|toleration| tolerates(toleration, taint))
        })
    }

    /// Whether a `DaemonSet` whose pods have these tolerations counts the node among those that must have a pod. The
    /// `DaemonSet` controller adds tolerations, but none for `NoSchedule` taints of nodes that are not Ready or
    /// unreachable: their pods stay, but do not count.
    pub fn is_counted(&self, tolerations: &[Toleration]) -> bool {
        self.repelling().all(|taint| {
            is_tolerated_by_controller(taint)
                || tolerations.iter().any(|toleration| tolerates(toleration, taint))
        })
    }

    /// Taints that keep pods away. `PreferNoSchedule` does not.
    fn repelling(&self) -> impl Iterator<Item = &Taint> {
        let effects = [TaintEffect::NoSchedule.name(), TaintEffect::NoExecute.name()];
        self.taints.iter().filter(move |taint| effects.contains(&taint.effect.as_str()))
    }
}

fn list<T: serde::de::DeserializeOwned>(object: &Value, pointer: &str) -> Vec<T> {
    let items = object.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| serde_json::from_value(item.clone()).ok()).collect()
}

fn is_tolerated_by_controller(taint: &Taint) -> bool {
    let key = taint.key.as_str();
    let lasting = matches!(key, "node.kubernetes.io/not-ready" | "node.kubernetes.io/unreachable");
    let effect = if lasting { TaintEffect::NoExecute } else { TaintEffect::NoSchedule };
    CONDITION_TAINTS.contains(&key) && taint.effect == effect.name()
}

/// Whether a toleration tolerates a taint, by the rules of the scheduler: an empty effect or key matches all, and the
/// default operator is `Equal`.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let same_effect = toleration.effect.is_none_or(|effect| effect.name() == taint.effect);
    let key = toleration.key.as_deref().unwrap_or_default();
    let same_key = key.is_empty() || key == taint.key;
    let same_value = match toleration.operator.unwrap_or(TolerationOperator::Equal) {
        TolerationOperator::Exists => true,
        TolerationOperator::Equal => {
            toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
        }
    };
    same_effect && same_key && same_value
}

/// State of a lost node.
pub const NOT_READY: &str = "not Ready";

/// Sentence that names the nodes in a state.
pub fn describe(names: &[&str], state: &str) -> String {
    match names {
        [one, other, third, rest @ ..] if !rest.is_empty() => {
            format!("nodes {one}, {other}, {third} and {} more are {state}", rest.len())
        }
        [one] => format!("node {one} is {state}"),
        _ => format!("nodes {} are {state}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(taints: &Value) -> Node {
        Node::new(Labels::new(), &json!({ "spec": { "taints": taints } }))
    }

    fn toleration(value: &Value) -> Toleration {
        serde_json::from_value(value.clone()).unwrap()
    }

    fn admits(taint: &Value, tolerations: &[Value]) -> bool {
        let tolerations: Vec<Toleration> = tolerations.iter().map(toleration).collect();
        node(&json!([taint])).admits(&tolerations)
    }

    #[test]
    fn exists_tolerates_every_value_and_equal_one_value() {
        let taint = json!({ "key": "k", "value": "v", "effect": "NoSchedule" });
        assert!(!admits(&taint, &[]));
        assert!(admits(&taint, &[json!({ "key": "k", "operator": "Exists" })]));
        assert!(admits(&taint, &[json!({ "key": "k", "operator": "Equal", "value": "v" })]));
        assert!(admits(&taint, &[json!({ "key": "k", "value": "v" })]), "Equal is the default");
        assert!(!admits(&taint, &[json!({ "key": "k", "value": "other" })]));
        assert!(!admits(&taint, &[json!({ "key": "k" })]), "no value is the empty value");
        assert!(!admits(&taint, &[json!({ "key": "other", "operator": "Exists" })]));
        let without_value = json!({ "key": "k", "effect": "NoSchedule" });
        assert!(admits(&without_value, &[json!({ "key": "k" })]));
    }

    #[test]
    fn an_empty_key_or_effect_matches_all() {
        for effect in ["NoSchedule", "NoExecute"] {
            let taint = json!({ "key": "k", "effect": effect });
            assert!(admits(&taint, &[json!({ "operator": "Exists" })]));
            assert!(admits(&taint, &[json!({ "operator": "Exists", "effect": effect })]));
            assert!(admits(&taint, &[json!({ "key": "k", "operator": "Exists" })]));
        }
        let taint = json!({ "key": "k", "effect": "NoExecute" });
        assert!(!admits(&taint, &[json!({ "operator": "Exists", "effect": "NoSchedule" })]));
    }

    #[test]
    fn all_taints_must_be_tolerated_except_prefer_no_schedule() {
        let taints = json!([{ "key": "a", "effect": "NoSchedule" }, { "key": "b", "effect": "NoExecute" }]);
        let exists = |key: &str| toleration(&json!({ "key": key, "operator": "Exists" }));
        assert!(!node(&taints).admits(&[exists("a")]));
        assert!(node(&taints).admits(&[exists("a"), exists("b")]));
        assert!(admits(&json!({ "key": "k", "effect": "PreferNoSchedule" }), &[]));
    }

    #[test]
    fn a_node_with_condition_taints_keeps_its_pods_but_is_not_always_counted() {
        let taint = |key: &str, effect: &str| json!([{ "key": format!("node.kubernetes.io/{key}"), "effect": effect }]);
        for key in ["unreachable", "not-ready"] {
            assert!(node(&taint(key, "NoSchedule")).admits(&[]));
            assert!(node(&taint(key, "NoExecute")).admits(&[]));
            assert!(node(&taint(key, "NoExecute")).is_counted(&[]));
            assert!(!node(&taint(key, "NoSchedule")).is_counted(&[]));
            let all = toleration(&json!({ "operator": "Exists" }));
            assert!(node(&taint(key, "NoSchedule")).is_counted(&[all]));
        }
        assert!(node(&taint("unschedulable", "NoSchedule")).is_counted(&[]));
        let maintenance = json!([{ "key": "maintenance", "effect": "NoSchedule" }]);
        assert!(!node(&maintenance).admits(&[]) && !node(&maintenance).is_counted(&[]));
    }

    #[test]
    fn a_node_is_ready_when_its_condition_is_true() {
        let ready = |status: &str| {
            let object = json!({ "status": { "conditions": [{ "type": "Ready", "status": status }] } });
            Node::new(Labels::new(), &object).ready
        };
        assert!(ready("True"));
        assert!(!ready("False") && !ready("Unknown"));
        assert!(!Node::new(Labels::new(), &json!({})).ready);
    }

    #[test]
    fn many_nodes_are_counted_and_few_are_named() {
        assert_eq!(describe(&["a"], "down"), "node a is down");
        assert_eq!(describe(&["a", "b", "c"], "down"), "nodes a, b, c are down");
        assert_eq!(describe(&["a", "b", "c", "d", "e"], "down"), "nodes a, b, c and 2 more are down");
    }
}
