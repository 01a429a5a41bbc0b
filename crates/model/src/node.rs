//! Nodes as far as pods depend on them: their labels, their taints, and whether they are Ready.

use k8s_openapi::api::core::v1::{NodeCondition, Taint};
use serde_json::Value;

use crate::common::{TaintEffect, Toleration, TolerationOperator};
use crate::need::Labels;

/// What is known of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    pub labels: Labels,
    pub taints: Vec<Taint>,
    /// Whether its condition Ready is True. A node that does not report is not Ready.
    pub ready: bool,
}

/// Taints by which Kubernetes says how a node is. They come and go by themselves, and do not say where pods belong.
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

    /// Whether pods with these tolerations belong on the node.
    pub fn admits(&self, tolerations: &[Toleration]) -> bool {
        self.repelling().all(|taint| {
            CONDITION_TAINTS.contains(&taint.key.as_str())
                || tolerations.iter().any(|toleration| tolerates(toleration, taint))
        })
    }

    /// Whether a `DaemonSet` whose pods have these tolerations counts the node among those that must have a pod. The
    /// `DaemonSet` controller adds tolerations of its own, but none for a node that takes no new pods because it is not
    /// Ready or cannot be reached: a pod that is there stays, and is not counted.
    pub fn is_counted(&self, tolerations: &[Toleration]) -> bool {
        self.repelling().all(|taint| {
            is_tolerated_by_controller(taint)
                || tolerations.iter().any(|toleration| tolerates(toleration, taint))
        })
    }

    /// Taints that keep pods away. `PreferNoSchedule` is a wish only.
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

/// Whether a toleration tolerates a taint, as the scheduler decides it: an empty effect is every effect, an empty key
/// is every key, and no operator is `Equal`.
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

/// What a node is that is lost.
pub const NOT_READY: &str = "not Ready";

/// Says in one sentence which nodes are in a state.
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
    fn exists_tolerates_every_value_and_equal_the_same_one() {
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
    fn an_empty_key_is_every_key_and_an_empty_effect_every_effect() {
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
    fn every_taint_must_be_tolerated_and_a_wish_is_none() {
        let taints = json!([{ "key": "a", "effect": "NoSchedule" }, { "key": "b", "effect": "NoExecute" }]);
        let exists = |key: &str| toleration(&json!({ "key": key, "operator": "Exists" }));
        assert!(!node(&taints).admits(&[exists("a")]));
        assert!(node(&taints).admits(&[exists("a"), exists("b")]));
        assert!(admits(&json!({ "key": "k", "effect": "PreferNoSchedule" }), &[]));
    }

    #[test]
    fn a_node_in_trouble_keeps_its_pods_but_is_not_always_counted() {
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
    fn a_node_is_ready_when_it_says_so() {
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
