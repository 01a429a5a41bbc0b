//! Queue of objects to reconcile: each object once at a time, at the earliest requested time.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Delay after the first failure; it doubles with each further one.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_mins(5);

/// Keys and the times at which they are due.
pub struct Queue<K> {
    state: Mutex<State<K>>,
    changed: Notify,
}

struct State<K> {
    /// Ordered by time.
    due: BTreeSet<(Instant, K)>,
    times: HashMap<K, Instant>,
    running: BTreeSet<K>,
    /// Number of consecutive failures of a key.
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

    /// Schedules a key after a delay. An earlier schedule takes precedence.
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

    /// Schedules a key after a failure, with exponential backoff spread by `jitter`, a number from 0 to 1.
    pub fn push_failed(&self, key: K, jitter: f64) -> Duration {
        let mut state = self.state();
        let failures = state.failures.entry(key.clone()).or_default();
        let delay = FIRST_RETRY_DELAY.saturating_mul(1 << (*failures).min(12)).min(MAX_RETRY_DELAY);
        *failures += 1;
        drop(state);
        let delay = delay.mul_f64(0.75 + jitter / 2.0);
        self.push(key, delay);
        delay
    }

    /// Resets the backoff of a key.
    pub fn succeeded(&self, key: &K) {
        self.state().failures.remove(key);
    }

    /// Waits for the next key that is due and not running.
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

    /// Marks a running key as finished.
    pub fn done(&self, key: &K) {
        self.state().running.remove(key);
        self.changed.notify_one();
    }

    /// Number of keys that are due now.
    pub fn depth(&self) -> usize {
        let now = Instant::now();
        self.state().due.iter().take_while(|(at, _)| *at <= now).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn next_due(queue: &Queue<&'static str>) -> Option<&'static str> {
        tokio::time::timeout(Duration::from_millis(1), queue.pop()).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_requests_run_once_at_the_earliest_time() {
        let queue = Queue::default();
        queue.push("a", Duration::from_mins(1));
        queue.push("a", Duration::from_secs(1));
        queue.push("a", Duration::from_secs(30));
        assert_eq!(next_due(&queue).await, None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(next_due(&queue).await, Some("a"));
        queue.done(&"a");
        tokio::time::advance(Duration::from_mins(2)).await;
        assert_eq!(next_due(&queue).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_never_runs_twice_at_once() {
        let queue = Queue::default();
        queue.push("a", Duration::ZERO);
        assert_eq!(next_due(&queue).await, Some("a"));
        queue.push("a", Duration::ZERO);
        queue.push("b", Duration::ZERO);
        assert_eq!(next_due(&queue).await, Some("b"));
        assert_eq!(next_due(&queue).await, None);
        queue.done(&"a");
        assert_eq!(next_due(&queue).await, Some("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_backoff_grows_to_a_limit_and_resets_after_success() {
        let queue = Queue::default();
        let delays: Vec<u64> = (0..12).map(|_| queue.push_failed("a", 0.5).as_secs()).collect();
        assert_eq!(&delays[..4], &[1, 2, 4, 8]);
        assert_eq!(delays.last(), Some(&300));
        queue.succeeded(&"a");
        assert_eq!(queue.push_failed("a", 0.5).as_secs(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_during_a_run_is_not_lost_when_the_run_ends() {
        let queue = Queue::default();
        queue.push("a", Duration::ZERO);
        assert_eq!(next_due(&queue).await, Some("a"));
        // An object of the same name is created while its predecessor is deleted.
        queue.push("a", Duration::ZERO);
        queue.succeeded(&"a");
        queue.done(&"a");
        assert_eq!(next_due(&queue).await, Some("a"));
        queue.done(&"a");
        assert_eq!(queue.depth(), 0);
    }
}
