//! Events that the pod reports while it runs the tests, and the outcome of each test.

use std::collections::BTreeMap;

use serde::Deserialize;

/// One line of the pod's output.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(super) enum Event {
    /// A step begins.
    Step { text: String },
    /// Versions of programs and APIs by name.
    Versions { versions: BTreeMap<String, String> },
    /// The tests that will run.
    Selected { tests: Vec<String> },
    /// A test or the fixture of a class has ended.
    Result(TestResult),
    /// No more tests will run.
    Ended,
    /// Everything that the run has created is deleted.
    Removed,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct TestResult {
    pub(super) test: String,
    pub(super) verdict: Verdict,
    pub(super) seconds: f64,
    /// The reason of a skip or the cause of a failure.
    pub(super) detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Passed,
    Failed,
    Skipped,
}

/// The outcome of one test.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The name without the attributes in brackets.
    pub(super) name: String,
    pub(super) verdict: Verdict,
    pub(super) detail: String,
}

/// The events of a run so far.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) versions: BTreeMap<String, String>,
    pub(super) selected: Vec<String>,
    pub(super) results: BTreeMap<String, TestResult>,
    pub(super) ended: bool,
    pub(super) removed: bool,
}

impl Run {
    pub(super) fn add(&mut self, event: Event) {
        match event {
            Event::Step { .. } => {}
            Event::Versions { versions } => self.versions = versions,
            Event::Selected { tests } => self.selected = tests,
            Event::Result(result) => {
                self.results.insert(result.test.clone(), result);
            }
            Event::Ended => self.ended = true,
            Event::Removed => self.removed = true,
        }
    }

    /// One outcome for every selected test, and one for every other failure.
    pub(super) fn outcomes(&self) -> Vec<Outcome> {
        let mut outcomes: Vec<Outcome> = self.selected.iter().map(|test| self.outcome(test)).collect();
        let known = |name: &str| self.selected.iter().any(|test| test == name || set_up(test) == name);
        let others = self.results.values().filter(|result| result.verdict == Verdict::Failed);
        outcomes.extend(others.filter(|result| !known(&result.test)).map(|result| Outcome {
            name: plain(&result.test).to_owned(),
            verdict: Verdict::Failed,
            detail: result.detail.clone(),
        }));
        outcomes.sort_by(|one, other| one.name.cmp(&other.name));
        outcomes
    }

    /// If a class is skipped or its setup fails, its tests have no results.
    fn outcome(&self, test: &str) -> Outcome {
        let result = self.results.get(test).or_else(|| self.results.get(&set_up(test)));
        let (verdict, detail) = result
            .map_or((Verdict::Failed, "it was selected and did not run".to_owned()), |result| {
                (result.verdict, result.detail.clone())
            });
        Outcome { name: plain(test).to_owned(), verdict, detail }
    }
}

/// `tempest.a.Class.test_b[id-1,smoke]` without the attributes in brackets.
pub(super) fn plain(test: &str) -> &str {
    test.split('[').next().unwrap_or(test)
}

/// Tempest's name for the setup of a test's class.
fn set_up(test: &str) -> String {
    let class = plain(test).rsplit_once('.').map_or("", |(class, _)| class);
    format!("setUpClass ({class})")
}

#[cfg(test)]
mod tests {
    use anyhow::Result;

    use super::*;

    fn run(lines: &[&str]) -> Result<Run> {
        let mut run = Run::default();
        for line in lines {
            run.add(serde_json::from_str(line)?);
        }
        Ok(run)
    }

    fn summary(run: &Run) -> Vec<(String, Verdict, String)> {
        run.outcomes().into_iter().map(|outcome| (outcome.name, outcome.verdict, outcome.detail)).collect()
    }

    #[test]
    fn every_selected_test_has_one_outcome() -> Result<()> {
        let run = run(&[
            r#"{"event": "step", "text": "looking for tests"}"#,
            r#"{"event": "versions", "versions": {"Tempest": "43.0.0"}}"#,
            r#"{"event": "selected", "tests": ["tempest.a.A.test_a[id-1,smoke]", "tempest.a.A.test_b[id-2,smoke]",
                "tempest.b.B.test_c[id-3,smoke]", "tempest.c.C.test_d[id-4]", "tempest.d.D.test_e[id-5]"]}"#,
            r#"{"event": "result", "test": "tempest.a.A.test_a[id-1,smoke]", "verdict": "passed", "seconds": 1.5,
                "detail": ""}"#,
            r#"{"event": "result", "test": "tempest.a.A.test_b[id-2,smoke]", "verdict": "skipped", "seconds": 0,
                "detail": "no such extension"}"#,
            r#"{"event": "result", "test": "setUpClass (tempest.b.B)", "verdict": "skipped", "seconds": 0,
                "detail": "one node"}"#,
            r#"{"event": "result", "test": "setUpClass (tempest.c.C)", "verdict": "failed", "seconds": 0,
                "detail": "no server"}"#,
            r#"{"event": "ended"}"#,
        ])?;
        assert!(run.ended && !run.removed);
        assert_eq!(run.versions["Tempest"], "43.0.0");
        let expected = [
            ("tempest.a.A.test_a", Verdict::Passed, ""),
            ("tempest.a.A.test_b", Verdict::Skipped, "no such extension"),
            ("tempest.b.B.test_c", Verdict::Skipped, "one node"),
            ("tempest.c.C.test_d", Verdict::Failed, "no server"),
            ("tempest.d.D.test_e", Verdict::Failed, "it was selected and did not run"),
        ];
        let expected: Vec<_> =
            expected.map(|(name, verdict, detail)| (name.to_owned(), verdict, detail.to_owned())).to_vec();
        assert_eq!(summary(&run), expected);
        Ok(())
    }

    #[test]
    fn a_failed_teardown_of_a_class_counts() -> Result<()> {
        let run = run(&[
            r#"{"event": "selected", "tests": ["tempest.a.A.test_a[id-1]"]}"#,
            r#"{"event": "result", "test": "tempest.a.A.test_a[id-1]", "verdict": "passed", "seconds": 0, "detail": ""}"#,
            r#"{"event": "result", "test": "tearDownClass (tempest.a.A)", "verdict": "failed", "seconds": 0,
                "detail": "left behind"}"#,
        ])?;
        assert!(!run.ended);
        let failed = ("tearDownClass (tempest.a.A)".to_owned(), Verdict::Failed, "left behind".to_owned());
        assert_eq!(
            summary(&run),
            [failed, ("tempest.a.A.test_a".to_owned(), Verdict::Passed, String::new())]
        );
        Ok(())
    }

    #[test]
    fn lines_of_other_programs_are_not_events() {
        for line in ["", "Deleting servers", "{}", r#"{"event": "surprise"}"#, "[1]"] {
            assert!(serde_json::from_str::<Event>(line).is_err(), "{line}");
        }
    }
}
