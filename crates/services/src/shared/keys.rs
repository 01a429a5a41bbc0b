//! Key rings of services.

use kube::Resource;
use openstack_operator_model::keyring;
use openstack_operator_model::plan::{KeyRing, SecretContent};
use openstack_operator_model::service::{Context, Invalid};

/// The user changes its value to rotate all keys of an object now.
pub const ROTATE_ANNOTATION: &str = "openstack.k8s.io/rotate-keys";

/// A key ring of a service.
#[derive(Clone, Copy)]
pub(crate) struct RingClaim<'a> {
    /// Field of its settings, below `spec`.
    pub(crate) field: &'a str,
    /// Condition that reports whether the keys exist.
    pub(crate) condition: &'static str,
    pub(crate) schedule: &'a str,
    pub(crate) max_active_keys: u32,
    /// Time in seconds that a key must still be known after its last use for new data.
    pub(crate) lifetime_seconds: i64,
}

/// Content of the Secret with a key ring.
pub(crate) fn ring<K: Resource>(
    context: &Context<'_, K>,
    claim: RingClaim<'_>,
) -> Result<SecretContent, Invalid> {
    let RingClaim { field, condition, schedule, max_active_keys, lifetime_seconds } = claim;
    keyring::check_schedule(schedule)
        .map_err(|reason| Invalid::new(format!("spec.{field}.rotationSchedule"), reason))?;
    let annotations = context.object.meta().annotations.as_ref();
    let request = annotations.and_then(|all| all.get(ROTATE_ANNOTATION)).cloned();
    let schedule = schedule.to_owned();
    Ok(SecretContent::KeyRing(KeyRing { condition, max_active_keys, lifetime_seconds, schedule, request }))
}
