//! Container images: families, registries, and the image reference of a component.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::release::{Release, Runtime};
use crate::schema;

/// Image family: Kolla's images, or this project's Debian images. Defaults to the operator's setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Kolla's images, as published by the Kolla project.
    #[default]
    Kolla,
    /// Images built from Debian packages by this project's recipes.
    Debian,
}

impl Family {
    pub const ALL: [Self; 2] = [Self::Kolla, Self::Debian];

    pub fn name(self) -> &'static str {
        match self {
            Self::Kolla => "kolla",
            Self::Debian => "debian",
        }
    }

    /// Tag of the images of a release.
    fn tag(self, release: Release) -> String {
        match self {
            Self::Kolla => format!("{}-ubuntu-noble", release.number()),
            Self::Debian => release.number().to_owned(),
        }
    }
}

/// Name of an image in each family.
#[derive(Clone, Copy, Debug)]
pub struct ImageNames {
    pub kolla: &'static str,
    pub debian: &'static str,
}

impl ImageNames {
    /// An image with the same name in all families.
    pub const fn same(name: &'static str) -> Self {
        Self { kolla: name, debian: name }
    }
}

/// Source of container images. Defaults to the operator's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Images {
    /// Image family. Defaults to the operator's setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<Family>,
    /// Registry and path of images, e.g. `registry.example.com/openstack`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = schema::IMAGE))]
    pub registry: Option<String>,
    /// Tag of images without their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128), regex(pattern = schema::IMAGE_TAG))]
    pub tag: Option<String>,
    /// Image pull Secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(min = 1, max = 253), regex(pattern = schema::NAME)))]
    pub pull_secrets: Vec<String>,
}

/// Image of a component. Unset fields come from `images`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Repository without a tag, e.g. `registry.example.com/openstack/keystone`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = schema::IMAGE))]
    pub repository: Option<String>,
    /// Tag, or a digest that starts with `sha256:`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128), regex(pattern = schema::IMAGE_TAG))]
    pub tag: Option<String>,
}

/// The operator's defaults for objects that set none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageDefaults {
    pub family: Family,
    pub registry: Option<String>,
    /// Tags by release. Other releases use the default tag of the family.
    pub tags: BTreeMap<Release, String>,
}

impl ImageDefaults {
    /// What the pods of an object with this spec run.
    pub fn runtime(&self, spec: &Value) -> Runtime {
        fn given<T: DeserializeOwned>(spec: &Value, pointer: &str) -> Option<T> {
            serde_json::from_value(spec.pointer(pointer)?.clone()).ok()
        }
        Runtime {
            release: given(spec, "/release").unwrap_or_default(),
            family: given(spec, "/images/family").unwrap_or(self.family),
        }
    }

    /// The image reference. Specific settings override general ones.
    pub fn reference(&self, names: ImageNames, images: &Images, image: &Image, runtime: Runtime) -> String {
        let Runtime { release, family } = runtime;
        // The operator's registry and tags apply to its own family only.
        let own = (family == self.family).then_some(self);
        let repository = image.repository.clone().unwrap_or_else(|| {
            let registry = images.registry.as_deref().or_else(|| own.and_then(|d| d.registry.as_deref()));
            let (registry, name) = match family {
                Family::Kolla => (registry.unwrap_or("quay.io/openstack.kolla"), names.kolla),
                Family::Debian => (registry.unwrap_or("openstack"), names.debian),
            };
            format!("{registry}/{name}")
        });
        let tag = image
            .tag
            .clone()
            .or_else(|| images.tag.clone())
            .or_else(|| own.and_then(|defaults| defaults.tags.get(&release).cloned()))
            .unwrap_or_else(|| family.tag(release));
        let separator = if tag.starts_with("sha256:") { '@' } else { ':' };
        format!("{repository}{separator}{tag}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: ImageNames = ImageNames { kolla: "mariadb-server", debian: "mariadb" };

    fn defaults() -> ImageDefaults {
        ImageDefaults {
            family: Family::Debian,
            registry: Some("r:5000/o".into()),
            tags: BTreeMap::from([(Release::Epoxy, "t1".into())]),
        }
    }

    fn reference(images: &Images, image: &Image, release: Release) -> String {
        let defaults = defaults();
        let family = defaults.runtime(&serde_json::json!({ "images": images })).family;
        defaults.reference(NAMES, images, image, Runtime { release, family })
    }

    #[test]
    fn operator_defaults_apply_to_its_own_family_only() {
        let own = reference(&Images::default(), &Image::default(), Release::Epoxy);
        assert_eq!(own, "r:5000/o/mariadb:t1");
        let kolla = Images { family: Some(Family::Kolla), ..Images::default() };
        assert_eq!(
            reference(&kolla, &Image::default(), Release::Epoxy),
            "quay.io/openstack.kolla/mariadb-server:2025.1-ubuntu-noble"
        );
    }

    #[test]
    fn a_release_without_an_operator_tag_uses_the_tag_of_its_family() {
        let tags = Runtime::all().map(|runtime| {
            let defaults = ImageDefaults { family: runtime.family, registry: None, tags: BTreeMap::new() };
            defaults.reference(NAMES, &Images::default(), &Image::default(), runtime)
        });
        assert_eq!(
            tags.collect::<Vec<_>>(),
            [
                "quay.io/openstack.kolla/mariadb-server:2025.1-ubuntu-noble",
                "openstack/mariadb:2025.1",
                "quay.io/openstack.kolla/mariadb-server:2026.1-ubuntu-noble",
                "openstack/mariadb:2026.1",
            ]
        );
    }

    #[test]
    fn a_tag_of_the_operator_applies_to_one_release() {
        let tag = |release| reference(&Images::default(), &Image::default(), release);
        assert_eq!(tag(Release::Epoxy), "r:5000/o/mariadb:t1");
        assert_eq!(tag(Release::Gazpacho), "r:5000/o/mariadb:2026.1");
    }

    #[test]
    fn the_runtime_is_that_of_the_spec_with_the_family_of_the_operator() {
        let runtime = |spec| defaults().runtime(&spec);
        let Runtime { release, family } = runtime(serde_json::json!({}));
        assert_eq!((release, family), (Release::Epoxy, Family::Debian));
        let given = serde_json::json!({ "release": "2026.1", "images": { "family": "kolla" } });
        assert_eq!(runtime(given), Runtime { release: Release::Gazpacho, family: Family::Kolla });
    }

    #[test]
    fn the_image_of_the_component_overrides_the_defaults() {
        let images = Images { tag: Some("t2".into()), ..Images::default() };
        let image = Image { repository: Some("x/y".into()), tag: Some("sha256:12".into()) };
        assert_eq!(reference(&images, &image, Release::Epoxy), "x/y@sha256:12");
        assert_eq!(reference(&images, &Image::default(), Release::Epoxy), "r:5000/o/mariadb:t2");
    }
}
