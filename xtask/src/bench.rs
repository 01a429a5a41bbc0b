//! Benchmarks of the operator, part by part, and the document with their figures.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};

use crate::cloud;
use crate::cluster::{self, settings::Settings};
use crate::command::show;
use crate::directories::{Directories, Lock};
use crate::document::Document;
use crate::graph::{Graph, Weight};
use crate::images::{Builder, origin::Origin};
use crate::process;
use crate::progress::{self, Progress};

/// The document with the figures, each part between two markers.
const DOCUMENT: &str = "docs/performance.md";
/// The program that measures, in a release build: figures of a debug build are meaningless.
const PROGRAM: [&str; 4] = ["--release", "--locked", "--package", "openstack-operator-bench"];

#[derive(Args)]
pub(crate) struct Arguments {
    /// Measure one part only.
    #[arg(long, value_name = "PART")]
    only: Option<Part>,
    /// Numbers of control planes in the fleet, with one measurement for each.
    #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000", value_name = "NUMBERS",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clouds: Vec<u32>,
    /// How often a cloud is created in each way.
    #[arg(long, default_value_t = 3, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: u32,
    /// How long the idle operator is observed.
    #[arg(long, default_value_t = 10, value_name = "MINUTES", value_parser = clap::value_parser!(u64).range(1..=1440))]
    rest_minutes: u64,
    /// Manifest of the control plane [default: samples/minimal.yaml of the project].
    #[arg(long, value_name = "FILE")]
    sample: Option<PathBuf>,
    /// Write the figures to docs/performance.md as well.
    #[arg(long)]
    write: bool,
}

/// The parts, cheapest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Planning and lowering of a cloud. Needs no cluster.
    Plan,
    /// Size of the CRDs. Needs no cluster.
    Crd,
    /// One cloud, created by the operator and by hand, and the idle operator.
    Cloud,
    /// The same with all services of the sample. Its nodes need the interfaces that the sample names.
    Whole,
    /// Many control planes whose pods never run.
    Fleet,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Crd => "crd",
            Self::Cloud => "cloud",
            Self::Whole => "whole",
            Self::Fleet => "fleet",
        }
    }

    /// The subcommand of the program that measures.
    fn command(self) -> Vec<&'static str> {
        if self == Self::Whole { vec![Self::Cloud.name(), "--whole"] } else { vec![self.name()] }
    }

    fn is_cloud(self) -> bool {
        matches!(self, Self::Cloud | Self::Whole)
    }

    fn needs_cluster(self) -> bool {
        self.is_cloud() || self == Self::Fleet
    }
}

pub(crate) fn run(directories: &Directories, arguments: &Arguments) -> Result<()> {
    let all = Part::value_variants().iter().copied();
    let parts: Vec<Part> = all.filter(|part| arguments.only.is_none_or(|only| only == *part)).collect();
    let sample = sample(directories, arguments.sample.as_deref(), &parts)?;
    let document = Document::new(&directories.checkout, DOCUMENT);
    if arguments.write {
        document.require_markers(parts.iter().map(|part| part.name()))?;
    }
    let builder = Builder::new(directories);
    // Held until the last measurement: another run would disturb it.
    let (settings, _lock) = prepare(directories, &builder, &parts, &sample)?.unzip();
    for part in parts {
        let mut command = measuring(directories);
        command.args(part.command());
        if let Some(settings) = settings.as_ref().filter(|_| part.needs_cluster()) {
            let origin = Origin::local(&builder, settings);
            command.env("KUBECONFIG", cluster::kubeconfig(directories));
            command.arg("--operator").arg(builder.program("operator")?);
            command.args(["--images-registry", &origin.prefix()]);
            if part.is_cloud() {
                command.args(["--operator-image", &origin.reference("operator")?]);
                command.arg("--sample").arg(&sample);
                command.args(["--repetitions", &arguments.repetitions.to_string()]);
                command.args(["--rest-minutes", &arguments.rest_minutes.to_string()]);
            } else {
                let clouds: Vec<String> = arguments.clouds.iter().map(ToString::to_string).collect();
                command.args(["--clouds", &clouds.join(",")]);
                command.arg("--log").arg(directories.logs().join("bench-operator.log"));
            }
        }
        let figures = measure(&mut command)?;
        progress::print(&format!("## {}\n\n{}\n", part.name(), figures.trim()));
        if arguments.write {
            document.write(part.name(), figures.trim())?;
        }
    }
    Ok(())
}

fn sample(directories: &Directories, given: Option<&Path>, parts: &[Part]) -> Result<PathBuf> {
    let path = given.map_or_else(|| directories.checkout.join("samples/minimal.yaml"), Path::to_owned);
    let path = std::path::absolute(path)?;
    if parts.iter().any(|part| part.is_cloud()) && !path.is_file() {
        bail!("{} is not a file: pass the manifest of a control plane with --sample FILE", path.display());
    }
    Ok(path)
}

/// Builds the benchmarks and, where a part needs it, the cluster with the images of a cloud.
fn prepare(
    directories: &Directories,
    builder: &Builder,
    parts: &[Part],
    sample: &Path,
) -> Result<Option<(Settings, Lock)>> {
    if !parts.iter().any(|part| part.needs_cluster()) {
        // Without a cluster there is nothing to lock, and `cargo run` builds.
        progress::notify("building the benchmarks, if they changed");
        return Ok(None);
    }
    let lock = directories.lock()?;
    process::end_leftovers(directories)?;
    let settings = cluster::prepare(directories, &cluster::Up::at_least(directories, 1)?)?;
    let mut graph = Graph::default();
    cloud::add_cluster(&mut graph, directories, &settings, builder, &[sample.to_owned()])?;
    graph.add("build benchmarks", Weight::Heavy, &[], |log| {
        log.run(cargo(directories).arg("build").args(PROGRAM)).map(|()| String::new())
    });
    graph.run(directories, &Progress::new())?;
    Ok(Some((settings, lock)))
}

fn cargo(directories: &Directories) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(&directories.checkout).env("CARGO_TERM_COLOR", "never");
    command
}

/// Runs the program that measures.
fn measuring(directories: &Directories) -> Command {
    let mut command = cargo(directories);
    command.args(["run", "--quiet"]).args(PROGRAM).arg("--");
    command
}

/// Runs a measurement and returns its figures; its progress goes to standard error.
fn measure(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("failed to start {shown}"))?;
    if !output.status.success() {
        bail!("{shown}: {}", output.status);
    }
    String::from_utf8(output.stdout).context("the figures are not text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_markers_for_every_part() -> Result<()> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        Document::new(&root, DOCUMENT).require_markers(Part::value_variants().iter().map(|part| part.name()))
    }
}
