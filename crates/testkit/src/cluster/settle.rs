//! Other controllers of the cluster: rollouts, Jobs, routes and garbage collection.

use jiff::Timestamp;
use openstack_operator_engine::ports::Environment;
use openstack_operator_model::assess::{JobOutcome, job_outcome};
use openstack_operator_model::common::Toleration;
use openstack_operator_model::kind::{
    DAEMON_SET, DEPLOYMENT, HTTP_ROUTE, JOB, Kind, NODE, SERVICE, STATEFUL_SET,
};
use openstack_operator_model::need::{Labels, selects};
use openstack_operator_model::node::Node;
use serde_json::{Value, json};

use super::FakeCluster;
use crate::environment::START;
use crate::lock;
use crate::store::Key;

/// Nodes in the affinity of a pod, if any.
const TERMS: &str = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";

impl FakeCluster {
    /// Prevents objects of this kind and name from progressing, in all namespaces.
    pub fn hold(&self, kind: Kind, name: &str) {
        lock(&self.state).held.insert((kind, name.to_owned()));
    }

    pub fn release(&self, kind: Kind, name: &str) {
        lock(&self.state).held.remove(&(kind, name.to_owned()));
    }

    /// The next Job of this name fails; a recreated Job does not.
    pub fn fail_job(&self, name: &str) {
        lock(&self.state).failing_jobs.insert(name.to_owned());
    }

    /// Runs all other controllers until idle: they roll out workloads, complete Jobs, accept routes and collect
    /// garbage. Returns whether anything changed.
    pub fn settle(&self) -> bool {
        let now = self.environment.now();
        let mut state = lock(&self.state);
        let state = &mut *state;
        let mut changed = state.store.collect_garbage(now);
        let nodes: Vec<(String, Node)> = state
            .store
            .objects()
            .filter(|(key, _)| key.kind == NODE)
            .map(|(key, body)| (key.name.clone(), Node::new(labels(body), body)))
            .collect();
        let mut statuses: Vec<(Key, Value)> = Vec::new();
        for (key, body) in state.store.objects() {
            if state.held.contains(&(key.kind, key.name.clone())) {
                continue;
            }
            let status = match key.kind {
                DEPLOYMENT | STATEFUL_SET => Some(rolled_out(body)),
                DAEMON_SET => Some(on_nodes(body, &nodes)),
                JOB if job_outcome(body) == JobOutcome::Running => {
                    Some(ended(state.failing_jobs.remove(&key.name), now))
                }
                HTTP_ROUTE => Some(accepted(body)),
                SERVICE if body.pointer("/spec/type").is_some_and(|type_| type_ == "LoadBalancer") => {
                    Some(json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } }))
                }
                _ => None,
            };
            statuses.extend(status.map(|status| (key.clone(), status)));
        }
        for (key, status) in statuses {
            changed |= state.store.set_status(&key, status, now).expect("the object was just seen");
        }
        changed
    }
}

fn rolled_out(body: &Value) -> Value {
    let replicas = body.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
    json!({
        "observedGeneration": body["metadata"]["generation"],
        "replicas": replicas,
        "updatedReplicas": replicas,
        "readyReplicas": replicas,
        "availableReplicas": replicas,
    })
}

/// Status of a DaemonSet on all matching nodes, or on one unknown node if there are none. Pods of nodes that are not
/// Ready are neither ready nor updated.
fn on_nodes(body: &Value, nodes: &[(String, Node)]) -> Value {
    let pod = &body["spec"]["template"]["spec"];
    let selector: Labels = parsed(&pod["nodeSelector"]);
    let tolerations: Vec<Toleration> = parsed(&pod["tolerations"]);
    let terms = pod.pointer(TERMS).and_then(Value::as_array);
    let is_named = |name: &str| {
        terms.is_none_or(|terms| terms.iter().any(|term| term["matchFields"][0]["values"] == json!([name])))
    };
    let counted: Vec<&Node> = nodes
        .iter()
        .filter(|(name, node)| {
            is_named(name) && selects(&selector, &node.labels) && node.is_counted(&tolerations)
        })
        .map(|(_, node)| node)
        .collect();
    let ready = counted.iter().filter(|node| node.ready).count();
    let (wanted, ready) = if nodes.is_empty() { (1, 1) } else { (counted.len(), ready) };
    json!({
        "observedGeneration": body["metadata"]["generation"],
        "desiredNumberScheduled": wanted,
        "updatedNumberScheduled": ready,
        "numberReady": ready,
    })
}

