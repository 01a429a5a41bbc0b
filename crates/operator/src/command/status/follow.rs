//! Following objects until they are ready: by watches, redrawn on a terminal and line by line elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as _;
use std::fmt::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use console::Term;
use futures::stream::select_all;
use futures::{Stream, StreamExt};
use kube::core::DynamicObject;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use openstack_operator_engine::engine::Key;
use openstack_operator_model::kind::Kind;
use openstack_operator_services::kinds;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::{Error, RefusedSnafu, View, is_terminal, key};
use crate::cluster::api;
use crate::output;
use crate::tree::{Node, State, Title, forest, is_ready};

/// Changes come in bursts; what comes within this time is shown together.
const SETTLING: Duration = Duration::from_millis(100);

type Change = (Kind, Result<Event<DynamicObject>, watcher::Error>);

impl View<'_> {
    pub(super) async fn follow(&self) -> Result<ExitCode, Error> {
        let begun = Instant::now();
        let mut changes = self.changes();
        let mut known = Known::default();
        let mut screen = Screen::default();
        let mut ticks = interval(SETTLING);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let timeout = sleep(self.arguments.timeout);
        tokio::pin!(timeout);
        loop {
            tokio::select! {
                Some((kind, event)) = changes.next() => known.learn(kind, event),
                _ = ticks.tick() => {
                    if let Some((kind, reason)) = known.refused {
                        return RefusedSnafu { resource: kind.plural, reason }.fail();
                    }
                    for trouble in known.troubles.drain(..) {
                        screen.remark(&trouble);
                    }
                    if known.is_complete() {
                        let forest = known.forest(self.arguments.name.as_deref());
                        self.show(&mut screen, &forest, begun)?;
                        if is_ready(&forest) {
                            return Ok(ExitCode::SUCCESS);
                        }
                    }
                }
                () = &mut timeout => {
                    output::remark(&self.missing(&known.forest(self.arguments.name.as_deref())));
                    return Ok(ExitCode::FAILURE);
                }
            }
        }
    }

    fn changes(&self) -> impl Stream<Item = Change> + Unpin {
        select_all(kinds().into_iter().map(|kind| {
            let api = api(&self.client, kind, self.namespace.as_deref());
            let events = watch(api, watcher::Config::default()).default_backoff();
            events.map(move |event| (kind, event)).boxed()
        }))
    }

    fn show(&self, screen: &mut Screen, forest: &[Node], begun: Instant) -> Result<(), Error> {
        if is_terminal() {
            let lines = if forest.is_empty() {
                vec![format!("Nothing yet {}.", self.place())]
            } else {
                self.lines(forest)
            };
            screen.redraw(&fit(lines, forest, usize::from(Term::stdout().size().0)))
        } else {
            screen.append(forest, begun)
        }
    }

    fn missing(&self, forest: &[Node]) -> String {
        let waiting: Vec<String> = forest
            .iter()
            .flat_map(Node::flat)
            .filter(|node| node.state.is_awaited())
            .map(|node| format!("  {}: {}", node.title, node.summary()))
            .collect();
        let what =
            if forest.is_empty() { format!("  nothing exists {}", self.place()) } else { waiting.join("\n") };
        format!("error: not Ready after {} s:\n{what}", self.arguments.timeout.as_secs())
    }
}

/// A tree that is higher than the terminal is cut down to what is still waited for.
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

/// What watches have told.
#[derive(Default)]
struct Known {
    objects: BTreeMap<Key, DynamicObject>,
    /// Objects that a list which is not complete yet has not named.
    unnamed: BTreeMap<Kind, BTreeSet<Key>>,
    listed: BTreeSet<Kind>,
    troubles: Vec<String>,
    /// A kind that may not be seen, and why: waiting for it would be in vain.
    refused: Option<(Kind, String)>,
}

