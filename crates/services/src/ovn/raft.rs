//! Membership of a Raft cluster of OVSDB servers. The operator bootstraps the cluster exactly once and records that
//! first; empty members join, and a pod is deleted only after its member has left.

use std::collections::{BTreeMap, BTreeSet};

use openstack_operator_model::service::{Direction, Member, Order};
use serde::Deserialize;

/// Annotation that instructs a pod: a command and its UID.
const ORDER: &str = "openstack.k8s.io/ovn-order";

/// Report of a member about its volume.
#[derive(Debug, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum Report {
    Empty,
    Data {
        group: String,
    },
    /// It left the cluster on instruction.
    Left,
}

/// Number of pods of a database: the desired ones and those that have not left yet.
///
/// **Invariant:** it is recorded before a member is instructed to join, so the cluster never has more members.
pub(super) fn size(database: &str, wanted: i32, memory: &BTreeMap<String, String>) -> i32 {
    let remembered = memory.get(&size_key(database)).and_then(|size| size.parse().ok());
    remembered.map_or(wanted, |size: i32| size.max(wanted))
}

fn size_key(database: &str) -> String {
    format!("{database}Size")
}

/// Adds the instructions for the members of one database. The first `wanted` pods stay.
pub(super) fn direct(
    database: &str,
    pods: &[String],
    wanted: usize,
    members: &[Member],
    direction: &mut Direction,
) {
    direction.memory.insert(size_key(database), pods.len().to_string());
    // Set once the cluster has served: from then on, a member without data has lost it.
    let formed = format!("{database}Formed");
    let mut empty = Vec::new();
    let mut groups = BTreeSet::new();
    let mut holders = 0;
    let mut silent = None;
    for (ordinal, pod) in pods.iter().enumerate() {
        let member = members.iter().find(|member| member.name == *pod);
        match (member, member.and_then(report)) {
            // A ready member is part of the cluster, whatever its volume contained at start.
            (Some(member), _) if member.ready => {
                holders += 1;
                direction.memory.insert(formed.clone(), "true".to_owned());
            }
            (Some(member), Some(Report::Empty | Report::Left)) if ordinal < wanted => empty.push(member),
            (Some(_), Some(Report::Empty | Report::Left)) => {}
            (_, Some(Report::Data { group })) => {
                holders += 1;
                groups.insert(group);
            }
            _ => silent = silent.or(Some(pod)),
        }
    }
    if groups.len() > 1 {
        let groups: Vec<String> = groups.into_iter().collect();
        let reason = format!(
            "pods of the {database} database contain data of different clusters ({}): delete the volume claims and \
             pods of all but one of these clusters",
            groups.join(" and ")
        );
        direction.stalled.get_or_insert(reason);
        return;
    }
    scale_down(database, pods, wanted, members, direction);
    let Some(first) = empty.first() else { return };
    match (direction.memory.get(database).cloned(), silent) {
        // The cluster exists: empty members join it.
        (Some(_), _) if holders > 0 => {
            for member in empty.into_iter().filter(|member| !has_bootstrapped(member)) {
                instruct(direction, member, "join");
            }
        }
        // The instruction is pending.
        (Some(uid), _) if uid == first.uid => instruct(direction, first, "begin"),
        (_, Some(pod)) => {
            let reason = format!("pod {pod} has not reported the content of its volume");
            direction.waiting.get_or_insert(reason);
        }
        (Some(_), None) if direction.memory.contains_key(&formed) => {
            let reason = format!(
                "no pod contains the {database} database although it has served before: restore the volume of a pod"
            );
            direction.stalled.get_or_insert(reason);
        }
        // Imported data is a cluster that was bootstrapped elsewhere.
        (None, None) if holders > 0 => {
            direction.memory.insert(database.to_owned(), "elsewhere".to_owned());
        }
        // No member has bootstrapped, or the selected one was lost before it could.
        (_, None) => {
            direction.memory.insert(database.to_owned(), first.uid.clone());
        }
    }
}

/// Whether the member has bootstrapped the cluster, so that the report from its start is outdated.
fn has_bootstrapped(member: &Member) -> bool {
    let order = format!("begin/{}", member.uid);
    member.restarts == 0 && member.annotations.get(ORDER) == Some(&order)
}

/// Removes the last member on scale-down: one at a time, and only while all remaining ones are ready.
fn scale_down(database: &str, pods: &[String], wanted: usize, members: &[Member], direction: &mut Direction) {
    let member = |pod: &String| members.iter().find(|member| member.name == *pod);
    let (staying, leaving) = pods.split_at(wanted.min(pods.len()));
    let ready: Vec<&Member> = staying.iter().filter_map(member).filter(|member| member.ready).collect();
    for member in ready.iter().filter(|member| leave_instruction(member).is_some()) {
        instruct(direction, member, "stay");
    }
    let Some(last) = leaving.last() else { return };
    let (state, condition) = match member(last) {
        Some(member) if ready.len() == staying.len() => {
            if has_left(member) {
                direction.memory.insert(size_key(database), (pods.len() - 1).to_string());
                ("has left", "")
            } else {
                if leave_instruction(member).is_none() {
                    give_order(
                        direction,
                        member,
                        format!("leave/{}/{}/{}", member.uid, member.restarts, pods.len()),
                    );
                }
                ("is leaving", "")
            }
        }
        _ => ("will leave", " once all remaining pods are ready"),
    };
    direction
        .waiting
        .get_or_insert(format!("pod {last} {state} the cluster of the {database} database{condition}"));
}

