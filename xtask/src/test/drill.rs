//! The layer `drill`: the short drill as a separate process, whose results have the format of the suites.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::layer::Layer;
use super::outcome::{Outcome, run_tests};
use super::{Arguments, suite};
use crate::command::Log;
use crate::directories::Directories;
use crate::drill;
use crate::graph::{Graph, Weight};
use crate::progress;

/// Adds the step of the drill. It runs after all suites, because it cuts the power of nodes.
pub(super) fn add_step<'a>(
    graph: &mut Graph<'a>,
    directories: &'a Directories,
    arguments: &'a Arguments,
    xtask: &'a Path,
    outcome: &'a Outcome,
    after: &[&str],
) {
    let layer = Layer::Drill.name();
    graph.add(layer, Weight::Heavy, after, move |log| {
        // A cloud that the user has created is not the drill's to remove.
        let obstacle = drill::obstacle(directories)?.filter(|_| arguments.only.is_none());
        if let Some(obstacle) = obstacle {
            return Ok(format!("skipped: {obstacle}"));
        }
        let mut command = Command::new(xtask);
        command.arg("--cache").arg(directories.cache()).args(["drill", "--short"]);
        run_tests(&mut command, log, outcome.start(layer))
    });
}

/// Prints the faults with their times.
pub(super) fn print_checks(directories: &Directories) -> Result<()> {
    let path = Log::path_of(directories, Layer::Drill.name());
    let log = fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
    for check in suite::timed_checks(&log) {
        progress::notify(&format!("  {check}"));
    }
    Ok(())
}
