//! Scripted faults and a log of all calls, shared by all fakes.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};

use openstack_operator_engine::ports::{PortError, PortResult};

use crate::lock;

/// One call of a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    pub verb: &'static str,
    /// Kind of the object, or name of the port.
    pub target: String,
    pub name: String,
}

impl fmt::Display for Call {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {} {}", self.verb, self.target, self.name)
    }
}

/// Pending faults and past calls. Numbers count from the time a fault is set: 1 is the next call.
#[derive(Clone, Debug, Default)]
pub struct Script {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    calls: usize,
    writes: usize,
    failing_calls: BTreeSet<usize>,
    conflicting_writes: BTreeSet<usize>,
    last_write: Option<usize>,
    crashed: bool,
    log: Vec<Call>,
    written: Vec<Call>,
}

impl Script {
    /// The n-th call of any port fails once and does nothing.
    pub fn fail_call(&self, number: usize) {
        let mut state = lock(&self.state);
        let call = state.calls + counted(number);
        state.failing_calls.insert(call);
    }

    /// The n-th write succeeds; every later call fails until [`Script::revive`].
    pub fn crash_after_write(&self, number: usize) {
        let mut state = lock(&self.state);
        state.last_write = Some(state.writes + counted(number));
    }

    /// The n-th write fails with a conflict.
    pub fn conflict_on_write(&self, number: usize) {
        let mut state = lock(&self.state);
        let write = state.writes + counted(number);
        state.conflicting_writes.insert(write);
    }

    /// Whether the process counts as killed.
    pub fn crashed(&self) -> bool {
        lock(&self.state).crashed
    }

    /// Starts a new process and cancels a pending crash.
    pub fn revive(&self) {
        let mut state = lock(&self.state);
        state.crashed = false;
        state.last_write = None;
    }

    /// All calls since the last [`Script::clear_log`], including failed ones, without those of a killed process.
    pub fn log(&self) -> Vec<Call> {
        lock(&self.state).log.clone()
    }

    /// All writes. For the cluster that includes writes without a change, because none may be sent at rest; for other
    /// servers only changes.
    pub fn writes(&self) -> Vec<Call> {
        lock(&self.state).written.clone()
    }

    pub fn clear_log(&self) {
        let mut state = lock(&self.state);
        state.log.clear();
        state.written.clear();
    }

    pub(crate) fn begin(
        &self,
        verb: &'static str,
        target: impl Into<String>,
        name: impl Into<String>,
    ) -> PortResult<Attempt<'_>> {
        let attempt = Attempt { script: self, call: Call { verb, target: target.into(), name: name.into() } };
        let mut state = lock(&self.state);
        if state.crashed {
            return Err(attempt.unavailable("the process was killed"));
        }
        state.calls += 1;
        state.log.push(attempt.call.clone());
        let number = state.calls;
        if state.failing_calls.remove(&number) {
            return Err(attempt.unavailable("the call was scripted to fail"));
        }
        drop(state);
        Ok(attempt)
    }
}

fn counted(number: usize) -> usize {
    assert!(number > 0, "calls and writes are counted from 1: a fault at 0 never occurs");
    number
}

/// A call that was not scripted to fail.
pub(crate) struct Attempt<'a> {
    script: &'a Script,
    call: Call,
}

impl Attempt<'_> {
    /// Call it right before the change, because a scripted crash lets exactly this write succeed.
    pub(crate) fn write(&self) -> PortResult<()> {
        let mut state = lock(&self.script.state);
        state.writes += 1;
        state.written.push(self.call.clone());
        let number = state.writes;
        if state.conflicting_writes.remove(&number) {
            return Err(self.conflict());
        }
        state.crashed = state.last_write == Some(number);
        Ok(())
    }

    pub(crate) fn unavailable(&self, reason: &str) -> PortError {
        PortError::Unavailable { action: self.call.to_string(), source: reason.into() }
    }

    pub(crate) fn refused(&self, reason: impl Into<String>) -> PortError {
        PortError::Rejected { action: self.call.to_string(), reason: reason.into() }
    }

    pub(crate) fn login_rejected(&self) -> PortError {
        PortError::LoginRejected { action: self.call.to_string(), reason: "401 Unauthorized".to_owned() }
    }

    pub(crate) fn conflict(&self) -> PortError {
        PortError::Conflict { action: self.call.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(script: &Script) -> PortResult<()> {
        script.begin("get", "Job", "x").map(|_| ())
    }

    fn write(script: &Script) -> PortResult<()> {
        script.begin("apply", "Job", "x")?.write()
    }

    #[test]
    fn a_failing_call_fails_once() {
        let script = Script::default();
        read(&script).unwrap();
        script.fail_call(2);
        read(&script).unwrap();
        assert!(matches!(write(&script), Err(PortError::Unavailable { .. })));
        write(&script).unwrap();
        assert_eq!(script.log().len(), 4);
        assert_eq!(script.writes().len(), 1);
    }

    #[test]
    fn after_a_crash_all_calls_fail_until_a_new_process_starts() {
        let script = Script::default();
        script.crash_after_write(2);
        write(&script).unwrap();
        read(&script).unwrap();
        assert!(!script.crashed());
        write(&script).unwrap();
        assert!(script.crashed());
        assert!(read(&script).is_err());
        assert!(write(&script).is_err());
        assert_eq!(script.log().len(), 3, "a killed process calls nothing");
        script.revive();
        read(&script).unwrap();
        write(&script).unwrap();
    }

    #[test]
    fn a_conflict_affects_the_scripted_write() {
        let script = Script::default();
        script.conflict_on_write(2);
        write(&script).unwrap();
        read(&script).unwrap();
        assert!(matches!(write(&script), Err(PortError::Conflict { .. })));
        write(&script).unwrap();
    }
}
