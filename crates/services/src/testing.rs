//! Inputs of planning for unit tests.

use std::collections::BTreeMap;

use openstack_operator_model::image::{Family, ImageDefaults};
use openstack_operator_model::kind::Kind;
use openstack_operator_model::need::Resolved;
use openstack_operator_model::release::{Release, Runtime};
use openstack_operator_model::service::{Context, Site};
use openstack_operator_model::status::Provides;

/// Runs a test with the context of object `cloud-sample`.
pub(crate) fn with_context<T>(inputs: &Resolved, test: impl FnOnce(&Context<'_, ()>) -> T) -> T {
    let site = Site {
        images: ImageDefaults { family: Family::Kolla, registry: None, tags: BTreeMap::new() },
        cluster_domain: "cluster.local".to_owned(),
    };
    test(&Context {
        object: &(),
        name: "cloud-sample",
        namespace: "openstack",
        inputs,
        site: &site,
        memory: &BTreeMap::new(),
        runtime: Runtime { release: Release::default(), family: Family::Kolla },
    })
}

/// Inputs from one object.
pub(crate) fn provided(kind: Kind, name: &str, provides: Provides) -> Resolved {
    let objects = [((kind.kind.to_owned(), name.to_owned()), provides)].into();
    Resolved { objects, ..Resolved::default() }
}
