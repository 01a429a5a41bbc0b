//! All layers of tests, their results and their times.

mod catalogue;
mod dependencies;
mod drill;
mod layer;
mod lifecycle;
mod outcome;
mod suite;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};

use crate::cluster::{self, existing::Existing, settings::Settings};
use crate::command::Log;
use crate::conformance::DOCUMENT;
use crate::directories::Directories;
use crate::document::Document;
use crate::golang::Program;
use crate::graph::{Graph, Weight};
use crate::images::{self, Builder};
use crate::process;
use crate::progress::{self, Progress};
use catalogue::Destination;
use layer::{LINT_SUITES, Layer, UNIT};
use outcome::{Outcome, run_tests};

/// The number of nodes for tests: enough to lose one.
const NODES: u8 = 3;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Run one layer only.
    #[arg(long, value_name = "LAYER")]
    only: Option<Layer>,
    /// Run only tests of a suite whose names contain this text.
    #[arg(long, value_name = "TEXT", requires = "only")]
    name: Option<String>,
    /// Run only the proof of this service. Needs --only catalogue.
    #[arg(long, value_name = "NAME", requires = "only")]
    service: Option<String>,
    /// Write the results of the proofs to docs/conformance.md. Needs --only catalogue.
    #[arg(long, requires = "only")]
    write: bool,
    #[command(flatten)]
    existing: Existing,
    /// Keep the cluster that the tests created.
    #[arg(long)]
    keep: bool,
    /// Run long tests of the suites as well.
    #[arg(long)]
    long: bool,
}

impl Arguments {
    fn layers(&self) -> Vec<Layer> {
        let all = Layer::value_variants().iter().copied();
        match self.only {
            Some(only) => vec![only],
            None => all.filter(|layer| layer.runs_by_default()).collect(),
        }
    }

    /// Part of the names of the tests to run.
    fn filter(&self) -> Option<String> {
        match (self.only, &self.service) {
            (Some(Layer::Catalogue), Some(service)) => Some(format!("{}{service}", catalogue::PREFIX)),
            (Some(Layer::Catalogue), None) => Some(catalogue::PREFIX.to_owned()),
            _ => self.name.clone(),
        }
    }

    fn destination(&self) -> Destination {
        if self.write { Destination::Document } else { Destination::Terminal }
    }

    fn check(&self, directories: &Directories) -> Result<()> {
        if (self.service.is_some() || self.write) && self.only != Some(Layer::Catalogue) {
            bail!("--service and --write need --only catalogue");
        }
        if self.write {
            Document::new(&directories.checkout, DOCUMENT).require_markers([catalogue::PART])?;
        }
        self.service.as_ref().map_or(Ok(()), |service| catalogue::require_proof(directories, service))
    }
}

