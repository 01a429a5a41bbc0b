//! Kubernetes kinds as data, and the one list of kinds that plans are lowered to.

use kube::core::{ApiResource, GroupVersionKind};

/// API group of the operator's annotations, labels and finalizer.
pub const GROUP: &str = "openstack.k8s.io";
pub const VERSION: &str = "v1alpha1";

/// Kind of an object. It is data, so a kind can be of any group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
}

impl Kind {
    pub const fn new(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self { group, version, kind, plural }
    }

    /// A kind of the operator's API group.
    pub const fn own(kind: &'static str, plural: &'static str) -> Self {
        Self::new(GROUP, VERSION, kind, plural)
    }

    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    pub fn resource(&self) -> ApiResource {
        let kind = GroupVersionKind::gvk(self.group, self.version, self.kind);
        ApiResource::from_gvk_with_plural(&kind, self.plural)
    }
}

pub const CONFIG_MAP: Kind = Kind::new("", "v1", "ConfigMap", "configmaps");
pub const SECRET: Kind = Kind::new("", "v1", "Secret", "secrets");
pub const SERVICE: Kind = Kind::new("", "v1", "Service", "services");
pub const DEPLOYMENT: Kind = Kind::new("apps", "v1", "Deployment", "deployments");
pub const STATEFUL_SET: Kind = Kind::new("apps", "v1", "StatefulSet", "statefulsets");
pub const DAEMON_SET: Kind = Kind::new("apps", "v1", "DaemonSet", "daemonsets");
pub const PERSISTENT_VOLUME_CLAIM: Kind =
    Kind::new("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims");
pub const JOB: Kind = Kind::new("batch", "v1", "Job", "jobs");
pub const CRON_JOB: Kind = Kind::new("batch", "v1", "CronJob", "cronjobs");
pub const POD_DISRUPTION_BUDGET: Kind =
    Kind::new("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets");
pub const HTTP_ROUTE: Kind = Kind::new("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes");
/// Watched, but not a child kind: pods report their state and receive instructions by annotation.
pub const POD: Kind = Kind::new("", "v1", "Pod", "pods");

/// Watched, but not a child kind: some objects run pods on all nodes with certain labels.
pub const NODE: Kind = Kind::new("", "v1", "Node", "nodes");

/// Read only: it says whether volumes can grow.
pub const STORAGE_CLASS: Kind = Kind::new("storage.k8s.io", "v1", "StorageClass", "storageclasses");

/// Kinds that run pods permanently.
pub const CONTROLLERS: &[Kind] = &[DEPLOYMENT, STATEFUL_SET, DAEMON_SET];

/// **Invariant:** every kind that lowering emits is in this list or is an own kind of the operator. Watches, pruning
/// and RBAC derive from it.
pub const CHILD_KINDS: &[Kind] = &[
    CONFIG_MAP,
    SECRET,
    PERSISTENT_VOLUME_CLAIM,
    SERVICE,
    DEPLOYMENT,
    STATEFUL_SET,
    DAEMON_SET,
    JOB,
    CRON_JOB,
    POD_DISRUPTION_BUDGET,
    HTTP_ROUTE,
];
