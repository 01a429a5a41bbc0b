//! Kinds of Kubernetes that the command line reads and the operator does not use.

use openstack_operator_model::kind::Kind;

pub(crate) const NAMESPACE: Kind = Kind::new("", "v1", "Namespace", "namespaces");
pub(crate) const EVENT: Kind = Kind::new("events.k8s.io", "v1", "Event", "events");
pub(crate) const STORAGE_CLASS: Kind = Kind::new("storage.k8s.io", "v1", "StorageClass", "storageclasses");
pub(crate) const LEASE: Kind = Kind::new("coordination.k8s.io", "v1", "Lease", "leases");
pub(crate) const GATEWAY: Kind = Kind::new("gateway.networking.k8s.io", "v1", "Gateway", "gateways");
pub(crate) const DEFINITION: Kind =
    Kind::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");
pub(crate) const CLUSTER_ROLE: Kind =
    Kind::new("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles");
pub(crate) const CLUSTER_ROLE_BINDING: Kind =
    Kind::new("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings");
