//! What the layers found: how many tests passed and failed, and why.

use std::fs;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, bail};

use crate::command::{Log, lines_that_matter};

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: u32,
    pub(super) failed: u32,
}

/// Counts, and the text that explains each failure.
#[derive(Default)]
pub(super) struct Outcome {
    counts: Mutex<Counts>,
    failures: Mutex<Vec<String>>,
}

impl Outcome {
    pub(super) fn add(&self, counts: Counts) {
        let mut all = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        all.passed += counts.passed;
        all.failed += counts.failed;
    }

    /// Counts one test and returns a word on it.
    pub(super) fn count(&self, result: Result<()>) -> String {
        match result {
            Ok(()) => {
                self.add(Counts { passed: 1, failed: 0 });
                "passed".to_owned()
            }
            Err(error) => {
                self.add(Counts { passed: 0, failed: 1 });
                self.explain(format!("{error:#}"));
                "failed".to_owned()
            }
        }
    }

    /// The counts of all layers, and what explains the failures among them.
    pub(super) fn into_parts(self) -> (Counts, Vec<String>) {
        let counts = self.counts.into_inner().unwrap_or_else(PoisonError::into_inner);
        (counts, self.failures.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn explain(&self, text: String) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }
}

/// A run of cargo's test runner, whose tests count one by one.
pub(super) fn run_tests(command: &mut Command, log: &Log, outcome: &Outcome) -> Result<String> {
    let result = log.run(command);
    let text = fs::read_to_string(log.path()).context("failed to read the tests' log")?;
    let counts = count(&text);
    outcome.add(counts);
    if let Err(error) = result {
        if counts.failed == 0 {
            // Not a test but the build, or the runner itself.
            outcome.add(Counts { passed: 0, failed: 1 });
            outcome.explain(error.to_string());
        } else {
            outcome.explain(format!("{}\nfull log: {}", failures(&text), log.path().display()));
        }
    } else if counts.passed == 0 {
        bail!("no test ran; full log: {}", log.path().display());
    }
    Ok(format!("{} passed, {} failed", counts.passed, counts.failed))
}

fn count(text: &str) -> Counts {
    let mut counts = Counts::default();
    for line in text.lines().filter_map(|line| line.strip_prefix("test result: ")) {
        let number = |word: &str| {
            let before = line.split(word).next().and_then(|before| before.split_whitespace().last());
            before.and_then(|number| number.parse::<u32>().ok()).unwrap_or_default()
        };
        counts.passed += number(" passed");
        counts.failed += number(" failed");
    }
    counts
}

/// What the runner says of the tests that failed.
fn failures(text: &str) -> String {
    match text.split_once("\nfailures:\n") {
        Some((_, rest)) => {
            rest.split("\ntest result:").next().unwrap_or_default().trim_matches('\n').to_owned()
        }
        None => lines_that_matter(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "running 2 tests\ntest a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\n\
                       Error: the cause\n\nfailures:\n    b\n\ntest result: FAILED. 1 passed; 1 failed; 0 \
                       ignored; finished in 0.1s\n\ntest result: ok. 3 passed; 0 failed; 0 ignored\n";

    #[test]
    fn tests_of_all_binaries_are_counted() {
        assert_eq!(count(LOG), Counts { passed: 4, failed: 1 });
    }

    #[test]
    fn the_cause_of_a_failure_is_shown() {
        assert!(failures(LOG).contains("Error: the cause"));
        assert!(!failures(LOG).contains("finished in"));
    }
}
