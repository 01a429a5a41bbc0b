//! Who may begin a group of OVSDB servers, and who joins: a group is begun once, by an order that is remembered first.

use serde::Deserialize;

use openstack_operator_model::service::{Direction, Member, Order};

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
    let begun = direction.memory.get(database).cloned();
    let mut empty = Vec::new();
    let mut groups = Vec::new();
    let mut silent = None;
    for pod in pods {
        let member = members.iter().find(|member| member.name == *pod);
        let report = member.and_then(|member| serde_json::from_str(member.report.as_deref()?).ok());
        match (member, report) {
            // What is ready is part of the group, whatever its volume held when it started.
            (Some(member), _) if member.ready => groups.push(String::new()),
            (Some(member), Some(Report::Empty)) => empty.push(member),
            (_, Some(Report::Data { group })) => groups.push(group),
            _ => silent = silent.or(Some(pod)),
        }
    }
    groups.sort();
    groups.dedup();
    groups.retain(|group| !group.is_empty());
    if let [first, second, ..] = groups.as_slice() {
        let reason =
            format!("members of the {database} database are of different groups: {first} and {second}");
        direction.waiting.get_or_insert(reason);
        return;
    }
    let Some(first) = empty.first() else { return };
    match begun {
        // The order is on its way, or was not obeyed yet.
        Some(uid) if uid == first.uid => tell(direction, first, "begin"),
        // There is a group: whoever has no data joins it.
        Some(_) if empty.len() < pods.len() => {
            for member in empty {
                tell(direction, member, "join");
            }
        }
        Some(_) => {
            let reason =
                format!("no pod holds the {database} database although it was made before: restore it");
            direction.waiting.get_or_insert(reason);
        }
        // Data that was brought in is a group that was begun elsewhere.
        None if empty.len() < pods.len() && silent.is_none() => {
            direction.memory.insert(database.to_owned(), "elsewhere".to_owned());
        }
        None if silent.is_some() => {
            let reason = silent.map(|pod| format!("pod {pod} has not reported what its volume holds"));
            direction.waiting = direction.waiting.take().or(reason);
        }
        None => {
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
        let direction = directed(&[member(0, Some(EMPTY))], &[("northbound", "uid-of-an-earlier-pod")]);
        assert!(direction.orders.is_empty());
        assert!(direction.waiting.unwrap().contains("restore it"));
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
