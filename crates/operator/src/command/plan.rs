//! `plan`: what would change in a cluster if objects were applied to it.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use openstack_operator_model::common::PAUSE_ANNOTATION;
use openstack_operator_model::kind::{DAEMON_SET, DEPLOYMENT, HTTP_ROUTE, JOB, Kind, STATEFUL_SET};
use openstack_operator_services::kinds;
use snafu::Snafu;

use crate::changes::{Action, Change, changes};
use crate::cluster::{self, ClusterArguments, operator_environment};
use crate::command::files::FileArguments;
use crate::command::render::remarks;
use crate::desired::{Desired, desired};
use crate::difference::Line;
use crate::input::{self, Input, Namespace, Problems};
use crate::live::{self, Live};
use crate::output::{self, Color, ColorChoice, Paint};
use crate::plan_all::{Planned, plan_all};
use crate::refusal::ensure_accepted;
use crate::site::{self, SiteOverrides};

/// Print what would change in a cluster if the objects were applied to it.
///
/// Nothing is written to the cluster, and values of Secrets are not read. A spec in a file is taken for all that is
/// wanted: a field that only the cluster has shows as removed. Ends with 0 where nothing would change, with 1 where
/// something would, and with 2 on an error.
#[derive(Args)]
#[command(after_help = "EXAMPLES:
  openstack-operator plan -f cloud.yaml
  openstack-operator plan -f cloud.yaml --context production --color always | less -R
  openstack-operator plan -f cloud.yaml && echo 'nothing to do'")]
