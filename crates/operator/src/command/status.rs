//! `status`: clouds and their services as a tree, once or until all are Ready.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use console::Term;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::core::DynamicObject;
use openstack_operator_engine::engine::Key;
use openstack_operator_model::kind::Kind;
use serde_json::json;
use snafu::Snafu;

use crate::check::answer::{Unreadable, scope};
use crate::check::gather;
use crate::cluster::{self, ClusterArguments};
use crate::output::{self, ColorChoice};
use crate::tree::{Names, Node, Style, draw, forest, is_ready, is_stalled};

mod follow;

/// Show clouds and their services as a tree, with the reason why each of them is not Ready.
///
/// Ends with 0 if no object is Stalled, with 1 if one is, and with 2 on an error. With --wait it ends with 0 as soon as
/// every object is Ready, and with 1 after the timeout or when an object has been Stalled for 10 seconds.
#[derive(Args)]
#[command(after_help = "EXAMPLES:
  openstack-operator status
  openstack-operator status cloud -n openstack --wait --timeout 30m
  openstack-operator status -A -o json")]
pub(crate) struct Arguments {
    /// Only objects of this name, with the objects below them.
    name: Option<String>,
    /// Namespace of the objects [default: that of the kubeconfig's context].
    #[arg(short = 'n', long)]
    namespace: Option<String>,
    /// Objects of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Wait until every object is Ready, and show changes.
    #[arg(short, long, visible_alias = "watch")]
    wait: bool,
    /// How long to wait, e.g. 90s, 15m or 1h30m.
    #[arg(long, default_value = "15m", value_name = "DURATION", value_parser = parse_duration)]
    timeout: Duration,
    /// Format of the output. JSON is printed once, at the end.
    #[arg(short, long, value_enum, default_value_t = Format::Tree)]
    output: Format,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// When the output is coloured.
    #[arg(long, value_enum, default_value_t = ColorChoice::Auto)]
    color: ColorChoice,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Tree,
    Json,
}

#[derive(Debug, Snafu)]
pub(crate) enum Error {
    #[snafu(transparent)]
    Cluster { source: cluster::Error },
    #[snafu(transparent)]
    Print { source: output::Error },
    #[snafu(display("{reason}"))]
    List { reason: Unreadable },
    #[snafu(display("there is no object named {name:?} {place}"))]
    Unknown { name: String, place: String },
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<SignedDuration>().ok().and_then(|duration| Duration::try_from(duration).ok());
    parsed
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "write a duration such as 90s, 15m or 1h30m".to_owned())
}

/// The objects to show, and how to show them.
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
    if arguments.wait { view.follow().await } else { view.once().await }
}

impl View<'_> {
    async fn once(&self) -> Result<ExitCode, Error> {
        let listed = gather::objects(&self.client, self.namespace.as_deref()).await;
        let objects = listed.map_err(|reason| Error::List { reason })?;
        let forest = forest(&objects, self.arguments.name.as_deref());
        match (&self.arguments.name, forest.is_empty()) {
            (Some(name), true) => return UnknownSnafu { name, place: self.place() }.fail(),
            _ if self.arguments.output == Format::Json => print_json(&forest)?,
            (None, true) => output::remark(&format!("There is no cloud {}.", self.place())),
            (_, false) => output::print(&format!("{}\n", self.lines(&forest).join("\n")))?,
        }
        Ok(if is_stalled(&forest) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn lines(&self, forest: &[Node]) -> Vec<String> {
        // Only a terminal has an edge to cut lines at.
        let width = if is_terminal() { usize::from(Term::stdout().size().1) } else { usize::MAX };
        let names = if self.namespace.is_none() { Names::WithNamespace } else { Names::Plain };
        draw(forest, Style { paint: self.arguments.color.paint(), now: Timestamp::now(), width, names })
    }

    fn place(&self) -> String {
        scope(self.namespace.as_deref())
    }
}

fn print_json(forest: &[Node]) -> Result<(), Error> {
    let document = json!({
        "ready": is_ready(forest),
        "stalled": is_stalled(forest),
        "objects": forest.iter().map(Node::json).collect::<Vec<_>>(),
    });
    Ok(output::print(&format!("{document:#}\n"))?)
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
