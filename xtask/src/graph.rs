//! Runs steps in parallel, each as soon as its prerequisites are done and a slot is free.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Result, bail};

use crate::command::{Log, interrupt_all};
use crate::directories::Directories;
use crate::progress::Progress;

/// Whether a step keeps a core busy or mostly waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Weight {
    /// A compiler.
    Heavy,
    /// Installs packages: it waits for downloads and disks in turn with a core. These steps run beside the heavy ones,
    /// so that no core is idle at the end, when only a chain of images is left.
    Packages,
    Light,
}

type Work<'a> = Box<dyn FnOnce(&Log) -> Result<String> + Send + 'a>;

struct Task<'a> {
    name: String,
    weight: Weight,
    after: Vec<String>,
    work: Work<'a>,
}

/// Steps and their prerequisites. Where slots are short, the step that was added first starts first.
#[derive(Default)]
pub(crate) struct Graph<'a> {
    tasks: Vec<Task<'a>>,
}

/// The state that the steps share.
struct State {
    done: BTreeSet<String>,
    /// Prerequisites of the steps that are not ready, by position.
    waiting: BTreeMap<usize, Vec<String>>,
    /// Steps that can start, by position. Steps of a weight start in this order.
    ready: BTreeMap<usize, Weight>,
    /// Free slots by weight. Steps of other weights need none.
    slots: BTreeMap<Weight, usize>,
    failure: Option<anyhow::Error>,
}

impl State {
    /// Makes all steps ready whose prerequisites are done. At once, so that their order does not depend on which
    /// thread wakes up first.
    fn make_ready(&mut self, weights: &[Weight]) {
        let done = &self.done;
        let met: Vec<usize> = self
            .waiting
            .iter()
            .filter(|(_, after)| after.iter().all(|name| done.contains(name)))
            .map(|(&position, _)| position)
            .collect();
        for position in met {
            self.waiting.remove(&position);
            self.ready.insert(position, weights[position]);
        }
    }

    /// Whether the step may start now; if so, it occupies its slot.
    fn take_turn(&mut self, position: usize) -> bool {
        let Some(weight) = self.ready.get(&position).copied() else { return false };
        let first = self.ready.iter().find(|(_, other)| **other == weight);
        if let Some(slots) = self.slots.get_mut(&weight) {
            if *slots == 0 || first.is_some_and(|(&first, _)| first != position) {
                return false;
            }
            *slots -= 1;
        }
        self.ready.remove(&position);
        true
    }
}

impl<'a> Graph<'a> {
    /// Adds a step; `work` returns the detail that the progress line shows.
    pub(crate) fn add(
        &mut self,
        name: impl Into<String>,
        weight: Weight,
        after: &[&str],
        work: impl FnOnce(&Log) -> Result<String> + Send + 'a,
    ) {
        self.tasks.push(Task {
            name: name.into(),
            weight,
            after: after.iter().map(|&name| name.to_owned()).collect(),
            work: Box::new(work),
        });
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.tasks.iter().any(|task| task.name == name)
    }

    /// The heavy steps without prerequisites, in the order in which they start.
    #[cfg(test)]
    pub(crate) fn runnable(&self) -> Vec<&str> {
        let runnable = self.tasks.iter().filter(|task| task.after.is_empty() && task.weight == Weight::Heavy);
        runnable.map(|task| task.name.as_str()).collect()
    }

    /// The steps that a step waits for.
    #[cfg(test)]
    pub(crate) fn prerequisites(&self, name: &str) -> Vec<&str> {
        let steps = self.tasks.iter().filter(|task| task.name == name);
        steps.flat_map(|task| task.after.iter().map(String::as_str)).collect()
    }

    /// Runs every step. After a failure no other step starts and running steps are interrupted; the next run can
    /// complete them.
    pub(crate) fn run(self, directories: &Directories, progress: &Progress) -> Result<()> {
        self.check()?;
        let weights: Vec<Weight> = self.tasks.iter().map(|task| task.weight).collect();
        let mut state = State {
            done: BTreeSet::new(),
            waiting: self.tasks.iter().map(|task| task.after.clone()).enumerate().collect(),
            ready: BTreeMap::new(),
            slots: slots(thread::available_parallelism().map_or(1, usize::from)),
            failure: None,
        };
        state.make_ready(&weights);
        let scheduler =
            Scheduler { state: Mutex::new(state), changed: Condvar::new(), weights, directories, progress };
        thread::scope(|scope| {
            for (position, task) in self.tasks.into_iter().enumerate() {
                let scheduler = &scheduler;
                scope.spawn(move || scheduler.run(position, task));
            }
        });
        scheduler.state.into_inner().unwrap_or_else(PoisonError::into_inner).failure.map_or(Ok(()), Err)
    }

