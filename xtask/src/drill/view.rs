//! The cloud as Kubernetes shows it: the state of the control plane, pods, nodes, Secrets.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::fault::{Api, Quorum};
use crate::cloud::{KIND, NAMESPACE, OPERATOR};
use crate::command::output;
use crate::directories::Directories;
use crate::kubectl::Kubectl;

/// Selects what the operator has created.
const MANAGED: &str = "app.kubernetes.io/managed-by=openstack-operator";
/// The label in the selector of the database's Service with the pod that clients write to.
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// Members of a quorum in a highly available cloud.
pub(super) const MEMBERS: usize = 3;

/// The state of the control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// Ready, and no part is lost.
    Whole,
    /// Ready without a part, e.g. a node.
    Degraded(String),
    /// Only the user can continue.
    Stalled(String),
    /// Not Ready, for this reason.
    Working(String),
    /// Kubernetes does not answer.
    Unknown,
}

impl State {
    pub(super) fn of(object: &Value) -> Self {
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
        let condition = |kind: &str| {
            let mut all = conditions.into_iter().flatten();
            let found = all.find(|condition| condition["type"] == kind)?;
            let message = found["message"].as_str().unwrap_or_default().to_owned();
            Some((found["status"] == "True", message))
        };
        let is_current = object["status"]["observedGeneration"] == object["metadata"]["generation"];
        match (condition("Stalled"), condition("Ready"), condition("Degraded")) {
            (Some((true, message)), _, _) => Self::Stalled(message),
            (_, Some((true, _)), Some((true, message))) if is_current => Self::Degraded(message),
            (_, Some((true, _)), _) if is_current => Self::Whole,
            (_, Some((_, message)), _) => Self::Working(message),
            (_, None, _) => Self::Working("it has no conditions yet".to_owned()),
        }
    }

    /// The state in a few words.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Whole => "Ready".to_owned(),
            Self::Degraded(message) => format!("Degraded: {message}"),
            Self::Stalled(message) => format!("Stalled: {message}"),
            Self::Working(message) => format!("not Ready: {message}"),
            Self::Unknown => "the API server does not answer".to_owned(),
        }
    }
}

/// A pod with what faults need to know about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) uid: String,
    pub(super) node: String,
    /// Identifiers of its containers: a restart changes them.
    pub(super) containers: Vec<String>,
    pub(super) is_ready: bool,
}

impl Pod {
    fn of(object: &Value) -> Self {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let statuses = object.pointer("/status/containerStatuses").and_then(Value::as_array);
        let identifiers = statuses.into_iter().flatten().filter_map(|status| status["containerID"].as_str());
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
        let mut conditions = conditions.into_iter().flatten();
        Self {
            uid: text("/metadata/uid"),
            node: text("/spec/nodeName"),
            containers: identifiers.map(ToOwned::to_owned).collect(),
            is_ready: conditions
                .any(|condition| condition["type"] == "Ready" && condition["status"] == "True"),
        }
    }
}

pub(super) type Pods = BTreeMap<String, Pod>;

pub(super) struct View {
    pub(super) kubectl: Kubectl,
    /// The name of the cloud.
    pub(super) cloud: String,
    /// The domain of the cloud's APIs.
    pub(super) domain: String,
    /// The APIs that the cloud has.
    pub(super) apis: Vec<Api>,
}

impl View {
    /// The only cloud, which must be highly available.
    pub(super) fn find(directories: &Directories) -> Result<Self> {
        let kubectl = Kubectl::local(directories)?;
        let clouds = list(&kubectl, NAMESPACE, KIND, &[])?;
        let [cloud] = clouds.as_slice() else {
            bail!("namespace {NAMESPACE} has {} clouds, and must have one", clouds.len());
        };
        if !is_highly_available(cloud) {
            bail!(
                "the cloud that runs is not highly available: remove it with cargo xtask down, and the drill \
                 creates one that is"
            );
        }
        let text = |path: &str| cloud.pointer(path).and_then(Value::as_str).map(ToOwned::to_owned);
        let name = text("/metadata/name").context("the cloud has no name")?;
        let domain = text("/spec/publicDomain").context("the cloud has no publicDomain")?;
        Ok(Self { kubectl, cloud: name, domain, apis: apis(cloud) })
    }

    pub(super) fn state(&self) -> State {
        let get = ["--namespace", NAMESPACE, "get", KIND, &self.cloud, "--output=json"];
        let answer = output(self.kubectl.query().args(get)).ok();
        let object: Option<Value> = answer.and_then(|text| serde_json::from_str(&text).ok());
        object.map_or(State::Unknown, |object| State::of(&object))
    }

    /// The pods of the cloud, by name.
    pub(super) fn pods(&self) -> Result<Pods> {
        Ok(by_name(&list(&self.kubectl, NAMESPACE, "pods", &["--selector", MANAGED])?))
    }

    /// The pods of the operator, by name.
    pub(super) fn operator_pods(&self) -> Result<Pods> {
        Ok(by_name(&list(&self.kubectl, OPERATOR, "pods", &[])?))
    }

    /// The nodes that Kubernetes reports as ready.
    pub(super) fn ready_nodes(&self) -> Result<Vec<String>> {
        let nodes = by_name(&list(&self.kubectl, NAMESPACE, "nodes", &[])?);
        Ok(nodes.into_iter().filter(|(_, node)| node.is_ready).map(|(name, _)| name).collect())
    }