pub(crate) struct Arguments {
    #[command(flatten)]
    files: FileArguments,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// When the output is coloured.
    #[arg(long, value_enum, default_value_t = ColorChoice::Auto)]
    color: ColorChoice,
    #[command(flatten)]
    site: SiteOverrides,
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
        notes
            .push("note: no operator was found in the cluster: where objects are silent, images are those of the defaults".to_owned());
    }
    notes.extend(cluster_notes(&planned, &desired, &live));
    let changes = changes(&planned, &desired, &live);
    notes.extend(changes.iter().filter_map(refusal));
    output::print(&report(&changes, arguments.color.paint()))?;
    for note in notes {
        output::remark(&note);
    }
    Ok(if changes.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What keeps changes from happening, or from being seen.
fn cluster_notes(planned: &[Planned], desired: &[Desired], live: &Live) -> Vec<String> {
    let mut notes = Vec::new();
    if kinds().iter().any(|kind| live.unserved.contains(kind)) {
        notes.push(
            "note: the cluster does not know the operator's kinds yet: the operator is not installed"
                .to_owned(),
        );
    }
    if live.unserved.contains(&HTTP_ROUTE) && desired.iter().any(|desired| desired.key.kind == HTTP_ROUTE) {
        notes.push("note: the cluster has no HTTPRoutes: install the Gateway API".to_owned());
    }
    match &live.secrets {
        None => notes.push("note: you may not read Secrets: they are left out of the comparison".to_owned()),
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
        paused.map(|planned| format!("note: {} is paused: its changes wait until it is not", planned.key)),
    );
    notes
}

/// Fields that the API server does not let anyone change.
const FIXED: [(Kind, &str); 4] = [
    (STATEFUL_SET, "spec.volumeClaimTemplates"),
    (STATEFUL_SET, "spec.serviceName"),
    (STATEFUL_SET, "spec.selector"),
    (DEPLOYMENT, "spec.selector"),
];

/// Why a change will not come to pass.
fn refusal(change: &Change) -> Option<String> {
    let Action::Change(hunks) = &change.action else { return None };
    let is_touched = |path: &str| hunks.iter().any(|hunk| hunk.place.starts_with(path));
    let (_, path) = FIXED.iter().find(|(kind, path)| *kind == change.key.kind && is_touched(path))?;
    Some(format!("note: the API server will refuse the change of {}: {path} is fixed", change.key))
}

/// The changes as text.
fn report(changes: &[Change], paint: Paint) -> String {
    if changes.is_empty() {
        return "No changes: the cluster is what the files say.\n".to_owned();
    }
    let mut text = String::new();
    for change in changes {
        // Writing to a String cannot fail.
        let _ = match &change.action {
            Action::Create => writeln!(text, "{}", paint.apply(Color::Green, format!("+ {}", change.key))),
            Action::Delete => writeln!(text, "{}", paint.apply(Color::Red, format!("- {}", change.key))),
            Action::Change(_) => {
                writeln!(text, "{}", paint.apply(Color::Yellow, format!("~ {}", change.key)))
            }
        };
        let Action::Change(hunks) = &change.action else { continue };
        for hunk in hunks {
            let _ = writeln!(text, "    {}", paint.apply(Color::Cyan, format!("@@ {} @@", hunk.place)));
            for line in &hunk.lines {
                let line = match line {
                    Line::Removed(line) => paint.apply(Color::Red, format!("-{line}")),
                    Line::Added(line) => paint.apply(Color::Green, format!("+{line}")),
                };
                let _ = writeln!(text, "    {line}");
            }
        }
    }
    text.push_str(&summary(changes, paint));
    text
}

fn summary(changes: &[Change], paint: Paint) -> String {
    let count = |wanted: fn(&Action) -> bool| changes.iter().filter(|change| wanted(&change.action)).count();
    let totals = format!(
        "Plan: {} to create, {} to change, {} to delete.",
        count(|action| *action == Action::Create),
        count(|action| matches!(action, Action::Change(_))),
        count(|action| *action == Action::Delete),
    );
    let mut text = format!("\n{}\n", paint.apply(Color::Bold, totals));
    let title = |change: &Change| format!("{} {}", change.key.kind.kind, change.key.name);
    let restarts: Vec<String> = changes
        .iter()
        .filter_map(|change| {
            let pods = change.restarts?;
            let plural = if pods == 1 { "" } else { "s" };
            let order = if change.key.kind == DAEMON_SET { ", node by node" } else { "" };
            Some(format!("{} ({pods} pod{plural}{order})", title(change)))
        })
        .collect();
    let runs = changes.iter().filter(|change| change.key.kind == JOB && change.action != Action::Delete);
    let runs: Vec<String> = runs.map(title).collect();
    for (what, list) in [("Restarts", restarts), ("Runs", runs)] {
        if !list.is_empty() {
            let _ = writeln!(text, "{what}: {}", list.join(", "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use openstack_operator_engine::engine::Key;
    use openstack_operator_model::kind::SERVICE;

    use super::*;
    use crate::difference::Hunk;

    fn change(kind: Kind, name: &str, action: Action, restarts: Option<i64>) -> Change {
        let key = Key { kind, namespace: "n".to_owned(), name: name.to_owned() };
        Change { key, action, restarts }
    }

    #[test]
    fn a_report_shows_lines_and_sums_up() {
        let lines = vec![Line::Removed("replicas: 1".to_owned()), Line::Added("replicas: 2".to_owned())];
        let hunk = Hunk { place: "spec".to_owned(), lines };
        let changes = [
            change(JOB, "k-db-expand", Action::Create, None),
            change(DEPLOYMENT, "k", Action::Change(vec![hunk]), Some(2)),
            change(SERVICE, "old", Action::Delete, None),
        ];
        assert_eq!(
            report(&changes, Paint::Plain),
            "+ Job n/k-db-expand\n~ Deployment n/k\n    @@ spec @@\n    -replicas: 1\n    +replicas: 2\n- Service n/old\n\
             \nPlan: 1 to create, 1 to change, 1 to delete.\nRestarts: Deployment k (2 pods)\nRuns: Job k-db-expand\n"
        );
        assert!(report(&changes, Paint::Colored).contains("\u{1b}[32m+replicas: 2\u{1b}[0m"));
    }

    #[test]
    fn pods_on_nodes_are_replaced_node_by_node() {
        let changes = [change(DAEMON_SET, "c", Action::Change(Vec::new()), Some(3))];
        assert!(report(&changes, Paint::Plain).ends_with("Restarts: DaemonSet c (3 pods, node by node)\n"));
    }

    #[test]
    fn a_change_that_will_be_refused_is_told() {
        let hunk = |place: &str| vec![Hunk { place: place.to_owned(), lines: Vec::new() }];
        let size = change(STATEFUL_SET, "m", Action::Change(hunk("spec.volumeClaimTemplates")), None);
        assert!(refusal(&size).unwrap().contains("StatefulSet n/m"));
        assert_eq!(refusal(&change(STATEFUL_SET, "m", Action::Change(hunk("spec.template")), None)), None);
    }

    #[test]
    fn nothing_is_said_plainly() {
        assert_eq!(report(&[], Paint::Plain), "No changes: the cluster is what the files say.\n");
    }
}
