//! Changes as text, as JSON for programs and as Markdown for pull requests.

use std::fmt::Write;

use openstack_operator_model::kind::{DAEMON_SET, JOB};
use serde_json::{Value, json};

use crate::changes::{Action, Change};
use crate::difference::{Hunk, Line};
use crate::output::{Color, Paint};

const NO_CHANGES: &str = "No changes: the cluster matches the files.";

/// The changes for a terminal.
pub(super) fn text(changes: &[Change], paint: Paint) -> String {
    if changes.is_empty() {
        return format!("{NO_CHANGES}\n");
    }
    let mut text = String::new();
    for change in changes {
        let (mark, color) = mark(&change.action);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", paint.apply(color, format!("{mark} {}", change.key)));
        for hunk in hunks(change) {
            let _ = writeln!(text, "    {}", paint.apply(Color::Cyan, format!("@@ {} @@", hunk.place)));
            for line in &hunk.lines {
                let color = if matches!(line, Line::Removed(_)) { Color::Red } else { Color::Green };
                let _ = writeln!(text, "    {}", paint.apply(color, signed(line)));
            }
        }
    }
    let _ = writeln!(text, "\n{}", paint.apply(Color::Bold, totals(changes)));
    for consequence in consequences(changes) {
        let _ = writeln!(text, "{consequence}");
    }
    text
}

/// The changes for programs.
pub(super) fn json(changes: &[Change], notes: &[String]) -> Value {
    let hunk = |hunk: &Hunk| json!({ "place": hunk.place, "lines": hunk.lines.iter().map(signed).collect::<Vec<_>>() });
    let change = |change: &Change| {
        json!({
            "action": name(&change.action),
            "kind": change.key.kind.kind,
            "namespace": change.key.namespace,
            "name": change.key.name,
            "restarts": change.restarts,
            "hunks": hunks(change).iter().map(hunk).collect::<Vec<_>>(),
        })
    };
    json!({
        "create": count(changes, "create"),
        "change": count(changes, "change"),
        "delete": count(changes, "delete"),
        "changes": changes.iter().map(change).collect::<Vec<_>>(),
        "notes": notes,
    })
}

/// The changes for a pull request: a summary, and a collapsed block for every changed object.
pub(super) fn markdown(changes: &[Change], notes: &[String]) -> String {
    if changes.is_empty() {
        return format!("**{NO_CHANGES}**\n{}", quoted(notes));
    }
    let mut text = format!("**{}**\n", totals(changes));
    for consequence in consequences(changes) {
        let _ = write!(text, "\n{consequence}\n");
    }
    text.push_str(&quoted(notes));
    for change in changes {
        let title = format!("{} {}", mark(&change.action).0, change.key);
        let hunks = hunks(change);
        if hunks.is_empty() {
            let _ = write!(text, "\n`{title}`\n");
            continue;
        }
        let mut lines = String::new();
        for hunk in hunks {
            let _ = writeln!(lines, "@@ {} @@", hunk.place);
            for line in &hunk.lines {
                let _ = writeln!(lines, "{}", signed(line));
            }
        }
        let fence = fence(&lines);
        let _ = write!(
            text,
            "\n<details><summary><code>{title}</code></summary>\n\n{fence}diff\n{lines}{fence}\n\n</details>\n"
        );
    }
    text
}

fn quoted(notes: &[String]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let lines: Vec<String> = notes.iter().map(|note| format!("> {note}\n")).collect();
    format!("\n{}", lines.join(">\n"))
}

/// A fence that is longer than any in the text.
fn fence(text: &str) -> String {
    let runs = text.split(|character| character != '`').map(str::len);
    "`".repeat(runs.max().unwrap_or(0).max(2) + 1)
}

fn hunks(change: &Change) -> &[Hunk] {
    match &change.action {
        Action::Change(hunks) => hunks,
        Action::Create | Action::Delete => &[],
    }
}

fn signed(line: &Line) -> String {
    match line {
        Line::Removed(line) => format!("-{line}"),
        Line::Added(line) => format!("+{line}"),
    }
}

fn mark(action: &Action) -> (&'static str, Color) {
    match action {
        Action::Create => ("+", Color::Green),
        Action::Change(_) => ("~", Color::Yellow),
        Action::Delete => ("-", Color::Red),
    }
}