/// Restart count of a pod at its instruction to leave. The instruction also holds the number of members that the
/// cluster may have then, so lost members are removed before a working one leaves.
fn leave_instruction(member: &Member) -> Option<i32> {
    let order = member.annotations.get(ORDER)?.strip_prefix(&format!("leave/{}/", member.uid))?;
    order.split('/').next()?.parse().ok()
}

/// Whether the pod is no longer a member. A report from before the instruction may be outdated.
fn has_left(member: &Member) -> bool {
    match report(member) {
        _ if member.ready => false,
        Some(Report::Left) => leave_instruction(member).is_some_and(|before| member.restarts > before),
        Some(Report::Empty) => !member.annotations.contains_key(ORDER),
        Some(Report::Data { .. }) | None => false,
    }
}

fn report(member: &Member) -> Option<Report> {
    serde_json::from_str(member.report.as_deref()?).ok()
}

fn instruct(direction: &mut Direction, member: &Member, command: &str) {
    give_order(direction, member, format!("{command}/{}", member.uid));
}

fn give_order(direction: &mut Direction, member: &Member, value: String) {
    if member.annotations.get(ORDER) != Some(&value) {
        direction.orders.push(Order {
            pod: member.name.clone(),
            uid: member.uid.clone(),
            annotation: ORDER,
            value: Some(value),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const EMPTY: &str = r#"{"state":"empty"}"#;
    const DATA: &str = r#"{"state":"data","group":"g","member":"m"}"#;

    fn member(ordinal: usize, report: Option<&str>) -> Member {
        Member {
            name: format!("nb-{ordinal}"),
            uid: format!("uid-{ordinal}"),
            report: report.map(str::to_owned),
            ..Member::default()
        }
    }

    fn directed(members: &[Member], memory: &[(&str, &str)]) -> Direction {
        direct_to(members.len(), members, memory)
    }

    fn direct_to(wanted: usize, members: &[Member], memory: &[(&str, &str)]) -> Direction {
        let pods: Vec<String> = (0..members.len()).map(|ordinal| format!("nb-{ordinal}")).collect();
        let memory = memory.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let mut direction = Direction { memory, ..Direction::default() };
        direct("northbound", &pods, wanted, members, &mut direction);
        direction
    }

    fn orders(direction: &Direction) -> Vec<(&str, &str)> {
        direction
            .orders
            .iter()
            .map(|order| (order.pod.as_str(), order.value.as_deref().unwrap_or_default()))
            .collect()
    }

    #[test]
    fn a_cluster_is_bootstrapped_once_and_recorded_before_the_instruction() {
        let members = [member(0, Some(EMPTY)), member(1, Some(EMPTY))];
        let first = directed(&members, &[]);
        assert!(first.orders.is_empty());
        assert_eq!(first.memory["northbound"], "uid-0");
        let second = directed(&members, &[("northbound", "uid-0")]);
        assert_eq!(orders(&second), [("nb-0", "begin/uid-0")]);
    }

    #[test]
    fn empty_members_join_once_one_has_data() {
        let members = [member(0, Some(DATA)), member(1, Some(EMPTY)), member(2, Some(EMPTY))];
        let direction = directed(&members, &[("northbound", "uid-0")]);
        assert_eq!(orders(&direction), [("nb-1", "join/uid-1"), ("nb-2", "join/uid-2")]);
    }

    #[test]
    fn a_first_member_that_lost_its_volume_joins_the_others() {
        let members = [member(0, Some(EMPTY)), member(1, Some(DATA)), member(2, Some(DATA))];
        let direction = directed(&members, &[("northbound", "uid-of-an-earlier-pod")]);
        assert_eq!(orders(&direction), [("nb-0", "join/uid-0")]);
    }

    #[test]
    fn members_join_while_the_first_one_is_not_ready() {
        let first = instructed("begin/uid-0", member(0, Some(EMPTY)));
        let members = [first, serving(1), serving(2), member(3, Some(EMPTY)), member(4, Some(EMPTY))];
        let direction = directed(&members, &[("northbound", "uid-0"), ("northboundFormed", "true")]);
        assert_eq!(orders(&direction), [("nb-3", "join/uid-3"), ("nb-4", "join/uid-4")]);
    }

    #[test]
    fn a_recorded_member_without_an_instruction_joins_imported_data() {
        let members = [member(0, Some(EMPTY)), member(1, Some(DATA))];
        let direction = directed(&members, &[("northbound", "uid-0")]);
        assert_eq!(orders(&direction), [("nb-0", "join/uid-0")], "a second cluster would form");
    }

    #[test]
    fn a_lost_database_is_not_recreated() {
        let memory = [("northbound", "uid-of-an-earlier-pod"), ("northboundFormed", "true")];
        let direction = directed(&[member(0, Some(EMPTY))], &memory);
        assert!(direction.orders.is_empty());
        assert!(direction.stalled.unwrap().contains("restore the volume"));
        let others_are_silent = [member(0, Some(EMPTY)), member(1, None), member(2, None)];
        let direction = directed(&others_are_silent, &memory);
        assert!(direction.orders.is_empty(), "no member joins others that may be empty");
        assert!(direction.waiting.unwrap().contains("has not reported"));
    }

    #[test]
    fn a_pod_that_was_lost_before_bootstrap_is_replaced_by_the_next() {
        let direction = directed(&[member(0, Some(EMPTY))], &[("northbound", "uid-of-an-earlier-pod")]);
        assert_eq!(direction.memory["northbound"], "uid-0");
    }

    #[test]
    fn a_cluster_that_serves_has_formed() {
        let ready = Member { ready: true, ..member(0, Some(EMPTY)) };
        let direction = directed(&[ready], &[("northbound", "uid-0")]);
        assert_eq!(direction.memory["northboundFormed"], "true");
        assert!(direction.orders.is_empty() && direction.waiting.is_none());
    }

    #[test]
    fn no_member_is_instructed_before_all_have_reported() {
        let direction = directed(&[member(0, Some(EMPTY)), member(1, None)], &[]);
        assert!(direction.orders.is_empty() && !direction.memory.contains_key("northbound"));
        assert!(direction.waiting.unwrap().contains("nb-1"));
    }

    #[test]
    fn data_of_two_clusters_requires_the_user() {
        let other = DATA.replace("\"g\"", "\"h\"");
        let direction = directed(&[member(0, Some(DATA)), member(1, Some(&other))], &[]);
        assert!(direction.stalled.unwrap().contains("different clusters"));
    }

    const LEFT: &str = r#"{"state":"left"}"#;

    fn serving(ordinal: usize) -> Member {
        Member { ready: true, ..member(ordinal, Some(DATA)) }
    }

    fn instructed(order: &str, member: Member) -> Member {
        Member { annotations: BTreeMap::from([(ORDER.to_owned(), order.to_owned())]), ..member }
    }

    #[test]
    fn members_leave_one_by_one_and_only_while_the_others_are_ready() {
        let direction = direct_to(1, &[serving(0), serving(1), serving(2)], &[]);
        assert_eq!(orders(&direction), [("nb-2", "leave/uid-2/0/3")]);
        assert_eq!(direction.memory["northboundSize"], "3", "its pod stays until it has left");
        assert!(direction.waiting.unwrap().contains("nb-2 is leaving"));
        let lost = member(1, Some(EMPTY));
        for last in [serving(1), lost] {
            let degraded = direct_to(1, &[member(0, Some(DATA)), last], &[]);
            assert!(degraded.orders.is_empty());
            assert_eq!(degraded.memory["northboundSize"], "2");
            assert!(degraded.waiting.unwrap().contains("once all remaining pods are ready"));
        }
    }

    #[test]
    fn a_pod_is_deleted_only_after_its_member_has_left() {
        let size = |last: Member| direct_to(1, &[serving(0), last], &[]).memory["northboundSize"].clone();
        let left = Member { restarts: 1, ..instructed("leave/uid-1/0/2", member(1, Some(LEFT))) };
        assert_eq!(size(left.clone()), "1");
        assert_eq!(size(member(1, Some(EMPTY))), "1", "it was never instructed to join");
        assert_eq!(size(instructed("join/uid-1", member(1, Some(EMPTY)))), "2", "it may have joined since");
        assert_eq!(
            size(instructed("leave/uid-1/0/2", member(1, Some(EMPTY)))),
            "2",
            "it had joined and is leaving"
        );
        assert_eq!(size(instructed("leave/uid-1/1/2", left.clone())), "2", "it left before and rejoined");
        assert_eq!(size(Member { ready: true, ..left }), "2");
    }

    #[test]
    fn a_member_that_is_wanted_again_stays_or_rejoins() {
        let still_there = instructed("leave/uid-1/0/2", serving(1));
        assert_eq!(orders(&directed(&[serving(0), still_there], &[])), [("nb-1", "stay/uid-1")]);
        let left = Member { restarts: 1, ..instructed("leave/uid-1/0/2", member(1, Some(LEFT))) };
        let direction = directed(&[serving(0), left], &[("northbound", "uid-0")]);
        assert_eq!(orders(&direction), [("nb-1", "join/uid-1")]);
    }

    #[test]
    fn a_database_has_pods_for_all_members_that_have_not_left() {
        let remembered = BTreeMap::from([("northboundSize".to_owned(), "3".to_owned())]);
        assert_eq!(size("northbound", 1, &remembered), 3);
        assert_eq!(size("northbound", 5, &remembered), 5);
        assert_eq!(size("southbound", 1, &remembered), 1);
    }
}