impl Known {
    fn learn(&mut self, kind: Kind, event: Result<Event<DynamicObject>, watcher::Error>) {
        match event {
            Ok(Event::Init) => {
                let before = self.objects.keys().filter(|key| key.kind == kind).cloned().collect();
                self.unnamed.insert(kind, before);
            }
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                let key = key(kind, &object);
                if let Some(unnamed) = self.unnamed.get_mut(&kind) {
                    unnamed.remove(&key);
                }
                self.objects.insert(key, object);
            }
            Ok(Event::InitDone) => {
                for gone in self.unnamed.remove(&kind).unwrap_or_default() {
                    self.objects.remove(&gone);
                }
                self.listed.insert(kind);
            }
            Ok(Event::Delete(object)) => _ = self.objects.remove(&key(kind, &object)),
            Err(error) => self.fail(kind, &error),
        }
    }

    /// The watch begins again by itself, each time later; unless what is wrong will stay wrong.
    fn fail(&mut self, kind: Kind, error: &watcher::Error) {
        match error {
            watcher::Error::InitialListFailed(kube::Error::Api(status))
                if [401, 403].contains(&status.code) =>
            {
                self.refused = Some((kind, status.message.clone()));
            }
            watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404 => {
                self.listed.insert(kind);
                self.troubles.push(format!("note: the cluster does not know {} yet", kind.plural));
            }
            other => {
                let cause = other.source().map_or_else(|| other.to_string(), output::chain);
                self.troubles.push(format!("note: the watch was interrupted: {cause}"));
            }
        }
    }

    /// Whether every kind was listed: before that nothing can be said of what is not there.
    fn is_complete(&self) -> bool {
        self.listed.len() == kinds().len()
    }

    fn forest(&self, name: Option<&str>) -> Vec<Node> {
        // The order of the list of services is that in which they come up.
        let order = kinds();
        let mut objects: Vec<(Key, DynamicObject)> =
            self.objects.iter().map(|(key, object)| (key.clone(), object.clone())).collect();
        objects.sort_by_key(|(key, _)| order.iter().position(|kind| *kind == key.kind));
        forest(&objects, name)
    }
}

/// What was shown so far.
#[derive(Default)]
struct Screen {
    lines: Vec<String>,
    told: BTreeMap<Title, String>,
    remarks: BTreeSet<String>,
}

impl Screen {
    /// Replaces what was drawn before.
    fn redraw(&mut self, lines: &[String]) -> Result<(), Error> {
        if lines == self.lines {
            return Ok(());
        }
        let up = if self.lines.is_empty() { String::new() } else { format!("\x1b[{}A", self.lines.len()) };
        output::print(&format!("{up}\x1b[J{}\n", lines.join("\n")))?;
        self.lines = lines.to_vec();
        Ok(())
    }

    /// Prints a line for everything that is not as it was.
    fn append(&mut self, forest: &[Node], begun: Instant) -> Result<(), Error> {
        let mut now = BTreeMap::new();
        let mut text = String::new();
        let seconds = begun.elapsed().as_secs();
        for node in forest.iter().flat_map(Node::flat) {
            let summary = node.summary();
            if self.told.get(&node.title) != Some(&summary) {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "[{seconds:>4}s] {}: {summary}", node.title);
            }
            now.insert(node.title.clone(), summary);
        }
        for title in self.told.keys().filter(|title| !now.contains_key(title)) {
            let _ = writeln!(text, "[{seconds:>4}s] {title}: gone");
        }
        self.told = now;
        Ok(output::print(&text)?)
    }

    /// Says each thing once, however often it happens.
    fn remark(&mut self, text: &str) {
        if self.remarks.insert(text.to_owned()) {
            output::remark(text);
            // What was drawn is not the last thing on the screen any more.
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
    fn a_list_that_begins_again_forgets_what_it_does_not_name() {
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
    fn a_tree_that_is_too_high_keeps_what_is_waited_for() {
        let kind = of_kind("Memcached").unwrap().kind();
        let mut known = Known::default();
        known.learn(kind, Ok(Event::Apply(object("a"))));
        known.learn(kind, Ok(Event::Apply(object("b"))));
        let forest = known.forest(None);
        let lines = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(fit(lines.clone(), &forest, 24), lines);
        assert_eq!(fit(lines, &forest, 2), ["a"]);
    }
}
