//! Who may begin a Galera group: decided from what all members report, and only ever by an order that is given once.

use std::collections::BTreeMap;

use openstack_operator_model::service::{Direction, Member, Order};
use serde::Deserialize;

/// Annotation with which one pod is told to begin the group: its uid and a number.
pub(super) const BOOTSTRAP: &str = "openstack.k8s.io/galera-bootstrap";
/// Member to which all writes go.
pub(super) const WRITER: &str = "writer";
/// Last order that was given.
const ORDER: &str = "bootstrapOrder";
/// Set once the group has served: from then on members without data are members that lost it.
const FORMED: &str = "formed";

/// What a member says its volume holds.
#[derive(Debug, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum Report {
    Empty,
    Data { uuid: String, sequence: i64, safe: u8 },
}

pub(super) fn direct(
    name: &str,
    replicas: i32,
    members: &[Member],
    memory: &BTreeMap<String, String>,
) -> Direction {
    let mut direction = Direction { memory: memory.clone(), ..Direction::default() };
    let pods: Vec<String> = (0..replicas).map(|ordinal| format!("{name}-{ordinal}")).collect();
    let member = |pod: &String| members.iter().find(|member| member.name == *pod);
    let serving = pods.iter().find(|pod| member(pod).is_some_and(|member| member.ready));
    if let Some(first) = serving {
        direction.memory.insert(FORMED.to_owned(), "true".to_owned());
        let writes = memory.get(WRITER).and_then(member).is_some_and(|member| member.ready);
        if !writes {
            direction.memory.insert(WRITER.to_owned(), first.clone());
        }
        return direction;
    }
    // One member alone begins by itself, so that it needs no operator to come back.
    if replicas == 1 {
        return direction;
    }
    let mut reports = Vec::new();
    for pod in &pods {
        let told = member(pod).and_then(|member| {
            let report = serde_json::from_str::<Report>(member.report.as_deref()?).ok()?;
            Some((member, report))
        });
        let Some(told) = told else {
            direction.waiting = Some(format!("pod {pod} has not reported what its volume holds"));
            return direction;
        };
        reports.push(told);
    }
    match choose(&reports, memory.contains_key(FORMED)) {
        Ok(chosen) => order(&mut direction, chosen),
        Err(reason) => direction.waiting = Some(reason),
    }
    direction
}

/// The member that holds the newest data, or why none may be chosen.
fn choose<'a>(reports: &[(&'a Member, Report)], formed: bool) -> Result<&'a Member, String> {
    let mut best: Option<(&Member, &str, (i64, u8))> = None;
    let mut unplaced = None;
    for (member, report) in reports {
        let Report::Data { uuid, sequence, safe } = report else { continue };
        // A member that has never been part of a group, or was stopped while it received its data, knows no place.
        if uuid.chars().all(|digit| matches!(digit, '0' | '-')) {
            unplaced.get_or_insert(*member);
            continue;
        }
        if let Some((other, known, _)) = best
            && known != uuid
        {
            return Err(format!("pods {} and {} hold data of different groups", other.name, member.name));
        }
        // Of equals the first stays, which has the lowest ordinal.
        if best.is_none_or(|(_, _, rank)| (*sequence, *safe) > rank) {
            best = Some((member, uuid, (*sequence, *safe)));
        }
    }
    // Before the group has served, data without a place is data that was brought in; afterwards it may be half of it.
    let unplaced = unplaced.filter(|_| !formed);
    match (best.map(|(member, ..)| member).or(unplaced), reports.first()) {
        (Some(member), _) => Ok(member),
        (None, Some((first, _))) if !formed => Ok(first),
        _ => Err("no pod holds data although the group has served before: restore it".to_owned()),
    }
}

