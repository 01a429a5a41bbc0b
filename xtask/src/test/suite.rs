//! The suites that need a cluster, and what they are told of it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};

use crate::cluster::{self, existing::Existing, settings::Settings};
use crate::directories::Directories;
use crate::images::{Builder, origin::Origin};
use crate::kubectl::Kubectl;

/// How cargo is asked for a suite: with the whole workspace, so that what all of them use is built once.
pub(super) fn arguments(suite: &str) -> String {
    format!("test --workspace --test {suite}")
}

/// The same for every suite, so that they can share the code that reads it.
pub(super) fn environment(
    directories: &Directories,
    existing: &Existing,
    settings: Option<&Settings>,
    builder: &Builder,
    xtask: &Path,
) -> Result<BTreeMap<&'static str, String>> {
    let text = |path: &Path| path.display().to_string();
    let mut environment = BTreeMap::new();
    let (origin, kubectl) = match (settings, existing.get()) {
        (Some(settings), _) => {
            let addresses = &settings.addresses;
            environment.insert("OPENSTACK_OPERATOR_CACHE", text(directories.cache()));
            environment.insert("SMOKE_GATEWAY_ADDRESS", addresses.gateway_service().to_string());
            environment.insert("SMOKE_PROVIDER_RANGE", addresses.provider_range.to_string());
            environment.insert("SMOKE_XTASK", text(xtask));
            (Origin::local(builder, settings), Kubectl::local(directories)?)
        }
        (None, Some((context, prefix))) => {
            environment.insert("SMOKE_CONTEXT", context.to_owned());
            (Origin::Prefix(prefix), cluster::existing::kubectl(directories, context)?)
        }
        (None, None) => bail!("there is no cluster to run the tests on"),
    };
    environment.insert("KUBECONFIG", text(kubectl.kubeconfig()));
    environment.insert("APISERVER_KUBECTL", text(kubectl.program()));
    environment.insert("SMOKE_IMAGES", images(builder, &origin)?);
    environment.insert("E2E_OPERATOR", text(&builder.program("operator")?));
    environment.insert("E2E_IMAGES_REGISTRY", origin.prefix());
    environment.insert("E2E_GUEST_IMAGE", origin.reference("guest")?);
    Ok(environment)
}

/// Every image by name, with its reference and the user that it runs as.
fn images(builder: &Builder, origin: &Origin<'_>) -> Result<String> {
    let mut images = serde_json::Map::new();
    // The guest is a disk in an image: there is nothing in it to run.
    for image in builder.table()?.images().iter().filter(|image| image.recipe != "guest") {
        let (reference, user) = (origin.reference(&image.name)?, builder.table()?.user_id(image)?);
        images.insert(image.name.clone(), serde_json::json!({ "reference": reference, "user": user }));
    }
    Ok(serde_json::Value::Object(images).to_string())
}