    /// The node of the database member that clients write to.
    pub(super) fn writer_node(&self) -> Result<String> {
        let service = format!("{}-{}", self.cloud, Quorum::MariaDb.part());
        let get = ["--namespace", NAMESPACE, "get", "service", &service, "--output=json"];
        let answer: Value = serde_json::from_str(&output(self.kubectl.query().args(get))?)?;
        let pod = answer["spec"]["selector"][POD_NAME].as_str();
        let pod = pod.with_context(|| format!("Service {service} does not select one pod"))?;
        let pods = self.pods()?;
        pods.get(pod).map(|pod| pod.node.clone()).with_context(|| format!("there is no pod {pod}"))
    }

    /// The directory of a claim's volume on its node.
    pub(super) fn volume_directory(&self, claim: &str) -> Result<String> {
        let get = ["--namespace", NAMESPACE, "get", "persistentvolumeclaim", claim, "--output=json"];
        let claim: Value = serde_json::from_str(&output(self.kubectl.query().args(get))?)?;
        let volume = claim["spec"]["volumeName"].as_str().context("the claim has no volume")?;
        let get = ["get", "persistentvolume", volume, "--output=json"];
        let volume: Value = serde_json::from_str(&output(self.kubectl.query().args(get))?)?;
        let directory = volume.pointer("/spec/local/path").and_then(Value::as_str);
        directory.map(ToOwned::to_owned).context("the volume is not a directory of a node")
    }

    /// The names of the Secrets that the operator has created.
    pub(super) fn secrets(&self) -> Result<Vec<String>> {
        let secrets = list(&self.kubectl, NAMESPACE, "secrets", &["--selector", MANAGED])?;
        Ok(secrets.iter().filter_map(|secret| name(secret).map(ToOwned::to_owned)).collect())
    }
}

fn is_highly_available(cloud: &Value) -> bool {
    cloud["spec"]["highAvailability"] == true
}

/// The APIs of a cloud that the load uses: all of them, which is the default, or Keystone alone.
fn apis(cloud: &Value) -> Vec<Api> {
    let is_enabled = |api: &Api| cloud["spec"][api.name().to_lowercase()]["enabled"] != false;
    if Api::ALL.iter().all(is_enabled) { Api::ALL.to_vec() } else { vec![Api::Keystone] }
}

/// Objects of a kind.
fn list(kubectl: &Kubectl, namespace: &str, kind: &str, options: &[&str]) -> Result<Vec<Value>> {
    let arguments = ["--namespace", namespace, "get", kind, "--output=json"];
    let answer = output(kubectl.query().args(arguments).args(options))?;
    let mut answer: Value = serde_json::from_str(&answer).context("kubectl did not return JSON")?;
    serde_json::from_value(answer["items"].take()).context("kubectl did not return a list")
}

fn name(object: &Value) -> Option<&str> {
    object.pointer("/metadata/name").and_then(Value::as_str)
}

fn by_name(objects: &[Value]) -> Pods {
    objects.iter().filter_map(|object| Some((name(object)?.to_owned(), Pod::of(object)))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state(generation: u32, conditions: &[(&str, &str)]) -> State {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(kind, status)| json!({ "type": kind, "status": status, "message": "why" }))
            .collect();
        State::of(&json!({
            "metadata": { "generation": 2 },
            "status": { "observedGeneration": generation, "conditions": conditions },
        }))
    }

    #[test]
    fn the_conditions_of_the_control_plane_determine_its_state() {
        let why = "why".to_owned();
        assert_eq!(state(2, &[("Ready", "True"), ("Degraded", "False")]), State::Whole);
        assert_eq!(state(2, &[("Ready", "True"), ("Degraded", "True")]), State::Degraded(why.clone()));
        assert_eq!(state(1, &[("Ready", "True")]), State::Working(why.clone()));
        assert_eq!(state(2, &[("Ready", "False"), ("Stalled", "False")]), State::Working(why.clone()));
        assert_eq!(state(2, &[("Ready", "False"), ("Stalled", "True")]), State::Stalled(why));
        assert!(matches!(State::of(&json!({})), State::Working(_)));
    }

    #[test]
    fn a_pod_is_identified_by_its_uid_and_its_containers() {
        let pod = json!({
            "metadata": { "name": "cloud-mariadb-0", "uid": "u" },
            "spec": { "nodeName": "node1" },
            "status": {
                "conditions": [{ "type": "Ready", "status": "True" }],
                "containerStatuses": [{ "containerID": "containerd://c" }, { "ready": false }],
            },
        });
        let pods = by_name(&[pod]);
        let expected = Pod {
            uid: "u".to_owned(),
            node: "node1".to_owned(),
            containers: vec!["containerd://c".to_owned()],
            is_ready: true,
        };
        assert_eq!(pods.get("cloud-mariadb-0"), Some(&expected));
    }

    #[test]
    fn the_load_uses_keystone_alone_where_another_api_is_disabled() {
        assert_eq!(apis(&json!({ "spec": { "nova": { "replicas": 2 } } })), Api::ALL);
        assert_eq!(apis(&json!({ "spec": { "nova": { "enabled": false } } })), [Api::Keystone]);
    }

    #[test]
    fn only_a_highly_available_cloud_fits() {
        assert!(is_highly_available(&json!({ "spec": { "highAvailability": true } })));
        assert!(!is_highly_available(&json!({ "spec": {} })));
    }
}
