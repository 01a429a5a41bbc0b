//! Bootstrap, recovery, writer and size of a Galera cluster, decided from the reports and views of its members.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openstack_operator_model::service::{
    Command, Direction, Member, MemberView, Order, Replication, SqlView,
};
use serde::Deserialize;

/// Annotation that instructs one start of a pod to bootstrap the cluster: the ticket of its report.
pub(super) const BOOTSTRAP: &str = "openstack.k8s.io/galera-bootstrap";
/// Member that receives all writes.
pub(super) const WRITER: &str = "writer";
/// Set once the cluster has served: from then on, a member without data has lost it.
pub(super) const FORMED: &str = "formed";
/// Pod and ticket of the last bootstrap instruction.
const ORDER: &str = "bootstrapOrder";
/// UUID of the history that the cluster serves.
const HISTORY: &str = "history";
/// Number of pods, including those that have not left yet.
const SIZE: &str = "size";

/// A lost writer costs at most this time and the timeouts of replication.
const SERVING_POLL: Duration = Duration::from_secs(5);
const RECOVERY_POLL: Duration = Duration::from_secs(2);

/// What the user wants of a cluster.
pub(super) struct Wanted<'a> {
    pub(super) name: &'a str,
    pub(super) replicas: i32,
    /// Pods whose data is given up.
    pub(super) lost: &'a [String],
}

/// Report of a member about its volume. The ticket belongs to the start that follows the report: no server runs in
/// between, so the position is current as long as that start waits.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum Report {
    Empty {
        ticket: String,
    },
    Data {
        uuid: String,
        sequence: i64,
        safe: u8,
        /// The others have excluded the member, because it could not apply a change.
        #[serde(default)]
        excluded: u8,
        ticket: String,
    },
}

/// How well the data of a member suits a bootstrap: data that all members agreed on first, then the newest, then that of a
/// clean shutdown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    agreed: bool,
    sequence: i64,
    safe: u8,
}

impl Report {
    fn ticket(&self) -> &str {
        let (Self::Empty { ticket } | Self::Data { ticket, .. }) = self;
        ticket
    }

    /// UUID and rank of the data. A member that never joined a cluster, or stopped during a state transfer, has none.
    fn position(&self) -> Option<(&str, Rank)> {
        match self {
            Self::Data { uuid, sequence, safe, excluded, .. }
                if uuid.chars().any(|digit| !matches!(digit, '0' | '-')) =>
            {
                Some((uuid, Rank { agreed: *excluded == 0, sequence: *sequence, safe: *safe }))
            }
            _ => None,
        }
    }
}

/// Number of pods: the desired ones and those that have not left yet.
pub(super) fn size(replicas: i32, memory: &BTreeMap<String, String>) -> i32 {
    let remembered = memory.get(SIZE).and_then(|size| size.parse().ok());
    remembered.map_or(replicas, |size: i32| size.max(replicas))
}

pub(super) fn direct(
    wanted: &Wanted<'_>,
    members: &[Member],
    memory: &BTreeMap<String, String>,
) -> Direction {
    let size = size(wanted.replicas, memory);
    let pods: Vec<String> = (0..size).map(|ordinal| format!("{}-{ordinal}", wanted.name)).collect();
    let known: Vec<&Member> =
        pods.iter().filter_map(|pod| members.iter().find(|member| member.name == *pod)).collect();
    let mut direction = Direction { memory: memory.clone(), ..Direction::default() };
    direction.memory.insert(SIZE.to_owned(), size.to_string());
    let serving: Vec<&Member> = known.iter().copied().filter(|member| serves(member)).collect();
    if serving.is_empty() {
        recover(wanted, &pods, &known, &mut direction);
        return direction;
    }
    // A member that does not respond may be lost. The others notice it within seconds, and the writes must move then.
    let is_silent = serving.iter().any(|member| member.view.is_none());
    direction.poll = (size > 1).then_some(if is_silent { RECOVERY_POLL } else { SERVING_POLL });
    record_service(wanted, &known, &serving, &mut direction);
    if wanted.replicas < size {
        shrink(wanted, &pods, members, &serving, &mut direction);
    }
    direction
}

fn view(member: &Member) -> Option<&SqlView> {
    match &member.view {
        Some(MemberView::Sql(view)) => Some(view),
        _ => None,
    }
}

/// The kubelet notices the loss of a quorum later than the member itself.
fn serves(member: &Member) -> bool {
    member.ready && view(member).is_none_or(|view| view.primary)
}

fn report(member: &Member) -> Option<Report> {
    serde_json::from_str(member.report.as_deref().filter(|_| !member.started)?).ok()
}

