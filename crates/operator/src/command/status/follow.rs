//! Waits until objects are Ready: with watches, redrawn on a terminal and line by line elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as _;
use std::fmt::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use console::Term;
use futures::stream::select_all;
use futures::{Stream, StreamExt};
use kube::core::{DynamicObject, Status};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use openstack_operator_engine::engine::Key;
use openstack_operator_model::kind::Kind;
use openstack_operator_services::kinds;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::{Error, Format, View, is_terminal, key, print_json};
use crate::check::answer::{Unreadable, forbidden};
use crate::cluster::api;
use crate::output;
use crate::tree::{Node, State, Title, forest, is_ready};

/// Changes come in bursts; those within this time are shown together.
const SETTLING: Duration = Duration::from_millis(100);
/// An object that is Stalled for this long will not become Ready: an administrator who corrects it is not done sooner.
const STALL_GRACE: Duration = Duration::from_secs(10);

type Change = (Kind, Result<Event<DynamicObject>, watcher::Error>);

impl View<'_> {
    pub(super) async fn follow(&self) -> Result<ExitCode, Error> {
        let start = Instant::now();
        let mut changes = self.changes();
        let mut known = Known::default();
        let mut screen = Screen::default();
        let mut stalls = Stalls::default();
        let mut ticks = interval(SETTLING);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let timeout = sleep(self.arguments.timeout);
        tokio::pin!(timeout);
        loop {
            tokio::select! {
                Some((kind, event)) = changes.next() => known.learn(kind, event),
                _ = ticks.tick() => {
                    if let Some((kind, status)) = known.rejected {
                        return Err(self.rejection(kind, &status));
                    }
                    for trouble in known.troubles.drain(..) {
                        screen.remark(&trouble);
                    }
                    if known.is_complete() {
                        let forest = known.forest(self.arguments.name.as_deref());
                        self.show(&mut screen, &forest, start)?;
                        if is_ready(&forest) {
                            return self.end(&forest, ExitCode::SUCCESS);
                        }
                        if stalls.last_longer_than(STALL_GRACE, &forest, Instant::now()) {
                            output::remark(&report("error: Stalled:", &forest, |state| state == State::Stalled));
                            return self.end(&forest, ExitCode::FAILURE);
                        }
                    }
                }
                () = &mut timeout => {
                    let forest = known.forest(self.arguments.name.as_deref());
                    output::remark(&self.unready(&forest));
                    return self.end(&forest, ExitCode::FAILURE);
                }
            }
        }
    }

    fn end(&self, forest: &[Node], code: ExitCode) -> Result<ExitCode, Error> {
        if self.arguments.output == Format::Json {
            print_json(forest)?;
        }
        Ok(code)
    }

    fn changes(&self) -> impl Stream<Item = Change> + Unpin {
        select_all(kinds().into_iter().map(|kind| {
            let api = api(&self.client, kind, self.namespace.as_deref());
            let events = watch(api, watcher::Config::default()).default_backoff();
            events.map(move |event| (kind, event)).boxed()
        }))
    }

    fn show(&self, screen: &mut Screen, forest: &[Node], start: Instant) -> Result<(), Error> {
        if self.arguments.output == Format::Json {
            return Ok(());
        }
        if is_terminal() {
            let lines = if forest.is_empty() {
                vec![format!("There is no cloud yet {}.", self.place())]
            } else {
                self.lines(forest)
            };
            screen.redraw(&fit(lines, forest, usize::from(Term::stdout().size().0)))
        } else {
            screen.append(forest, start)
        }
    }

    fn rejection(&self, kind: Kind, status: &Status) -> Error {
        let reason = if status.code == 403 {
            Unreadable::Forbidden(forbidden(kind.plural, self.namespace.as_deref()))
        } else {
            Unreadable::Failed(format!("cannot list {}: {}", kind.plural, status.message))
        };
        Error::List { reason }
    }

    fn unready(&self, forest: &[Node]) -> String {
        let heading = format!("error: not Ready after {} s:", self.arguments.timeout.as_secs());
        if forest.is_empty() {
            return format!("{heading}\n  there is no cloud {}", self.place());
        }
        report(&heading, forest, State::is_awaited)
    }
}