pub(crate) fn run(directories: &Directories, arguments: &Arguments) -> Result<ExitCode> {
    let started = Instant::now();
    arguments.check(directories)?;
    // Held to the end: another run would change the cluster under the tests. Runs that tests start are nested.
    let _lock = directories.lock()?;
    process::end_leftovers(directories)?;
    let layers = arguments.layers();
    let outcome = Outcome::default();
    let xtask = keep_program(directories)?;
    let existed = Settings::load(directories)?.is_some();
    if let Err(error) = run_layers(directories, arguments, &layers, &xtask, &outcome) {
        outcome.start("other steps").count(Err(error));
    }
    let created = !existed && Settings::load(directories)?.is_some();
    if created && !arguments.keep {
        cluster::run(directories, cluster::Command::Down)?;
    }
    if layers.contains(&Layer::Lifecycle) {
        run_lifecycle(directories, &xtask, &outcome)?;
    }
    let (counts, table) = (outcome.counts(), outcome.table(started.elapsed()));
    for failure in outcome.failures() {
        progress::notify(&failure);
    }
    progress::print(&format!("\n{table}\n{} passed, {} failed", counts.passed, counts.failed));
    Ok(if counts.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Copies this program for tests to call: building the tests may replace its file.
fn keep_program(directories: &Directories) -> Result<PathBuf> {
    let (path, unfinished) = (directories.cache().join("xtask"), directories.cache().join(".xtask"));
    fs::copy("/proc/self/exe", &unfinished)
        .and_then(|_| fs::rename(&unfinished, &path))
        .with_context(|| format!("failed to copy this program to {}", path.display()))?;
    Ok(path)
}

/// Runs last, when no cluster is up, because it creates and removes one.
fn run_lifecycle(directories: &Directories, xtask: &Path, outcome: &Outcome) -> Result<()> {
    if Settings::load(directories)?.is_some() {
        progress::notify("a cluster is up: the layer lifecycle is skipped");
        return Ok(());
    }
    let mut graph = Graph::default();
    let mut before: Vec<String> = Vec::new();
    for moment in lifecycle::MOMENTS {
        let name = format!("killed after {moment}");
        let after: Vec<&str> = before.iter().map(String::as_str).collect();
        graph.add(&name, Weight::Light, &after, move |log| {
            let timer = outcome.start(Layer::Lifecycle.name());
            Ok(timer.count(lifecycle::kill_and_resume(directories, xtask, moment, log)))
        });
        before = vec![name];
    }
    graph.run(directories, &Progress::new())
}

/// Runs all layers but `lifecycle` as one graph: layers that need only the source run while the cluster is built, and
/// a suite starts as soon as the cluster, its images and its program are ready.
fn run_layers(
    directories: &Directories,
    arguments: &Arguments,
    layers: &[Layer],
    xtask: &Path,
    outcome: &Outcome,
) -> Result<()> {
    let builder = Builder::new(directories);
    let has_suites = layers.iter().any(|layer| layer.suite().is_some());
    let needs_cluster = layers.iter().any(|layer| layer.needs_cluster());
    let settings = if needs_cluster && arguments.existing.get().is_none() {
        let up = cluster::Up::at_least(directories, least_nodes(directories, layers)?)?;
        Some(cluster::prepare(directories, &up)?)
    } else {
        None
    };
    let environment = if has_suites {
        suite::environment(directories, &arguments.existing, settings.as_ref(), &builder, xtask)?
    } else {
        BTreeMap::new()
    };
    let mut graph = Graph::default();
    let prerequisites =
        add_prerequisites(&mut graph, directories, layers, settings.as_ref(), &builder, outcome)?;
    let mut previous: Option<&str> = None;
    for (&layer, prerequisites) in layers.iter().zip(&prerequisites) {
        let Some(suite) = layer.suite() else { continue };
        // Suites share the cluster, so each waits for the previous one.
        let after: Vec<&str> = prerequisites.iter().map(String::as_str).chain(previous).collect();
        let environment = &environment;
        graph.add(suite, Weight::Heavy, &after, move |log| {
            let mut command = cargo(directories);
            command.args(suite::arguments(suite).split(' ')).envs(environment);
            if layer == Layer::Apiserver {
                command.env("APISERVER_HELM", Program::Helm.directory(directories)?.join("helm"));
            }
            if layer == Layer::Catalogue {
                let kubectl = suite::kubectl(directories, &arguments.existing)?;
                let cloud = catalogue::existing_cloud(&kubectl)?;
                command.envs(cloud.map(catalogue::ExistingCloud::variables).into_iter().flatten());
            }
            command.arg("--").args(arguments.filter());
            if arguments.long {
                command.arg("--include-ignored");
            }
            run_tests(&mut command, log, outcome.start(layer.name()))
        });
        previous = Some(suite);
    }
    // Only nodes of the local cluster can lose their power.
    let drill = layers.iter().zip(&prerequisites).find(|(layer, _)| **layer == Layer::Drill);
    let drill = drill.filter(|_| settings.is_some());
    if let Some((_, prerequisites)) = drill {
        let after: Vec<&str> = prerequisites.iter().map(String::as_str).chain(previous).collect();
        drill::add_step(&mut graph, directories, arguments, xtask, outcome, &after);
    }
    graph.run(directories, &Progress::new())?;
    if drill.is_some() {
        drill::print_checks(directories)?;
    }
    if layers.iter().any(|layer| layer.has_clouds()) {
        return report_checks(directories, arguments, &builder);
    }
    Ok(())
}

/// The number of nodes that layers need. Proofs must not change the cluster of a running cloud.
fn least_nodes(directories: &Directories, layers: &[Layer]) -> Result<u8> {
    let proofs_only = layers == [Layer::Catalogue];
    Ok(if proofs_only && Settings::load(directories)?.is_some() { 1 } else { NODES })
}

/// Prints the checks of e2e with their times, and the results of the proofs or the stale ones.
fn report_checks(directories: &Directories, arguments: &Arguments, builder: &Builder) -> Result<()> {
    let path = Log::path_of(directories, Layer::EndToEnd.name());
    let log = fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
    for check in suite::timed_checks(&log) {
        progress::notify(&format!("  {check}"));
    }
    if arguments.only == Some(Layer::Catalogue) {
        return catalogue::report(directories, builder, &log, arguments.destination());
    }
    catalogue::print_stale(directories, builder)
}

/// Adds the layers that need only the source, the builds of the suites, and a local cluster with the suites' images.
/// Returns the steps that each layer waits for; an existing cluster has its images already.
fn add_prerequisites<'a>(
    graph: &mut Graph<'a>,
    directories: &'a Directories,
    layers: &[Layer],
    settings: Option<&'a Settings>,
    builder: &'a Builder,
    outcome: &'a Outcome,
) -> Result<Vec<Vec<String>>> {
    let mut prerequisites: Vec<Vec<String>> =
        layers.iter().map(|layer| layer.cargo().map(|(step, _)| step).into_iter().collect()).collect();
    // First of all, as in `up`.
    let needs_operator = layers.iter().any(|layer| layer.needs_operator());
    let operator = needs_operator.then(|| builder.add_program(graph, "operator")).transpose()?;
    add_source_layers(graph, directories, layers, outcome);
    if let Some(settings) = settings {
        cluster::add_steps(graph, directories, settings, builder)?;
    }
    for (layer, steps) in layers.iter().zip(&mut prerequisites).filter(|(layer, _)| layer.needs_cluster()) {
        if *layer == Layer::Apiserver {
            Program::Helm.add_step(graph, directories);
            steps.push(Program::Helm.step());
        }
        if layer.needs_operator() {
            steps.extend(operator.clone());
        }
        if settings.is_some() {
            let names = layer.images(directories, builder)?;
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            builder.add_steps(graph, &names)?;
            steps.extend(cluster::READY.map(ToOwned::to_owned));
            steps.extend(names.iter().map(|name| images::step(name)));
        }
    }
    if settings.is_some() {
        let all: BTreeSet<&str> = prerequisites.iter().flatten().map(String::as_str).collect();
        let all: Vec<&str> = all.into_iter().filter(|step| is_cluster_step(step)).collect();
        let timer = outcome.start("cluster and images");
        graph.add("cluster and images ready", Weight::Light, &all, |_| {
            timer.end();
            Ok(String::new())
        });
    }
    Ok(prerequisites)
}

fn is_cluster_step(step: &str) -> bool {
    step.starts_with("image ") || cluster::READY.contains(&step)
}

/// Adds the layers that need only the source, and the builds of the suites. Everything that compiles is one chain,
/// because cargo locks its build directory. Unit tests run at the end of the chain, when they hold the lock only
/// briefly.
fn add_source_layers<'a>(
    graph: &mut Graph<'a>,
    directories: &'a Directories,
    layers: &[Layer],
    outcome: &'a Outcome,
) {
    let mut previous: Option<String> = None;
    for &layer in layers {
        let Some((step, arguments)) = layer.cargo() else { continue };
        let after: Vec<&str> = previous.as_deref().into_iter().collect();
        graph.add(&step, Weight::Heavy, &after, move |log| {
            let timer = outcome.start(layer.name());
            let mut result = log.run(cargo(directories).args(arguments.split(' ')));
            if layer == Layer::Lint {
                result = result.and_then(|()| log.run(cargo(directories).args(LINT_SUITES.split(' '))));
            }
            if matches!(layer, Layer::Format | Layer::Lint) {
                return Ok(timer.count(result));
            }
            timer.end();
            result.map(|()| String::new())
        });
        previous = Some(step);
    }
    if layers.contains(&Layer::Unit) {
        let after: Vec<&str> = previous.as_deref().into_iter().collect();
        graph.add("unit", Weight::Heavy, &after, |log| {
            run_tests(cargo(directories).args(UNIT.split(' ')), log, outcome.start(Layer::Unit.name()))
        });
    }
    if layers.contains(&Layer::Dependencies) {
        graph.add("dependencies", Weight::Heavy, &[], |log| {
            let timer = outcome.start(Layer::Dependencies.name());
            Ok(timer.count(dependencies::check(directories, log)))
        });
    }
}

