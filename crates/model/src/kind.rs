//! Kubernetes kinds as data, and the one list of kinds that plans are lowered to.

use kube::core::{ApiResource, GroupVersionKind};

/// The group that the operator's own annotations, labels and finalizer are written under.
pub const GROUP: &str = "openstack.k8s.io";
pub const VERSION: &str = "v1alpha1";

/// A kind of object. Group and kind are data, so that a kind may come from any group.
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

    /// A kind of the operator's own group.
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
pub const POD_DISRUPTION_BUDGET: Kind =
    Kind::new("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets");
pub const HTTP_ROUTE: Kind = Kind::new("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes");
/// Not a child, since no plan makes one, but watched: pods report, and are given orders by annotation.
pub const POD: Kind = Kind::new("", "v1", "Pod", "pods");

/// Not a child either, and in no namespace: some objects have a part on every node with some labels.
pub const NODE: Kind = Kind::new("", "v1", "Node", "nodes");

/// Kinds that run pods for as long as they are there.
pub const CONTROLLERS: &[Kind] = &[DEPLOYMENT, STATEFUL_SET, DAEMON_SET];

/// **Invariant:** every kind that lowering emits is here or is one of the operator's own. Watches, pruning and
/// access rights all come from this list.
pub const CHILD_KINDS: &[Kind] = &[
    CONFIG_MAP,
    SECRET,
    PERSISTENT_VOLUME_CLAIM,
    SERVICE,
    DEPLOYMENT,
    STATEFUL_SET,
    DAEMON_SET,
    JOB,
    POD_DISRUPTION_BUDGET,
    HTTP_ROUTE,
];
