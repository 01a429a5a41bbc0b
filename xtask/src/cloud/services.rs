//! The services of a cloud, from the list that the operator generates, and their images.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::directories::Directories;

/// Images that every cloud needs besides those of its services.
const TOOLS: [&str; 3] = ["client", "guest", "operator"];

/// One service of the list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Service {
    /// The block of the control plane with its settings.
    field: String,
    /// Whether a cloud that does not mention the service has it.
    by_default: bool,
    images: Vec<String>,
}

impl Service {
    fn is_in(&self, cloud: &Value) -> bool {
        cloud["spec"][&self.field]["enabled"].as_bool().unwrap_or(self.by_default)
    }
}

/// The images that are needed for the clouds of these manifests.
pub(crate) fn images(directories: &Directories, samples: &[PathBuf]) -> Result<Vec<String>> {
    let services = list(directories)?;
    let mut images: BTreeSet<String> = TOOLS.map(ToOwned::to_owned).into();
    for sample in samples {
        for cloud in read::<Vec<Value>>(sample, |text| Ok(serde_saphyr::from_multiple(text)?))? {
            let present = services.iter().filter(|service| service.is_in(&cloud));
            images.extend(present.flat_map(|service| service.images.iter().cloned()));
        }
    }
    Ok(images.into_iter().collect())
}

/// The manifests of all samples.
pub(crate) fn samples(directories: &Directories) -> Result<Vec<PathBuf>> {
    let directory = directories.checkout.join("samples");
    let entries =
        fs::read_dir(&directory).with_context(|| format!("failed to read {}", directory.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
    Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|end| end == "yaml")).collect())
}

fn list(directories: &Directories) -> Result<Vec<Service>> {
    read(&directories.checkout.join("deploy/services.json"), |text| Ok(serde_json::from_str(text)?))
}

fn read<T>(path: &Path, parse: impl FnOnce(&str) -> Result<T>) -> Result<T> {
    let text = fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
    parse(&text).with_context(|| format!("{} cannot be parsed", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::Builder;

    fn with_directories(test: impl FnOnce(&Directories) -> Result<()>) -> Result<()> {
        let cache = cache_of(std::thread::current().name().unwrap_or_default());
        let outcome = Directories::find(Some(cache.clone())).and_then(|directories| test(&directories));
        fs::remove_dir_all(cache)?;
        outcome
    }

    fn cache_of(test: &str) -> PathBuf {
        let name = test.rsplit("::").next().unwrap_or_default();
        std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()))
    }

    #[test]
    fn every_image_of_every_service_is_in_the_table() -> Result<()> {
        with_directories(|directories| {
            let known = Builder::new(directories).all_names()?;
            let services = list(directories)?;
            let of_services = services.iter().flat_map(|service| &service.images);
            let tools = TOOLS.map(ToOwned::to_owned);
            let unknown: Vec<&String> =
                of_services.chain(&tools).filter(|image| !known.contains(image)).collect();
            assert!(unknown.is_empty(), "{unknown:?} are not in images.toml");
            Ok(())
        })
    }

    #[test]
    fn a_cloud_has_its_default_and_its_enabled_services() -> Result<()> {
        let service = |field: &str, by_default| Service {
            field: field.to_owned(),
            by_default,
            images: vec![field.to_owned()],
        };
        let services = [service("a", true), service("b", true), service("c", false), service("d", false)];
        let cloud: Value = serde_saphyr::from_str(
            "spec: {a: {replicas: 2}, b: {enabled: false}, c: {enabled: true}, d: {replicas: 2}}",
        )?;
        let present = services.iter().filter(|service| service.is_in(&cloud));
        let present: Vec<&str> = present.map(|service| service.field.as_str()).collect();
        assert_eq!(present, ["a", "c"]);
        Ok(())
    }

    #[test]
    fn the_minimal_sample_needs_the_images_of_a_complete_cloud() -> Result<()> {
        with_directories(|directories| {
            let minimal = directories.checkout.join("samples/minimal.yaml");
            let found = images(directories, &[minimal])?;
            for image in ["client", "guest", "keystone", "libvirt", "mariadb", "operator", "ovn"] {
                assert!(found.iter().any(|name| name == image), "{image} is not among {found:?}");
            }
            assert!(samples(directories)?.len() > 1);
            Ok(())
        })
    }
}
