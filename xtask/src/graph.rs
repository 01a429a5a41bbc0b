//! Steps that start as soon as what they need is done, as far as the cores allow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Result, bail};

use crate::command::{Log, interrupt_all};
use crate::directories::Directories;
use crate::progress::Progress;

/// Whether a step keeps a core busy or mostly waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    Heavy,
    Light,
}

type Work<'a> = Box<dyn FnOnce(&Log) -> Result<String> + Send + 'a>;

struct Task<'a> {
    name: String,
    weight: Weight,
    after: Vec<String>,
    work: Work<'a>,
}

/// Steps and what each of them waits for. Earlier steps get a core first.
#[derive(Default)]
pub(crate) struct Graph<'a> {
    tasks: Vec<Task<'a>>,
}

/// What the steps tell each other.
struct State {
    done: BTreeSet<String>,
    /// What the steps that have not been called yet wait for, by position.
    waiting: BTreeMap<usize, Vec<String>>,
    /// Steps that could start, by position. A heavy one starts when it is the first of the heavy ones.
    ready: BTreeMap<usize, Weight>,
    cores: usize,
    failure: Option<anyhow::Error>,
}

impl State {
    /// Calls the steps whose needs are met. All of them at once, so that the order among them is theirs and
    /// not that in which their threads happen to wake up.
    fn call(&mut self, weights: &[Weight]) {
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

    /// Whether the step may start now; if so it has its core.
    fn take_turn(&mut self, position: usize) -> bool {
        let first_heavy = self.ready.iter().find(|(_, weight)| **weight == Weight::Heavy);
        match self.ready.get(&position) {
            None => return false,
            Some(Weight::Light) => {}
            Some(Weight::Heavy) => {
                if self.cores == 0 || first_heavy.map(|(&first, _)| first) != Some(position) {
                    return false;
                }
                self.cores -= 1;
            }
        }
        self.ready.remove(&position);
        true
    }
}

impl<'a> Graph<'a> {
    /// Adds a step; `work` returns a word on what it did, for the progress line.
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

    /// The steps that wait for nothing and need a core, in the order in which they start.
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

    /// Runs every step. After a failure no further step starts, and those under way are asked to stop:
    /// whatever was begun can be finished by the next run.
    pub(crate) fn run(self, directories: &Directories, progress: &Progress) -> Result<()> {
        self.check()?;
        let weights: Vec<Weight> = self.tasks.iter().map(|task| task.weight).collect();
        let mut state = State {
            done: BTreeSet::new(),
            waiting: self.tasks.iter().map(|task| task.after.clone()).enumerate().collect(),
            ready: BTreeMap::new(),
            cores: thread::available_parallelism().map_or(1, usize::from),
            failure: None,
        };
        state.call(&weights);
        let board =
            Board { state: Mutex::new(state), changed: Condvar::new(), weights, directories, progress };
        thread::scope(|scope| {
            for (position, task) in self.tasks.into_iter().enumerate() {
                let board = &board;
                scope.spawn(move || board.run(position, task));
            }
        });
        board.state.into_inner().unwrap_or_else(PoisonError::into_inner).failure.map_or(Ok(()), Err)
    }

    /// A step that waits for something unknown, or for itself, would wait for ever.
    fn check(&self) -> Result<()> {
        let mut waiting: BTreeMap<&str, &[String]> = BTreeMap::new();
        for task in &self.tasks {
            if waiting.insert(&task.name, &task.after).is_some() {
                bail!("step {} is there twice", task.name);
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
                bail!("step {} waits for {unknown}, which is not there", task.name);
            }
        }
        Ok(())
    }
}

/// Where the steps look whose turn it is.
struct Board<'a> {
    state: Mutex<State>,
    changed: Condvar,
    weights: Vec<Weight>,
    directories: &'a Directories,
    progress: &'a Progress,
}

impl Board<'_> {
    fn run(&self, position: usize, task: Task<'_>) {
        if !self.wait_for_turn(position) {
            return;
        }
        let step = self.progress.step(&task.name);
        let result = Log::create(self.directories, &task.name).and_then(|log| (task.work)(&log));
        let mut state = self.lock();
        if task.weight == Weight::Heavy {
            state.cores += 1;
        }
        match result {
            Ok(detail) => {
                step.finish('✓', &detail);
                state.done.insert(task.name);
                state.call(&self.weights);
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
    fn a_step_starts_after_what_it_needs() -> Result<()> {
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
    fn a_failure_stops_what_comes_after() -> Result<()> {
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
    fn where_cores_are_short_the_first_goes_first() {
        let weights = [Weight::Heavy, Weight::Heavy, Weight::Light];
        let waiting = (0..3).map(|position| (position, Vec::new())).collect();
        let mut state =
            State { done: BTreeSet::new(), waiting, ready: BTreeMap::new(), cores: 1, failure: None };
        assert!(!state.take_turn(0), "nobody has been called yet");
        state.call(&weights);
        assert!(!state.take_turn(1), "another heavy step comes first");
        assert!(state.take_turn(2), "a light step needs no core");
        assert!(state.take_turn(0));
        assert!(!state.take_turn(1), "there is no core left");
    }

    #[test]
    fn unknown_and_circular_needs_are_refused() {
        let mut graph = Graph::default();
        graph.add("a", Weight::Light, &["b"], |_| Ok(String::new()));
        assert!(graph.check().is_err_and(|error| error.to_string().contains("waits for b")));
        graph.add("b", Weight::Light, &["a"], |_| Ok(String::new()));
        assert!(graph.check().is_err_and(|error| error.to_string().contains("wait for each other")));
    }
}
