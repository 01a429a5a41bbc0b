//! Every layer of tests, cheapest first, and the line that counts them.

mod lifecycle;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};

use crate::cluster::{self, settings::Settings};
use crate::command::{Log, lines_that_matter};
use crate::directories::Directories;
use crate::graph::{Graph, Weight};
use crate::images::{Builder, RELEASE};
use crate::process;
use crate::progress::{self, Progress};
use crate::store::{self, Key};

/// The nodes of a cluster that is made for the tests: enough to lose one.
const NODES: u8 = 3;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Run one layer alone.
    #[arg(long, value_name = "LAYER")]
    only: Option<Layer>,
    /// Use an existing cluster: a context of the kubeconfig. Needs --registry.
    #[arg(long, value_name = "NAME", requires = "registry")]
    context: Option<String>,
    /// Where the existing cluster finds the images, e.g. registry.example.org/openstack.
    #[arg(long, value_name = "PREFIX", requires = "context")]
    registry: Option<String>,
    /// Leave the cluster up that was made for the tests.
    #[arg(long)]
    keep: bool,
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
    /// The cluster and the images do what everything else relies on.
    Smoke,
    /// A cluster is finished after a kill at any moment, and removed without a trace.
    Lifecycle,
}

impl Layer {
    /// The step and the arguments of cargo for what needs only the source.
    fn cargo(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Format => Some(("format", "fmt --all --check")),
            // The smoke suite is no target of a plain `cargo test`, so it is named.
            Self::Lint => {
                Some(("lint", "clippy --workspace --lib --bins --tests --test smoke -- --deny warnings"))
            }
            // The list of known vulnerabilities is in no package registry, so it is not asked for.
            Self::Dependencies => Some(("dependencies", "deny check bans licenses sources")),
            Self::Unit => Some(("unit", "test --workspace")),
            Self::Smoke => Some(("build smoke tests", "test --workspace --test smoke --no-run")),
            Self::Lifecycle => None,
        }
    }
}

/// How cargo is asked for the smoke suite: with the whole workspace, so that what both use is built once.
const SMOKE: &str = "test --workspace --test smoke";
/// The version of the program that checks dependencies.
const CARGO_DENY: &str = "=0.20.2";

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    passed: u32,
    failed: u32,
}

/// What the layers found: counts, and the text that explains each failure.
#[derive(Default)]
struct Outcome {
    counts: Mutex<Counts>,
    failures: Mutex<Vec<String>>,
}

impl Outcome {
    fn add(&self, counts: Counts) {
        let mut all = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        all.passed += counts.passed;
        all.failed += counts.failed;
    }

    /// Counts one test and returns a word on it.
    fn count(&self, result: Result<()>) -> String {
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

    fn explain(&self, text: String) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }
}

pub(crate) fn run(directories: &Directories, arguments: &Arguments) -> Result<ExitCode> {
    let all = Layer::value_variants().iter().copied();
    let layers: Vec<Layer> = all.filter(|layer| arguments.only.is_none_or(|only| only == *layer)).collect();
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
    for failure in outcome.failures.into_inner().unwrap_or_else(PoisonError::into_inner) {
        progress::say(&failure);
    }
    let counts = outcome.counts.into_inner().unwrap_or_else(PoisonError::into_inner);
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
    let smoke = layers.contains(&Layer::Smoke);
    let local = smoke && arguments.context.is_none();
    // The lock is for what is built and made; the tests themselves switch nodes off and on.
    let lock = directories.lock()?;
    process::end_leftovers(directories)?;
    let settings = if local {
        let up = cluster::Up::at_least(directories, NODES)?;
        Some(cluster::prepare(directories, &up)?)
    } else {
        None
    };
    let mut graph = Graph::default();
    add_source_layers(&mut graph, directories, layers, outcome);
    if let Some(settings) = &settings {
        cluster::add_steps(&mut graph, directories, settings, &builder)?;
        let names = builder.all_names()?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        builder.add_steps(&mut graph, &names)?;
    }
    let progress = Progress::new();
    graph.run(directories, &progress)?;
    drop(lock);
    if smoke {
        let mut environment = smoke_environment(directories, arguments, &builder, settings.as_ref())?;
        if settings.is_some() {
            environment.insert("SMOKE_XTASK", xtask.display().to_string());
        }
        let mut graph = Graph::default();
        graph.add("smoke", Weight::Heavy, &[], move |log| {
            let mut command = cargo(directories);
            command.args(SMOKE.split(' '));
            run_tests(command.envs(environment), log, outcome)
        });
        graph.run(directories, &progress)?;
    }
    Ok(())
}

/// What needs only the source, one after the other: cargo's own lock would make them wait anyway.
fn add_source_layers<'a>(
    graph: &mut Graph<'a>,
    directories: &'a Directories,
    layers: &[Layer],
    outcome: &'a Outcome,
) {
    let mut before: Vec<&str> = Vec::new();
    for &layer in layers {
        let Some((step, arguments)) = layer.cargo() else { continue };
        graph.add(step, Weight::Heavy, &before, move |log| {
            let mut command = cargo(directories);
            command.args(arguments.split(' '));
            match layer {
                Layer::Unit => run_tests(&mut command, log, outcome),
                Layer::Smoke => log.run(&mut command).map(|()| String::new()),
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

/// A run of cargo's test runner, whose tests count one by one.
fn run_tests(command: &mut Command, log: &Log, outcome: &Outcome) -> Result<String> {
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

fn smoke_environment(
    directories: &Directories,
    arguments: &Arguments,
    builder: &Builder,
    settings: Option<&Settings>,
) -> Result<BTreeMap<&'static str, String>> {
    let mut environment = BTreeMap::new();
    let mut images = serde_json::Map::new();
    for image in builder.table()?.images() {
        // The guest is a disk in an image: there is nothing in it to run.
        if image.recipe == "guest" {
            continue;
        }
        let reference = if let Some(settings) = settings {
            format!("{}/{}", settings.addresses.registry(), builder.name(&image.name)?)
        } else {
            let registry = arguments.registry.as_deref().context("--context needs --registry")?;
            format!("{registry}/{}:{RELEASE}", image.name)
        };
        let user = builder.table()?.user_id(image)?;
        images.insert(image.name.clone(), serde_json::json!({ "reference": reference, "user": user }));
    }
    environment.insert("SMOKE_IMAGES", serde_json::Value::Object(images).to_string());
    if let Some(settings) = settings {
        let path = |path: PathBuf| path.display().to_string();
        environment.insert("KUBECONFIG", path(cluster::kubeconfig(directories)));
        environment.insert("SMOKE_GATEWAY_ADDRESS", settings.addresses.gateway_service().to_string());
        environment.insert("SMOKE_PROVIDER_RANGE", settings.addresses.provider_range.to_string());
        environment.insert("OPENSTACK_OPERATOR_CACHE", path(directories.cache().to_owned()));
    }
    if let Some(context) = &arguments.context {
        let home = std::env::var("HOME").context("HOME is not set")?;
        let kubeconfig = std::env::var("KUBECONFIG").unwrap_or_else(|_| format!("{home}/.kube/config"));
        environment.insert("KUBECONFIG", kubeconfig);
        environment.insert("SMOKE_CONTEXT", context.clone());
    }
    Ok(environment)
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