/// Records that the cluster serves, selects the writer, and withdraws instructions for an earlier state.
fn record_service(wanted: &Wanted<'_>, known: &[&Member], serving: &[&Member], direction: &mut Direction) {
    let memory = &mut direction.memory;
    memory.insert(FORMED.to_owned(), "true".to_owned());
    memory.remove(ORDER);
    if let Some(view) = serving.iter().find_map(|member| view(member)) {
        memory.insert(HISTORY.to_owned(), view.history.clone());
    }
    let current = memory.get(WRITER).cloned();
    let keeps = |member: &&&Member| Some(&member.name) == current.as_ref() && !is_cut_off(member, serving);
    if !serving.iter().any(|member| keeps(&member))
        && let Some(writer) = best_writer(serving)
    {
        memory.insert(WRITER.to_owned(), writer.name.clone());
    }
    let instructed = known.iter().filter(|member| member.annotations.contains_key(BOOTSTRAP));
    direction.orders.extend(instructed.map(|member| instruction(member, None)));
    if !wanted.lost.is_empty() {
        let names = wanted.lost.join(", ");
        direction.remarks.push(format!(
            "the cluster serves: remove {names} from spec.recovery.lostMembers, so that a later recovery waits for it"
        ));
    }
}

/// Whether the others have lost a member that the kubelet still reports as ready: the component of the others counts
/// only members that respond.
fn is_cut_off(member: &Member, serving: &[&Member]) -> bool {
    let answers: Vec<&SqlView> = serving.iter().filter_map(|other| view(other)).collect();
    member.view.is_none() && answers.iter().any(|view| view.size <= answers.len())
}

/// The first synced member: a donor is busy, and a member that does not respond may be lost.
fn best_writer<'a>(serving: &[&'a Member]) -> Option<&'a Member> {
    let rank = |member: &Member| match view(member) {
        Some(SqlView { replication: Replication::Synced, .. }) => 0,
        Some(_) => 1,
        None => 2,
    };
    serving.iter().copied().min_by_key(|member| rank(member))
}

/// Removes the last member, one at a time: it leaves the cluster when its pod stops.
fn shrink(
    wanted: &Wanted<'_>,
    pods: &[String],
    members: &[Member],
    serving: &[&Member],
    direction: &mut Direction,
) {
    let staying = usize::try_from(wanted.replicas).unwrap_or(1).min(pods.len());
    let (Some(last), Some(first)) = (pods.last(), serving.first()) else { return };
    let serves = |pod: &String| serving.iter().any(|member| member.name == *pod);
    // A pod that has not stopped yet is still a member.
    let is_stopping = members.iter().any(|member| !pods.contains(&member.name));
    let condition = if is_stopping || !pods[..staying].iter().all(serves) {
        " once all remaining pods serve"
    } else if direction.memory.get(WRITER) == Some(last) {
        direction.memory.insert(WRITER.to_owned(), first.name.clone());
        " after it handed over the writes"
    } else {
        direction.memory.insert(SIZE.to_owned(), (pods.len() - 1).to_string());
        ""
    };
    direction.waiting = Some(format!("pod {last} leaves the cluster{condition}"));
}

/// State of a cluster that does not serve.
#[derive(Default)]
struct Outage<'a> {
    /// Members whose server runs without a quorum.
    survivors: Vec<(&'a Member, &'a SqlView)>,
    reports: Vec<(&'a Member, Report)>,
    /// A pod that neither runs nor has reported.
    silent: Option<(&'a String, Option<&'a Member>)>,
}

