//! Observes the cloud while faults happen: samples the state of the control plane and reads the events of the load.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;

use super::events::{Event, Span, Stream, failing_since, last_failure};
use super::fault::Api;
use super::load::Load;
use super::view::{State, View};
use crate::progress::Step;

/// How often the state of the control plane is sampled.
const INTERVAL: Duration = Duration::from_secs(2);
/// For how long a cloud must serve without an error to count as recovered.
const STEADY_SECONDS: f64 = 20.0;

/// The state of the control plane at a time, in seconds since 1970.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    pub(super) time: f64,
    pub(super) state: State,
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waited {
    Met,
    Expired,
}

pub(super) struct Watch<'a> {
    pub(super) view: View,
    pub(super) load: Load<'a>,
    /// Samples since the last call of `forget`.
    pub(super) samples: Vec<Sample>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(view: View, load: Load<'a>) -> Self {
        Self { view, load, samples: Vec::new() }
    }

    /// Forgets all observations, between two faults.
    pub(super) fn forget(&mut self) {
        self.samples.clear();
        self.load.forget();
    }

    /// Observes until a condition holds, at most for this time.
    pub(super) fn wait(
        &mut self,
        limit: Duration,
        step: &Step,
        mut condition: impl FnMut(&mut Self) -> Result<bool>,
    ) -> Result<Waited> {
        let started = Instant::now();
        loop {
            self.observe(step)?;
            if condition(self)? {
                return Ok(Waited::Met);
            }
            let Some(rest) = limit.checked_sub(started.elapsed()) else { return Ok(Waited::Expired) };
            thread::sleep(rest.min(INTERVAL));
        }
    }

    /// Waits until the control plane and all APIs have been in order for a while, at the earliest from a time on.
    pub(super) fn wait_until_steady(&mut self, since: f64, limit: Duration, step: &Step) -> Result<Waited> {
        self.wait(limit, step, |watch| {
            let recently = now() - STEADY_SECONDS;
            Ok(recently >= since
                && is_whole_since(&watch.samples, recently)
                && failing_apis(&watch.load.events, recently).is_empty())
        })
    }

    /// The last state of the control plane in a few words, and why APIs fail. A control plane can be Ready while an API
    /// fails.
    pub(super) fn last_state(&self) -> String {
        let state = self.samples.last().map(|sample| sample.state.text());
        let failing = failing_since(&self.load.events, now());
        let reasons = failing.iter().filter_map(|stream| match stream {
            Stream::Api(api, name) => {
                let reason = last_failure(&self.load.events, stream).unwrap_or_default();
                Some(format!("{} {name} fails: {reason}", api.name()))
            }
            Stream::Instance(_) => None,
        });
        state.into_iter().chain(reasons).collect::<Vec<_>>().join("; ")
    }

    /// Waits until all APIs have answered for a while, whatever the state of the control plane.
    pub(super) fn wait_until_served(&mut self, limit: Duration, step: &Step) -> Result<Waited> {
        self.wait(
            limit,
            step,
            |watch| Ok(failing_apis(&watch.load.events, now() - STEADY_SECONDS).is_empty()),
        )
    }

    fn observe(&mut self, step: &Step) -> Result<()> {
        let time = now();
        let state = self.view.state();
        self.load.read_events()?;
        let failing = failing_apis(&self.load.events, now());
        if failing.iter().any(|(_, stream)| stream == "login") {
            // The Secret may be missing at this moment; the next observation tries again.
            drop(self.load.refresh_password(&self.view));
        }
        let mut names: Vec<&str> = failing.iter().map(|(api, _)| api.name()).collect();
        names.dedup();
        let errors =
            if names.is_empty() { String::new() } else { format!("; errors of {}", names.join(", ")) };
        step.update(&format!("{}{errors}", state.text()));
        self.samples.push(Sample { time, state });
        Ok(())
    }
}

/// The streams of APIs whose last request failed, or that had a failed request since a time.
fn failing_apis(events: &[Event], since: f64) -> Vec<(Api, String)> {
    let of_api = |stream: Stream<'_>| match stream {
        Stream::Api(api, name) => Some((api, name.to_owned())),
        Stream::Instance(_) => None,
    };
    failing_since(events, since).into_iter().filter_map(of_api).collect()
}

/// Whether the cloud has been observed since a time, and was whole in every sample since then.
fn is_whole_since(samples: &[Sample], since: f64) -> bool {
    let is_observed = samples.first().is_some_and(|sample| sample.time <= since);
    let mut recent = samples.iter().filter(|sample| sample.time >= since);
    is_observed && recent.all(|sample| sample.state == State::Whole)
}

/// Seconds from a time until the control plane is Ready for good; zero if it stays Ready, none if it does not become
/// Ready.
pub(super) fn seconds_until_ready(samples: &[Sample], since: f64) -> Option<f64> {
    let recent: Vec<&Sample> = samples.iter().filter(|sample| sample.time >= since).collect();
    match recent.iter().rposition(|sample| sample.state != State::Whole) {
        None => Some(0.0),
        Some(last) => recent.get(last + 1).map(|sample| sample.time - since),
    }
}

/// The time now, in seconds since 1970, as the load records it.
pub(super) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The time since a moment.
pub(super) fn window_since(from: f64) -> Span {
    Span { from, to: now() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(states: &[(f64, State)]) -> Vec<Sample> {
        states.iter().map(|(time, state)| Sample { time: *time, state: state.clone() }).collect()
    }

    fn working() -> State {
        State::Working(String::new())
    }

    #[test]
    fn time_until_ready_ends_with_the_last_sample_that_is_not_ready() {
        // The operator needs a moment to notice the fault.
        let found = samples(&[
            (10.0, State::Whole),
            (12.0, working()),
            (14.0, State::Whole),
            (16.0, State::Degraded(String::new())),
            (18.0, State::Whole),
            (20.0, State::Whole),
        ]);
        assert_eq!(seconds_until_ready(&found, 10.0), Some(8.0));
    }

    #[test]
    fn a_cloud_that_stays_ready_needs_no_time() {
        let found = samples(&[(8.0, working()), (12.0, State::Whole), (14.0, State::Whole)]);
        assert_eq!(seconds_until_ready(&found, 10.0), Some(0.0));
    }

    #[test]
    fn a_cloud_that_is_not_ready_at_the_end_has_no_time() {
        let found = samples(&[(12.0, State::Whole), (14.0, State::Unknown)]);
        assert_eq!(seconds_until_ready(&found, 10.0), None);
    }

    #[test]
    fn a_cloud_is_whole_only_if_every_recent_sample_is() {
        let found = samples(&[(10.0, working()), (12.0, State::Whole), (14.0, State::Whole)]);
        assert!(is_whole_since(&found, 11.0));
        assert!(!is_whole_since(&found, 10.0));
        assert!(!is_whole_since(&found[1..], 11.0), "the observation starts later");
    }
}
