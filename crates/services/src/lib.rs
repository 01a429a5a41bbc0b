//! One file per service, and the list of them.

use std::sync::LazyLock;

use openstack_operator_model::kind::Kind;
use openstack_operator_model::service::{AnyService, Entry};
use openstack_operator_model::status::Stage;

use cloud::{AnyPart, Deployed};

pub mod barbican;
pub mod chassis;
pub mod cloud;
pub mod compute;
pub mod concern;
pub mod control_plane;
pub mod glance;
pub mod heat;
pub mod horizon;
pub mod inputs;
pub mod keystone;
pub mod mariadb;
pub mod memcached;
pub mod neutron;
pub mod nova;
pub mod ovn;
pub mod placement;
mod program;
pub mod rabbitmq;
mod shared;
pub mod switch;
pub mod template;
#[cfg(test)]
mod testing;

/// All parts of a cloud, in startup order. A new service is one file and one line here.
pub static PARTS: &[&dyn AnyPart] = &[
    &Entry::<Deployed<mariadb::Service>>::new(),
    &Entry::<Deployed<rabbitmq::Service>>::new(),
    &Entry::<Deployed<memcached::Service>>::new(),
    &Entry::<Deployed<ovn::Service>>::new(),
    &Entry::<Deployed<keystone::Service>>::new(),
    &Entry::<Deployed<glance::Service>>::new(),
    &Entry::<Deployed<placement::Service>>::new(),
    &Entry::<Deployed<neutron::Service>>::new(),
    &Entry::<Deployed<nova::Service>>::new(),
    &Entry::<Deployed<compute::Service>>::new(),
    &Entry::<Deployed<barbican::Service>>::new(),
    &Entry::<Deployed<heat::Service>>::new(),
    &Entry::<Deployed<horizon::Service>>::new(),
];

/// All services: the cloud, its parts, and the children of parts.
pub static ALL: LazyLock<Vec<&'static dyn AnyService>> = LazyLock::new(|| {
    static CLOUD: Entry<control_plane::Service> = Entry::new();
    static CHASSIS: Entry<chassis::Service> = Entry::new();
    let (cloud, chassis): (&dyn AnyService, &dyn AnyService) = (&CLOUD, &CHASSIS);
    let parts = PARTS.iter().map(|&part| as_service(part));
    [cloud].into_iter().chain(parts).chain([chassis]).collect()
});

fn as_service(part: &'static dyn AnyPart) -> &'static dyn AnyService {
    part
}

/// The service of this kind.
pub fn of_kind(kind: &str) -> Option<&'static dyn AnyService> {
    ALL.iter().copied().find(|service| service.kind().kind == kind)
}

/// Fields of the parts that a cloud does not need to issue tokens.
pub fn fields_beyond_identity() -> impl Iterator<Item = &'static str> {
    let identity = || PARTS.iter().filter(|part| part.stage() == Stage::Identity);
    let needed: Vec<Kind> =
        identity().flat_map(|part| [vec![part.kind()], part.sources()].concat()).collect();
    PARTS.iter().filter(move |part| !needed.contains(&part.kind())).map(|part| part.field())
}

/// Kinds of all services.
pub fn kinds() -> Vec<Kind> {
    ALL.iter().map(|service| service.kind()).collect()
}