impl<'a> Outage<'a> {
    fn new(wanted: &Wanted<'_>, pods: &'a [String], known: &[&'a Member]) -> Self {
        let mut outage = Self::default();
        let all_lost = pods.iter().all(|pod| wanted.lost.contains(pod));
        for pod in pods {
            let member = known.iter().copied().find(|member| member.name == *pod);
            if let Some((member, view)) = member.and_then(|member| Some((member, view(member)?))) {
                outage.survivors.push((member, view));
            } else if wanted.lost.contains(pod) && !all_lost {
                // The user gave up its data.
            } else if let Some((member, report)) = member.and_then(|member| Some((member, report(member)?))) {
                outage.reports.push((member, report));
            } else if !all_lost {
                outage.silent.get_or_insert((pod, member));
            }
        }
        outage
    }
}

/// Brings a cluster back that does not serve, or bootstraps a new one.
fn recover(wanted: &Wanted<'_>, pods: &[String], known: &[&Member], direction: &mut Direction) {
    let formed = direction.memory.contains_key(FORMED);
    let outage = Outage::new(wanted, pods, known);
    direction.poll = (formed && pods.len() > 1).then_some(RECOVERY_POLL);
    if pods.len() == 1 && !needs_permission(&outage, formed) {
        return;
    }
    if let Some((pod, _)) = outage.survivors.iter().find(|(_, view)| view.primary) {
        direction.waiting = Some(format!("pod {} serves soon", pod.name));
    } else if let Some((pod, member)) = outage.silent {
        report_silence(pod, member, formed, direction);
    } else if is_pending(&outage, direction) {
        // The start that has the instruction still runs.
    } else if outage.survivors.is_empty() {
        let history = direction.memory.get(HISTORY).cloned();
        let all_lost = pods.iter().all(|pod| wanted.lost.contains(pod));
        match choose(&outage.reports, history.as_deref(), formed && !all_lost) {
            Ok((member, report)) => order(direction, member, report),
            Err(reason) => direction.stalled = Some(reason),
        }
    } else {
        restore_quorum(&outage, direction);
    }
}

/// A single member starts without the operator, except if it has lost its data.
fn needs_permission(outage: &Outage<'_>, formed: bool) -> bool {
    formed && outage.reports.iter().any(|(_, report)| report.position().is_none())
}

fn report_silence(pod: &str, member: Option<&Member>, formed: bool, direction: &mut Direction) {
    if formed && member.is_some_and(|member| member.stranded) {
        direction.stalled = Some(format!(
            "pod {pod} does not run because its node is not available, so the newest data is unknown: repair the node. \
             If its volume is gone for good, add {pod} to spec.recovery.lostMembers of the MariaDB (in a cloud: \
             spec.mariadb.recovery.lostMembers); transactions that only this member contains are then lost"
        ));
    } else {
        direction.waiting = Some(format!("pod {pod} has not reported the content of its volume"));
    }
}

/// Whether the start of a pod that got the last instruction has not ended.
fn is_pending(outage: &Outage<'_>, direction: &mut Direction) -> bool {
    let order = direction.memory.get(ORDER);
    let pending = outage.reports.iter().find(|(member, report)| {
        let ticket = report.ticket();
        order == Some(&format!("{}/{ticket}", member.name))
            && member.annotations.get(BOOTSTRAP).is_some_and(|value| value == ticket)
    });
    direction.waiting = pending.map(|(member, _)| format!("pod {} bootstraps the cluster", member.name));
    direction.waiting.is_some()
}

/// The survivor with the newest data serves again without a restart. If a member that has stopped contains newer
/// data, the survivors restart, so that all positions are known.
fn restore_quorum(outage: &Outage<'_>, direction: &mut Direction) {
    let Some((best, newest)) = outage.survivors.iter().max_by_key(|(_, view)| view.committed) else { return };
    let positions = outage.reports.iter().filter_map(|(member, report)| Some((member, report.position()?)));
    let newer = positions
        .filter(|(_, (uuid, rank))| {
            *uuid == newest.history && rank.agreed && rank.sequence > newest.committed
        })
        .map(|(member, _)| &member.name)
        .next();
    if let Some(newer) = newer {
        let restarts = outage
            .survivors
            .iter()
            .map(|(survivor, _)| Command::Restart { pod: survivor.name.clone(), uid: survivor.uid.clone() });
        direction.commands.extend(restarts);
        direction.waiting =
            Some(format!("the surviving pods restart, because pod {newer} contains newer data"));
    } else {
        direction.commands.push(Command::RestoreQuorum { pod: best.name.clone() });
        direction.waiting = Some(format!("pod {} restores the quorum", best.name));
    }
}

/// The member with the newest data, or what the user must do.
fn choose<'a>(
    reports: &'a [(&'a Member, Report)],
    history: Option<&str>,
    formed: bool,
) -> Result<(&'a Member, &'a Report), String> {
    let positioned: Vec<_> =
        reports.iter().filter_map(|(member, report)| Some((*member, report, report.position()?))).collect();
    // Data of another history is older: the status records the one that served last.
    let served: Vec<_> =
        positioned.iter().filter(|(_, _, (uuid, _))| Some(*uuid) == history).copied().collect();
    let candidates = if served.is_empty() { positioned } else { served };
    let histories: BTreeSet<&str> = candidates.iter().map(|(_, _, (uuid, _))| *uuid).collect();
    if histories.len() > 1 {
        let names: Vec<&str> = candidates.iter().map(|(member, ..)| member.name.as_str()).collect();
        return Err(format!(
            "pods {} contain data of different clusters: add those whose data you give up to \
             spec.recovery.lostMembers",
            names.join(" and ")
        ));
    }
    // Of equal members the one with the lowest ordinal wins.
    let newest = candidates.into_iter().rev().max_by_key(|(_, _, (_, rank))| *rank);
    // Before the cluster has served, data without a position is imported data; later it may be incomplete.
    let imported = || {
        let has_data = |(_, report): &&(&Member, Report)| matches!(report, Report::Data { .. });
        reports.iter().find(has_data).or(reports.first()).filter(|_| !formed)
    };
    newest
        .map(|(member, report, _)| (member, report))
        .or_else(|| imported().map(|(member, report)| (*member, report)))
        .ok_or_else(|| {
            "no pod contains data although the cluster has served before: restore a volume from a backup, or add all \
             pods to spec.recovery.lostMembers to start with an empty database, which loses all data"
                .to_owned()
        })
}

/// An instruction names the ticket of a report, so that it means nothing to any other start.
fn order(direction: &mut Direction, chosen: &Member, report: &Report) {
    let ticket = report.ticket();
    direction.memory.insert(ORDER.to_owned(), format!("{}/{ticket}", chosen.name));
    direction.orders.push(instruction(chosen, Some(ticket.to_owned())));
}

fn instruction(member: &Member, value: Option<String>) -> Order {
    Order { pod: member.name.clone(), uid: member.uid.clone(), annotation: BOOTSTRAP, value }
}

#[cfg(test)]
mod tests;
