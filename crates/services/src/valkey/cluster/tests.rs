//! Decisions about members.

use super::*;

const EMPTY: &str = r#"{"state":"empty"}"#;
const DATA: &str = r#"{"state":"data"}"#;

fn member(ordinal: usize, report: Option<&str>) -> Member {
    Member {
        name: format!("store-{ordinal}"),
        uid: format!("uid-{ordinal}"),
        report: report.map(str::to_owned),
        ..Member::default()
    }
}

fn serving(ordinal: usize) -> Member {
    Member { ready: true, started: true, ..member(ordinal, Some(EMPTY)) }
}

fn instructed(member: Member) -> Member {
    let order = format!("form/{}", member.uid);
    Member { annotations: BTreeMap::from([(ORDER.to_owned(), order)]), ..member }
}

fn directed(replicas: i32, members: &[Member], memory: &[(&str, &str)]) -> Direction {
    let memory = memory.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    direct("store", replicas, members, &memory)
}

fn orders(direction: &Direction) -> Vec<(&str, Option<&str>)> {
    direction.orders.iter().map(|order| (order.pod.as_str(), order.value.as_deref())).collect()
}

const FORMED_BEFORE: [(&str, &str); 1] = [(FORMED, "true")];

#[test]
fn a_cluster_that_serves_has_formed_and_loses_its_instructions() {
    let direction =
        directed(3, &[instructed(serving(0)), member(1, Some(EMPTY))], &[(RECOVERY, "form/uid-0")]);
    assert_eq!(direction.memory[FORMED], "true");
    assert!(!direction.memory.contains_key(RECOVERY));
    assert_eq!(orders(&direction), [("store-0", None)]);
    assert_eq!(direction.waiting, None);
}

#[test]
fn the_first_start_needs_no_instruction() {
    let empty: Vec<Member> = (0..3).map(|ordinal| member(ordinal, Some(EMPTY))).collect();
    let direction = directed(3, &empty, &[]);
    assert_eq!((orders(&direction), direction.waiting.as_deref()), (vec![], None));
}

#[test]
fn the_first_member_starts_again_if_all_volumes_are_empty() {
    let empty: Vec<Member> = (0..3).map(|ordinal| member(ordinal, Some(EMPTY))).collect();
    let direction = directed(3, &empty, &FORMED_BEFORE);
    assert_eq!(direction.memory[RECOVERY], "form/uid-0", "the status records it first");
    assert_eq!(orders(&direction), [("store-0", Some("form/uid-0"))]);
    let instructed = [instructed(empty[0].clone()), empty[1].clone(), empty[2].clone()];
    assert_eq!(orders(&directed(3, &instructed, &FORMED_BEFORE)), []);
}

#[test]
fn no_member_is_instructed_while_another_one_has_or_may_have_data() {
    let empty = |ordinal| member(ordinal, Some(EMPTY));
    let served = Member { started: true, ..empty(2) };
    let ended = Member { restarts: 1, ..member(2, Some("")) };
    for other in [member(2, Some(DATA)), served, ended] {
        let direction = directed(3, &[empty(0), empty(1), other.clone()], &FORMED_BEFORE);
        assert_eq!((orders(&direction), direction.waiting.as_deref()), (vec![], None), "{other:?}");
    }
    let direction = directed(3, &[empty(0), empty(1)], &FORMED_BEFORE);
    assert_eq!(direction.waiting.unwrap(), "pod store-2 has not reported the content of its volume");
    let stranded = Member { stranded: true, ..member(2, None) };
    let direction = directed(3, &[empty(0), empty(1), stranded], &FORMED_BEFORE);
    assert!(orders(&direction).is_empty());
    assert!(direction.waiting.unwrap().contains("delete the PersistentVolumeClaim data-store-2"));
}

#[test]
fn members_are_removed_once_all_are_ready() {
    let memory = [(FORMED, "true"), (SIZE, "3")];
    let all: Vec<Member> = (0..3).map(serving).collect();
    let direction = directed(1, &all[..2], &memory);
    assert_eq!(direction.memory[SIZE], "3");
    assert_eq!(direction.waiting.unwrap(), "2 members are removed once all 3 are ready");
    let direction = directed(1, &all, &memory);
    assert_eq!((direction.memory[SIZE].as_str(), direction.memory[REMOVALS].as_str()), ("1", "1"));
    assert_eq!(size(1, &direction.memory), 1);
    assert_eq!(
        (size(3, &direction.memory), removals(&direction.memory)),
        (3, 1),
        "their volumes are outdated"
    );
}

#[test]
fn a_single_member_needs_no_instruction() {
    let direction = directed(1, &[member(0, Some(EMPTY))], &FORMED_BEFORE);
    assert_eq!((orders(&direction), direction.waiting.as_deref()), (vec![], None));
}
