//! Bootstrap of a Galera cluster: the operator selects the member from the reports of all members and instructs it
//! exactly once.

use std::collections::BTreeMap;

use openstack_operator_model::service::{Direction, Member, Order};
use serde::Deserialize;

/// Annotation that instructs a pod to bootstrap the cluster: its UID and restart count.
pub(super) const BOOTSTRAP: &str = "openstack.k8s.io/galera-bootstrap";
/// Member that receives all writes.
pub(super) const WRITER: &str = "writer";
/// Last bootstrap instruction.
const ORDER: &str = "bootstrapOrder";
/// Set once the cluster has served: from then on, a member without data has lost it.
const FORMED: &str = "formed";

/// Report of a member about its volume.
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
    // A single member bootstraps without the operator.
    if replicas == 1 {
        return direction;
    }
    let mut reports = Vec::new();
    for pod in &pods {
        let report = member(pod).and_then(|member| {
            let report = serde_json::from_str::<Report>(member.report.as_deref()?).ok()?;
            Some((member, report))
        });
        let Some(report) = report else {
            direction.waiting = Some(format!("pod {pod} has not reported the content of its volume"));
            return direction;
        };
        reports.push(report);
    }
    match choose(&reports, memory.contains_key(FORMED)) {
        Ok(chosen) => order(&mut direction, chosen),
        Err(reason) => direction.waiting = Some(reason),
    }
    direction
}

/// The member with the newest data, or the reason why none can be selected.
fn choose<'a>(reports: &[(&'a Member, Report)], formed: bool) -> Result<&'a Member, String> {
    let mut best: Option<(&Member, &str, (i64, u8))> = None;
    let mut unpositioned = None;
    for (member, report) in reports {
        let Report::Data { uuid, sequence, safe } = report else { continue };
        // A member that never joined a cluster, or stopped during a state transfer, has no position.
        if uuid.chars().all(|digit| matches!(digit, '0' | '-')) {
            unpositioned.get_or_insert(*member);
            continue;
        }
        if let Some((other, known, _)) = best
            && known != uuid
        {
            return Err(format!(
                "pods {} and {} contain data of different clusters",
                other.name, member.name
            ));
        }
        // Of equal members the one with the lowest ordinal wins.
        if best.is_none_or(|(_, _, rank)| (*sequence, *safe) > rank) {
            best = Some((member, uuid, (*sequence, *safe)));
        }
    }
    // Before the cluster has served, data without a position is imported data; later it may be incomplete.
    let unpositioned = unpositioned.filter(|_| !formed);
    match (best.map(|(member, ..)| member).or(unpositioned), reports.first()) {
        (Some(member), _) => Ok(member),
        (None, Some((first, _))) if !formed => Ok(first),
        _ => Err("no pod contains data although the cluster has served before: restore it".to_owned()),
    }
}

/// An instruction applies to one start of one pod, so it stays the same until that start ends.
fn order(direction: &mut Direction, chosen: &Member) {
    let value = format!("{}/{}", chosen.uid, chosen.restarts);
    direction.memory.insert(ORDER.to_owned(), value.clone());
    if chosen.annotations.get(BOOTSTRAP) == Some(&value) {
        direction.waiting = Some(format!("pod {} bootstraps the cluster", chosen.name));
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
    fn the_first_of_empty_members_bootstraps() {
        let members = [member(0, EMPTY), member(1, EMPTY), member(2, EMPTY)];
        let direction = direct("db", 3, &members, &BTreeMap::new());
        assert_eq!(direction.orders[0].pod, "db-0");
        assert_eq!(direction.orders[0].value, "uid-0/0");
        assert_eq!(direction.memory[ORDER], "uid-0/0");
    }

    #[test]
    fn no_member_bootstraps_before_all_have_reported() {
        let members = [member(0, EMPTY), member(2, EMPTY)];
        let direction = direct("db", 3, &members, &BTreeMap::new());
        assert!(direction.orders.is_empty());
        assert!(direction.waiting.unwrap().contains("db-1"));
    }

    #[test]
    fn the_newest_data_wins_and_a_clean_shutdown_breaks_ties() {
        let members = [member(0, &data(7, 0)), member(1, &data(9, 0)), member(2, &data(9, 1))];
        assert_eq!(direct("db", 3, &members, &BTreeMap::new()).orders[0].pod, "db-2");
    }

    #[test]
    fn a_member_with_data_wins_over_empty_ones() {
        let members = [member(0, EMPTY), member(1, &data(1, 0)), member(2, EMPTY)];
        assert_eq!(direct("db", 3, &members, &BTreeMap::new()).orders[0].pod, "db-1");
    }

    #[test]
    fn a_cluster_that_has_served_is_never_bootstrapped_empty() {
        let memory = BTreeMap::from([(FORMED.to_owned(), "true".to_owned())]);
        let members = [member(0, EMPTY), member(1, EMPTY), member(2, EMPTY)];
        let direction = direct("db", 3, &members, &memory);
        assert!(direction.orders.is_empty() && direction.waiting.is_some());
    }

    #[test]
    fn a_member_without_a_position_neither_wins_nor_blocks() {
        let without_position =
            r#"{"state":"data","uuid":"00000000-0000-0000-0000-000000000000","sequence":-1,"safe":0}"#;
        let members = [
            member(0, without_position),
            member(1, &data(9, 0)),
            member(2, r#"{"state":"data","uuid":"","sequence":-1,"safe":0}"#),
        ];
        assert_eq!(direct("db", 3, &members, &BTreeMap::new()).orders[0].pod, "db-1");
        let members = [member(0, EMPTY), member(1, without_position), member(2, without_position)];
        assert_eq!(direct("db", 3, &members, &BTreeMap::new()).orders[0].pod, "db-1");
        let formed = BTreeMap::from([(FORMED.to_owned(), "true".to_owned())]);
        assert!(direct("db", 3, &members, &formed).orders.is_empty());
    }

    #[test]
    fn data_of_two_clusters_requires_the_user() {
        let other_cluster = r#"{"state":"data","uuid":"other","sequence":1,"safe":0}"#;
        let members = [member(0, &data(1, 0)), member(1, other_cluster), member(2, EMPTY)];
        assert!(direct("db", 3, &members, &BTreeMap::new()).orders.is_empty());
    }

    #[test]
    fn an_instruction_is_given_once_for_each_start() {
        let mut members = [member(0, EMPTY), member(1, EMPTY), member(2, EMPTY)];
        members[0].annotations.insert(BOOTSTRAP.to_owned(), "uid-0/0".to_owned());
        assert!(direct("db", 3, &members, &BTreeMap::new()).orders.is_empty());
        members[0].restarts = 2;
        assert_eq!(direct("db", 3, &members, &BTreeMap::new()).orders[0].value, "uid-0/2");
        members[0] = Member { uid: "new".to_owned(), ..member(0, EMPTY) };
        assert_eq!(direct("db", 3, &members, &BTreeMap::new()).orders[0].value, "new/0");
    }

    #[test]
    fn the_writer_stays_while_it_is_ready() {
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
    fn one_member_needs_no_instruction() {
        let direction = direct("db", 1, &[member(0, EMPTY)], &BTreeMap::new());
        assert!(direction.orders.is_empty() && direction.waiting.is_none());
    }
}
