//! Every layer of tests, cheapest first, and the line that counts them.

mod catalogue;
mod lifecycle;
mod outcome;
mod suite;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};

use crate::cloud;
use crate::cluster::{self, existing::Existing, settings::Settings};
use crate::command::Log;
use crate::conformance::DOCUMENT;
use crate::directories::Directories;
use crate::document::Document;
use crate::golang::Program;
use crate::graph::{Graph, Weight};
use crate::images::Builder;
use crate::process;
use crate::progress::{self, Progress};
use crate::store::{self, Key};
use catalogue::Destination;
use outcome::{Counts, Outcome, run_tests};

/// The nodes of a cluster that is made for the tests: enough to lose one.
const NODES: u8 = 3;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Run one layer alone.
    #[arg(long, value_name = "LAYER")]
    only: Option<Layer>,
    /// Run only those tests of a suite whose names contain this.
    #[arg(long, value_name = "TEXT", requires = "only")]
    name: Option<String>,
    /// Run the proof of this service alone. Needs --only catalogue.
    #[arg(long, value_name = "NAME", requires = "only")]
    service: Option<String>,
    /// Write the results of the proofs to docs/conformance.md. Needs --only catalogue.
    #[arg(long, requires = "only")]
    write: bool,
    #[command(flatten)]
    existing: Existing,
    /// Leave the cluster up that was made for the tests.
    #[arg(long)]
    keep: bool,
    /// Run tests of suites too that are left out since they take long.
    #[arg(long)]
    long: bool,
}

impl Arguments {
    fn layers(&self) -> Vec<Layer> {
        let all = Layer::value_variants().iter().copied();
        match self.only {
            Some(only) => vec![only],
            // The proofs are checks of e2e.
            None => all.filter(|layer| *layer != Layer::Catalogue).collect(),
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
}

/// The layers in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Layer {
    /// Every file is formatted.
    Format,
    /// No lint complains.
    Lint,
    /// Licenses and sources of what we depend on are those that deny.toml allows.
    Dependencies,
    /// Tests that need nothing but the source.
    Unit,
    /// A real API server takes every kind and every object as they are meant.
    Apiserver,
    /// The cluster and the images do what everything else relies on.
    Smoke,
    /// The operator makes a cloud that real clients use, and keeps it up when something fails.
    #[value(name = "e2e")]
    EndToEnd,
    /// The proofs of e2e alone, on the cloud that `up` made or a new one. It runs only by name.
    Catalogue,
    /// A cluster is finished after a kill at any moment, and removed without a trace.
    Lifecycle,
}

impl Layer {
    /// The name of the suite, for a layer that needs a cluster.
    fn suite(self) -> Option<&'static str> {
        match self {
            Self::Apiserver => Some("apiserver"),
            Self::Smoke => Some("smoke"),
            Self::EndToEnd | Self::Catalogue => Some("e2e"),
            _ => None,
        }
    }

    /// The step and the arguments of cargo for what needs only the source.
    fn cargo(self) -> Option<(String, String)> {
        if let Some(suite) = self.suite() {
            return Some((format!("build {suite} tests"), format!("{} --no-run", suite::arguments(suite))));
        }
        let (step, arguments) = match self {
            Self::Format => ("format", "fmt --all --check"),
            Self::Lint => ("lint", LINT),
            // The list of known vulnerabilities is in no package registry, so it is not asked for.
            Self::Dependencies => ("dependencies", "deny check bans licenses sources"),
            Self::Unit => ("unit", "test --workspace --no-fail-fast"),
            _ => return None,
        };
        Some((step.to_owned(), arguments.to_owned()))
    }

    /// The images that the layer runs.
    fn images(self, directories: &Directories, builder: &Builder) -> Result<Vec<String>> {
        match self {
            Self::Smoke => builder.all_names(),
            Self::EndToEnd | Self::Catalogue => cloud::images(directories, &cloud::samples(directories)?),
            _ => Ok(Vec::new()),
        }
    }
}

const LINT: &str = "clippy --workspace --lib --bins --tests -- --deny warnings";
/// Cargo's `--tests` leaves out targets with `test = false`, even where `--test` names them too.
const LINT_SUITES: &str = "clippy --workspace --test apiserver --test smoke --test e2e -- --deny warnings";
/// The version of the program that checks dependencies.
const CARGO_DENY: &str = "=0.20.2";