    /// A step with an unknown or circular prerequisite would wait forever.
    fn check(&self) -> Result<()> {
        let mut waiting: BTreeMap<&str, &[String]> = BTreeMap::new();
        for task in &self.tasks {
            if waiting.insert(&task.name, &task.after).is_some() {
                bail!("step {} is added twice", task.name);
            }
        }
        while !waiting.is_empty() {
            let ready: Vec<&str> = waiting
                .iter()
                .filter(|(_, after)| after.iter().all(|name| !waiting.contains_key(name.as_str())))
                .map(|(&name, _)| name)
                .collect();
            if ready.is_empty() {
                bail!("steps wait for each other: {}", waiting.into_keys().collect::<Vec<_>>().join(", "));
            }
            for name in ready {
                waiting.remove(name);
            }
        }
        for task in &self.tasks {
            if let Some(unknown) = task.after.iter().find(|name| !self.contains(name)) {
                bail!("step {} waits for {unknown}, which does not exist", task.name);
            }
        }
        Ok(())
    }
}

/// One compiler more than cores, because builds also wait for downloads and linkers.
fn slots(cores: usize) -> BTreeMap<Weight, usize> {
    BTreeMap::from([(Weight::Heavy, cores + 1), (Weight::Packages, cores)])
}

/// Coordinates the threads of the steps.
struct Scheduler<'a> {
    state: Mutex<State>,
    changed: Condvar,
    weights: Vec<Weight>,
    directories: &'a Directories,
    progress: &'a Progress,
}

impl Scheduler<'_> {
    fn run(&self, position: usize, task: Task<'_>) {
        if !self.wait_for_turn(position) {
            return;
        }
        let step = self.progress.step(&task.name);
        let result = Log::create(self.directories, &task.name).and_then(|log| (task.work)(&log));
        let mut state = self.lock();
        if let Some(slots) = state.slots.get_mut(&task.weight) {
            *slots += 1;
        }
        match result {
            Ok(detail) => {
                step.finish('✓', &detail);
                state.done.insert(task.name);
                state.make_ready(&self.weights);
            }
            Err(_) if state.failure.is_some() => step.finish('-', "stopped"),
            Err(error) => {
                step.finish('✗', "failed");
                state.failure = Some(error.context(format!("step {} failed", task.name)));
                interrupt_all();
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until the step may start; false when another step has failed.
    fn wait_for_turn(&self, position: usize) -> bool {
        let mut state = self.lock();
        loop {
            if state.failure.is_some() {
                return false;
            }
            if state.take_turn(position) {
                drop(state);
                self.changed.notify_all();
                return true;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn directories(name: &str) -> Result<Directories> {
        let cache = std::env::temp_dir().join(format!("xtask-graph-{name}-{}", std::process::id()));
        Directories::find(Some(cache))
    }

    #[test]
    fn a_step_starts_after_its_prerequisites() -> Result<()> {
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut graph = Graph::default();
        for (name, after) in [("c", vec!["b"]), ("b", vec!["a"]), ("a", vec![])] {
            let order = Arc::clone(&order);
            graph.add(name, Weight::Heavy, &after, move |_| {
                order.lock().unwrap_or_else(PoisonError::into_inner).push(name);
                Ok(String::new())
            });
        }
        let directories = directories("order")?;
        graph.run(&directories, &Progress::new())?;
        std::fs::remove_dir_all(directories.cache())?;
        assert_eq!(*order.lock().unwrap_or_else(PoisonError::into_inner), ["a", "b", "c"]);
        Ok(())
    }

    #[test]
    fn a_failure_stops_later_steps() -> Result<()> {
        let mut graph = Graph::default();
        graph.add("broken", Weight::Light, &[], |_| bail!("no"));
        graph.add("after", Weight::Light, &["broken"], |_| bail!("must not start"));
        let directories = directories("failure")?;
        let error = graph.run(&directories, &Progress::new()).err().map(|error| format!("{error:#}"));
        std::fs::remove_dir_all(directories.cache())?;
        assert_eq!(error.as_deref(), Some("step broken failed: no"));
        Ok(())
    }

    #[test]
    fn the_first_added_step_gets_the_slot() {
        let weights = [Weight::Heavy, Weight::Heavy, Weight::Light, Weight::Packages];
        let waiting = (0..4).map(|position| (position, Vec::new())).collect();
        let slots = BTreeMap::from([(Weight::Heavy, 1), (Weight::Packages, 1)]);
        let mut state =
            State { done: BTreeSet::new(), waiting, ready: BTreeMap::new(), slots, failure: None };
        assert!(!state.take_turn(0), "no step is ready yet");
        state.make_ready(&weights);
        assert!(!state.take_turn(1), "another heavy step comes first");
        assert!(state.take_turn(2), "a light step needs no slot");
        assert!(state.take_turn(0));
        assert!(!state.take_turn(1), "there is no slot left");
        assert!(state.take_turn(3), "installations do not wait for compilers");
    }

    #[test]
    fn unknown_and_circular_prerequisites_are_rejected() {
        let mut graph = Graph::default();
        graph.add("a", Weight::Light, &["b"], |_| Ok(String::new()));
        assert!(graph.check().is_err_and(|error| error.to_string().contains("waits for b")));
        graph.add("b", Weight::Light, &["a"], |_| Ok(String::new()));
        assert!(graph.check().is_err_and(|error| error.to_string().contains("wait for each other")));
    }
}
