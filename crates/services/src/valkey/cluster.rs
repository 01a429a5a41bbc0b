//! Membership of a Valkey cluster, decided from the reports of its members. Sentinels elect the primary; the operator decides
//! when members are removed, and which one starts if all volumes are lost.

use std::collections::BTreeMap;

use openstack_operator_model::service::{Direction, Member, Order};
use serde::Deserialize;

/// Annotation that instructs a pod: a command and its UID.
const ORDER: &str = "openstack.k8s.io/valkey-order";
/// Set once a member has served: from then on, no member without data starts a cluster without an instruction.
pub(super) const FORMED: &str = "formed";
/// Last instruction to a pod of a cluster that lost all its data.
const RECOVERY: &str = "recovery";
/// Number of pods, including those that are not removed yet.
const SIZE: &str = "size";
/// How often members were removed. The volumes of removed members stay, and must not be used again.
const REMOVALS: &str = "removals";

/// Report of a member about its volume.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum Report {
    Empty,
    Data,
}

/// Number of pods: the desired ones and those that are not removed yet.
pub(super) fn size(replicas: i32, memory: &BTreeMap<String, String>) -> i32 {
    let remembered = memory.get(SIZE).and_then(|size| size.parse().ok());
    remembered.map_or(replicas, |size: i32| size.max(replicas))
}

pub(super) fn removals(memory: &BTreeMap<String, String>) -> u32 {
    memory.get(REMOVALS).and_then(|count| count.parse().ok()).unwrap_or(0)
}

pub(super) fn direct(
    name: &str,
    replicas: i32,
    members: &[Member],
    memory: &BTreeMap<String, String>,
) -> Direction {
    let size = size(replicas, memory);
    let pods = super::pods(name, size);
    let known: Vec<&Member> =
        pods.iter().filter_map(|pod| members.iter().find(|member| member.name == *pod)).collect();
    let mut direction = Direction { memory: memory.clone(), ..Direction::default() };
    direction.memory.insert(SIZE.to_owned(), size.to_string());
    if known.iter().any(|member| member.ready) {
        direction.memory.insert(FORMED.to_owned(), "true".to_owned());
        direction.memory.remove(RECOVERY);
        let instructed = known.iter().filter(|member| member.annotations.contains_key(ORDER));
        direction.orders.extend(instructed.map(|member| order(member, None)));
        if replicas < size {
            shrink(replicas, size, &known, &mut direction);
        }
    } else if memory.contains_key(FORMED) && size > 1 {
        recover(&pods, &known, &mut direction);
    }
    direction
}

/// Removes the last members at once, while all are ready: the first member then has all data, whoever is the primary.
fn shrink(replicas: i32, size: i32, known: &[&Member], direction: &mut Direction) {
    let ready = known.iter().filter(|member| member.ready).count();
    if usize::try_from(size).is_ok_and(|size| ready == size) {
        direction.memory.insert(SIZE.to_owned(), replicas.to_string());
        direction.memory.insert(REMOVALS.to_owned(), (removals(&direction.memory) + 1).to_string());
    } else {
        let waiting = format!("{} members are removed once all {size} are ready", size - replicas);
        direction.waiting.get_or_insert(waiting);
    }
}

/// Lets one member start a cluster again if no volume has data. Members with data start by themselves, and the others wait for
/// them.
fn recover(pods: &[String], known: &[&Member], direction: &mut Direction) {
    for pod in pods {
        let member = known.iter().find(|member| member.name == *pod);
        match member.and_then(|member| report(member)) {
            Some(Report::Empty) => {}
            Some(Report::Data) => return,
            None => {
                let is_stranded = member.is_some_and(|member| member.stranded);
                direction.waiting = Some(if is_stranded {
                    format!(
                        "pod {pod} does not run because its node is not available, and the others have no data: repair the \
                         node. If its volume is gone for good, delete the PersistentVolumeClaim data-{pod} and the pod; \
                         locks and messages that only this member has are then lost"
                    )
                } else {
                    format!("pod {pod} has not reported the content of its volume")
                });
                return;
            }
        }
    }
    // Without data on any volume nothing can be lost.
    let Some(member) = known.first() else { return };
    let value = format!("form/{}", member.uid);
    // The status records the pod before it is instructed, so that no other pod is.
    direction.memory.insert(RECOVERY.to_owned(), value.clone());
    if member.annotations.get(ORDER) != Some(&value) {
        direction.orders.push(order(member, Some(value)));
    }
    direction.waiting =
        Some(format!("pod {} starts the cluster again, because all volumes are empty", member.name));
}

/// The report of the last container that ended. A server that has started since has data, and so has one that ended without a
/// report.
fn report(member: &Member) -> Option<Report> {
    if member.started {
        return Some(Report::Data);
    }
    let reported = member.report.as_deref().and_then(|report| serde_json::from_str(report).ok());
    reported.or((member.restarts > 0).then_some(Report::Data))
}

fn order(member: &Member, value: Option<String>) -> Order {
    Order { pod: member.name.clone(), uid: member.uid.clone(), annotation: ORDER, value }
}

#[cfg(test)]
mod tests;
