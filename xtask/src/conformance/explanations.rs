//! Causes of known failures. The command fails if a failure has no cause here.

use super::results::{Outcome, Verdict};
use super::selection::Suite;

/// Tests that fail, and the cause.
pub(super) struct Explanation {
    /// The full name of a test, or of a class if all its tests fail.
    pub(super) tests: &'static str,
    /// One sentence for the document.
    pub(super) cause: &'static str,
}

/// An explanation of a test that passes is an error too, so the list shrinks with the causes.
pub(super) const EXPLANATIONS: &[Explanation] = &[
    Explanation {
        tests: "tempest.api.identity.admin.v3.test_credentials.CredentialsTestJSON.\
                test_credentials_create_get_update_delete",
        cause: "Keystone 27.0.0 itself: its schema for updates of credentials rejects `project_id` and `type`, \
                which the API allows.",
    },
    Explanation {
        tests: "heat_tempest_plugin.tests.functional.test_software_config.ParallelDeploymentsTest.\
                test_deployments_metadata",
        cause: "Debian's Heat 24.0.0 itself: it verifies signed signals without a login, which Keystone rejects.",
    },
];

impl Explanation {
    fn covers(&self, name: &str) -> bool {
        name.strip_prefix(self.tests).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

/// The cause of a test's failure, if it is known.
pub(super) fn cause<'a>(explanations: &'a [Explanation], name: &str) -> Option<&'a str> {
    explanations.iter().find(|explanation| explanation.covers(name)).map(|explanation| explanation.cause)
}

/// Sentences on everything that makes the command fail.
pub(super) fn complaints(explanations: &[Explanation], outcomes: &[Outcome], suite: Suite) -> Vec<String> {
    let failed = outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Failed);
    let mut complaints: Vec<String> = failed
        .filter(|outcome| cause(explanations, &outcome.name).is_none())
        .map(|outcome| format!("{} failed without an explanation", outcome.name))
        .collect();
    for explanation in explanations {
        let mut covered = outcomes.iter().filter(|outcome| explanation.covers(&outcome.name)).peekable();
        let is_core = explanation.tests.starts_with("tempest.");
        let is_selected = match suite {
            // The smoke tests are a part of all tests.
            Suite::Smoke => false,
            Suite::Full => is_core,
            Suite::Plugins => !is_core,
        };
        if covered.peek().is_none() && is_selected {
            complaints.push(format!("{} has an explanation, but did not run", explanation.tests));
        }
        complaints.extend(
            covered
                .filter(|outcome| outcome.verdict != Verdict::Failed)
                .map(|outcome| format!("{} does not fail: remove its explanation", outcome.name)),
        );
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, verdict: Verdict) -> Outcome {
        Outcome { name: name.to_owned(), verdict, detail: String::new() }
    }

    #[test]
    fn a_failure_needs_an_explanation() {
        let explanations = [Explanation { tests: "tempest.a.A", cause: "the guest has no IPv6" }];
        let known =
            [outcome("tempest.a.A.test_a", Verdict::Failed), outcome("tempest.b.B.test_b", Verdict::Passed)];
        assert_eq!(complaints(&explanations, &known, Suite::Full), Vec::<String>::new());
        assert_eq!(cause(&explanations, "tempest.a.A.test_a"), Some("the guest has no IPv6"));
        assert_eq!(cause(&explanations, "tempest.a.AB.test_a"), None);
        let unknown =
            [outcome("tempest.a.A.test_a", Verdict::Failed), outcome("tempest.b.B.test_b", Verdict::Failed)];
        assert_eq!(
            complaints(&explanations, &unknown, Suite::Full),
            ["tempest.b.B.test_b failed without an explanation"]
        );
    }

    #[test]
    fn an_explanation_needs_a_failure() {
        let explanations = [Explanation { tests: "tempest.a.A.test_a", cause: "c" }];
        assert_eq!(
            complaints(&explanations, &[outcome("tempest.a.A.test_a", Verdict::Passed)], Suite::Smoke),
            ["tempest.a.A.test_a does not fail: remove its explanation"]
        );
        let not_run = ["tempest.a.A.test_a has an explanation, but did not run"];
        assert_eq!(complaints(&explanations, &[], Suite::Full), not_run);
        for suite in [Suite::Smoke, Suite::Plugins] {
            assert_eq!(complaints(&explanations, &[], suite), Vec::<String>::new());
        }
    }
}
