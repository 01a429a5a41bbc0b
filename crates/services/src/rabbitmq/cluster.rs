//! Membership of a RabbitMQ cluster, decided from the reports and views of its members. Empty members join without the
//! operator; it decides which member leaves, and which one starts first after data is lost.

use std::collections::BTreeMap;

use openstack_operator_model::service::{BusView, Direction, Member, MemberView, Order};
use serde::Deserialize;

/// Annotation that instructs a pod: a command and its UID.
const ORDER: &str = "openstack.k8s.io/rabbitmq-order";
/// Set once the cluster has served: from then on, no member forms a cluster without an instruction.
pub(super) const FORMED: &str = "formed";
/// Last instruction to a pod of a cluster in which no member serves.
const RECOVERY: &str = "recovery";
/// Number of pods, including those that have not left yet.
const SIZE: &str = "size";

/// Report of a member about its volume.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum Report {
    Empty,
    Data,
    /// It left the cluster on instruction.
    Left,
}

/// Number of pods: the desired ones and those that have not left yet.
pub(super) fn size(replicas: i32, memory: &BTreeMap<String, String>) -> i32 {
    let remembered = memory.get(SIZE).and_then(|size| size.parse().ok());
    remembered.map_or(replicas, |size: i32| size.max(replicas))
}

pub(super) fn direct(
    name: &str,
    replicas: i32,
    members: &[Member],
    memory: &BTreeMap<String, String>,
) -> Direction {
    let size = size(replicas, memory);
    let pods: Vec<String> = (0..size).map(|ordinal| format!("{name}-{ordinal}")).collect();
    let known: Vec<&Member> =
        pods.iter().filter_map(|pod| members.iter().find(|member| member.name == *pod)).collect();
    let mut direction = Direction { memory: memory.clone(), ..Direction::default() };
    direction.memory.insert(SIZE.to_owned(), size.to_string());
    if known.iter().any(|member| member.ready) {
        direction.memory.insert(FORMED.to_owned(), "true".to_owned());
        direction.memory.remove(RECOVERY);
        let is_recovery = |member: &&&Member| is_instructed(member, "form") || is_instructed(member, "boot");
        withdraw(known.iter().filter(is_recovery), &mut direction);
        compare_views(&known, &mut direction);
        shrink(replicas, &pods, &known, &mut direction);
    } else if memory.contains_key(FORMED) {
        recover(&pods, &known, &mut direction);
    }
    direction
}

/// Reports members that do not belong to the same cluster: clients would use both, and each has only some queues.
fn compare_views(known: &[&Member], direction: &mut Direction) {
    let views: Vec<(&Member, &BusView)> = known
        .iter()
        .filter_map(|member| match &member.view {
            Some(MemberView::Bus(view)) if member.ready => Some((*member, view)),
            _ => None,
        })
        .collect();
    for (index, (one, one_view)) in views.iter().enumerate() {
        for (other, other_view) in &views[index + 1..] {
            let (one, other) = (&one.name, &other.name);
            match (knows(one_view, other), knows(other_view, one)) {
                (true, true) => {}
                (false, false) => {
                    direction.stalled.get_or_insert(format!(
                        "pods {one} and {other} are members of separate clusters, which share no queues: select the \
                         cluster that stays. For each pod of the other one, delete the PersistentVolumeClaim \
                         data-POD and the pod; it joins the cluster that stays and loses its messages"
                    ));
                }
                _ => {
                    let reason = format!("pods {one} and {other} disagree about the members of the cluster");
                    direction.waiting.get_or_insert(reason);
                }
            }
        }
    }
}

/// Whether a pod is in a view. The name of a node contains the host name of its pod.
fn knows(view: &BusView, pod: &str) -> bool {
    let host = |node: &String| Some(node.split_once('@')?.1.split('.').next()? == pod);
    view.known.iter().any(|node| host(node).unwrap_or(false))
}