fn labels(body: &Value) -> Labels {
    parsed(&body["metadata"]["labels"])
}

fn parsed<T: Default + serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_default()
}

fn ended(failed: bool, now: Timestamp) -> Value {
    let (outcome, count) = if failed { ("Failed", "failed") } else { ("Complete", "succeeded") };
    json!({
        "conditions": [{ "type": outcome, "status": "True", "lastTransitionTime": now.to_string() }],
        count: 1,
    })
}

fn accepted(body: &Value) -> Value {
    let parents = body.pointer("/spec/parentRefs").and_then(Value::as_array).into_iter().flatten();
    let verdict = json!({
        "type": "Accepted",
        "status": "True",
        "reason": "Accepted",
        "message": "",
        "observedGeneration": body["metadata"]["generation"],
        "lastTransitionTime": START,
    });
    let parents: Vec<Value> = parents
        .map(|parent| {
            json!({ "parentRef": parent, "controllerName": "test/gateway", "conditions": [verdict] })
        })
        .collect();
    json!({ "parents": parents })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use openstack_operator_engine::ports::Cluster;
    use openstack_operator_model::assess::assess;
    use openstack_operator_model::condition::Progress;
    use openstack_operator_model::lower::{Manifest, Source};

    use super::*;
    use crate::script::Script;

    async fn apply(cluster: &FakeCluster, kind: Kind, name: &str, spec: Value) {
        let body = json!({
            "apiVersion": kind.api_version(), "kind": kind.kind, "metadata": { "name": name }, "spec": spec
        });
        cluster
            .apply("default", &Manifest { kind, name: name.to_owned(), body, source: Source::Other })
            .await
            .unwrap();
    }

    fn progress(cluster: &FakeCluster, kind: Kind, name: &str) -> Progress {
        assess(kind, name, &cluster.object(kind, "default", name).unwrap())
    }

    #[tokio::test]
    async fn settled_objects_are_done() {
        let cluster = FakeCluster::new(Script::default(), Arc::default());
        let all = [
            (DEPLOYMENT, json!({ "replicas": 2 })),
            (STATEFUL_SET, json!({ "replicas": 3 })),
            (DAEMON_SET, json!({})),
            (JOB, json!({})),
            (HTTP_ROUTE, json!({ "parentRefs": [{ "name": "gateway" }] })),
        ];
        for (kind, spec) in all.clone() {
            apply(&cluster, kind, "x", spec).await;
            assert!(matches!(progress(&cluster, kind, "x"), Progress::Waiting { .. }), "{}", kind.kind);
        }
        assert!(cluster.settle());
        for (kind, _) in all {
            assert_eq!(progress(&cluster, kind, "x"), Progress::Done, "{}", kind.kind);
        }
        assert!(!cluster.settle());
        apply(&cluster, DEPLOYMENT, "x", json!({ "replicas": 4 })).await;
        assert_ne!(progress(&cluster, DEPLOYMENT, "x"), Progress::Done);
        assert!(cluster.settle());
        assert_eq!(progress(&cluster, DEPLOYMENT, "x"), Progress::Done);
    }

    #[tokio::test]
    async fn held_objects_do_not_settle() {
        let cluster = FakeCluster::new(Script::default(), Arc::default());
        apply(&cluster, DEPLOYMENT, "x", json!({ "replicas": 1 })).await;
        cluster.hold(DEPLOYMENT, "x");
        assert!(!cluster.settle());
        cluster.release(DEPLOYMENT, "x");
        assert!(cluster.settle());
    }

    #[tokio::test]
    async fn a_job_fails_once_and_stays_failed() {
        let cluster = FakeCluster::new(Script::default(), Arc::default());
        apply(&cluster, JOB, "x", json!({})).await;
        cluster.fail_job("x");
        assert!(cluster.settle());
        assert!(matches!(progress(&cluster, JOB, "x"), Progress::Failed { .. }));
        assert!(!cluster.settle());
        let uid = cluster.object(JOB, "default", "x").unwrap()["metadata"]["uid"].clone();
        cluster.delete(JOB, "default", "x", uid.as_str().unwrap()).await.unwrap();
        apply(&cluster, JOB, "x", json!({})).await;
        cluster.settle();
        assert_eq!(progress(&cluster, JOB, "x"), Progress::Done);
    }
}
