//! Where a cluster finds the images.

use anyhow::Result;

use super::{Builder, PROJECT, RELEASE};
use crate::cluster::settings::Settings;

pub(crate) enum Origin<'a> {
    /// The local registry, where every content has a tag of its own.
    Local { builder: &'a Builder, registry: String },
    /// A registry to which somebody pushed the images of the release.
    Prefix(&'a str),
}

impl<'a> Origin<'a> {
    pub(crate) fn local(builder: &'a Builder, settings: &Settings) -> Self {
        Self::Local { builder, registry: settings.addresses.registry() }
    }

    /// What comes before the name of every image.
    pub(crate) fn prefix(&self) -> String {
        match self {
            Self::Local { registry, .. } => format!("{registry}/{PROJECT}"),
            Self::Prefix(prefix) => prefix.trim_end_matches('/').to_owned(),
        }
    }

    /// What a pod names to run an image of the table.
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
    fn another_registry_is_asked_for_the_release() -> Result<()> {
        let origin = Origin::Prefix("registry.example.org/openstack/");
        assert_eq!(origin.prefix(), "registry.example.org/openstack");
        assert_eq!(origin.reference("keystone")?, "registry.example.org/openstack/keystone:2025.1");
        Ok(())
    }
}