pub(crate) fn run(directories: &Directories, arguments: &Arguments) -> Result<ExitCode> {
    let layers = arguments.layers();
    if (arguments.service.is_some() || arguments.write) && arguments.only != Some(Layer::Catalogue) {
        bail!("--service and --write need --only catalogue");
    }
    if arguments.write {
        Document::new(&directories.checkout, DOCUMENT).require_places([catalogue::PART])?;
    }
    if let Some(service) = &arguments.service {
        catalogue::require_proof(directories, service)?;
    }
    let outcome = Outcome::default();
    let xtask = keep_program(directories)?;
    let existed = Settings::load(directories)?.is_some();
    if let Err(error) = run_layers(directories, arguments, &layers, &xtask, &outcome) {
        outcome.add(Counts { passed: 0, failed: 1 });
        progress::error(&error);
    }
    let made = !existed && Settings::load(directories)?.is_some();
    if made && !arguments.keep {
        cluster::run(directories, cluster::Command::Down)?;
    }
    if layers.contains(&Layer::Lifecycle) {
        run_lifecycle(directories, &xtask, &outcome)?;
    }
    let (counts, failures) = outcome.into_parts();
    for failure in failures {
        progress::say(&failure);
    }
    progress::print(&format!("{} passed, {} failed", counts.passed, counts.failed));
    Ok(if counts.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A copy of this program that tests can call: building the tests may replace the one that runs.
fn keep_program(directories: &Directories) -> Result<PathBuf> {
    let (path, unfinished) = (directories.cache().join("xtask"), directories.cache().join(".xtask"));
    fs::copy("/proc/self/exe", &unfinished)
        .and_then(|_| fs::rename(&unfinished, &path))
        .with_context(|| format!("failed to copy this program to {}", path.display()))?;
    Ok(path)
}

/// Comes last, when no cluster is up: it makes and removes its own.
fn run_lifecycle(directories: &Directories, xtask: &Path, outcome: &Outcome) -> Result<()> {
    if Settings::load(directories)?.is_some() {
        progress::say("a cluster is up: how one is made and removed is not checked");
        return Ok(());
    }
    let mut graph = Graph::default();
    let mut before: Vec<String> = Vec::new();
    for moment in lifecycle::MOMENTS {
        let name = format!("killed after {moment}");
        let after: Vec<&str> = before.iter().map(String::as_str).collect();
        graph.add(&name, Weight::Light, &after, move |log| {
            Ok(outcome.count(lifecycle::kill_and_resume(directories, xtask, moment, log)))
        });
        before = vec![name];
    }
    graph.run(directories, &Progress::new())
}

fn run_layers(
    directories: &Directories,
    arguments: &Arguments,
    layers: &[Layer],
    xtask: &Path,
    outcome: &Outcome,
) -> Result<()> {
    let builder = Builder::new(directories);
    let suites: Vec<&'static str> = layers.iter().filter_map(|layer| layer.suite()).collect();
    let local = !suites.is_empty() && arguments.existing.get().is_none();
    // The lock is for what is built and made; the tests themselves switch nodes off and on.
    let lock = directories.lock()?;
    process::end_leftovers(directories)?;
    let settings = if local {
        let up = cluster::Up::at_least(directories, least_nodes(directories, layers)?)?;
        Some(cluster::prepare(directories, &up)?)
    } else {
        None
    };
    let mut graph = Graph::default();
    add_source_layers(&mut graph, directories, layers, outcome);
    if let Some(settings) = &settings {
        cluster::add_steps(&mut graph, directories, settings, &builder)?;
        for layer in layers {
            let names = layer.images(directories, &builder)?;
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            builder.add_steps(&mut graph, &names)?;
        }
    } else if layers.iter().any(|layer| layer.suite() == Some("e2e")) {
        builder.add_program(&mut graph, "operator")?;
    }
    if layers.contains(&Layer::Apiserver) {
        Program::Helm.add_step(&mut graph, directories);
    }
    let progress = Progress::new();
    graph.run(directories, &progress)?;
    drop(lock);
    if suites.is_empty() {
        return Ok(());
    }
    let environment = environment(directories, arguments, layers, settings.as_ref(), &builder, xtask)?;
    let mut graph = Graph::default();
    let mut before: Vec<&str> = Vec::new();
    for suite in suites {
        let environment = &environment;
        graph.add(suite, Weight::Heavy, &before, move |log| {
            let mut command = cargo(directories);
            command.args(suite::arguments(suite).split(' ')).envs(environment);
            command.arg("--").args(arguments.filter());
            if arguments.long {
                command.arg("--include-ignored");
            }
            run_tests(&mut command, log, outcome)
        });
        before = vec![suite];
    }
    graph.run(directories, &progress)?;
    if layers.iter().any(|layer| layer.suite() == Some("e2e")) {
        return report_checks(directories, arguments, &builder);
    }
    Ok(())
}

/// The number of nodes that layers need. Proofs must not change the cluster of a running cloud.
fn least_nodes(directories: &Directories, layers: &[Layer]) -> Result<u8> {
    let proofs_only = layers == [Layer::Catalogue];
    Ok(if proofs_only && Settings::load(directories)?.is_some() { 1 } else { NODES })
}

/// The environment of the suites of these layers.
fn environment(
    directories: &Directories,
    arguments: &Arguments,
    layers: &[Layer],
    settings: Option<&Settings>,
    builder: &Builder,
    xtask: &Path,
) -> Result<BTreeMap<&'static str, String>> {
    let mut environment = suite::environment(directories, &arguments.existing, settings, builder, xtask)?;
    if layers.contains(&Layer::Apiserver) {
        let helm = Program::Helm.place(directories)?.join("helm");
        environment.insert("APISERVER_HELM", helm.display().to_string());
    }
    if layers.contains(&Layer::Catalogue) {
        let kubectl = suite::kubectl(directories, &arguments.existing)?;
        environment.extend(catalogue::existing_cloud(&kubectl)?.map(|cloud| ("E2E_CLOUD", cloud)));
    }
    Ok(environment)
}

/// Shows the checks of e2e with their times, and the results of the proofs or those that are stale.
fn report_checks(directories: &Directories, arguments: &Arguments, builder: &Builder) -> Result<()> {
    let path = Log::path_of(directories, "e2e");
    let log = fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
    for check in suite::timed_checks(&log) {
        progress::say(&format!("  {check}"));
    }
    if arguments.only == Some(Layer::Catalogue) {
        return catalogue::report(directories, builder, &log, arguments.destination());
    }
    catalogue::print_stale(directories, builder)
}

/// What needs only the source, one after the other: cargo's own lock would make them wait anyway.
fn add_source_layers<'a>(
    graph: &mut Graph<'a>,
    directories: &'a Directories,
    layers: &[Layer],
    outcome: &'a Outcome,
) {
    let mut before: Vec<String> = Vec::new();
    for &layer in layers {
        let Some((step, arguments)) = layer.cargo() else { continue };
        let after: Vec<&str> = before.iter().map(String::as_str).collect();
        graph.add(&step, Weight::Heavy, &after, move |log| {
            let mut command = cargo(directories);
            command.args(arguments.split(' '));
            match layer {
                Layer::Unit => run_tests(&mut command, log, outcome),
                Layer::Lint => {
                    let mut suites = cargo(directories);
                    suites.args(LINT_SUITES.split(' '));
                    Ok(outcome.count(log.run(&mut command).and_then(|()| log.run(&mut suites))))
                }
                _ if layer.suite().is_some() => log.run(&mut command).map(|()| String::new()),
                Layer::Dependencies => {
                    command.env("PATH", path_with(&cargo_deny(directories, log)?)?);
                    Ok(outcome.count(log.run(&mut command)))
                }
                _ => Ok(outcome.count(log.run(&mut command))),
            }
        });
        before = vec![step];
    }
}

