//! Container images: families, registries, and the image reference of a component.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    pub fn name(self) -> &'static str {
        match self {
            Self::Kolla => "kolla",
            Self::Debian => "debian",
        }
    }
}

/// Declares every release once, with its number.
macro_rules! releases {
    ($($(#[$attribute:meta])* $name:ident = $number:literal),+ $(,)?) => {
        /// OpenStack release.
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
        )]
        pub enum Release {
            $($(#[$attribute])* #[serde(rename = $number)] $name,)+
        }

        impl Release {
            /// From the oldest to the newest.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            pub fn number(self) -> &'static str {
                match self {
                    $(Self::$name => $number,)+
                }
            }
        }
    };
}

releases! {
    #[default] Epoxy = "2025.1",
}

/// Number of an unknown release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownRelease(pub String);

impl fmt::Display for UnknownRelease {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<&str> = Release::ALL.iter().map(|release| release.number()).collect();
        write!(formatter, "unknown release {:?}: known releases are {}", self.0, known.join(", "))
    }
}

impl std::error::Error for UnknownRelease {}

impl FromStr for Release {
    type Err = UnknownRelease;

    fn from_str(number: &str) -> Result<Self, Self::Err> {
        let mut all = Self::ALL.iter().copied();
        all.find(|release| release.number() == number).ok_or_else(|| UnknownRelease(number.to_owned()))
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
    /// Family of the images of an object with this spec.
    pub fn family(&self, spec: &Value) -> Family {
        let given = spec.pointer("/images/family").cloned();
        given.and_then(|family| serde_json::from_value(family).ok()).unwrap_or(self.family)
    }

    /// The image reference. Specific settings override general ones.
    pub fn reference(&self, names: ImageNames, images: &Images, image: &Image, release: Release) -> String {
        let family = images.family.unwrap_or(self.family);
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
            .unwrap_or_else(|| match family {
                Family::Kolla => format!("{}-ubuntu-noble", release.number()),
                Family::Debian => release.number().to_owned(),
            });
        let separator = if tag.starts_with("sha256:") { '@' } else { ':' };
        format!("{repository}{separator}{tag}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: ImageNames = ImageNames { kolla: "mariadb-server", debian: "mariadb" };

    fn reference(images: &Images, image: &Image) -> String {
        let defaults = ImageDefaults {
            family: Family::Debian,
            registry: Some("r:5000/o".into()),
            tags: BTreeMap::from([(Release::Epoxy, "t1".into())]),
        };
        defaults.reference(NAMES, images, image, Release::Epoxy)
    }

    #[test]
    fn operator_defaults_apply_to_its_own_family_only() {
        assert_eq!(reference(&Images::default(), &Image::default()), "r:5000/o/mariadb:t1");
        let kolla = Images { family: Some(Family::Kolla), ..Images::default() };
        assert_eq!(
            reference(&kolla, &Image::default()),
            "quay.io/openstack.kolla/mariadb-server:2025.1-ubuntu-noble"
        );
    }

    #[test]
    fn a_release_without_an_operator_tag_uses_the_tag_of_its_family() {
        let defaults = |family| ImageDefaults { family, registry: None, tags: BTreeMap::new() };
        let reference =
            |family| defaults(family).reference(NAMES, &Images::default(), &Image::default(), Release::Epoxy);
        assert_eq!(reference(Family::Debian), "openstack/mariadb:2025.1");
        assert_eq!(reference(Family::Kolla), "quay.io/openstack.kolla/mariadb-server:2025.1-ubuntu-noble");
    }

    #[test]
    fn a_release_parses_from_its_number() {
        for release in Release::ALL {
            assert_eq!(release.number().parse(), Ok(*release));
            assert_eq!(serde_json::to_value(release).ok(), Some(release.number().into()));
        }
        let unknown = "2020.1".parse::<Release>().unwrap_err();
        assert_eq!(unknown.to_string(), "unknown release \"2020.1\": known releases are 2025.1");
    }

    #[test]
    fn the_image_of_the_component_overrides_the_defaults() {
        let images = Images { tag: Some("t2".into()), ..Images::default() };
        let image = Image { repository: Some("x/y".into()), tag: Some("sha256:12".into()) };
        assert_eq!(reference(&images, &image), "x/y@sha256:12");
        assert_eq!(reference(&images, &Image::default()), "r:5000/o/mariadb:t2");
    }
}
