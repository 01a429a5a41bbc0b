//! Who begins a group of OVSDB servers, who joins it and who leaves: a group is begun once, by an order that is remembered
//! first, and a pod goes only after its member has left.

use std::collections::{BTreeMap, BTreeSet};

use openstack_operator_model::service::{Direction, Member, Order};
use serde::Deserialize;

/// Annotation with which a pod is told what to do: a word and its uid.
const ORDER: &str = "openstack.k8s.io/ovn-order";

/// What a member says its volume holds.
#[derive(Debug, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum Report {
    Empty,
    Data {
        group: String,
    },
    /// It was a member until it was told to leave.
    Left,
}

/// How many pods a database has: as many as are wanted, and those that have not left yet.
///
/// **Invariant:** it is remembered before anybody is told to join, so that a group never has more members than it says.
pub(super) fn size(database: &str, wanted: i32, memory: &BTreeMap<String, String>) -> i32 {
    let remembered = memory.get(&size_key(database)).and_then(|size| size.parse().ok());
    remembered.map_or(wanted, |size: i32| size.max(wanted))
}

fn size_key(database: &str) -> String {
    format!("{database}Size")
}

/// Adds to a direction what the members of one database are told. Its pods are those of its size; the first ones, as many
/// as are wanted, stay.
pub(super) fn direct(
    database: &str,
    pods: &[String],
    wanted: usize,
    members: &[Member],
    direction: &mut Direction,
) {
    direction.memory.insert(size_key(database), pods.len().to_string());
    // Set once the group has served: from then on members without data are members that lost it.
    let formed = format!("{database}Formed");
    let mut empty = Vec::new();
    let mut groups = BTreeSet::new();
    let mut holders = 0;
    let mut silent = None;
    for (ordinal, pod) in pods.iter().enumerate() {
        let member = members.iter().find(|member| member.name == *pod);
        match (member, member.and_then(report)) {
            // What is ready is part of the group, whatever its volume held when it started.
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
        let reason =
            format!("members of the {database} database are of different groups: {}", groups.join(" and "));
        direction.waiting.get_or_insert(reason);
        return;
    }
    dismiss(database, pods, wanted, members, direction);
    let Some(first) = empty.first() else { return };
    match (direction.memory.get(database).cloned(), silent) {
        // The order is on its way, or was not obeyed yet.
        (Some(uid), _) if uid == first.uid => tell(direction, first, "begin"),
        // There is a group: whoever has no data joins it.
        (Some(_), _) if holders > 0 => {
            for member in empty {
                tell(direction, member, "join");
            }
        }
        (_, Some(pod)) => {
            let reason = format!("pod {pod} has not reported what its volume holds");
            direction.waiting.get_or_insert(reason);
        }
        (Some(_), None) if direction.memory.contains_key(&formed) => {
            let reason =
                format!("no pod holds the {database} database although it has served before: restore it");
            direction.waiting.get_or_insert(reason);
        }
        // Data that was brought in is a group that was begun elsewhere.
        (None, None) if holders > 0 => {
            direction.memory.insert(database.to_owned(), "elsewhere".to_owned());
        }
        // Nobody has begun, or whoever was told to went before it could.
        (_, None) => {
            direction.memory.insert(database.to_owned(), first.uid.clone());
        }
    }
}

/// Lets the last pod go where fewer are wanted: one at a time, and only while all that stay are well.
fn dismiss(database: &str, pods: &[String], wanted: usize, members: &[Member], direction: &mut Direction) {
    let member = |pod: &String| members.iter().find(|member| member.name == *pod);
    let (staying, leaving) = pods.split_at(wanted.min(pods.len()));
    let well: Vec<&Member> = staying.iter().filter_map(member).filter(|member| member.ready).collect();
    for member in well.iter().filter(|member| told_to_leave(member).is_some()) {
        tell(direction, member, "stay");
    }
    let Some(last) = leaving.last() else { return };
    let reason = match member(last) {
        Some(member) if well.len() == staying.len() => {
            if has_left(member) {
                direction.memory.insert(size_key(database), (pods.len() - 1).to_string());
                "has left"
            } else {
                if told_to_leave(member).is_none() {
                    give(
                        direction,
                        member,
                        format!("leave/{}/{}/{}", member.uid, member.restarts, pods.len()),
                    );
                }
                "is leaving"
            }
        }
        _ => "leaves, once all pods that stay are ready,",
    };
    direction.waiting.get_or_insert(format!("pod {last} {reason} the group of the {database} database"));
}

/// How often a pod that is to leave had been started again when it was told. It is also told how many members the group
/// may have at that moment: members that are gone for ever are forgotten before one that works leaves.
fn told_to_leave(member: &Member) -> Option<i32> {
    let order = member.annotations.get(ORDER)?.strip_prefix(&format!("leave/{}/", member.uid))?;
    order.split('/').next()?.parse().ok()
}

/// Whether the group does not count on a pod. What one said before it was told anything may no longer be so.
fn has_left(member: &Member) -> bool {
    match report(member) {
        _ if member.ready => false,
        Some(Report::Left) => told_to_leave(member).is_some_and(|before| member.restarts > before),
        Some(Report::Empty) => !member.annotations.contains_key(ORDER),
        Some(Report::Data { .. }) | None => false,
    }
}

fn report(member: &Member) -> Option<Report> {
    serde_json::from_str(member.report.as_deref()?).ok()
}

fn tell(direction: &mut Direction, member: &Member, word: &str) {
    give(direction, member, format!("{word}/{}", member.uid));
}

fn give(direction: &mut Direction, member: &Member, value: String) {
    if member.annotations.get(ORDER) != Some(&value) {
        direction.orders.push(Order {
            pod: member.name.clone(),
            uid: member.uid.clone(),
            annotation: ORDER,
            value,
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
        directed_to(members.len(), members, memory)
    }

    fn directed_to(wanted: usize, members: &[Member], memory: &[(&str, &str)]) -> Direction {
        let pods: Vec<String> = (0..members.len()).map(|ordinal| format!("nb-{ordinal}")).collect();
        let memory = memory.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let mut direction = Direction { memory, ..Direction::default() };
        direct("northbound", &pods, wanted, members, &mut direction);
        direction
    }

    fn orders(direction: &Direction) -> Vec<(&str, &str)> {
        direction.orders.iter().map(|order| (order.pod.as_str(), order.value.as_str())).collect()
    }

    #[test]
    fn a_group_is_begun_once_and_remembered_before_anybody_is_told() {
        let members = [member(0, Some(EMPTY)), member(1, Some(EMPTY))];
        let first = directed(&members, &[]);
        assert!(first.orders.is_empty());
        assert_eq!(first.memory["northbound"], "uid-0");
        let second = directed(&members, &[("northbound", "uid-0")]);
        assert_eq!(orders(&second), [("nb-0", "begin/uid-0")]);
    }

    #[test]
    fn others_join_once_one_has_data() {
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
    fn a_database_that_is_lost_is_not_made_anew() {
        let memory = [("northbound", "uid-of-an-earlier-pod"), ("northboundFormed", "true")];
        let direction = directed(&[member(0, Some(EMPTY))], &memory);
        assert!(direction.orders.is_empty());
        assert!(direction.waiting.unwrap().contains("restore it"));
        let others_are_silent = [member(0, Some(EMPTY)), member(1, None), member(2, None)];
        let direction = directed(&others_are_silent, &memory);
        assert!(direction.orders.is_empty(), "nobody joins those who may have nothing");
        assert!(direction.waiting.unwrap().contains("has not reported"));
    }

    #[test]
    fn one_that_went_before_it_could_begin_is_replaced_by_the_next() {
        let direction = directed(&[member(0, Some(EMPTY))], &[("northbound", "uid-of-an-earlier-pod")]);
        assert_eq!(direction.memory["northbound"], "uid-0");
    }

    #[test]
    fn a_group_that_serves_has_formed() {
        let ready = Member { ready: true, ..member(0, Some(EMPTY)) };
        let direction = directed(&[ready], &[("northbound", "uid-0")]);
        assert_eq!(direction.memory["northboundFormed"], "true");
        assert!(direction.orders.is_empty() && direction.waiting.is_none());
    }

    #[test]
    fn nobody_is_told_before_all_have_reported() {
        let direction = directed(&[member(0, Some(EMPTY)), member(1, None)], &[]);
        assert!(direction.orders.is_empty() && !direction.memory.contains_key("northbound"));
        assert!(direction.waiting.unwrap().contains("nb-1"));
    }

    #[test]
    fn data_of_two_groups_is_left_to_a_person() {
        let other = DATA.replace("\"g\"", "\"h\"");
        let direction = directed(&[member(0, Some(DATA)), member(1, Some(&other))], &[]);
        assert!(direction.waiting.unwrap().contains("different groups"));
    }

    const LEFT: &str = r#"{"state":"left"}"#;

    fn serving(ordinal: usize) -> Member {
        Member { ready: true, ..member(ordinal, Some(DATA)) }
    }

    fn told(order: &str, member: Member) -> Member {
        Member { annotations: BTreeMap::from([(ORDER.to_owned(), order.to_owned())]), ..member }
    }

    #[test]
    fn members_leave_one_by_one_and_only_while_the_others_are_well() {
        let direction = directed_to(1, &[serving(0), serving(1), serving(2)], &[]);
        assert_eq!(orders(&direction), [("nb-2", "leave/uid-2/0/3")]);
        assert_eq!(direction.memory["northboundSize"], "3", "its pod stays until it has left");
        assert!(direction.waiting.unwrap().contains("nb-2 is leaving"));
        let lost = member(1, Some(EMPTY));
        for last in [serving(1), lost] {
            let sick = directed_to(1, &[member(0, Some(DATA)), last], &[]);
            assert!(sick.orders.is_empty());
            assert_eq!(sick.memory["northboundSize"], "2");
            assert!(sick.waiting.unwrap().contains("once all pods that stay are ready"));
        }
    }

    #[test]
    fn a_pod_goes_when_its_member_has_left_and_not_before() {
        let size = |last: Member| directed_to(1, &[serving(0), last], &[]).memory["northboundSize"].clone();
        let left = Member { restarts: 1, ..told("leave/uid-1/0/2", member(1, Some(LEFT))) };
        assert_eq!(size(left.clone()), "1");
        assert_eq!(size(member(1, Some(EMPTY))), "1", "nobody told it to join");
        assert_eq!(size(told("join/uid-1", member(1, Some(EMPTY)))), "2", "it may have joined since");
        assert_eq!(
            size(told("leave/uid-1/0/2", member(1, Some(EMPTY)))),
            "2",
            "it had joined and is leaving"
        );
        assert_eq!(
            size(told("leave/uid-1/1/2", left.clone())),
            "2",
            "it had left once before, and came back"
        );
        assert_eq!(size(Member { ready: true, ..left }), "2");
    }

    #[test]
    fn one_that_is_wanted_again_stays_or_comes_back() {
        let still_there = told("leave/uid-1/0/2", serving(1));
        assert_eq!(orders(&directed(&[serving(0), still_there], &[])), [("nb-1", "stay/uid-1")]);
        let left = Member { restarts: 1, ..told("leave/uid-1/0/2", member(1, Some(LEFT))) };
        let direction = directed(&[serving(0), left], &[("northbound", "uid-0")]);
        assert_eq!(orders(&direction), [("nb-1", "join/uid-1")]);
    }

    #[test]
    fn a_database_has_pods_for_all_that_have_not_left() {
        let remembered = BTreeMap::from([("northboundSize".to_owned(), "3".to_owned())]);
        assert_eq!(size("northbound", 1, &remembered), 3);
        assert_eq!(size("northbound", 5, &remembered), 5);
        assert_eq!(size("southbound", 1, &remembered), 1);
    }
}
