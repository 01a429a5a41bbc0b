//! The queue of objects to reconcile: each at most once at a time, at the earliest time that anybody asked for.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// A first pause after a failure; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// What is to be done, and when.
pub struct Queue<K> {
    state: Mutex<State<K>>,
    changed: Notify,
}

struct State<K> {
    /// In order of time.
    due: BTreeSet<(Instant, K)>,
    times: HashMap<K, Instant>,
    running: BTreeSet<K>,
    /// How often in a row a key has failed.
    failures: HashMap<K, u32>,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        let state = State {
            due: BTreeSet::new(),
            times: HashMap::new(),
            running: BTreeSet::new(),
            failures: HashMap::new(),
        };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }
}

impl<K: Clone + Ord + Hash> Queue<K> {
    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a key after a pause. An earlier time that was asked for stays.
    pub fn push(&self, key: K, after: Duration) {
        let at = Instant::now() + after;
        let mut state = self.state();
        match state.times.get(&key).copied() {
            Some(known) if known <= at => return,
            Some(known) => {
                state.due.remove(&(known, key.clone()));
            }
            None => {}
        }
        state.times.insert(key.clone(), at);
        state.due.insert((at, key));
        drop(state);
        self.changed.notify_one();
    }

    /// Asks for a key after a failure: later each time, and spread by `jitter`, a number from 0 to 1.
    pub fn push_failed(&self, key: K, jitter: f64) -> Duration {
        let mut state = self.state();
        let failures = state.failures.entry(key.clone()).or_default();
        let pause = FIRST_PAUSE.saturating_mul(1 << (*failures).min(12)).min(LONGEST_PAUSE);
        *failures += 1;
        drop(state);
        let pause = pause.mul_f64(0.75 + jitter / 2.0);
        self.push(key, pause);
        pause
    }

    /// Forgets earlier failures of a key.
    pub fn succeeded(&self, key: &K) {
        self.state().failures.remove(key);
    }

    /// Forgets a key altogether.
    pub fn forget(&self, key: &K) {
        let mut state = self.state();
        state.failures.remove(key);
        if let Some(at) = state.times.remove(key) {
            state.due.remove(&(at, key.clone()));
        }
    }

    /// Waits for the next key that is due and not being worked on.
    pub async fn pop(&self) -> K {
        loop {
            let changed = self.changed.notified();
            let next = {
                let mut state = self.state();
                let next = state.due.iter().find(|(_, key)| !state.running.contains(key)).cloned();
                match next {
                    Some((at, key)) if at <= Instant::now() => {
                        state.due.remove(&(at, key.clone()));
                        state.times.remove(&key);
                        state.running.insert(key.clone());
                        return key;
                    }
                    next => next.map(|(at, _)| at),
                }
            };
            match next {
                Some(at) => {
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
                None => changed.await,
            }
        }
    }

    /// Says that work on a key has ended.
    pub fn done(&self, key: &K) {
        self.state().running.remove(key);
        self.changed.notify_one();
    }

    /// How many keys are due now.
    pub fn depth(&self) -> usize {
        let now = Instant::now();
        self.state().due.iter().take_while(|(at, _)| *at <= now).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn is_due(queue: &Queue<&'static str>) -> Option<&'static str> {
        tokio::time::timeout(Duration::from_millis(1), queue.pop()).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_time_wins_and_many_wishes_are_one() {
        let queue = Queue::default();
        queue.push("a", Duration::from_mins(1));
        queue.push("a", Duration::from_secs(1));
        queue.push("a", Duration::from_secs(30));
        assert_eq!(is_due(&queue).await, None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(is_due(&queue).await, Some("a"));
        queue.done(&"a");
        tokio::time::advance(Duration::from_mins(2)).await;
        assert_eq!(is_due(&queue).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn one_key_is_never_worked_on_twice_at_once() {
        let queue = Queue::default();
        queue.push("a", Duration::ZERO);
        assert_eq!(is_due(&queue).await, Some("a"));
        queue.push("a", Duration::ZERO);
        queue.push("b", Duration::ZERO);
        assert_eq!(is_due(&queue).await, Some("b"));
        assert_eq!(is_due(&queue).await, None);
        queue.done(&"a");
        assert_eq!(is_due(&queue).await, Some("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_to_a_limit_and_shrink_after_success() {
        let queue = Queue::default();
        let pauses: Vec<u64> = (0..12).map(|_| queue.push_failed("a", 0.5).as_secs()).collect();
        assert_eq!(&pauses[..4], &[1, 2, 4, 8]);
        assert_eq!(pauses.last(), Some(&300));
        queue.succeeded(&"a");
        assert_eq!(queue.push_failed("a", 0.5).as_secs(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_forgotten_does_not_come() {
        let queue = Queue::default();
        queue.push("a", Duration::ZERO);
        queue.forget(&"a");
        assert_eq!(is_due(&queue).await, None);
        assert_eq!(queue.depth(), 0);
    }
}