/// A heading and one line for every node in some state.
fn report(heading: &str, forest: &[Node], is_reported: impl Fn(State) -> bool) -> String {
    let nodes = forest.iter().flat_map(Node::flat).filter(|node| is_reported(node.state));
    let lines = nodes.map(|node| format!("\n  {}: {}", node.title, node.summary()));
    format!("{heading}{}", lines.collect::<String>())
}

/// Since when objects are Stalled.
#[derive(Default)]
struct Stalls {
    since: BTreeMap<Title, Instant>,
}

impl Stalls {
    fn last_longer_than(&mut self, grace: Duration, forest: &[Node], now: Instant) -> bool {
        let stalled: Vec<&Title> = forest
            .iter()
            .flat_map(Node::flat)
            .filter(|node| node.state == State::Stalled)
            .map(|node| &node.title)
            .collect();
        self.since.retain(|title, _| stalled.contains(&title));
        for title in stalled {
            self.since.entry(title.clone()).or_insert(now);
        }
        self.since.values().any(|since| now.duration_since(*since) >= grace)
    }
}

/// Cuts a tree that is higher than the terminal down to the objects that are not Ready.
fn fit(lines: Vec<String>, forest: &[Node], height: usize) -> Vec<String> {
    // The last row stays free for the cursor.
    let room = height.saturating_sub(1).max(1);
    if lines.len() <= room {
        return lines;
    }
    let states = forest.iter().flat_map(Node::flat).map(|node| node.state);
    let waiting: Vec<String> = lines
        .into_iter()
        .zip(states)
        .filter(|(_, state)| *state != State::Ready)
        .map(|(line, _)| line)
        .collect();
    waiting.into_iter().take(room).collect()
}

/// Objects that watches have reported.
#[derive(Default)]
struct Known {
    objects: BTreeMap<Key, DynamicObject>,
    /// Known objects that a list in progress has not returned yet.
    unlisted: BTreeMap<Kind, BTreeSet<Key>>,
    listed: BTreeSet<Kind>,
    troubles: Vec<String>,
    /// A kind that the caller cannot list, with the answer of the API server.
    rejected: Option<(Kind, Box<Status>)>,
}

impl Known {
    fn learn(&mut self, kind: Kind, event: Result<Event<DynamicObject>, watcher::Error>) {
        match event {
            Ok(Event::Init) => {
                let before = self.objects.keys().filter(|key| key.kind == kind).cloned().collect();
                self.unlisted.insert(kind, before);
            }
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                let key = key(kind, &object);
                if let Some(unlisted) = self.unlisted.get_mut(&kind) {
                    unlisted.remove(&key);
                }
                self.objects.insert(key, object);
            }
            Ok(Event::InitDone) => {
                for deleted in self.unlisted.remove(&kind).unwrap_or_default() {
                    self.objects.remove(&deleted);
                }
                self.listed.insert(kind);
            }
            Ok(Event::Delete(object)) => _ = self.objects.remove(&key(kind, &object)),
            Err(error) => self.fail(kind, &error),
        }
    }

    /// The watch retries with a growing delay, unless the caller has no permission.
    fn fail(&mut self, kind: Kind, error: &watcher::Error) {
        match error {
            watcher::Error::InitialListFailed(kube::Error::Api(status))
                if [401, 403].contains(&status.code) =>
            {
                self.rejected = Some((kind, status.clone()));
            }
            watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404 => {
                self.listed.insert(kind);
                self.troubles.push(format!("note: the cluster does not serve {} yet", kind.plural));
            }
            other => {
                let cause = other.source().map_or_else(|| other.to_string(), output::chain);
                self.troubles.push(format!("note: the watch was interrupted: {cause}"));
            }
        }
    }

    /// Whether every kind was listed.
    fn is_complete(&self) -> bool {
        self.listed.len() == kinds().len()
    }

    fn forest(&self, name: Option<&str>) -> Vec<Node> {
        // The list of services has the order in which they start.
        let order = kinds();
        let mut objects: Vec<(Key, DynamicObject)> =
            self.objects.iter().map(|(key, object)| (key.clone(), object.clone())).collect();
        objects.sort_by_key(|(key, _)| order.iter().position(|kind| *kind == key.kind));
        forest(&objects, name)
    }
}

/// The output so far.
#[derive(Default)]
struct Screen {
    lines: Vec<String>,
    summaries: BTreeMap<Title, String>,
    remarks: BTreeSet<String>,
}

