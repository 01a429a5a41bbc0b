//! The upgrade of a cloud to another release: a pure function from the states of its parts to the release of each part.

use std::collections::BTreeMap;

use openstack_operator_model::release::{Release, Releases};
use openstack_operator_model::service::Invalid;

/// Position of a part in the upgrade of a cloud. A wave starts when all parts of the earlier ones have the new release and
/// are Ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wave {
    /// Databases, message buses and virtual networks, which services connect to.
    Backends,
    Identity,
    /// Services that Nova uses.
    Resources,
    Compute,
    /// Compute nodes work with a newer conductor, but not with an older one.
    ComputeNodes,
    Others,
}

/// A part of a cloud during an upgrade.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartRelease {
    /// Field of its block.
    pub(crate) field: &'static str,
    pub(crate) wave: Wave,
    /// Releases that have the part.
    pub(crate) releases: Releases,
    /// Release that it has reached; none if it is new.
    pub(crate) release: Option<Release>,
    pub(crate) ready: bool,
}

impl PartRelease {
    fn is_done(&self, wanted: Release) -> bool {
        self.release == Some(wanted) && self.ready
    }
}

/// Releases of the parts of a cloud on the way to the wanted one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Targets {
    /// Release that all parts have reached.
    pub(crate) from: Release,
    /// Release that each part gets now, by its field.
    pub(crate) releases: BTreeMap<&'static str, Release>,
    /// Parts that have not changed yet, by wave. Empty if no part has another release than the wanted one.
    pub(crate) waves: Vec<Vec<&'static str>>,
}

/// The release of each part of a cloud that wants this release.
pub(crate) fn targets(wanted: Release, parts: &[PartRelease]) -> Result<Targets, Invalid> {
    check_ends(wanted, parts)?;
    let known = || parts.iter().filter_map(|part| part.release);
    let from = known().min().unwrap_or(wanted);
    check_order(wanted, from, parts)?;
    let is_open = |wave: Wave| parts.iter().all(|part| part.wave >= wave || part.is_done(wanted));
    let target = |part: &PartRelease| {
        let held = part.release.unwrap_or(from);
        (part.field, if is_open(part.wave) { wanted } else { held })
    };
    let releases: BTreeMap<&str, Release> = parts.iter().map(target).collect();
    // A new part of an open wave starts with the wanted release.
    let changes = |part: &&PartRelease| match part.release {
        Some(release) => release != wanted,
        None => releases[part.field] != wanted,
    };
    let mut waves: BTreeMap<Wave, Vec<&str>> = BTreeMap::new();
    for part in parts.iter().filter(changes) {
        waves.entry(part.wave).or_default().push(part.field);
    }
    Ok(Targets { from, releases, waves: waves.into_values().collect() })
}

/// Rejects a release that no longer has a part of the cloud.
fn check_ends(wanted: Release, parts: &[PartRelease]) -> Result<(), Invalid> {
    let ended = parts.iter().find(|part| !part.releases.contains(wanted));
    ended.map_or(Ok(()), |PartRelease { field, releases, .. }| {
        let reason = format!(
            "ends with release {}, and spec.release is {}: set spec.{field}.enabled to false first, which deletes the \
             service, or keep the release",
            releases.last().number(),
            wanted.number()
        );
        Err(Invalid::new(format!("spec.{field}"), reason))
    })
}

/// Rejects a release that some part cannot change to.
fn check_order(wanted: Release, from: Release, parts: &[PartRelease]) -> Result<(), Invalid> {
    let moved: Vec<&str> =
        parts.iter().filter(|part| part.release > Some(wanted)).map(|part| part.field).collect();
    let newest = parts.iter().filter_map(|part| part.release).max().unwrap_or(wanted);
    if let Some(reason) = newest.refusal(wanted) {
        return Err(Invalid::new("spec.release", format!("{}: {reason}", moved.join(", "))));
    }
    from.refusal(wanted).map_or(Ok(()), |reason| Err(Invalid::new("spec.release", reason)))
}

#[cfg(test)]
mod tests;
