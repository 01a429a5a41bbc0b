//! Who may begin a group of OVSDB servers, and who joins: a group is begun once, by an order that is remembered first.

use std::collections::BTreeSet;

use openstack_operator_model::service::{Direction, Member, Order};
use serde::Deserialize;

/// Annotation with which a pod without data is told what to do: a word and its uid.
const ORDER: &str = "openstack.k8s.io/ovn-order";

/// What a member says its volume holds.
#[derive(Debug, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum Report {
    Empty,
    Data { group: String },
}

/// Adds to a direction what the members of one database are told.
pub(super) fn direct(database: &str, pods: &[String], members: &[Member], direction: &mut Direction) {
    // Set once the group has served: from then on members without data are members that lost it.
    let formed = format!("{database}Formed");
    let mut empty = Vec::new();
    let mut groups = BTreeSet::new();
    let mut holders = 0;
    let mut silent = None;
    for pod in pods {
        let member = members.iter().find(|member| member.name == *pod);
        let report = member.and_then(|member| serde_json::from_str(member.report.as_deref()?).ok());
        match (member, report) {
            // What is ready is part of the group, whatever its volume held when it started.
            (Some(member), _) if member.ready => {
                holders += 1;
                direction.memory.insert(formed.clone(), "true".to_owned());
            }
            (Some(member), Some(Report::Empty)) => empty.push(member),
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

fn tell(direction: &mut Direction, member: &Member, word: &str) {
    let value = format!("{word}/{}", member.uid);
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
        let pods: Vec<String> = (0..members.len()).map(|ordinal| format!("nb-{ordinal}")).collect();
        let memory = memory.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let mut direction = Direction { memory, ..Direction::default() };
        direct("northbound", &pods, members, &mut direction);
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
        assert_eq!(first.memory, BTreeMap::from([("northbound".to_owned(), "uid-0".to_owned())]));
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
        assert!(direction.orders.is_empty() && direction.memory.is_empty());
        assert!(direction.waiting.unwrap().contains("nb-1"));
    }

    #[test]
    fn data_of_two_groups_is_left_to_a_person() {
        let other = DATA.replace("\"g\"", "\"h\"");
        let direction = directed(&[member(0, Some(DATA)), member(1, Some(&other))], &[]);
        assert!(direction.waiting.unwrap().contains("different groups"));
    }
}
