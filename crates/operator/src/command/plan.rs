//! `plan`: the changes that applying objects would cause in a cluster.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use openstack_operator_model::common::PAUSE_ANNOTATION;
use openstack_operator_model::kind::{DEPLOYMENT, HTTP_ROUTE, Kind, STATEFUL_SET};
use openstack_operator_services::kinds;
use snafu::Snafu;

use crate::changes::{Action, Change, changes};
use crate::cluster::{self, ClusterArguments, operator_environment};
use crate::command::files::FileArguments;
use crate::command::render::remarks;
use crate::desired::{Desired, desired};
use crate::input::{self, Input, Namespace, Problems};
use crate::live::{self, Live};
use crate::output::{self, ColorChoice};
use crate::plan_all::{Planned, plan_all};
use crate::rejection::ensure_accepted;
use crate::site::{self, SiteOverrides};

mod report;
mod waves;

/// Print the changes that applying the objects would cause in a cluster.
///
/// It writes nothing to the cluster and does not read values of Secrets. The spec in a file is complete: a field that only
/// the cluster has is shown as removed. Ends with 0 if nothing would change, with 1 if something would, and with 2 on an
/// error.
#[derive(Args)]
#[command(after_help = "EXAMPLES:
  openstack-operator plan -f cloud.yaml
  openstack-operator plan -f cloud.yaml --context production --color always | less -R
  openstack-operator plan -f cloud.yaml -o markdown > plan.md
  openstack-operator plan -f cloud.yaml && echo 'no changes'")]
pub(crate) struct Arguments {
    #[command(flatten)]
    files: FileArguments,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Format of the output; Markdown is for pull requests.
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// When the output is coloured.
    #[arg(long, value_enum, default_value_t = ColorChoice::Auto)]
    color: ColorChoice,
    #[command(flatten)]
    site: SiteOverrides,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Text,
    Json,
    Markdown,
}

#[derive(Debug, Snafu)]
pub(crate) enum Error {
    #[snafu(transparent)]
    Cluster { source: cluster::Error },
    #[snafu(transparent)]
    Input { source: input::Error },
    #[snafu(transparent)]
    Live { source: live::Error },
    #[snafu(transparent)]
    Plan { source: Problems },
    #[snafu(transparent)]
    Site { source: site::Error },
    #[snafu(transparent)]
    Print { source: output::Error },
}

pub(crate) async fn plan(arguments: &Arguments) -> Result<ExitCode, Error> {
    let client = arguments.cluster.client().await?;
    let namespace = match &arguments.files.namespace {
        Some(given) => Namespace::Given(given.clone()),
        None => Namespace::Default(client.default_namespace().to_owned()),
    };
    let Input { documents, skipped } = input::read(&arguments.files.files, &namespace)?;
    let namespaces: BTreeSet<String> =
        documents.iter().map(|document| document.key.namespace.clone()).collect();
    let live = live::read(&client, &namespaces).await?;
    let environment = operator_environment(&client).await;
    let site = arguments.site.site(&environment.clone().unwrap_or_default())?;
    let planned = plan_all(documents, &site, &live.known())?;
    ensure_accepted(&planned, &live)?;
    let desired = desired(&planned);
    let mut notes = remarks(&planned, &skipped);
    if environment.is_none() {
        notes.push(
            "note: there is no operator in the cluster: objects without images use the default images"
                .to_owned(),
        );
    }
    notes.extend(cluster_notes(&planned, &desired, &live));
    let changes = changes(&planned, &desired, &live);
    notes.extend(changes.iter().filter_map(rejection));
    let report = match arguments.output {
        Format::Text => report::text(&changes, arguments.color.paint()) + &waves::text(&planned),
        Format::Json => {
            let mut report = report::json(&changes, &notes);
            report["upgrades"] = waves::json(&planned).into();
            format!("{report:#}\n")
        }
        Format::Markdown => report::markdown(&changes, &notes) + &waves::text(&planned),
    };
    output::print(&report)?;
    if arguments.output == Format::Text {
        for note in notes {
            output::remark(&note);
        }
    }
    Ok(if changes.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reasons why changes will wait or cannot be compared.
fn cluster_notes(planned: &[Planned], desired: &[Desired], live: &Live) -> Vec<String> {
    let mut notes = Vec::new();
    if kinds().iter().any(|kind| live.unserved.contains(kind)) {
        notes.push("note: the operator is not installed: the cluster does not serve its kinds".to_owned());
    }
    if live.unserved.contains(&HTTP_ROUTE) && desired.iter().any(|desired| desired.key.kind == HTTP_ROUTE) {
        notes.push("note: the cluster does not serve HTTPRoutes: install the Gateway API".to_owned());
    }
    match &live.secrets {
        None => notes.push("note: forbidden: cannot list secrets; they are not compared".to_owned()),
        Some(secrets) => {
            for planned in planned {
                for need in &planned.needs.secrets {
                    if !secrets.contains_key(&(planned.key.namespace.clone(), need.name.clone())) {
                        let Planned { key, .. } = planned;
                        notes.push(format!("note: {key} waits for Secret {} ({})", need.name, need.field));
                    }
                }
            }
        }
    }
    let paused = planned.iter().filter(|planned| {
        let pointer = format!("/metadata/annotations/{}", PAUSE_ANNOTATION.replace('/', "~1"));
        live.objects
            .get(&planned.key)
            .and_then(|object| object.pointer(&pointer))
            .is_some_and(|value| value == "true")
    });
    notes.extend(
        paused
            .map(|planned| format!("note: {} is paused: its changes wait until it is resumed", planned.key)),
    );
    notes
}

/// Fields that the API server rejects changes of.
const IMMUTABLE: [(Kind, &str); 4] = [
    (STATEFUL_SET, "spec.volumeClaimTemplates"),
    (STATEFUL_SET, "spec.serviceName"),
    (STATEFUL_SET, "spec.selector"),
    (DEPLOYMENT, "spec.selector"),
];

/// Why the API server will reject a change.
fn rejection(change: &Change) -> Option<String> {
    let Action::Change(hunks) = &change.action else { return None };
    let is_touched = |path: &str| hunks.iter().any(|hunk| hunk.place.starts_with(path));
    let (_, path) = IMMUTABLE.iter().find(|(kind, path)| *kind == change.key.kind && is_touched(path))?;
    Some(format!("note: the API server will reject the change of {}: {path} is immutable", change.key))
}

#[cfg(test)]
mod tests {
    use openstack_operator_engine::engine::Key;

    use super::*;
    use crate::difference::Hunk;

    fn change(kind: Kind, name: &str, action: Action) -> Change {
        let key = Key { kind, namespace: "n".to_owned(), name: name.to_owned() };
        Change { key, action, restarts: None }
    }

    #[test]
    fn a_change_that_the_api_server_will_reject_is_noted() {
        let hunk = |place: &str| vec![Hunk { place: place.to_owned(), lines: Vec::new() }];
        let size = change(STATEFUL_SET, "m", Action::Change(hunk("spec.volumeClaimTemplates")));
        assert!(rejection(&size).unwrap().contains("StatefulSet n/m"));
        assert_eq!(rejection(&change(STATEFUL_SET, "m", Action::Change(hunk("spec.template")))), None);
    }
}
