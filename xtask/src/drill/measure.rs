//! Runs one fault and measures what it costs.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::events::{Stream, error_seconds, failing_since, longest_silence};
use super::fault::{Api, Fault};
use super::inject::Injector;
use super::schema;
use super::secret;
use super::watch::{Waited, Watch, now, seconds_until_ready, window_since};
use super::writes::{acknowledged, missing};
use crate::cluster::settings::Settings;
use crate::command::Log;
use crate::directories::Directories;
use crate::progress::Step;

/// How long a cloud may take to recover, on a machine that emulates the processors of instances.
const RECOVERY: Duration = Duration::from_mins(20);
/// How long an instance may take to answer when the cloud has recovered.
const ANSWER: Duration = Duration::from_mins(1);
/// How long an instance may take to boot.
const BOOT: Duration = Duration::from_mins(8);
/// How many missing writes are listed.
const LISTED: usize = 5;

/// What a fault has cost.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) fault: String,
    /// Seconds of errors of each API.
    pub(super) errors: [(Api, f64); 5],
    /// Seconds until the control plane is Ready; none if it does not recover.
    pub(super) ready: Option<f64>,
    /// How many acknowledged writes were read back.
    pub(super) acknowledged: usize,
    pub(super) missing: usize,
    /// Instances that do not answer any more, although their nodes have kept their power.
    pub(super) stopped: Vec<String>,
    /// The longest time in seconds for which such an instance did not answer.
    pub(super) silence: f64,
    /// Why the fault counts as failed. Times are not among the reasons.
    pub(super) failures: Vec<String>,
    /// How long the whole run of the fault took.
    pub(super) seconds: f64,
}

impl Row {
    /// The figures in a few words.
    pub(super) fn summary(&self) -> String {
        let errors = self.errors.iter().map(|(_, seconds)| *seconds).fold(0.0, f64::max);
        let ready = self.ready.unwrap_or_default();
        format!("errors {errors:.0} s, Ready after {ready:.0} s, {} writes found", self.acknowledged)
    }
}

/// Waits until the cloud and its instances are in order. A fault on a cloud with another problem measures both.
pub(super) fn settle(watch: &mut Watch<'_>, step: &Step) -> Result<()> {
    if watch.wait_until_steady(f64::MIN, RECOVERY, step)? == Waited::Expired {
        bail!("the cloud is not in order after {} s: {}", RECOVERY.as_secs(), watch.last_state());
    }
    let silent = silent_instances(watch);
    if !silent.is_empty() {
        // Instances of a node that has lost its power stay off.
        watch.load.reboot(&silent)?;
        if watch.wait(BOOT, step, |watch| Ok(silent_instances(watch).is_empty()))? == Waited::Expired {
            bail!("{} do not answer {} s after their start", silent.join(", "), BOOT.as_secs());
        }
    }
    watch.forget();
    Ok(())
}

/// Runs a fault on a cloud that is in order.
pub(super) fn run(
    directories: &Directories,
    settings: &Settings,
    fault: &Fault,
    watch: &mut Watch<'_>,
    step: &Step,
) -> Result<Row> {
    let log = Log::create(directories, &format!("drill {}", fault.name))?;
    let nodes = watch.load.nodes_of_instances()?;
    let mut injector = Injector::new(directories, settings, &log, watch)?;
    let injected = now();
    let mut steps = fault.steps().iter();
    // A fault that cannot be injected completely must still be repaired.
    if let Err(error) = steps.try_for_each(|action| injector.perform(action, watch, step)) {
        injector.failures.push(format!("the fault was not injected completely: {error:#}"));
    }
    let repaired = now();
    for action in &fault.repair {
        injector.perform(action, watch, step)?;
    }
    let since = if fault.repair.is_empty() { injected } else { repaired };
    let mut failures = injector.failures;
    let waited = watch.wait_until_steady(since, RECOVERY, step)?;
    if waited == Waited::Expired {
        let state = watch.last_state();
        failures.push(format!("the cloud has not recovered after {} s: {state}", RECOVERY.as_secs()));
    }
    let expected: Vec<String> = nodes
        .into_iter()
        .filter(|(_, node)| !injector.without_power.contains(node))
        .map(|(instance, _)| instance)
        .collect();
    let stopped = wait_for_instances(&expected, watch, step)?;
    let window = window_since(injected);
    let errors = Api::ALL.map(|api| (api, error_seconds(&watch.load.events, api, window)));
    let silences = expected.iter().map(|name| longest_silence(&watch.load.events, name, window));
    let mut row = Row {
        fault: fault.name.clone(),
        errors,
        ready: seconds_until_ready(&watch.samples, since).filter(|_| waited == Waited::Met),
        acknowledged: 0,
        missing: 0,
        stopped,
        silence: silences.fold(0.0, f64::max),
        failures,
        seconds: window.seconds(),
    };
    if !row.stopped.is_empty() {
        row.failures.push(format!("{} stopped", row.stopped.join(", ")));
    }
    if row.ready.is_some() {
        read_back(&mut row, watch)?;
        // A state transfer of any fault may have left a member with another schema.
        row.failures.extend(schema::difference(&watch.view)?);
        watch.load.release()?;
        secret::forget_all(directories)?;
    }
    Ok(row)
}

/// Waits until instances answer, and returns those that do not.
fn wait_for_instances(expected: &[String], watch: &mut Watch<'_>, step: &Step) -> Result<Vec<String>> {
    let silent = |watch: &Watch<'_>| -> Vec<String> {
        silent_instances(watch).into_iter().filter(|name| expected.contains(name)).collect()
    };
    watch.wait(ANSWER, step, |watch| Ok(silent(watch).is_empty()))?;
    Ok(silent(watch))
}

/// Instances whose last connection failed.
fn silent_instances(watch: &Watch<'_>) -> Vec<String> {
    let failing = failing_since(&watch.load.events, f64::MAX);
    let instance = |stream: Stream<'_>| match stream {
        Stream::Instance(name) => Some(name.to_owned()),
        Stream::Api(..) => None,
    };
    failing.into_iter().filter_map(instance).collect()
}

/// Compares the acknowledged writes with what the cloud has.
fn read_back(row: &mut Row, watch: &mut Watch<'_>) -> Result<()> {
    let until = now();
    watch.load.read_events()?;
    let found = watch.load.found().context("failed to read the acknowledged writes back")?;
    let acknowledged = acknowledged(&watch.load.writes, until, &watch.load.released);
    let missing = missing(&acknowledged, &found);
    row.acknowledged = acknowledged.len();
    row.missing = missing.len();
    if !missing.is_empty() {
        let listed = missing.iter().take(LISTED).map(|write| format!("{} {}", write.kind.name(), write.id));
        let listed = listed.collect::<Vec<_>>().join(", ");
        row.failures.push(format!("{} acknowledged writes are missing: {listed}", missing.len()));
    }
    Ok(())
}
