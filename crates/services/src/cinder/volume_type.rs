//! Volume types of the backends, and further ones.

use std::collections::BTreeMap;

use openstack_operator_model::plan::{VolumeEncryption, VolumeType};
use openstack_operator_model::service::Invalid;

use super::{Backend, CinderTemplate, VolumeTypeSettings};

/// Property with the backend of a type.
const BACKEND: &str = "volume_backend_name";
/// Type that Cinder creates itself, and that may be the default one.
const OF_CINDER: &str = "__DEFAULT__";

/// The type of volumes without one. None if there is no backend: Cinder then uses its own type.
pub(super) fn default_type(template: &CinderTemplate) -> Option<&str> {
    let first = || template.backends.first().map(|backend| backend.name.as_str());
    template.default_volume_type.as_deref().or_else(first)
}

/// All types of the operator.
pub(super) fn types(template: &CinderTemplate) -> Result<Vec<VolumeType>, Invalid> {
    let CinderTemplate { backends, volume_types, .. } = template;
    let is_replaced = |backend: &&Backend| volume_types.iter().any(|one| one.name == backend.name);
    let of_backends = backends.iter().filter(|backend| !is_replaced(backend)).map(of_backend);
    let mut types: Vec<VolumeType> = of_backends.collect();
    for (index, settings) in volume_types.iter().enumerate() {
        types.push(volume_type(template, index, settings)?);
    }
    let names: Vec<&str> = types.iter().map(|one| one.name.as_str()).chain([OF_CINDER]).collect();
    match default_type(template) {
        Some(name) if !names.contains(&name) => {
            let known = names.join(", ");
            let reason =
                format!("{name:?} is not a volume type: add it to volumeTypes, or use one of {known}");
            Err(Invalid::new("spec.defaultVolumeType", reason))
        }
        _ => Ok(types),
    }
}

fn of_backend(backend: &Backend) -> VolumeType {
    VolumeType {
        name: backend.name.clone(),
        description: format!("Volumes of backend {}", backend.name),
        public: true,
        properties: BTreeMap::from([(BACKEND.to_owned(), backend.name.clone())]),
        encryption: None,
    }
}

fn volume_type(
    template: &CinderTemplate,
    index: usize,
    settings: &VolumeTypeSettings,
) -> Result<VolumeType, Invalid> {
    let VolumeTypeSettings { name, description, backend, public, properties, encryption } = settings;
    let mut properties = properties.clone();
    if let Some(backend) = backend {
        if !template.backends.iter().any(|known| known.name == *backend) {
            let known: Vec<&str> = template.backends.iter().map(|known| known.name.as_str()).collect();
            let reason = format!("{backend:?} is not a backend: use one of {}", known.join(", "));
            return Err(Invalid::new(format!("spec.volumeTypes[{index}].backend"), reason));
        }
        properties.insert(BACKEND.to_owned(), backend.clone());
    }
    if encryption.is_some() && !has_key_manager(template) {
        return Err(Invalid::new(
            format!("spec.volumeTypes[{index}].encryption"),
            "requires a key manager: name a Barbican in spec.barbican.clusterRef, in a cloud set spec.barbican.enabled",
        ));
    }
    let encryption = encryption.as_ref().map(|encryption| VolumeEncryption {
        provider: "luks",
        cipher: "aes-xts-plain64",
        key_size: encryption.key_size,
    });
    Ok(VolumeType {
        name: name.clone(),
        description: description.clone(),
        public: *public,
        properties,
        encryption,
    })
}

/// Whether Cinder has a key manager: a Barbican object, or another one that the user configures.
fn has_key_manager(template: &CinderTemplate) -> bool {
    let sections = template.common.extra_config.get(super::CONFIGURATION);
    template.barbican.cluster_ref.is_some() || sections.is_some_and(|all| all.contains_key("key_manager"))
}
