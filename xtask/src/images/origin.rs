//! The registry from which a cluster pulls the images.

use anyhow::Result;

use super::{Builder, PROJECT, RELEASE};
use crate::cluster::settings::Settings;

pub(crate) enum Origin<'a> {
    /// The local registry, where every content has its tag.
    Local { builder: &'a Builder, registry: String },
    /// Another registry, with the images of the release.
    Prefix(&'a str),
}

impl<'a> Origin<'a> {
    pub(crate) fn local(builder: &'a Builder, settings: &Settings) -> Self {
        Self::Local { builder, registry: settings.addresses.registry() }
    }

    /// The prefix of every image name.
    pub(crate) fn prefix(&self) -> String {
        match self {
            Self::Local { registry, .. } => format!("{registry}/{PROJECT}"),
            Self::Prefix(prefix) => prefix.trim_end_matches('/').to_owned(),
        }
    }

    /// The reference of an image of the table.
    pub(crate) fn reference(&self, image: &str) -> Result<String> {
        Ok(match self {
            Self::Local { builder, registry } => format!("{registry}/{}", builder.name(image)?),
            Self::Prefix(_) => format!("{}/{image}:{RELEASE}", self.prefix()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_registry_has_the_images_of_the_release() -> Result<()> {
        let origin = Origin::Prefix("registry.example.org/openstack/");
        assert_eq!(origin.prefix(), "registry.example.org/openstack");
        assert_eq!(origin.reference("keystone")?, "registry.example.org/openstack/keystone:2025.1");
        Ok(())
    }
}
