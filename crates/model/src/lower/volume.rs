//! Shared volumes as PersistentVolumeClaims.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaimSpec, VolumeResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{Lowering, Manifest, manifest, value};
use crate::kind::PERSISTENT_VOLUME_CLAIM;
use crate::plan::Volume;

pub(super) fn manifests(lowering: &Lowering<'_>) -> Vec<Manifest> {
    lowering.plan.volumes.iter().map(|volume| claim(lowering, volume)).collect()
}

fn claim(lowering: &Lowering<'_>, volume: &Volume) -> Manifest {
    let name = lowering.instance.part(Some(volume.name));
    let mut metadata = lowering.instance.metadata(&name, None);
    if volume.retained {
        // Without an owner, the volume is not garbage collected.
        metadata.owner_references = None;
    }
    let mode = if volume.shared { "ReadWriteMany" } else { "ReadWriteOnce" };
    let spec = claim_spec(&volume.size, volume.class.as_ref(), mode);
    manifest(PERSISTENT_VOLUME_CLAIM, &name, &metadata, [("spec", value(&spec))])
}

pub(super) fn claim_spec(size: &str, class: Option<&String>, mode: &str) -> PersistentVolumeClaimSpec {
    let storage = BTreeMap::from([("storage".to_owned(), Quantity(size.to_owned()))]);
    PersistentVolumeClaimSpec {
        access_modes: Some(vec![mode.to_owned()]),
        resources: Some(VolumeResourceRequirements { requests: Some(storage), limits: None }),
        storage_class_name: class.cloned(),
        ..PersistentVolumeClaimSpec::default()
    }
}
