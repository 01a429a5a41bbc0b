//! The settings of the suites, from environment variables that `cargo xtask test` sets.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;

/// The cluster under test and the images to run on it.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The images of the table, by name.
    pub images: BTreeMap<String, Image>,
    /// A context of the kubeconfig other than its current one.
    pub context: Option<String>,
    /// The address of the Gateway for the host, if it differs from the address in the Gateway's status.
    pub gateway_address: Option<String>,
    /// The range of a local cluster's provider network, whose first address is the host's.
    pub provider_range: Option<String>,
    /// The program that powers nodes of a local cluster off and on.
    pub xtask: Option<PathBuf>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Image {
    /// The image reference for pods.
    pub reference: String,
    /// The image's own user id; 0 is a documented root image.
    pub user: u32,
}

impl Environment {
    pub fn read() -> Result<Self> {
        // The client reads the file itself. Requiring the variable keeps a plain `cargo test` away from the cluster of a
        // developer's default configuration.
        required("KUBECONFIG")?;
        Ok(Self {
            images: parse_images(&required("SMOKE_IMAGES")?)?,
            context: optional("SMOKE_CONTEXT"),
            gateway_address: optional("SMOKE_GATEWAY_ADDRESS"),
            provider_range: optional("SMOKE_PROVIDER_RANGE"),
            xtask: optional("SMOKE_XTASK").map(PathBuf::from),
        })
    }

    pub fn image(&self, name: &str) -> Result<String> {
        let image = self.images.get(name).with_context(|| format!("SMOKE_IMAGES has no image {name}"))?;
        Ok(image.reference.clone())
    }

    /// This host has routes to the nodes, pods and Services of a local cluster only.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.xtask.is_some()
    }
}

fn optional(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|value| !value.is_empty())
}

fn required(variable: &str) -> Result<String> {
    optional(variable)
        .with_context(|| format!("{variable} is not set: run through `cargo xtask test --only smoke`"))
}

fn parse_images(table: &str) -> Result<BTreeMap<String, Image>> {
    serde_json::from_str(table)
        .context("SMOKE_IMAGES is not the table of images: run through `cargo xtask test --only smoke`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_have_a_reference_and_a_user() -> Result<()> {
        let images = parse_images(r#"{"keystone": {"reference": "r/keystone:1", "user": 42425}}"#)?;
        let keystone = Image { reference: "r/keystone:1".to_owned(), user: 42425 };
        assert_eq!(images.get("keystone"), Some(&keystone));
        assert!(parse_images("keystone=42425").is_err());
        Ok(())
    }
}