/// Installs the program that checks dependencies, unless it is there, and returns its directory.
fn cargo_deny(directories: &Directories, log: &Log) -> Result<PathBuf> {
    let key = Key::default().text(CARGO_DENY);
    let part = store::ensure(directories, "cargo-deny", key, |place| {
        let mut command = cargo(directories);
        command.args(["install", "cargo-deny", "--locked", "--version", CARGO_DENY, "--root"]).arg(place);
        log.run(&mut command)
    })?;
    Ok(part.path.join("bin"))
}

/// The search path with a directory before all others.
fn path_with(directory: &Path) -> Result<OsString> {
    let path = std::env::var_os("PATH").context("PATH is not set")?;
    let directories = std::iter::once(directory.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(directories).context("a directory's name has a colon in it")
}

fn cargo(directories: &Directories) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(&directories.checkout).env("CARGO_TERM_COLOR", "never");
    // An error already says where it comes from; a stack of the test runner's frames hides it.
    command.env("RUST_BACKTRACE", "0");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_is_linted_built_and_run_by_its_name() {
        let suites: Vec<&str> = Layer::value_variants().iter().filter_map(|layer| layer.suite()).collect();
        assert_eq!(suites, ["apiserver", "smoke", "e2e", "e2e"]);
        for suite in suites {
            assert!(LINT_SUITES.contains(&format!("--test {suite} ")), "{LINT_SUITES}");
        }
        let build = Layer::EndToEnd.cargo().map(|(step, arguments)| format!("{step}: {arguments}"));
        assert_eq!(build.as_deref(), Some("build e2e tests: test --workspace --test e2e --no-run"));
        assert_eq!(suite::arguments("e2e"), "test --workspace --test e2e");
    }
}
