//! One file per service, and the list of them.

use openstack_operator_model::kind::Kind;
use openstack_operator_model::service::{AnyService, Entry};

pub mod chassis;
pub mod compute;
pub mod control_plane;
pub mod glance;
pub mod keystone;
pub mod mariadb;
pub mod memcached;
pub mod neutron;
pub mod nova;
pub mod ovn;
pub mod placement;
pub mod rabbitmq;
mod shared;
pub mod switch;
pub mod template;

/// Every service. A new one is one file and one line here.
pub static ALL: &[&dyn AnyService] = &[
    &Entry::<control_plane::Service>::new(),
    &Entry::<mariadb::Service>::new(),
    &Entry::<rabbitmq::Service>::new(),
    &Entry::<memcached::Service>::new(),
    &Entry::<keystone::Service>::new(),
    &Entry::<glance::Service>::new(),
    &Entry::<placement::Service>::new(),
    &Entry::<ovn::Service>::new(),
    &Entry::<chassis::Service>::new(),
    &Entry::<neutron::Service>::new(),
    &Entry::<nova::Service>::new(),
    &Entry::<compute::Service>::new(),
];

/// The service whose objects are of this kind.
pub fn of_kind(kind: &str) -> Option<&'static dyn AnyService> {
    ALL.iter().copied().find(|service| service.kind().kind == kind)
}

/// Kinds of all services.
pub fn kinds() -> Vec<Kind> {
    ALL.iter().map(|service| service.kind()).collect()
}
