//! All layers of tests, their results and their times.

mod lifecycle;
mod outcome;
mod suite;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};

use crate::cloud;
use crate::cluster::{self, existing::Existing, settings::Settings};
use crate::command::Log;
use crate::directories::Directories;
use crate::golang::Program;
use crate::graph::{Graph, Weight};
use crate::images::{self, Builder};
use crate::process;
use crate::progress::{self, Progress};
use crate::store::{self, Key};
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
    #[command(flatten)]
    existing: Existing,
    /// Keep the cluster that the tests created.
    #[arg(long)]
    keep: bool,
    /// Run long tests of the suites as well.
    #[arg(long)]
    long: bool,
}

/// The layers, in the order of the table of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Layer {
    /// Every file is formatted.
    Format,
    /// clippy reports nothing.
    Lint,
    /// deny.toml allows the licenses and sources of all dependencies.
    Dependencies,
    /// Tests that need only the source.
    Unit,
    /// A real API server accepts and rejects objects as the operator expects.
    Apiserver,
    /// The cluster and the images provide everything that the operator needs.
    Smoke,
    /// The operator creates a cloud that real clients use, and keeps it available through failures.
    #[value(name = "e2e")]
    EndToEnd,
    /// `cluster up` completes a cluster after a kill, and `cluster down` restores the host.
    Lifecycle,
}

impl Layer {
    /// The name of the suite, for a layer that needs a cluster.
    fn suite(self) -> Option<&'static str> {
        matches!(self, Self::Apiserver | Self::Smoke | Self::EndToEnd).then(|| self.name())
    }

    /// The step that compiles or checks the source for the layer, and its arguments for cargo.
    fn cargo(self) -> Option<(String, String)> {
        if let Some(suite) = self.suite() {
            return Some((format!("build {suite} tests"), format!("{} --no-run", suite::arguments(suite))));
        }
        let (step, arguments) = match self {
            Self::Format => ("format", "fmt --all --check".to_owned()),
            Self::Lint => ("lint", LINT.to_owned()),
            Self::Unit => ("build unit tests", format!("{UNIT} --no-run")),
            _ => return None,
        };
        Some((step.to_owned(), arguments))
    }

    /// The name of the layer on the command line and in the table of results.
    fn name(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Lint => "lint",
            Self::Dependencies => "dependencies",
            Self::Unit => "unit",
            Self::Apiserver => "apiserver",
            Self::Smoke => "smoke",
            Self::EndToEnd => "e2e",
            Self::Lifecycle => "lifecycle",
        }
    }

    /// The images that the layer needs.
    fn images(self, directories: &Directories, builder: &Builder) -> Result<Vec<String>> {
        match self {
            Self::Smoke => builder.all_names(),
            Self::EndToEnd => cloud::images(directories, &cloud::samples(directories)?),
            _ => Ok(Vec::new()),
        }
    }
}

/// A plain `cargo test` does not include the suites, so they are named.
const LINT: &str = "clippy --workspace --lib --bins --tests --test apiserver --test smoke --test e2e -- \
                    --deny warnings";
const UNIT: &str = "test --workspace --no-fail-fast";
/// The list of known vulnerabilities is in no package registry, so advisories are not checked.
const DEPENDENCIES: &str = "deny check bans licenses sources";
/// The version of the program that checks dependencies.
const CARGO_DENY: &str = "=0.20.2";

pub(crate) fn run(directories: &Directories, arguments: &Arguments) -> Result<ExitCode> {
    let started = Instant::now();
    // Held to the end: another run would change the cluster under the tests. Runs that tests start are nested.
    let _lock = directories.lock()?;
    process::end_leftovers(directories)?;
    let all = Layer::value_variants().iter().copied();
    let layers: Vec<Layer> = all.filter(|layer| arguments.only.is_none_or(|only| only == *layer)).collect();
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
    let settings = if has_suites && arguments.existing.get().is_none() {
        let up = cluster::Up::at_least(directories, NODES)?;
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
            command.arg("--").args(&arguments.name);
            if arguments.long {
                command.arg("--include-ignored");
            }
            run_tests(&mut command, log, outcome.start(suite))
        });
        previous = Some(suite);
    }
    graph.run(directories, &Progress::new())
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
    let has_clouds = layers.contains(&Layer::EndToEnd);
    let operator = has_clouds.then(|| builder.add_program(graph, "operator")).transpose()?;
    add_source_layers(graph, directories, layers, outcome);
    if let Some(settings) = settings {
        cluster::add_steps(graph, directories, settings, builder)?;
    }
    for (layer, steps) in layers.iter().zip(&mut prerequisites).filter(|(layer, _)| layer.suite().is_some()) {
        if *layer == Layer::Apiserver {
            Program::Helm.add_step(graph, directories);
            steps.push(Program::Helm.step());
        }
        if *layer == Layer::EndToEnd {
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
            let result = log.run(cargo(directories).args(arguments.split(' ')));
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
            let mut command = cargo(directories);
            command.args(DEPENDENCIES.split(' ')).env("PATH", path_with(&cargo_deny(directories, log)?)?);
            Ok(timer.count(log.run(&mut command)))
        });
    }
}

/// Installs the program that checks dependencies, and returns its directory.
fn cargo_deny(directories: &Directories, log: &Log) -> Result<PathBuf> {
    let key = Key::default().text(CARGO_DENY);
    let part = store::ensure(directories, "cargo-deny", key, |directory| {
        let mut command = cargo(directories);
        command.args(["install", "cargo-deny", "--locked", "--version", CARGO_DENY, "--root"]).arg(directory);
        log.run(&mut command)
    })?;
    Ok(part.path.join("bin"))
}

/// PATH with another directory at its front.
fn path_with(directory: &Path) -> Result<OsString> {
    let path = std::env::var_os("PATH").context("PATH is not set")?;
    let directories = std::iter::once(directory.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(directories).context("a directory's name has a colon in it")
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
        let suites: Vec<&str> = Layer::value_variants().iter().filter_map(|layer| layer.suite()).collect();
        assert_eq!(suites, ["apiserver", "smoke", "e2e"]);
        for suite in suites {
            assert!(LINT.contains(&format!("--test {suite} ")), "{LINT}");
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
        let layers = Layer::value_variants();
        let mut graph = Graph::default();
        let steps = add_prerequisites(&mut graph, &directories, layers, Some(&settings), &builder, &outcome)?;
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
        assert_eq!(graph.runnable()[..2], ["build openstack-operator", "format"]);
        assert_eq!(graph.prerequisites("unit"), ["build e2e tests"]);
        assert!(graph.prerequisites("dependencies").is_empty());
        fs::remove_dir_all(cache)?;
        Ok(())
    }
}
