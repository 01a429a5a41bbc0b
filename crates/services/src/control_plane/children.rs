//! The child objects of a cloud, each with the release that it gets now.

use openstack_operator_model::common::{Origin, Reference};
use openstack_operator_model::image::Image;
use openstack_operator_model::name;
use openstack_operator_model::need::PartState;
use openstack_operator_model::plan::{Child, Plan, Skipped, Upgrade};
use openstack_operator_model::release::Release;
use openstack_operator_model::service::{Context, Invalid};
use serde::Deserialize;
use serde_json::Value;

use super::{OpenStackControlPlane, OpenStackControlPlaneSpec};
use crate::cloud::upgrade::{self, PartRelease, Targets};
use crate::cloud::{self, AnyPart, Cloud, Fields, Settled};

/// A part that the cloud has.
struct Deployable<'a> {
    part: &'static dyn AnyPart,
    name: String,
    spec: Fields,
    /// Its object, if it exists and the cloud may change its release.
    state: Option<&'a PartState>,
}

/// The plan of a cloud that consists of some of these parts.
pub(super) fn plan(
    context: &Context<'_, OpenStackControlPlane>,
    parts: &[&'static dyn AnyPart],
) -> Result<Plan, Invalid> {
    let spec = &context.object.spec;
    let cloud = Cloud::new(context.name, spec, parts.iter().copied());
    let mut plan = Plan::default();
    let mut deployed = Vec::new();
    for &part in parts.iter().filter(|part| cloud.has(part.kind())) {
        let kind = part.kind();
        let name = name::part(context.name, part.field());
        match part.settle(spec.block(part.field()), &cloud)? {
            Settled::Child { spec, endpoint } => {
                plan.endpoint = plan.endpoint.or(endpoint);
                let state = context.inputs.parts.get(&Reference::new(kind, &name));
                deployed.push(Deployable { part, name, spec, state });
            }
            Settled::LeftOut(reason) => plan.skipped.push(Skipped { kind, name, reason }),
        }
    }
    let rows: Vec<PartRelease> = deployed.iter().map(row).collect();
    let targets = upgrade::targets(spec.release, &rows)?;
    for deployable in &deployed {
        check_tags(deployable, spec)?;
    }
    plan.upgrade = upgrade(&deployed, &targets, spec.release);
    for deployable in deployed {
        plan.children.push(child(deployable, spec, &targets)?);
    }
    Ok(plan)
}

fn row(deployable: &Deployable<'_>) -> PartRelease {
    let Deployable { part, state, .. } = deployable;
    PartRelease {
        field: part.field(),
        wave: part.wave(),
        releases: part.releases(),
        release: state.and_then(|state| state.release),
        ready: state.is_some_and(|state| state.ready),
    }
}

/// What still changes, if the release changes.
fn upgrade(deployed: &[Deployable<'_>], targets: &Targets, to: Release) -> Option<Upgrade> {
    let reference = |field: &&str| {
        let found = deployed.iter().find(|deployable| deployable.part.field() == *field)?;
        Some(Reference::new(found.part.kind(), &found.name))
    };
    let wave = |wave: &Vec<&str>| wave.iter().filter_map(reference).collect();
    let waves: Vec<Vec<Reference>> = targets.waves.iter().map(wave).collect();
    (!waves.is_empty()).then_some(Upgrade { from: targets.from, to, waves })
}

/// Rejects a tag that stays the same while the release changes: the part would get the configuration of one release and the
/// image of another.
fn check_tags(deployable: &Deployable<'_>, cloud: &OpenStackControlPlaneSpec) -> Result<(), Invalid> {
    let Deployable { part, spec, state: Some(state), .. } = deployable else { return Ok(()) };
    let Ok(before) = Origin::deserialize(&state.spec) else { return Ok(()) };
    if state.release.is_none() || before.release == cloud.release {
        return Ok(());
    }
    let refuse = |path: &str, subject: &str, tag: &str| {
        let reason = format!(
            "{subject}{tag:?} is the tag of images of release {}: name the tag for release {}, or remove it, so that the \
             tag follows the release",
            before.release.number(),
            cloud.release.number()
        );
        Err(Invalid::new(path, reason))
    };
    let images = part.component_images(&Value::Object(spec.clone()));
    let images_before = part.component_images(&state.spec);
    for (component, Image { tag, .. }) in &images {
        let tag_before = images_before.get(component).and_then(|image| image.tag.as_ref());
        if let Some(tag) = tag.as_ref().filter(|tag| tag_before == Some(*tag)) {
            return refuse("spec.components", &format!("{}/{component}: ", part.field()), tag);
        }
    }
    match &cloud.images.tag {
        // Images with a tag of their own do not use it.
        Some(tag) if before.images.tag.as_ref() == Some(tag) => refuse("spec.images.tag", "", tag),
        _ => Ok(()),
    }
}

/// The child object of a part. Until its wave starts, it keeps its release and all its images: an image of the new release
/// would run with the configuration of the old one.
fn child(
    deployable: Deployable<'_>,
    cloud: &OpenStackControlPlaneSpec,
    targets: &Targets,
) -> Result<Child, Invalid> {
    let Deployable { part, name, mut spec, state } = deployable;
    let release = targets.releases.get(part.field()).copied().unwrap_or(cloud.release);
    let mut origin = Origin { release, images: cloud.images.clone() };
    let before = state.and_then(|state| Some((state, Origin::deserialize(&state.spec).ok()?)));
    if let Some((state, before)) = before.filter(|(_, before)| before.release == release)
        && release != cloud.release
    {
        origin = before;
        spec = part.with_images(spec, &part.component_images(&state.spec))?;
    }
    spec.extend(cloud::fields("spec", &origin)?);
    Ok(Child { kind: part.kind(), name, stage: Some(part.stage()), spec: Value::Object(spec) })
}
