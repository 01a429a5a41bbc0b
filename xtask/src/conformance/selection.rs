//! The suites of Tempest, and the tests that they select for a cloud.

use anyhow::{Result, bail};
use clap::ValueEnum;
use serde_json::Value;

/// Packages of Tempest's API tests by the kind that serves the API.
const APIS: [(&str, &str); 4] =
    [("Keystone", "identity"), ("Glance", "image"), ("Neutron", "network"), ("Nova", "compute")];

/// A suite of tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Suite {
    /// The tests that Tempest marks as smoke tests: about ten minutes.
    Smoke,
    /// All API tests of the cloud's services and all scenarios: several hours.
    Full,
}

impl Suite {
    /// The parts of the document, in the order in which they are printed.
    pub(super) fn parts(self) -> [&'static str; 4] {
        match self {
            Self::Smoke => ["versions", "counts", "skipped", "failed"],
            Self::Full => ["versions", "full counts", "full skipped", "full failed"],
        }
    }

    /// A regular expression of the tests for the services that a cloud runs.
    pub(super) fn tests(self, cloud: &Value) -> Result<String> {
        let services = cloud.pointer("/status/services").and_then(Value::as_array);
        let runs = |kind: &str| services.into_iter().flatten().any(|service| service["kind"] == kind);
        let apis: Vec<&str> = APIS.iter().filter(|(kind, _)| runs(kind)).map(|(_, api)| *api).collect();
        if apis.is_empty() {
            bail!("the status of the cloud lists no service that Tempest tests");
        }
        let marks = if self == Self::Smoke { r".*\[.*\bsmoke\b" } else { "" };
        Ok(format!(r"^tempest\.(api\.({})|scenario)\.{marks}", apis.join("|")))
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
        Ok(())
    }
}