fn cargo(directories: &Directories) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(&directories.checkout).env("CARGO_TERM_COLOR", "never");
    // Errors name their origin; a backtrace of the test runner would hide it.
    command.env("RUST_BACKTRACE", "0");
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::settings::HostBefore;

    #[test]
    fn every_suite_is_linted_built_and_run_by_its_name() {
        let suites: BTreeSet<&str> =
            Layer::value_variants().iter().filter_map(|layer| layer.suite()).collect();
        assert_eq!(suites, BTreeSet::from(["apiserver", "smoke", "e2e"]));
        for suite in suites {
            assert!(LINT_SUITES.contains(&format!("--test {suite} ")), "{LINT_SUITES}");
        }
        let build = Layer::EndToEnd.cargo().map(|(step, arguments)| format!("{step}: {arguments}"));
        assert_eq!(build.as_deref(), Some("build e2e tests: test --workspace --test e2e --no-run"));
        assert_eq!(suite::arguments("e2e"), "test --workspace --test e2e");
    }

    #[test]
    fn a_suite_waits_for_its_build_its_images_and_the_cluster_only() -> Result<()> {
        let cache = std::env::temp_dir().join(format!("xtask-test-{}", std::process::id()));
        let directories = Directories::find(Some(cache.clone()))?;
        let (builder, outcome) = (Builder::new(&directories), Outcome::default());
        let settings = Settings::largest(HostBefore::default());
        let layers: Vec<Layer> =
            Layer::value_variants().iter().copied().filter(|layer| *layer != Layer::Catalogue).collect();
        let mut graph = Graph::default();
        let steps =
            add_prerequisites(&mut graph, &directories, &layers, Some(&settings), &builder, &outcome)?;
        let of = |wanted: Layer| -> Vec<&str> {
            let found = layers.iter().zip(&steps).find(|(layer, _)| **layer == wanted);
            found.map_or_else(Vec::new, |(_, steps)| steps.iter().map(String::as_str).collect())
        };
        assert_eq!(
            of(Layer::Apiserver),
            ["build apiserver tests", "build helm", "cluster DNS", "storage", "Gateway"]
        );
        assert!(of(Layer::EndToEnd).contains(&"image keystone"));
        assert!(!of(Layer::EndToEnd).iter().any(|step| ["lint", "unit"].contains(step)));
        for step in ["build openstack-operator", "image mariadb", "image client", "Gateway"] {
            assert!(of(Layer::Drill).contains(&step), "{step}");
        }
        assert_eq!(graph.runnable()[..2], ["build openstack-operator", "format"]);
        assert_eq!(graph.prerequisites("unit"), ["build e2e tests"]);
        assert!(graph.prerequisites("dependencies").is_empty());
        fs::remove_dir_all(cache)?;
        Ok(())
    }
}