/// An order is for one start of one pod, so that it stays the same until that start has ended.
fn order(direction: &mut Direction, chosen: &Member) {
    let value = format!("{}/{}", chosen.uid, chosen.restarts);
    direction.memory.insert(ORDER.to_owned(), value.clone());
    if chosen.annotations.get(BOOTSTRAP) == Some(&value) {
        direction.waiting = Some(format!("pod {} begins the group", chosen.name));
    } else {
        direction.orders.push(Order {
            pod: chosen.name.clone(),
            uid: chosen.uid.clone(),
            annotation: BOOTSTRAP,
            value,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(ordinal: usize, report: &str) -> Member {
        Member {
            name: format!("db-{ordinal}"),
            uid: format!("uid-{ordinal}"),
            report: Some(report.to_owned()),
            ..Member::default()
        }
    }

    fn data(sequence: i64, safe: u8) -> String {
        format!(r#"{{"state":"data","uuid":"u","sequence":{sequence},"safe":{safe}}}"#)
    }

    const EMPTY: &str = r#"{"state":"empty"}"#;

    #[test]
    fn the_first_of_empty_members_begins() {
        let members = [member(0, EMPTY), member(1, EMPTY), member(2, EMPTY)];
        let direction = direct("db", 3, &members, &BTreeMap::new());
        assert_eq!(direction.orders[0].pod, "db-0");
        assert_eq!(direction.orders[0].value, "uid-0/0");
        assert_eq!(direction.memory[ORDER], "uid-0/0");
    }

    #[test]
    fn nobody_begins_before_all_have_reported() {
        let members = [member(0, EMPTY), member(2, EMPTY)];
        let direction = direct("db", 3, &members, &BTreeMap::new());
        assert!(direction.orders.is_empty());
        assert!(direction.waiting.unwrap().contains("db-1"));
    }

    #[test]
    fn the_newest_data_wins_and_a_clean_stop_breaks_a_tie() {
        let members = [member(0, &data(7, 0)), member(1, &data(9, 0)), member(2, &data(9, 1))];
        assert_eq!(direct("db", 3, &members, &BTreeMap::new()).orders[0].pod, "db-2");
    }

    #[test]
    fn a_member_with_data_wins_over_empty_ones() {
        let members = [member(0, EMPTY), member(1, &data(1, 0)), member(2, EMPTY)];
        assert_eq!(direct("db", 3, &members, &BTreeMap::new()).orders[0].pod, "db-1");
    }

    #[test]
    fn a_group_that_has_served_is_never_begun_empty() {
        let memory = BTreeMap::from([(FORMED.to_owned(), "true".to_owned())]);
        let members = [member(0, EMPTY), member(1, EMPTY), member(2, EMPTY)];
        let direction = direct("db", 3, &members, &memory);
        assert!(direction.orders.is_empty() && direction.waiting.is_some());
    }

    #[test]
    fn a_member_without_a_place_neither_wins_nor_stands_in_the_way() {
        let nowhere =
            r#"{"state":"data","uuid":"00000000-0000-0000-0000-000000000000","sequence":-1,"safe":0}"#;
        let members = [
            member(0, nowhere),
            member(1, &data(9, 0)),
            member(2, r#"{"state":"data","uuid":"","sequence":-1,"safe":0}"#),
        ];
        assert_eq!(direct("db", 3, &members, &BTreeMap::new()).orders[0].pod, "db-1");
        let members = [member(0, EMPTY), member(1, nowhere), member(2, nowhere)];
        assert_eq!(direct("db", 3, &members, &BTreeMap::new()).orders[0].pod, "db-1");
        let formed = BTreeMap::from([(FORMED.to_owned(), "true".to_owned())]);
        assert!(direct("db", 3, &members, &formed).orders.is_empty());
    }

    #[test]
    fn data_of_two_groups_needs_a_person() {
        let stranger = r#"{"state":"data","uuid":"other","sequence":1,"safe":0}"#;
        let members = [member(0, &data(1, 0)), member(1, stranger), member(2, EMPTY)];
        assert!(direct("db", 3, &members, &BTreeMap::new()).orders.is_empty());
    }

    #[test]
    fn an_order_is_given_once_for_each_start() {
        let mut members = [member(0, EMPTY), member(1, EMPTY), member(2, EMPTY)];
        members[0].annotations.insert(BOOTSTRAP.to_owned(), "uid-0/0".to_owned());
        assert!(direct("db", 3, &members, &BTreeMap::new()).orders.is_empty());
        members[0].restarts = 2;
        assert_eq!(direct("db", 3, &members, &BTreeMap::new()).orders[0].value, "uid-0/2");
        members[0] = Member { uid: "new".to_owned(), ..member(0, EMPTY) };
        assert_eq!(direct("db", 3, &members, &BTreeMap::new()).orders[0].value, "new/0");
    }

    #[test]
    fn the_writer_stays_while_it_serves() {
        let mut members = [member(0, EMPTY), member(1, EMPTY), member(2, EMPTY)];
        members[1].ready = true;
        let direction = direct("db", 3, &members, &BTreeMap::new());
        assert_eq!(direction.memory[WRITER], "db-1");
        members[0].ready = true;
        let later = direct("db", 3, &members, &direction.memory);
        assert_eq!(later.memory[WRITER], "db-1");
        members[1].ready = false;
        assert_eq!(direct("db", 3, &members, &later.memory).memory[WRITER], "db-0");
    }

    #[test]
    fn one_member_needs_no_order() {
        let direction = direct("db", 1, &[member(0, EMPTY)], &BTreeMap::new());
        assert!(direction.orders.is_empty() && direction.waiting.is_none());
    }
}
