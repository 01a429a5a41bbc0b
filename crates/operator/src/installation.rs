//! Objects that install the operator: definitions, permissions and the Deployment.

use openstack_operator_services::ALL;
use serde_json::{Value, json};

use crate::rights;

/// The operator's name, and its default namespace.
pub(crate) const NAME: &str = "openstack-operator";
/// User and group of the process in the image.
const USER: i64 = 42400;
/// The container in which the process runs.
pub(crate) const CONTAINER: &str = "operator";
/// Settings of the C library: one heap for all threads, and free memory returns to the system early. Heaps for each thread
/// take 2 MiB more.
const ALLOCATOR: [(&str, &str); 2] = [("MALLOC_ARENA_MAX", "1"), ("MALLOC_TRIM_THRESHOLD_", "65536")];
pub(crate) const ADMIN_PORT: u16 = 8080;

/// Settings of an installation. Some are plain values, so that a chart can use template expressions.
#[derive(Clone, Debug)]
pub(crate) struct Installation {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) image: String,
    pub(crate) replicas: Value,
    /// Environment variables besides those that identify the pod.
    pub(crate) environment: Vec<(&'static str, String)>,
    pub(crate) resources: Value,
    pub(crate) pull_secrets: Option<Value>,
}

/// The default image. No registry has it: push it to yours, and use that name.
pub(crate) fn default_image() -> String {
    format!("{NAME}:{}", env!("CARGO_PKG_VERSION"))
}

/// Resource requests, and a memory limit of four times the request.
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
                // The new pod is on standby before the old one stops, also with a single replica.
                "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } },
                "template": { "metadata": { "labels": self.labels() }, "spec": pod },
            },
        })
    }

    fn container(&self) -> Value {
        let field = |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
        let mut environment =
            vec![field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace")];
        environment.extend(ALLOCATOR.map(|(name, value)| json!({ "name": name, "value": value })));
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

    /// The Deployment, with a disruption budget if it has several replicas.
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
    fn only_several_replicas_have_a_disruption_budget() {
        assert_eq!(installation(1).workload().len(), 1);
        assert_eq!(installation(2).workload()[1]["kind"], "PodDisruptionBudget");
    }

    #[test]
    fn every_field_is_known_to_kubernetes() {
        let installation = installation(2);
        let read =
            |value: &Value| serde_json::from_value::<k8s_openapi::api::apps::v1::Deployment>(value.clone());
        let deployment = read(&installation.deployment()).unwrap();
        // Decoding drops fields that the type does not have.
        assert_eq!(serde_json::to_value(&deployment).unwrap(), installation.deployment());
        assert_eq!(crds().len(), ALL.len());
    }

    #[test]
    fn the_container_is_restricted() {
        let deployment = installation(1).deployment();
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"], true);
        let mut environment = pod["containers"][0]["env"].as_array().unwrap().iter();
        assert!(environment.any(|variable| variable["value"] == "debian"), "{pod}");
    }
}
