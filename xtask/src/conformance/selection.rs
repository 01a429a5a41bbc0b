//! The suites of Tempest, and the tests that they select for a cloud.

use anyhow::{Result, bail};
use clap::ValueEnum;
use serde_json::Value;

/// Packages of Tempest's API tests by the kind that serves the API.
const APIS: [(&str, &str); 4] =
    [("Keystone", "identity"), ("Glance", "image"), ("Neutron", "network"), ("Nova", "compute")];

/// Tests of Tempest's plugins by the kind that serves the API: those that use the service, without the ones of its input
/// validation and of optional back ends. Heat's test of wait conditions needs `curl` in the guest; the proof of Heat
/// covers them.
const PLUGINS: [(&str, &str); 2] = [
    (
        "Barbican",
        r"barbican_tempest_plugin\.tests\.(api\.test_(containers|orders|secrets)|rbac\.v1\.test_secrets)",
    ),
    (
        "Heat",
        concat!(
            r"heat_tempest_plugin\.tests\.(api|scenario\.test_base_resources|",
            r"functional\.test_(software_config|stack_events))",
        ),
    ),
];

/// A suite of tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Suite {
    /// The tests that Tempest marks as smoke tests: about ten minutes.
    Smoke,
    /// All API tests of the cloud's services and all scenarios: several hours.
    Full,
    /// Tests from the plugins of services that run on request: minutes per service.
    Plugins,
}

impl Suite {
    /// The parts of the document, in the order in which they are printed.
    pub(super) fn parts(self) -> [&'static str; 4] {
        match self {
            Self::Smoke => ["versions", "counts", "skipped", "failed"],
            Self::Full => ["versions", "full counts", "full skipped", "full failed"],
            Self::Plugins => ["versions", "plugin counts", "plugin skipped", "plugin failed"],
        }
    }

    /// A regular expression of the tests for the services that a cloud runs.
    pub(super) fn tests(self, cloud: &Value) -> Result<String> {
        let services = cloud.pointer("/status/services").and_then(Value::as_array);
        let runs = |kind: &str| services.into_iter().flatten().any(|service| service["kind"] == kind);
        let table: &[(&str, &str)] = if self == Self::Plugins { &PLUGINS } else { &APIS };
        let tests: Vec<&str> = table.iter().filter(|(kind, _)| runs(kind)).map(|(_, tests)| *tests).collect();
        if tests.is_empty() {
            bail!("the status of the cloud lists no service that this suite tests");
        }
        let tests = tests.join("|");
        Ok(match self {
            Self::Smoke => format!(r"^tempest\.(api\.({tests})|scenario)\..*\[.*\bsmoke\b"),
            Self::Full => format!(r"^tempest\.(api\.({tests})|scenario)\."),
            Self::Plugins => format!("^({tests})"),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_suite_has_the_tests_of_the_services_that_a_cloud_runs() -> Result<()> {
        let cloud = |kinds: &[&str]| {
            let services: Vec<Value> = kinds.iter().map(|kind| json!({ "kind": kind })).collect();
            json!({ "status": { "services": services } })
        };
        let whole = cloud(&["MariaDB", "Keystone", "Glance", "Placement", "Neutron", "Nova", "NovaCompute"]);
        assert_eq!(
            Suite::Smoke.tests(&whole)?,
            r"^tempest\.(api\.(identity|image|network|compute)|scenario)\..*\[.*\bsmoke\b"
        );
        assert_eq!(
            Suite::Full.tests(&cloud(&["Keystone", "Glance"]))?,
            r"^tempest\.(api\.(identity|image)|scenario)\."
        );
        assert!(Suite::Full.tests(&cloud(&[])).is_err());
        assert!(Suite::Plugins.tests(&whole).is_err());
        let heat = Suite::Plugins.tests(&cloud(&["Keystone", "Heat"]))?;
        assert!(heat.starts_with(r"^(heat_tempest_plugin\.") && !heat.contains(' '), "{heat}");
        Ok(())
    }
}
