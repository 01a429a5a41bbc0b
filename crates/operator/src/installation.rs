//! The operator's own objects in a cluster: its kinds, its rights, and the process itself.

use openstack_operator_services::ALL;
use serde_json::{Value, json};

use crate::rights;

/// The operator's name, and the namespace it lives in where none is given.
pub(crate) const NAME: &str = "openstack-operator";
/// User and group of the process, as the image has them.
const USER: i64 = 42400;
/// The container in which the process runs.
pub(crate) const CONTAINER: &str = "operator";
pub(crate) const ADMIN_PORT: u16 = 8080;

/// How an operator is installed. Parts are plain values, so that a chart can put its own expressions into them.
#[derive(Clone, Debug)]
pub(crate) struct Installation {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) image: String,
    pub(crate) replicas: Value,
    /// Variables of the process besides those that say which pod it is.
    pub(crate) environment: Vec<(&'static str, String)>,
    pub(crate) resources: Value,
    pub(crate) pull_secrets: Option<Value>,
}

/// The image where none is given. It is in no registry: push it to one of yours and name it there.
pub(crate) fn default_image() -> String {
    format!("{NAME}:{}", env!("CARGO_PKG_VERSION"))
}

/// What the process needs; it may grow to four times that before it is ended.
pub(crate) fn default_resources() -> Value {
    json!({ "requests": { "cpu": "100m", "memory": "32Mi" }, "limits": { "memory": "128Mi" } })
}

/// Definitions of every kind.
pub(crate) fn crds() -> Vec<Value> {
    ALL.iter().filter_map(|service| serde_json::to_value(service.crd()).ok()).collect()
}

impl Installation {
    pub(crate) fn namespace(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": self.namespace,
                "labels": {
                    "pod-security.kubernetes.io/enforce": "restricted",
                    "pod-security.kubernetes.io/warn": "restricted",
                },
            },
        })
    }

    pub(crate) fn rbac(&self) -> Vec<Value> {
        let group = "rbac.authorization.k8s.io";
        let rule_version = format!("{group}/v1");
        let subjects = json!([{ "kind": "ServiceAccount", "name": self.name, "namespace": self.namespace }]);
        let reference = |kind: &str| json!({ "apiGroup": group, "kind": kind, "name": self.name });
        vec![
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": self.metadata() }),
            json!({
                "apiVersion": rule_version, "kind": "ClusterRole", "metadata": self.cluster_metadata(),
                "rules": rights::cluster_rules(),
            }),
            json!({
                "apiVersion": rule_version, "kind": "ClusterRoleBinding", "metadata": self.cluster_metadata(),
                "roleRef": reference("ClusterRole"), "subjects": subjects,
            }),
            json!({
                "apiVersion": rule_version, "kind": "Role", "metadata": self.metadata(),
                "rules": rights::lease_rules(),
            }),
            json!({
                "apiVersion": rule_version, "kind": "RoleBinding", "metadata": self.metadata(),
                "roleRef": reference("Role"), "subjects": subjects,
            }),
        ]
    }

    pub(crate) fn deployment(&self) -> Value {
        let mut pod = json!({
            "serviceAccountName": self.name,
            "enableServiceLinks": false,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [self.container()],
            "topologySpreadConstraints": [{
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": { "matchLabels": self.labels() },
            }],
        });
        if let Some(secrets) = &self.pull_secrets {
            pod["imagePullSecrets"] = secrets.clone();
        }
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": self.metadata(),
            "spec": {
                "replicas": self.replicas,
                "selector": { "matchLabels": self.labels() },
                // The next one stands by before the last one goes, also where there is only one.
                "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } },
                "template": { "metadata": { "labels": self.labels() }, "spec": pod },
            },
        })
    }

    fn container(&self) -> Value {
        let field = |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
        let mut environment =
            vec![field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace")];
        let given = self.environment.iter().map(|(name, value)| json!({ "name": name, "value": value }));
        environment.extend(given);
        let probe = |path: &str, period: i32, failures: i32| {
            json!({
                "httpGet": { "path": path, "port": ADMIN_PORT },
                "periodSeconds": period, "timeoutSeconds": 5, "failureThreshold": failures,
            })
        };
        json!({
            "name": CONTAINER,
            "image": self.image,
            "args": ["run"],
            "env": environment,
            "ports": [{ "name": "admin", "containerPort": ADMIN_PORT, "protocol": "TCP" }],
            "readinessProbe": probe("/readyz", 5, 2),
            "livenessProbe": probe("/livez", 10, 6),
            "resources": self.resources,
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": { "drop": ["ALL"] },
                "readOnlyRootFilesystem": true,
            },
        })
    }

    pub(crate) fn disruption_budget(&self) -> Value {
        json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": self.metadata(),
            "spec": {
                "maxUnavailable": 1,
                "selector": { "matchLabels": self.labels() },
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            },
        })
    }

    /// The process, with a budget where one of several may be missing.
    pub(crate) fn workload(&self) -> Vec<Value> {
        let several = self.replicas.as_i64().is_some_and(|replicas| replicas > 1);
        let budget = several.then(|| self.disruption_budget());
        std::iter::once(self.deployment()).chain(budget).collect()
    }

    fn labels(&self) -> Value {
        json!({ "app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": self.name })
    }

    fn metadata(&self) -> Value {
        json!({ "name": self.name, "namespace": self.namespace, "labels": self.labels() })
    }

    fn cluster_metadata(&self) -> Value {
        json!({ "name": self.name, "labels": self.labels() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installation(replicas: i32) -> Installation {
        Installation {
            name: NAME.to_owned(),
            namespace: "n".to_owned(),
            image: default_image(),
            replicas: json!(replicas),
            environment: vec![("OPENSTACK_OPERATOR_IMAGES_FAMILY", "debian".to_owned())],
            resources: default_resources(),
            pull_secrets: None,
        }
    }

    #[test]
    fn only_several_have_a_budget() {
        assert_eq!(installation(1).workload().len(), 1);
        assert_eq!(installation(2).workload()[1]["kind"], "PodDisruptionBudget");
    }

    #[test]
    fn every_object_is_one_that_kubernetes_knows() {
        let installation = installation(2);
        let read =
            |value: &Value| serde_json::from_value::<k8s_openapi::api::apps::v1::Deployment>(value.clone());
        let deployment = read(&installation.deployment()).unwrap();
        // What the type does not know is lost on the way.
        assert_eq!(serde_json::to_value(&deployment).unwrap(), installation.deployment());
        assert_eq!(crds().len(), ALL.len());
    }

    #[test]
    fn the_process_is_confined() {
        let deployment = installation(1).deployment();
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"], true);
        assert_eq!(pod["containers"][0]["env"][2]["value"], "debian");
    }
}
