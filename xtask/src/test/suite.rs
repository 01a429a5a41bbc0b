//! The suites that need a cluster, and their environment.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};

use crate::cluster::{self, existing::Existing, settings::Settings};
use crate::directories::Directories;
use crate::images::{Builder, origin::Origin};
use crate::kubectl::Kubectl;

/// Arguments of cargo for a suite: with the whole workspace, so that cargo builds shared crates once.
pub(super) fn arguments(suite: &str) -> String {
    format!("test --workspace --test {suite}")
}

/// kubectl on the cluster under test.
pub(super) fn kubectl(directories: &Directories, existing: &Existing) -> Result<Kubectl> {
    match existing.get() {
        Some((context, _)) => cluster::existing::kubectl(directories, context),
        None => Kubectl::local(directories),
    }
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
    let origin = match (settings, existing.get()) {
        (Some(settings), _) => {
            let addresses = &settings.addresses;
            environment.insert("OPENSTACK_OPERATOR_CACHE", text(directories.cache()));
            environment.insert("SMOKE_GATEWAY_ADDRESS", addresses.gateway_service().to_string());
            environment.insert("SMOKE_PROVIDER_RANGE", addresses.provider_range.to_string());
            environment.insert("SMOKE_XTASK", text(xtask));
            Origin::local(builder, settings)
        }
        (None, Some((context, prefix))) => {
            environment.insert("SMOKE_CONTEXT", context.to_owned());
            Origin::Prefix(prefix)
        }
        (None, None) => bail!("there is no cluster to run the tests on"),
    };
    let kubectl = kubectl(directories, existing)?;
    environment.insert("KUBECONFIG", text(kubectl.kubeconfig()));
    environment.insert("APISERVER_KUBECTL", text(kubectl.program()));
    environment.insert("SMOKE_IMAGES", images(builder, &origin)?);
    environment.insert("E2E_OPERATOR", text(&builder.program("operator")?));
    environment.insert("E2E_IMAGES_REGISTRY", origin.prefix());
    environment.insert("E2E_GUEST_IMAGE", origin.reference("guest")?);
    Ok(environment)
}

/// Checks with their times, from the output of a suite.
pub(super) fn timed_checks(log: &str) -> impl Iterator<Item = &str> {
    let checks = log.lines().filter_map(|line| line.strip_prefix("test "));
    checks.filter(|check| check.ends_with(" s)") || check.contains(" ... not run: "))
}

/// Every image by name, with its reference and the user that it runs as.
fn images(builder: &Builder, origin: &Origin<'_>) -> Result<String> {
    let mut images = serde_json::Map::new();
    // The guest image holds a disk and no program.
    for image in builder.table()?.images().iter().filter(|image| image.recipe != "guest") {
        let (reference, user) = (origin.reference(&image.name)?, builder.table()?.user_id(image)?);
        images.insert(image.name.clone(), serde_json::json!({ "reference": reference, "user": user }));
    }
    Ok(serde_json::Value::Object(images).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_shown_with_their_times() {
        let log = "running\ntest cloud::a ... ok (3.0 s)\nnotice: x\ntest cloud::b ... FAILED (4.2 s)\n\
                   test cloud::c ... not run: needs cloud::b\ntest cloud::d ... ignored: pass --long\n\
                   test result: FAILED. 1 passed; 1 failed; 1 ignored; 1 not run; finished in 7.20s\n";
        let shown: Vec<&str> = timed_checks(log).collect();
        let expected = [
            "cloud::a ... ok (3.0 s)",
            "cloud::b ... FAILED (4.2 s)",
            "cloud::c ... not run: needs cloud::b",
        ];
        assert_eq!(shown, expected);
    }
}
