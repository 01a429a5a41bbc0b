//! Results of the layers: how many tests passed and failed, how long they took, and why they failed.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::command::{Log, last_lines};

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: u32,
    pub(super) failed: u32,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// The results of all layers, in the order in which the layers started.
#[derive(Default)]
pub(super) struct Outcome {
    layers: Mutex<Vec<LayerOutcome>>,
    failures: Mutex<Vec<String>>,
}

struct LayerOutcome {
    name: String,
    counts: Counts,
    time: Duration,
}

/// A part of a layer that is running. Its time is added to the layer's when it ends.
pub(super) struct Timer<'a> {
    outcome: &'a Outcome,
    layer: String,
    started: Instant,
}

impl Outcome {
    pub(super) fn start(&self, layer: &str) -> Timer<'_> {
        self.record(layer, Counts::default(), Duration::ZERO);
        Timer { outcome: self, layer: layer.to_owned(), started: Instant::now() }
    }

    pub(super) fn counts(&self) -> Counts {
        let mut all = Counts::default();
        for layer in self.layers().iter() {
            all.add(layer.counts);
        }
        all
    }

    pub(super) fn failures(self) -> Vec<String> {
        self.failures.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// One line for each layer. Layers run side by side, so the total is less than their sum.
    pub(super) fn table(&self, total: Duration) -> String {
        let mut text = format!("{:<20} {:>7} {:>7} {:>8}\n", "layer", "passed", "failed", "seconds");
        let mut line = |name: &str, counts: Counts, time: Duration| {
            let Counts { passed, failed } = counts;
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name:<20} {passed:>7} {failed:>7} {:>8.0}", time.as_secs_f64());
        };
        for layer in self.layers().iter() {
            line(&layer.name, layer.counts, layer.time);
        }
        line("total", self.counts(), total);
        text
    }

    fn record(&self, name: &str, counts: Counts, time: Duration) {
        let mut layers = self.layers();
        if let Some(layer) = layers.iter_mut().find(|layer| layer.name == name) {
            layer.counts.add(counts);
            layer.time += time;
        } else {
            layers.push(LayerOutcome { name: name.to_owned(), counts, time });
        }
    }

    fn layers(&self) -> MutexGuard<'_, Vec<LayerOutcome>> {
        self.layers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn explain(&self, text: String) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }
}

impl Timer<'_> {
    /// Ends a part without tests.
    pub(super) fn end(self) {
        self.add(Counts::default());
    }

    /// Ends the part as one test and returns its verdict.
    pub(super) fn count(self, result: Result<()>) -> String {
        match result {
            Ok(()) => {
                self.add(Counts { passed: 1, failed: 0 });
                "passed".to_owned()
            }
            Err(error) => {
                self.outcome.explain(format!("{error:#}"));
                self.add(Counts { passed: 0, failed: 1 });
                "failed".to_owned()
            }
        }
    }

    fn add(self, counts: Counts) {
        self.outcome.record(&self.layer, counts, self.started.elapsed());
    }
}

/// Runs cargo's test runner and counts its tests.
pub(super) fn run_tests(command: &mut Command, log: &Log, timer: Timer<'_>) -> Result<String> {
    let result = log.run(command);
    let text = fs::read_to_string(log.path()).context("failed to read the tests' log")?;
    let mut counts = count(&text);
    if let Err(error) = result {
        if counts.failed == 0 {
            // The build or the runner failed, not a test.
            counts.failed = 1;
            timer.outcome.explain(error.to_string());
        } else {
            timer.outcome.explain(format!("{}\nfull log: {}", failures(&text), log.path().display()));
        }
    } else if counts.passed == 0 {
        bail!("no test ran; full log: {}", log.path().display());
    }
    timer.add(counts);
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

/// The runner's output about the tests that failed.
fn failures(text: &str) -> String {
    match text.split_once("\nfailures:\n") {
        Some((_, rest)) => {
            rest.split("\ntest result:").next().unwrap_or_default().trim_matches('\n').to_owned()
        }
        None => last_lines(text),
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
    fn every_layer_has_a_line_with_its_time() {
        let outcome = Outcome::default();
        outcome.record("unit", Counts { passed: 0, failed: 0 }, Duration::from_mins(5));
        outcome.record("e2e", Counts { passed: 9, failed: 1 }, Duration::from_millis(1_200_400));
        outcome.record("unit", Counts { passed: 400, failed: 0 }, Duration::from_secs(42));
        let table = outcome.table(Duration::from_mins(30));
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            lines,
            [
                ["layer", "passed", "failed", "seconds"],
                ["unit", "400", "0", "342"],
                ["e2e", "9", "1", "1200"],
                ["total", "409", "1", "1800"],
            ]
        );
    }

    #[test]
    fn the_cause_of_a_failure_is_shown() {
        assert!(failures(LOG).contains("Error: the cause"));
        assert!(!failures(LOG).contains("finished in"));
    }
}