/// Removes the last member: one at a time, and only while all remaining ones are ready.
fn shrink(replicas: i32, pods: &[String], known: &[&Member], direction: &mut Direction) {
    let wanted = usize::try_from(replicas).unwrap_or(1).min(pods.len());
    let (staying, leaving) = pods.split_at(wanted);
    let stays = |member: &&&Member| staying.contains(&member.name);
    withdraw(known.iter().filter(stays).filter(|member| is_instructed(member, "leave")), direction);
    let Some(last) = leaving.last() else { return };
    if direction.stalled.is_some() {
        return;
    }
    let ready = known.iter().filter(stays).filter(|member| member.ready).count();
    let member = known.iter().find(|member| member.name == *last);
    let (state, condition) = match member {
        Some(member) if ready == staying.len() => {
            if has_left(member) {
                direction.memory.insert(SIZE.to_owned(), (pods.len() - 1).to_string());
                ("has left", "")
            } else {
                if !is_instructed(member, "leave") {
                    let value = format!("leave/{}/{}", member.uid, member.restarts);
                    direction.orders.push(order(member, Some(value)));
                }
                ("is leaving", "")
            }
        }
        _ => ("leaves", " once all remaining pods are ready"),
    };
    direction.waiting.get_or_insert(format!("pod {last} {state} the cluster{condition}"));
}

/// Whether the pod is no longer a member. A report from before the instruction may be outdated.
fn has_left(member: &Member) -> bool {
    let instruction = member
        .annotations
        .get(ORDER)
        .and_then(|order| order.strip_prefix(&format!("leave/{}/", member.uid))?.parse::<i32>().ok());
    report(member) == Some(Report::Left) && instruction.is_some_and(|before| member.restarts > before)
}

/// State of a member of a cluster that does not serve.
#[derive(Clone, Copy, PartialEq)]
enum State {
    /// Its volume has no data.
    Empty,
    /// It has data, and may start without help.
    Starting,
    /// It has data, but its broker has failed to start.
    Failed,
    /// It has not reported.
    Silent,
}

fn state(member: &Member) -> State {
    match report(member) {
        Some(Report::Empty | Report::Left) => State::Empty,
        Some(Report::Data) => State::Starting,
        // Only a broker has ended with a log.
        None if member.restarts > 0 => State::Failed,
        None => State::Silent,
    }
}

/// Brings a cluster back in which no member serves and some have lost their data. Brokers wait for members that stopped
/// after them, so that a lost one stops all of them.
fn recover(pods: &[String], known: &[&Member], direction: &mut Direction) {
    if known.iter().any(|member| member.started) {
        return;
    }
    let states: Vec<(&Member, State)> = known.iter().map(|member| (*member, state(member))).collect();
    let silent = pods.iter().find(|pod| {
        let found = states.iter().find(|(member, _)| member.name == **pod);
        found.is_none_or(|(_, state)| *state == State::Silent)
    });
    let first = |wanted: State| states.iter().find(|(_, state)| *state == wanted).map(|(member, _)| *member);
    if let Some(pod) = silent {
        let is_stranded = known.iter().any(|member| member.name == *pod && member.stranded);
        direction.waiting = Some(if is_stranded {
            format!(
                "pod {pod} does not run because its node is not available, and the others may wait for it: repair the \
                 node. If its volume is gone for good, delete the PersistentVolumeClaim data-{pod} and the pod; \
                 messages that only this member has are then lost"
            )
        } else {
            format!("pod {pod} has not reported the content of its volume")
        });
        return;
    }
    match (first(State::Starting), first(State::Failed), first(State::Empty)) {
        // Without data on any volume nothing can be lost: virtual hosts and users are recreated.
        (None, None, Some(member)) => instruct(member, "form", "forms the cluster again", direction),
        (None, Some(member), Some(_)) => instruct(member, "boot", "starts without the lost data", direction),
        _ => {}
    }
}

/// The status records the pod before it is instructed, so that no other pod is.
fn instruct(member: &Member, command: &str, action: &str, direction: &mut Direction) {
    let value = format!("{command}/{}", member.uid);
    direction.memory.insert(RECOVERY.to_owned(), value.clone());
    if member.annotations.get(ORDER) != Some(&value) {
        direction.orders.push(order(member, Some(value)));
    }
    direction.waiting = Some(format!("pod {} {action}", member.name));
}

/// The report of the last container that ended, unless the broker has served since.
fn report(member: &Member) -> Option<Report> {
    serde_json::from_str(member.report.as_deref().filter(|_| !member.started && !member.ready)?).ok()
}

fn is_instructed(member: &Member, command: &str) -> bool {
    let instruction = format!("{command}/{}", member.uid);
    member.annotations.get(ORDER).is_some_and(|order| order.starts_with(&instruction))
}

fn withdraw<'a>(members: impl Iterator<Item = &'a &'a Member>, direction: &mut Direction) {
    direction.orders.extend(members.map(|member| order(member, None)));
}

fn order(member: &Member, value: Option<String>) -> Order {
    Order { pod: member.name.clone(), uid: member.uid.clone(), annotation: ORDER, value }
}

#[cfg(test)]
mod tests;
