//! Checks of all kinds and manifests on a real API server.
//!
//! `cargo xtask test --only apiserver` runs it. By hand, use any cluster with the Gateway API; it needs no
//! operator:
//!
//! ```text
//! KUBECONFIG=~/.cache/openstack-operator/cluster/kubeconfig SMOKE_IMAGES='{}' \
//!     APISERVER_KUBECTL=$(command -v kubectl) APISERVER_HELM=$(command -v helm) \
//!     cargo test -p openstack-operator-apiserver --test apiserver
//! ```
//!
//! The CRDs stay installed; all other objects are deleted with their namespaces. An operator may run meanwhile: stored
//! objects of its kinds have the annotation that pauses it.

mod accepted;
mod changed;
mod defaults;
mod definitions;
mod examples;
mod installed;
mod refused;
mod rendered;
mod wide;
