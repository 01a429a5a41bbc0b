//! `status`: how clouds and their services are, once or until all are ready.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use console::Term;
use futures::future::try_join_all;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::api::ListParams;
use kube::core::DynamicObject;
use openstack_operator_engine::engine::Key;
use openstack_operator_model::kind::Kind;
use openstack_operator_services::kinds;
use snafu::{Snafu, ensure};

use crate::cluster::{self, ClusterArguments, Listing, api};
use crate::output::{self, ColorChoice};
use crate::tree::{Names, Node, Style, draw, forest};

mod follow;

/// Show clouds and their services as a tree, with what each of them waits for.
#[derive(Args)]
#[command(after_help = "EXAMPLES:
  openstack-operator status
  openstack-operator status cloud -n openstack --watch
  openstack-operator status -A

With --watch it ends with 0 as soon as every object that is shown is Ready, and with 1 after the timeout.")]
pub(crate) struct Arguments {
    /// Only objects of this name, with what they consist of.
    name: Option<String>,
    /// Namespace of the objects [default: that of the kubeconfig's context].
    #[arg(short = 'n', long)]
    namespace: Option<String>,
    /// Objects of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Follow until every object that is shown is Ready.
    #[arg(short, long)]
    watch: bool,
    /// How long to follow, e.g. 90s, 15m or 1h30m.
    #[arg(long, default_value = "15m", value_name = "DURATION", value_parser = parse_duration)]
    timeout: Duration,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// When the output is coloured.
    #[arg(long, value_enum, default_value_t = ColorChoice::Auto)]
    color: ColorChoice,
}

#[derive(Debug, Snafu)]
pub(crate) enum Error {
    #[snafu(transparent)]
    Cluster { source: cluster::Error },
    #[snafu(transparent)]
    Print { source: output::Error },
    #[snafu(display(
        "the cluster does not know the operator's kinds: openstack-operator manifests prints what installs it"
    ))]
    NotInstalled,
    #[snafu(display("failed to list {resource}: you may not; -n NAMESPACE names one where you may"))]
    Forbidden { resource: &'static str },
    #[snafu(display("failed to list {resource}: {reason}"))]
    Refused { resource: &'static str, reason: String },
    #[snafu(display("there is no object called {name:?} {place}"))]
    Unknown { name: String, place: String },
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<SignedDuration>().ok().and_then(|duration| Duration::try_from(duration).ok());
    parsed
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "write a time such as 90s, 15m or 1h30m".to_owned())
}

/// What is looked at, and how it is shown.
struct View<'a> {
    client: Client,
    namespace: Option<String>,
    arguments: &'a Arguments,
}

pub(crate) async fn status(arguments: &Arguments) -> Result<ExitCode, Error> {
    let client = arguments.cluster.client().await?;
    let namespace = (!arguments.all_namespaces)
        .then(|| arguments.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned()));
    let view = View { client, namespace, arguments };
    if arguments.watch { view.follow().await } else { view.once().await }
}

impl View<'_> {
    async fn once(&self) -> Result<ExitCode, Error> {
        let mut objects = Vec::new();
        let mut unserved = 0;
        let all = kinds();
        let lists = all.iter().map(async |kind| {
            let listed =
                api(&self.client, *kind, self.namespace.as_deref()).list(&ListParams::default()).await;
            Listing::new(kind.plural, listed)
        });
        for (kind, listing) in all.iter().zip(try_join_all(lists).await?) {
            match listing {
                Listing::Found(found) => {
                    objects.extend(found.into_iter().map(|object| (key(*kind, &object), object)));
                }
                Listing::NotServed => unserved += 1,
                Listing::Forbidden => return ForbiddenSnafu { resource: kind.plural }.fail(),
            }
        }
        ensure!(unserved < all.len(), NotInstalledSnafu);
        let forest = forest(&objects, self.arguments.name.as_deref());
        match (&self.arguments.name, forest.is_empty()) {
            (Some(name), true) => return UnknownSnafu { name, place: self.place() }.fail(),
            (None, true) => {
                output::remark(&format!("There is no object of the operator's kinds {}.", self.place()));
            }
            (_, false) => output::print(&format!("{}\n", self.lines(&forest).join("\n")))?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn lines(&self, forest: &[Node]) -> Vec<String> {
        // Where nobody sees an edge no line is cut at it.
        let width = if is_terminal() { usize::from(Term::stdout().size().1) } else { usize::MAX };
        let names = if self.namespace.is_none() { Names::WithNamespace } else { Names::Plain };
        draw(forest, Style { paint: self.arguments.color.paint(), now: Timestamp::now(), width, names })
    }

    fn place(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("in namespace {namespace}"),
            None => "in any namespace".to_owned(),
        }
    }
}

fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

fn key(kind: Kind, object: &DynamicObject) -> Key {
    Key {
        kind,
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
        name: object.metadata.name.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_has_a_unit() {
        assert_eq!(parse_duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("15m"), Ok(Duration::from_mins(15)));
        assert_eq!(parse_duration("1h30m"), Ok(Duration::from_mins(90)));
        for bad in ["", "0s", "15", "-1m", "soon"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
