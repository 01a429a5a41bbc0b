//! Volumes, labels and annotations that a user adds to pods.

use k8s_openapi::api::core::v1 as core;

use crate::common::{ExtraMount, ExtraVolume, PodAdditions};

/// Adds the user's volumes, labels and annotations to the pods of a component. The operator's labels and annotations
/// take precedence, because selectors rely on them.
pub(super) fn apply(template: &mut core::PodTemplateSpec, component: &str, additions: &PodAdditions) {
    let metadata = template.metadata.get_or_insert_default();
    for (own, added) in [
        (&mut metadata.labels, &additions.pod_labels),
        (&mut metadata.annotations, &additions.pod_annotations),
    ] {
        for (name, value) in added {
            own.get_or_insert_default().entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
    let Some(spec) = &mut template.spec else { return };
    let wanted = |mount: &&ExtraMount| {
        mount.components.is_empty() || mount.components.iter().any(|wanted| wanted == component)
    };
    for mount in additions.extra_mounts.iter().filter(wanted) {
        spec.volumes.get_or_insert_default().push(volume(mount));
        let containers = spec.init_containers.iter_mut().flatten().chain(&mut spec.containers);
        for container in containers {
            container.volume_mounts.get_or_insert_default().push(volume_mount(mount));
        }
    }
}

fn volume_name(mount: &ExtraMount) -> String {
    format!("extra-{}", mount.name)
}

fn volume_mount(mount: &ExtraMount) -> core::VolumeMount {
    core::VolumeMount {
        name: volume_name(mount),
        mount_path: mount.mount_path.clone(),
        sub_path: mount.sub_path.clone(),
        read_only: mount.read_only.then_some(true),
        ..core::VolumeMount::default()
    }
}

fn volume(mount: &ExtraMount) -> core::Volume {
    let ExtraVolume { config_map, secret, persistent_volume_claim, host_path, nfs, csi, image } =
        mount.volume.clone();
    core::Volume {
        name: volume_name(mount),
        config_map: config_map.map(|map| core::ConfigMapVolumeSource {
            name: map.name,
            ..core::ConfigMapVolumeSource::default()
        }),
        secret: secret.map(|secret| core::SecretVolumeSource {
            secret_name: Some(secret.secret_name),
            default_mode: Some(0o440),
            ..core::SecretVolumeSource::default()
        }),
        persistent_volume_claim: persistent_volume_claim.map(|claim| {
            core::PersistentVolumeClaimVolumeSource { claim_name: claim.claim_name, read_only: None }
        }),
        host_path: host_path.map(|host| core::HostPathVolumeSource { path: host.path, type_: None }),
        nfs: nfs.map(|nfs| core::NFSVolumeSource { server: nfs.server, path: nfs.path, read_only: None }),
        csi: csi.map(|csi| core::CSIVolumeSource {
            driver: csi.driver,
            volume_attributes: (!csi.volume_attributes.is_empty()).then_some(csi.volume_attributes),
            read_only: mount.read_only.then_some(true),
            ..core::CSIVolumeSource::default()
        }),
        image: image.map(|image| core::ImageVolumeSource {
            reference: Some(image.reference),
            ..core::ImageVolumeSource::default()
        }),
        ..core::Volume::default()
    }
}