impl Screen {
    /// Replaces the lines on the terminal.
    fn redraw(&mut self, lines: &[String]) -> Result<(), Error> {
        if lines == self.lines {
            return Ok(());
        }
        let up = if self.lines.is_empty() { String::new() } else { format!("\x1b[{}A", self.lines.len()) };
        output::print(&format!("{up}\x1b[J{}\n", lines.join("\n")))?;
        self.lines = lines.to_vec();
        Ok(())
    }

    /// Prints a line for every change.
    fn append(&mut self, forest: &[Node], start: Instant) -> Result<(), Error> {
        let mut now = BTreeMap::new();
        let mut text = String::new();
        let seconds = start.elapsed().as_secs();
        for node in forest.iter().flat_map(Node::flat) {
            let summary = node.summary();
            if self.summaries.get(&node.title) != Some(&summary) {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "[{seconds:>4}s] {}: {summary}", node.title);
            }
            now.insert(node.title.clone(), summary);
        }
        for title in self.summaries.keys().filter(|title| !now.contains_key(title)) {
            let _ = writeln!(text, "[{seconds:>4}s] {title}: deleted");
        }
        self.summaries = now;
        Ok(output::print(&text)?)
    }

    /// Prints each remark once.
    fn remark(&mut self, text: &str) {
        if self.remarks.insert(text.to_owned()) {
            output::remark(text);
            // The tree is no longer the last output on the screen.
            self.lines.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use openstack_operator_services::of_kind;
    use serde_json::json;

    use super::*;

    fn object(name: &str) -> DynamicObject {
        serde_json::from_value(json!({ "metadata": { "name": name, "namespace": "n" } })).unwrap()
    }

    fn names(known: &Known) -> Vec<&str> {
        known.objects.keys().map(|key| key.name.as_str()).collect()
    }

    #[test]
    fn a_new_list_drops_objects_that_it_does_not_contain() {
        let kind = of_kind("Memcached").unwrap().kind();
        let mut known = Known::default();
        for event in
            [Event::Init, Event::InitApply(object("a")), Event::InitApply(object("b")), Event::InitDone]
        {
            known.learn(kind, Ok(event));
        }
        assert_eq!(names(&known), ["a", "b"]);
        for event in [Event::Init, Event::InitApply(object("b"))] {
            known.learn(kind, Ok(event));
        }
        assert_eq!(names(&known), ["a", "b"]);
        known.learn(kind, Ok(Event::InitDone));
        assert_eq!(names(&known), ["b"]);
        known.learn(kind, Ok(Event::Delete(object("b"))));
        assert!(names(&known).is_empty());
        assert!(!known.is_complete());
    }

    #[test]
    fn a_tree_that_is_too_high_keeps_objects_that_are_not_ready() {
        let kind = of_kind("Memcached").unwrap().kind();
        let mut known = Known::default();
        known.learn(kind, Ok(Event::Apply(object("a"))));
        known.learn(kind, Ok(Event::Apply(object("b"))));
        let forest = known.forest(None);
        let lines = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(fit(lines.clone(), &forest, 24), lines);
        assert_eq!(fit(lines, &forest, 2), ["a"]);
    }

    #[test]
    fn waiting_ends_when_an_object_stays_stalled() {
        let kind = of_kind("Memcached").unwrap().kind();
        let mut known = Known::default();
        let mut stalled = object("a");
        stalled.metadata.generation = Some(1);
        let condition = |kind: &str, status: &str| {
            json!({ "type": kind, "status": status, "reason": "InvalidSpec", "message": "spec.x",
                    "lastTransitionTime": "2026-01-01T00:00:00Z" })
        };
        stalled.data = json!({ "status": { "observedGeneration": 1,
            "conditions": [condition("Ready", "False"), condition("Stalled", "True")] } });
        known.learn(kind, Ok(Event::Apply(stalled)));
        let mut stalls = Stalls::default();
        let start = Instant::now();
        assert!(!stalls.last_longer_than(STALL_GRACE, &known.forest(None), start));
        assert!(stalls.last_longer_than(STALL_GRACE, &known.forest(None), start + STALL_GRACE));
        known.learn(kind, Ok(Event::Apply(object("a"))));
        assert!(!stalls.last_longer_than(STALL_GRACE, &known.forest(None), start + STALL_GRACE));
        assert!(stalls.since.is_empty());
    }
}
