//! The layers of the tests.

use anyhow::Result;
use clap::ValueEnum;

use super::catalogue;
use crate::cloud;
use crate::directories::Directories;
use crate::drill;
use crate::images::Builder;

/// The layers, in the order of the table of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Layer {
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
    /// The proofs of e2e only, on the cloud of `up` or a new one. It runs only by name.
    Catalogue,
    /// A highly available Keystone loses no acknowledged write through the faults of `drill --short`.
    Drill,
    /// `cluster up` completes a cluster after a kill, and `cluster down` restores the host.
    Lifecycle,
}

impl Layer {
    /// The end-to-end suite runs the proofs as well.
    pub(super) fn runs_by_default(self) -> bool {
        self != Self::Catalogue
    }

    /// The name of the suite, for a layer that needs a cluster.
    pub(super) fn suite(self) -> Option<&'static str> {
        match self {
            Self::Apiserver | Self::Smoke => Some(self.name()),
            _ if self.has_clouds() => Some(Self::EndToEnd.name()),
            _ => None,
        }
    }

    pub(super) fn needs_cluster(self) -> bool {
        self.suite().is_some() || self == Self::Drill
    }

    pub(super) fn needs_operator(self) -> bool {
        self.has_clouds() || self == Self::Drill
    }

    pub(super) fn has_clouds(self) -> bool {
        matches!(self, Self::EndToEnd | Self::Catalogue)
    }

    /// The step that compiles or checks the source for the layer, and its arguments for cargo.
    pub(super) fn cargo(self) -> Option<(String, String)> {
        if let Some(suite) = self.suite() {
            return Some((
                format!("build {suite} tests"),
                format!("{} --no-run", super::suite::arguments(suite)),
            ));
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
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Lint => "lint",
            Self::Dependencies => "dependencies",
            Self::Unit => "unit",
            Self::Apiserver => "apiserver",
            Self::Smoke => "smoke",
            Self::EndToEnd => "e2e",
            Self::Catalogue => "catalogue",
            Self::Drill => "drill",
            Self::Lifecycle => "lifecycle",
        }
    }

    /// The images that the layer needs.
    pub(super) fn images(self, directories: &Directories, builder: &Builder) -> Result<Vec<String>> {
        match self {
            Self::Smoke => builder.all_names(),
            Self::EndToEnd => cloud::images(directories, &cloud::samples(directories)?),
            Self::Catalogue => {
                let images = cloud::images(directories, &cloud::samples(directories)?)?;
                Ok(images.into_iter().chain(catalogue::images(directories)?).collect())
            }
            Self::Drill => cloud::images(directories, &[drill::short_sample(directories)]),
            _ => Ok(Vec::new()),
        }
    }
}

pub(super) const LINT: &str = "clippy --workspace --lib --bins --tests -- --deny warnings";
/// Cargo's `--tests` omits targets with `test = false`, even if `--test` names them.
pub(super) const LINT_SUITES: &str =
    "clippy --workspace --test apiserver --test smoke --test e2e -- --deny warnings";
pub(super) const UNIT: &str = "test --workspace --no-fail-fast";
