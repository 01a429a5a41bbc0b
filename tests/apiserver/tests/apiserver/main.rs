//! Checks that a real API server takes every kind and every object as they are meant.
//!
//! `cargo xtask test --only apiserver` runs it. By hand, any cluster with the Gateway API does, and no operator need
//! run in it:
//!
//! ```text
//! KUBECONFIG=~/.cache/openstack-operator/cluster/kubeconfig SMOKE_IMAGES='{}' \
//!     APISERVER_KUBECTL=$(command -v kubectl) APISERVER_HELM=$(command -v helm) \
//!     cargo test -p openstack-operator-apiserver --test apiserver
//! ```
//!
//! The definitions of our kinds are installed and stay; whatever else is stored goes with its namespace. An operator
//! that runs meanwhile is no hindrance: objects of its kinds are stored with the annotation that pauses it.

mod accepted;
mod changed;
mod defaults;
mod definitions;
mod examples;
mod installed;
mod refused;
mod rendered;
mod wide;
