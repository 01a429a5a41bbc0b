//! Drill: faults on a highly available cloud under load, and what each of them costs.

mod catalogue;
mod events;
mod fault;
mod inject;
mod load;
mod measure;
mod repair;
mod report;
mod schema;
mod secret;
mod victim;
mod view;
mod watch;
mod writes;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::slice;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::cloud::{self, UpArguments, launch};
use crate::cluster::{power, settings::Settings};
use crate::directories::Directories;
use crate::document::Document;
use crate::progress::{self, Progress};
use fault::{Api, Fault};
use load::Load;
use measure::Row;
use repair::Guard;
use view::View;
use watch::Watch;

/// The document with the table, between two markers.
const DOCUMENT: &str = "docs/reliability.md";
const PART: &str = "faults";
const SAMPLE: &str = "samples/ha.yaml";
/// The cloud of `--short`: what the selected faults affect.
const SHORT_SAMPLE: &str = "samples/ha-identity.yaml";
/// A quorum of three needs three nodes.
const NODES: u8 = 3;
/// How long a new cloud may take to become Ready.
const START: &str = "30m";
/// The instances under observation. What the load creates has another prefix.
const INSTANCES: [&str; 2] = ["observed-1", "observed-2"];

#[derive(Args)]
pub(crate) struct Arguments {
    /// Run this fault only; repeat the option for several.
    #[arg(long, value_name = "NAME")]
    fault: Vec<String>,
    /// Run a selection that takes at most ten minutes. It creates a cloud with Keystone only.
    #[arg(long, conflicts_with_all = ["fault", "write"])]
    short: bool,
    /// List the faults.
    #[arg(long)]
    list: bool,
    /// Write the rows of these faults to docs/reliability.md.
    #[arg(long)]
    write: bool,
}

impl Arguments {
    fn faults(&self) -> Result<Vec<Fault>> {
        if self.short { catalogue::short() } else { catalogue::select(&self.fault) }
    }

    fn sample(&self) -> &'static str {
        if self.short { SHORT_SAMPLE } else { SAMPLE }
    }
}

pub(crate) fn run(directories: &Directories, arguments: &Arguments) -> Result<ExitCode> {
    let faults = arguments.faults()?;
    if arguments.list {
        progress::print(&report::list(&faults));
        return Ok(ExitCode::SUCCESS);
    }
    let document = arguments.write.then(|| Document::new(&directories.checkout, DOCUMENT));
    if let Some(document) = &document {
        document.require_markers([PART])?;
    }
    let progress = Progress::new();
    let started = Instant::now();
    ensure_cloud(directories, arguments.sample())?;
    // Another run would change the cloud under the faults.
    let _lock = directories.lock()?;
    let settings = Settings::require(directories)?;
    let guard = Guard::start(directories)?;
    let drilled = drill(directories, &settings, arguments, faults, &progress, document.as_ref());
    let repaired = guard.end(directories);
    let (rows, ended) = drilled?;
    repaired?;
    progress::print(&report::results(&rows, started.elapsed().as_secs_f64()));
    ended?;
    let failed = rows.iter().any(|row| !row.failures.is_empty());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The guard of a drill: the drill starts it.
pub(crate) fn guard(directories: &Directories) -> Result<()> {
    repair::guard(directories)
}

/// Creates the cloud of the sample, unless a highly available cloud runs already.
fn ensure_cloud(directories: &Directories, sample: &str) -> Result<()> {
    // Without an API server the cluster is incomplete, and `up` completes it.
    let runs = power::has_api_server(directories)?;
    if let Some(settings) = Settings::load(directories)?.filter(|_| runs) {
        // A drill that was killed may have left a fault.
        let _lock = directories.lock()?;
        repair::repair(directories)?;
        if cloud::exists(directories)? {
            View::find(directories)?;
            if settings.nodes < NODES {
                bail!(
                    "the cluster has {} nodes and the drill needs {NODES}: add nodes with cargo xtask cluster up \
                     --nodes {NODES}",
                    settings.nodes
                );
            }
            return Ok(());
        }
    }
    let sample = directories.checkout.join(sample);
    cloud::up(directories, &UpArguments::local(directories, NODES, sample, START)?)
}

/// The manifest of the short drill's cloud.
pub(crate) fn short_sample(directories: &Directories) -> PathBuf {
    directories.checkout.join(SHORT_SAMPLE)
}

/// Why the drill cannot use the cloud that runs; none without a cloud.
pub(crate) fn obstacle(directories: &Directories) -> Result<Option<String>> {
    if !cloud::exists(directories)? {
        return Ok(None);
    }
    Ok(View::find(directories).err().map(|error| error.to_string()))
}

/// Runs the faults, and returns what they have cost even if the drill cannot continue.
fn drill(
    directories: &Directories,
    settings: &Settings,
    arguments: &Arguments,
    faults: Vec<Fault>,
    progress: &Progress,
    document: Option<&Document>,
) -> Result<(Vec<Row>, Result<()>)> {
    let view = View::find(directories)?;
    schema::require_equal(&view)?;
    let faults = catalogue::expand(faults, &arguments.fault, &view.cloud, &view.secrets()?)?;
    let mut instances: BTreeMap<String, Ipv4Addr> = BTreeMap::new();
    for name in INSTANCES.into_iter().filter(|_| view.apis.contains(&Api::Nova)) {
        instances.insert(name.to_owned(), launch::launch(directories, name, progress)?);
    }
    let load = Load::start(directories, &view, settings.addresses.gateway_service(), instances)?;
    let mut watch = Watch::new(view, load);
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    let mut ended = Ok(());
    for fault in &faults {
        match run_fault(directories, settings, fault, &mut watch, progress, document) {
            Ok((row, line)) => {
                rows.push(row);
                lines.push(line);
            }
            Err(error) => ended = Err(error.context(format!("fault {} ended the drill", fault.name))),
        }
        // Further faults would measure the state that this one has left.
        if ended.is_err() || rows.last().is_some_and(|row| row.ready.is_none()) {
            break;
        }
    }
    progress::print(&report::table("", &lines));
    if ended.is_ok() && rows.iter().all(|row| row.ready.is_some()) {
        watch.load.end()?;
    }
    Ok((rows, ended))
}

/// Runs one fault and shows its progress. Returns its figures and its row of the table.
fn run_fault(
    directories: &Directories,
    settings: &Settings,
    fault: &Fault,
    watch: &mut Watch<'_>,
    progress: &Progress,
    document: Option<&Document>,
) -> Result<(Row, String)> {
    let step = progress.step(&fault.name);
    let measured = measure::settle(watch, &step)
        .context("the cloud is not ready for the fault")
        .and_then(|()| measure::run(directories, settings, fault, watch, &step));
    match measured {
        Ok(row) => {
            let text = report::row(fault, &row);
            let mark = if row.failures.is_empty() { '✓' } else { '✗' };
            step.finish(mark, &row.failures.first().cloned().unwrap_or_else(|| row.summary()));
            if let Some(document) = document {
                // At once: a drill of hours may be interrupted.
                let table = report::table(&document.read_part(PART)?, slice::from_ref(&text));
                document.write(PART, table.trim_end())?;
            }
            Ok((row, text))
        }
        Err(error) => {
            step.finish('✗', "failed");
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_document_has_a_place_for_the_table() -> Result<()> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        Document::new(&root, DOCUMENT).require_markers([PART])
    }

    #[test]
    fn the_load_does_not_delete_the_instances_under_observation() {
        assert!(INSTANCES.iter().all(|name| !name.starts_with("drill")));
    }
}
