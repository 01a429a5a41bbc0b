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
    /// Heavy steps that could start, by position.
    eager: BTreeSet<usize>,
    cores: usize,
    failure: Option<anyhow::Error>,
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

    /// Runs every step. After a failure no further step starts, and those under way are asked to stop:
    /// whatever was begun can be finished by the next run.
    pub(crate) fn run(self, directories: &Directories, progress: &Progress) -> Result<()> {
        self.check()?;
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let state = Mutex::new(State { done: BTreeSet::new(), eager: BTreeSet::new(), cores, failure: None });
        let changed = Condvar::new();
        thread::scope(|scope| {
            for (position, task) in self.tasks.into_iter().enumerate() {
                let (state, changed) = (&state, &changed);
                scope.spawn(move || run_task(position, task, state, changed, directories, progress));
            }
        });
        state.into_inner().unwrap_or_else(PoisonError::into_inner).failure.map_or(Ok(()), Err)
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

fn run_task(
    position: usize,
    task: Task<'_>,
    state: &Mutex<State>,
    changed: &Condvar,
    directories: &Directories,
    progress: &Progress,
) {
    if !wait_for_turn(position, &task, state, changed) {
        return;
    }
    let step = progress.step(&task.name);
    let result = Log::create(directories, &task.name).and_then(|log| (task.work)(&log));
    let mut state = lock(state);
    if task.weight == Weight::Heavy {
        state.cores += 1;
    }
    match result {
        Ok(detail) => {
            step.finish('✓', &detail);
            state.done.insert(task.name);
        }
        Err(_) if state.failure.is_some() => step.finish('-', "stopped"),
        Err(error) => {
            step.finish('✗', "failed");
            state.failure = Some(error.context(format!("step {} failed", task.name)));
            interrupt_all();
        }
    }
    drop(state);
    changed.notify_all();
}

/// Waits until the step may start; false when another step has failed.
fn wait_for_turn(position: usize, task: &Task<'_>, state: &Mutex<State>, changed: &Condvar) -> bool {
    let mut state = lock(state);
    loop {
        if state.failure.is_some() {
            return false;
        }
        if task.after.iter().all(|name| state.done.contains(name)) {
            if task.weight == Weight::Light {
                return true;
            }
            state.eager.insert(position);
            if state.cores > 0 && state.eager.first() == Some(&position) {
                state.eager.remove(&position);
                state.cores -= 1;
                drop(state);
                changed.notify_all();
                return true;
            }
        }
        state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn unknown_and_circular_needs_are_refused() {
        let mut graph = Graph::default();
        graph.add("a", Weight::Light, &["b"], |_| Ok(String::new()));
        assert!(graph.check().is_err_and(|error| error.to_string().contains("waits for b")));
        graph.add("b", Weight::Light, &["a"], |_| Ok(String::new()));
        assert!(graph.check().is_err_and(|error| error.to_string().contains("wait for each other")));
    }
}