fn name(action: &Action) -> &'static str {
    match action {
        Action::Create => "create",
        Action::Change(_) => "change",
        Action::Delete => "delete",
    }
}

fn count(changes: &[Change], action: &str) -> usize {
    changes.iter().filter(|change| name(&change.action) == action).count()
}

fn totals(changes: &[Change]) -> String {
    let [create, change, delete] = ["create", "change", "delete"].map(|action| count(changes, action));
    format!("Plan: {create} to create, {change} to change, {delete} to delete.")
}

/// Pods that restart and tasks that run.
fn consequences(changes: &[Change]) -> Vec<String> {
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
    let lists = [("Restarts", restarts), ("Runs", runs)].into_iter().filter(|(_, list)| !list.is_empty());
    lists.map(|(heading, list)| format!("{heading}: {}", list.join(", "))).collect()
}

#[cfg(test)]
mod tests {
    use openstack_operator_engine::engine::Key;
    use openstack_operator_model::kind::{DEPLOYMENT, Kind, SERVICE};

    use super::*;

    fn change(kind: Kind, name: &str, action: Action, restarts: Option<i64>) -> Change {
        let key = Key { kind, namespace: "n".to_owned(), name: name.to_owned() };
        Change { key, action, restarts }
    }

    fn changes() -> [Change; 3] {
        let lines = vec![Line::Removed("replicas: 1".to_owned()), Line::Added("replicas: 2".to_owned())];
        let hunk = Hunk { place: "spec".to_owned(), lines };
        [
            change(JOB, "k-db-expand", Action::Create, None),
            change(DEPLOYMENT, "k", Action::Change(vec![hunk]), Some(2)),
            change(SERVICE, "old", Action::Delete, None),
        ]
    }

    #[test]
    fn text_has_every_changed_line_and_a_summary() {
        assert_eq!(
            text(&changes(), Paint::Plain),
            "+ Job n/k-db-expand\n~ Deployment n/k\n    @@ spec @@\n    -replicas: 1\n    +replicas: 2\n- Service n/old\n\
             \nPlan: 1 to create, 1 to change, 1 to delete.\nRestarts: Deployment k (2 pods)\nRuns: Job k-db-expand\n"
        );
        assert!(text(&changes(), Paint::Colored).contains("\u{1b}[32m+replicas: 2\u{1b}[0m"));
        assert_eq!(text(&[], Paint::Plain), "No changes: the cluster matches the files.\n");
    }

    #[test]
    fn markdown_has_a_summary_and_a_collapsed_block_for_every_change() {
        assert_eq!(
            markdown(&changes(), &["note: x is paused".to_owned()]),
            "**Plan: 1 to create, 1 to change, 1 to delete.**\n\nRestarts: Deployment k (2 pods)\n\nRuns: Job k-db-expand\n\
             \n> note: x is paused\n\
             \n`+ Job n/k-db-expand`\n\
             \n<details><summary><code>~ Deployment n/k</code></summary>\n\n```diff\n@@ spec @@\n-replicas: 1\n+replicas: 2\n```\n\n</details>\n\
             \n`- Service n/old`\n"
        );
        assert_eq!(markdown(&[], &[]), "**No changes: the cluster matches the files.**\n");
        assert_eq!(fence("a ```` b"), "`````");
    }

    #[test]
    fn json_has_totals_changes_and_notes() {
        let document = json(&changes(), &["note: a".to_owned()]);
        assert_eq!((&document["create"], &document["notes"][0]), (&json!(1), &json!("note: a")));
        assert_eq!(
            document["changes"][1],
            json!({ "action": "change", "kind": "Deployment", "namespace": "n", "name": "k", "restarts": 2,
                    "hunks": [{ "place": "spec", "lines": ["-replicas: 1", "+replicas: 2"] }] })
        );
    }

    #[test]
    fn pods_on_nodes_restart_node_by_node() {
        let changes = [change(DAEMON_SET, "c", Action::Change(Vec::new()), Some(3))];
        assert!(text(&changes, Paint::Plain).ends_with("Restarts: DaemonSet c (3 pods, node by node)\n"));
    }
}
