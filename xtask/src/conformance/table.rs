//! The tables of the document, from the outcomes of tests.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::explanations::{Explanation, cause};
use super::results::{Outcome, Verdict};

/// Prefixes of the names of tests by service.
const SERVICES: [(&str, &str); 7] = [
    ("identity", "tempest.api.identity."),
    ("image", "tempest.api.image."),
    ("network", "tempest.api.network."),
    ("compute", "tempest.api.compute."),
    ("scenarios", "tempest.scenario."),
    ("key-manager", "barbican_tempest_plugin."),
    ("orchestration", "heat_tempest_plugin."),
];
/// Results that belong to no service: fixtures of classes.
const OTHER: &str = "other";

const NONE: &str = "None.";

#[derive(Default, Clone, Copy)]
struct Counts {
    passed: u32,
    failed: u32,
    skipped: u32,
}

impl Counts {
    fn add(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Passed => self.passed += 1,
            Verdict::Failed => self.failed += 1,
            Verdict::Skipped => self.skipped += 1,
        }
    }

    fn row(self, name: &str) -> String {
        let Self { passed, failed, skipped } = self;
        format!("| {name} | {} | {passed} | {failed} | {skipped} |\n", passed + failed + skipped)
    }
}

pub(super) fn versions(versions: &[(String, String)]) -> String {
    let mut table = "| what | version |\n|---|---|\n".to_owned();
    for (name, version) in versions {
        // Writing to a String cannot fail.
        let _ = writeln!(table, "| {name} | {version} |");
    }
    table
}

pub(super) fn counts(outcomes: &[Outcome]) -> String {
    let (mut all, mut services) = (Counts::default(), BTreeMap::<&str, Counts>::new());
    for outcome in outcomes {
        services.entry(service(&outcome.name)).or_default().add(outcome.verdict);
        all.add(outcome.verdict);
    }
    let mut table = "| service | tests | passed | failed | skipped |\n|---|---|---|---|---|\n".to_owned();
    let names = SERVICES.iter().map(|(service, _)| *service).chain([OTHER]);
    for (name, counts) in names.filter_map(|name| Some((name, services.get(name)?))) {
        table.push_str(&counts.row(name));
    }
    table.push_str(&all.row("all"));
    table
}

fn service(test: &str) -> &'static str {
    let found = SERVICES.iter().find(|(_, beginning)| test.starts_with(beginning));
    found.map_or(OTHER, |(service, _)| service)
}

pub(super) fn skipped(outcomes: &[Outcome]) -> String {
    list("reason", outcomes, Verdict::Skipped, |outcome| outcome.detail.clone())
}

/// Skipped tests grouped by reason: a full run skips too many to list.
pub(super) fn skipped_by_reason(outcomes: &[Outcome]) -> String {
    let mut reasons = BTreeMap::<&str, u32>::new();
    for outcome in outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Skipped) {
        *reasons.entry(&outcome.detail).or_default() += 1;
    }
    if reasons.is_empty() {
        return NONE.to_owned();
    }
    let mut table = "| reason | tests |\n|---|---|\n".to_owned();
    for (reason, tests) in reasons {
        let _ = writeln!(table, "| {} | {tests} |", cell(reason));
    }
    table
}

pub(super) fn failed(outcomes: &[Outcome], explanations: &[Explanation]) -> String {
    list("cause", outcomes, Verdict::Failed, |outcome| match cause(explanations, &outcome.name) {
        Some(cause) => cause.to_owned(),
        None => format!("no explanation yet: {}", message(&outcome.detail)),
    })
}

fn list(column: &str, outcomes: &[Outcome], verdict: Verdict, text: impl Fn(&Outcome) -> String) -> String {
    let mut rows = String::new();
    for outcome in outcomes.iter().filter(|outcome| outcome.verdict == verdict) {
        let _ = writeln!(rows, "| `{}` | {} |", outcome.name, cell(&text(outcome)));
    }
    if rows.is_empty() { NONE.to_owned() } else { format!("| test | {column} |\n|---|---|\n{rows}") }
}

/// The error message of a failure: the first line outside of the traceback.
fn message(detail: &str) -> &str {
    let lines = detail.lines().map(str::trim_end).filter(|line| !line.is_empty());
    let mut outside = lines.filter(|line| !line.starts_with("Traceback") && !line.starts_with(' '));
    outside.next().unwrap_or(detail)
}

/// Text without characters that end a cell or a row.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, verdict: Verdict, detail: &str) -> Outcome {
        Outcome { name: name.to_owned(), verdict, detail: detail.to_owned() }
    }

    #[test]
    fn tests_are_counted_by_service() {
        let outcomes = [
            outcome("tempest.api.identity.A.test_a", Verdict::Passed, ""),
            outcome("tempest.api.identity.A.test_b", Verdict::Skipped, "no"),
            outcome("tempest.scenario.B.test_c", Verdict::Failed, "no"),
            outcome("tearDownClass (tempest.scenario.B)", Verdict::Failed, "no"),
        ];
        assert_eq!(
            counts(&outcomes),
            "| service | tests | passed | failed | skipped |\n|---|---|---|---|---|\n\
             | identity | 2 | 1 | 0 | 1 |\n| scenarios | 1 | 0 | 1 | 0 |\n| other | 1 | 0 | 1 | 0 |\n\
             | all | 4 | 1 | 2 | 1 |\n"
        );
    }

    #[test]
    fn reasons_and_causes_are_listed() {
        let outcomes = [
            outcome("tempest.a.A.test_a", Verdict::Skipped, "a | b\nc"),
            outcome(
                "tempest.a.A.test_b",
                Verdict::Failed,
                "Traceback (most recent):\n  File x\nError: no\n more",
            ),
            outcome("tempest.a.A.test_c", Verdict::Failed, "anything"),
        ];
        assert_eq!(
            skipped(&outcomes),
            "| test | reason |\n|---|---|\n| `tempest.a.A.test_a` | a \\| b c |\n"
        );
        assert_eq!(skipped_by_reason(&outcomes), "| reason | tests |\n|---|---|\n| a \\| b c | 1 |\n");
        let explanations = [Explanation { tests: "tempest.a.A.test_c", cause: "the moon" }];
        assert_eq!(
            failed(&outcomes, &explanations),
            "| test | cause |\n|---|---|\n| `tempest.a.A.test_b` | no explanation yet: Error: no |\n\
             | `tempest.a.A.test_c` | the moon |\n"
        );
        assert_eq!(failed(&outcomes[..1], &explanations), "None.");
    }

    #[test]
    fn versions_are_listed_in_order() {
        let table = versions(&[("b".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())]);
        assert_eq!(table, "| what | version |\n|---|---|\n| b | 1 |\n| a | 2 |\n");
    }
}
