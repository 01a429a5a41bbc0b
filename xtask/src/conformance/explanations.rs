//! Why tests fail that are known to: each failure has a cause with a name, or the command fails.

use super::results::{Outcome, Verdict};

/// A test or a class of tests that fails, and the cause.
pub(super) struct Explanation {
    /// A test's full name, or that of its class where all tests of it fail.
    pub(super) tests: &'static str,
    /// What is the matter, in a sentence for a reader of the document.
    pub(super) cause: &'static str,
}

/// Shrinks when a cause is removed: an explanation of a test that passes is an error, too.
pub(super) const EXPLANATIONS: &[Explanation] = &[Explanation {
    tests: "tempest.api.identity.admin.v3.test_credentials.CredentialsTestJSON.\
                test_credentials_create_get_update_delete",
    cause: "Keystone 27.0.0 itself: its schema of a credential's update has no place for `project_id` and `type`, \
                which the API allows, and it answers 400.",
}];

impl Explanation {
    fn covers(&self, name: &str) -> bool {
        name.strip_prefix(self.tests).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

/// Why a test fails, where that is known.
pub(super) fn cause<'a>(explanations: &'a [Explanation], name: &str) -> Option<&'a str> {
    explanations.iter().find(|explanation| explanation.covers(name)).map(|explanation| explanation.cause)
}

/// What must be changed before the command succeeds, one sentence each.
pub(super) fn complaints(explanations: &[Explanation], outcomes: &[Outcome]) -> Vec<String> {
    let failed = outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Failed);
    let mut complaints: Vec<String> = failed
        .filter(|outcome| cause(explanations, &outcome.name).is_none())
        .map(|outcome| format!("{} failed, and nothing explains why", outcome.name))
        .collect();
    for explanation in explanations {
        let mut covered = outcomes.iter().filter(|outcome| explanation.covers(&outcome.name)).peekable();
        if covered.peek().is_none() {
            complaints.push(format!("{} is explained, but was not run", explanation.tests));
        }
        complaints.extend(covered.filter(|outcome| outcome.verdict != Verdict::Failed).map(|outcome| {
            format!("{} is said to fail, but does not: remove its explanation", outcome.name)
        }));
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
        let explanations = [Explanation { tests: "tempest.a.A", cause: "the guest has no ears" }];
        let known =
            [outcome("tempest.a.A.test_a", Verdict::Failed), outcome("tempest.b.B.test_b", Verdict::Passed)];
        assert_eq!(complaints(&explanations, &known), Vec::<String>::new());
        assert_eq!(cause(&explanations, "tempest.a.A.test_a"), Some("the guest has no ears"));
        assert_eq!(cause(&explanations, "tempest.a.AB.test_a"), None);
        let unknown =
            [outcome("tempest.a.A.test_a", Verdict::Failed), outcome("tempest.b.B.test_b", Verdict::Failed)];
        assert_eq!(
            complaints(&explanations, &unknown),
            ["tempest.b.B.test_b failed, and nothing explains why"]
        );
    }

    #[test]
    fn an_explanation_needs_a_failure() {
        let explanations = [Explanation { tests: "tempest.a.A.test_a", cause: "c" }];
        assert_eq!(
            complaints(&explanations, &[outcome("tempest.a.A.test_a", Verdict::Passed)]),
            ["tempest.a.A.test_a is said to fail, but does not: remove its explanation"]
        );
        assert_eq!(complaints(&explanations, &[]), ["tempest.a.A.test_a is explained, but was not run"]);
    }
}
