//! Objects as a tree: a cloud with its services below, each with its state and the reason for it.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::core::DynamicObject;
use openstack_operator_engine::engine::Key;
use openstack_operator_model::status::{ServiceStatus, Status};
use serde_json::{Value, json};

use crate::output::{Color, Paint};

/// The state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    /// Ready, but something is lost, e.g. a node.
    Degraded,
    Waiting,
    /// An administrator must change something.
    Stalled,
    /// Requested but impossible; no object waits for it.
    LeftOut,
}

impl State {
    /// Whether it is not Ready yet.
    pub(crate) fn is_awaited(self) -> bool {
        matches!(self, Self::Waiting | Self::Stalled)
    }
}

/// An object and the objects below it.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) title: Title,
    pub(crate) state: State,
    /// Reason of the condition Ready.
    pub(crate) reason: String,
    /// Why it is not Ready, or what is lost.
    pub(crate) message: String,
    /// Whether it serves now.
    pub(crate) is_available: bool,
    phase: Option<String>,
    endpoint: Option<String>,
    extent: Option<String>,
    created: Option<Timestamp>,
    pub(crate) children: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Title {
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl std::fmt::Display for Title {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// Objects below their owners; with a name, only the objects of that name.
pub(crate) fn forest(objects: &[(Key, DynamicObject)], name: Option<&str>) -> Vec<Node> {
    let uids: BTreeSet<&str> =
        objects.iter().filter_map(|(_, object)| object.metadata.uid.as_deref()).collect();
    let is_root = |object: &DynamicObject, key: &Key| match name {
        Some(name) => key.name == name,
        None => !owners(object).any(|owner| uids.contains(owner)),
    };
    let roots = objects.iter().filter(|(key, object)| is_root(object, key));
    roots.map(|(key, object)| node(objects, key, object)).collect()
}

/// Objects of this name with all objects below them; every object if no name is given.
pub(crate) fn select(objects: Vec<(Key, DynamicObject)>, name: Option<&str>) -> Vec<(Key, DynamicObject)> {
    let Some(name) = name else { return objects };
    let keys = objects.iter().map(|(key, _)| key);
    let named: Vec<Key> = keys.filter(|key| key.name == name).cloned().collect();
    let selected = select_below(&objects, &named);
    objects.into_iter().filter(|(key, _)| selected.contains(key)).collect()
}

/// These objects and all objects below them.
pub(crate) fn select_below(objects: &[(Key, DynamicObject)], roots: &[Key]) -> Vec<Key> {
    let mut selected = roots.to_vec();
    let mut next = 0;
    while let Some(key) = selected.get(next) {
        let uid =
            objects.iter().find(|(other, _)| other == key).and_then(|(_, found)| found.metadata.uid.clone());
        let is_below = |object: &DynamicObject| {
            uid.as_deref().is_some_and(|uid| owners(object).any(|owner| owner == uid))
        };
        let below: Vec<Key> =
            objects.iter().filter(|(_, object)| is_below(object)).map(|(key, _)| key.clone()).collect();
        selected.extend(below.into_iter().filter(|key| !selected.contains(key)).collect::<Vec<_>>());
        next += 1;
    }
    selected
}

fn owners(object: &DynamicObject) -> impl Iterator<Item = &str> {
    object.metadata.owner_references.iter().flatten().map(|owner| owner.uid.as_str())
}

fn node(objects: &[(Key, DynamicObject)], key: &Key, object: &DynamicObject) -> Node {
    let status: Status = object
        .data
        .get("status")
        .and_then(|status| serde_json::from_value(status.clone()).ok())
        .unwrap_or_default();
    let own = object.metadata.uid.as_deref();
    let parts =
        objects.iter().filter(|(_, other)| own.is_some_and(|own| owners(other).any(|uid| uid == own)));
    let mut children: Vec<Node> = parts.map(|(key, other)| node(objects, key, other)).collect();
    let is_there = |row: &ServiceStatus, children: &[Node]| {
        children.iter().any(|child| child.title.kind == row.kind && child.title.name == row.name)
    };
    let missing: Vec<Node> = status
        .services
        .iter()
        .filter(|row| !is_there(row, &children))
        .map(|row| left_out(row, &key.namespace))
        .collect();
    children.extend(missing);
    let (state, message) = judge(object, &status);
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    let reason = ready.map(|ready| ready.reason.clone()).unwrap_or_default();
    let mut conditions = status.conditions.iter();
    let is_available = conditions.any(|one| one.type_ == "Available" && one.status == "True");
    Node {
        title: Title {
            kind: key.kind.kind.to_owned(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
        },
        state,
        reason,
        message,
        is_available,
        phase: status.phase.map(|phase| format!("{phase:?}")),
        extent: status.extent(),
        endpoint: status.endpoint,
        created: object.metadata.creation_timestamp.as_ref().map(|time| time.0),
        children,
    }
}

fn left_out(row: &ServiceStatus, namespace: &str) -> Node {
    Node {
        title: Title { kind: row.kind.clone(), namespace: namespace.to_owned(), name: row.name.clone() },
        state: State::LeftOut,
        reason: String::new(),
        is_available: false,
        message: row.waiting_for.clone().unwrap_or_default(),
        phase: None,
        endpoint: None,
        extent: None,
        created: None,
        children: Vec::new(),
    }
}

/// An object is Ready if its status says so about the current generation.
fn judge(object: &DynamicObject, status: &Status) -> (State, String) {
    if object.metadata.deletion_timestamp.is_some() {
        return (State::Waiting, "is being deleted".to_owned());
    }
    if status.observed_generation.is_none() || status.observed_generation != object.metadata.generation {
        return (State::Waiting, "not reconciled yet".to_owned());
    }
    let find = |kind: &str| status.conditions.iter().find(|condition| condition.type_ == kind);
    let holds = |kind: &str| find(kind).is_some_and(|condition| condition.status == "True");
    let message = |kind: &str| find(kind).map(|condition| condition.message.clone()).unwrap_or_default();
    if holds("Ready") && holds("Degraded") {
        return (State::Degraded, message("Degraded"));
    }
    let state = match () {
        () if holds("Ready") => State::Ready,
        () if holds("Stalled") => State::Stalled,
        () => State::Waiting,
    };
    (state, message("Ready"))
}

impl Node {
    /// The node and all below it.
    pub(crate) fn flat(&self) -> Vec<&Node> {
        std::iter::once(self).chain(self.children.iter().flat_map(Node::flat)).collect()
    }

    /// The node and all below it, for programs.
    pub(crate) fn json(&self) -> Value {
        json!({
            "kind": self.title.kind,
            "namespace": self.title.namespace,
            "name": self.title.name,
            "state": format!("{:?}", self.state),
            "reason": self.reason,
            "message": self.message,
            "phase": self.phase,
            "endpoint": self.endpoint,
            "extent": self.extent,
            "created": self.created.map(|created| created.to_string()),
            "parts": self.children.iter().map(Node::json).collect::<Vec<_>>(),
        })
    }

    /// The state in one line.
    pub(crate) fn summary(&self) -> String {
        match (self.state, self.message.is_empty()) {
            (State::Ready, true) => "Ready".to_owned(),
            (State::Ready, false) => format!("Ready ({})", self.message),
            (State::Degraded, _) => format!("Degraded ({})", self.message),
            (_, false) => self.message.clone(),
            (_, true) => "not Ready".to_owned(),
        }
    }

    fn label(&self) -> String {
        match (self.state, &self.phase) {
            (State::Ready, _) => "Ready".to_owned(),
            (State::Degraded, _) => "Degraded".to_owned(),
            (State::Waiting, Some(phase)) => phase.clone(),
            (State::Waiting, None) => "Waiting".to_owned(),
            (State::Stalled, _) => "Stalled".to_owned(),
            (State::LeftOut, _) => "-".to_owned(),
        }
    }

    fn mark(&self) -> (&'static str, Color) {
        match self.state {
            State::Ready => ("✓", Color::Green),
            State::Degraded => ("!", Color::Yellow),
            State::Waiting => ("…", Color::Yellow),
            State::Stalled => ("✗", Color::Red),
            State::LeftOut => ("-", Color::Dim),
        }
    }
}

/// Whether there are objects and all of them are Ready.
pub(crate) fn is_ready(forest: &[Node]) -> bool {
    let mut all = forest.iter().flat_map(Node::flat);
    !forest.is_empty() && all.all(|node| !node.state.is_awaited())
}

/// Whether an object needs a change by an administrator.
pub(crate) fn is_stalled(forest: &[Node]) -> bool {
    forest.iter().flat_map(Node::flat).any(|node| node.state == State::Stalled)
}

struct Row<'a> {
    branch: String,
    name: String,
    node: &'a Node,
}

/// How to draw a forest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) paint: Paint,
    pub(crate) now: Timestamp,
    /// Columns of the terminal.
    pub(crate) width: usize,
    pub(crate) names: Names,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    Plain,
    WithNamespace,
}

/// The lines of a forest.
pub(crate) fn draw(forest: &[Node], style: Style) -> Vec<String> {
    let mut rows = Vec::new();
    for root in forest {
        collect(root, "", "", style, &mut rows);
    }
    let length = |text: &str| text.chars().count();
    let widest = |of: fn(&Row<'_>) -> String| rows.iter().map(|row| length(&of(row))).max().unwrap_or(0);
    let first = widest(|row| format!("{}  {}", row.branch, row.node.title.kind));
    let second = widest(|row| row.name.clone());
    let third = widest(|row| row.node.label());
    let line = |row: &Row<'_>| {
        let (mark, color) = row.node.mark();
        let kind_width = first - length(&row.branch) - 2;
        let age = row.node.created.map(|created| age(created, style.now)).unwrap_or_default();
        let label = row.node.label();
        let before = first + 2 + second + 2 + third + 2 + 4 + 2;
        let detail: String = detail(row.node).chars().take(style.width.saturating_sub(before)).collect();
        let label = style.paint.apply(color, format!("{label:third$}"));
        let line = format!(
            "{}{} {:kind_width$}  {:second$}  {label}  {age:>4}  {detail}",
            row.branch,
            style.paint.apply(color, mark),
            row.node.title.kind,
            row.name,
        );
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

fn collect<'a>(node: &'a Node, branch: &str, below: &str, style: Style, rows: &mut Vec<Row<'a>>) {
    let name = match style.names {
        Names::Plain => node.title.name.clone(),
        Names::WithNamespace => format!("{}/{}", node.title.namespace, node.title.name),
    };
    rows.push(Row { branch: branch.to_owned(), name, node });
    for (index, child) in node.children.iter().enumerate() {
        let is_last = index + 1 == node.children.len();
        let (branch, stem) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        collect(child, &format!("{below}{branch}"), &format!("{below}{stem}"), style, rows);
    }
}

fn detail(node: &Node) -> String {
    let parts = [Some(node.message.clone()), node.extent.clone(), node.endpoint.clone()];
    parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("  ")
}

/// A time span in one unit, as kubectl writes it.
fn age(created: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(created.as_second()).max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

#[cfg(test)]
mod tests;
