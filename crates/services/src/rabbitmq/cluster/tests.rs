//! Decisions about members.

use super::*;

const EMPTY: &str = r#"{"state":"empty"}"#;
const DATA: &str = r#"{"state":"data"}"#;
const LEFT: &str = r#"{"state":"left"}"#;

fn member(ordinal: usize, report: Option<&str>) -> Member {
    Member {
        name: format!("bus-{ordinal}"),
        uid: format!("uid-{ordinal}"),
        report: report.map(str::to_owned),
        ..Member::default()
    }
}

/// A member that serves in a cluster with these members.
fn serving(ordinal: usize, known: &[usize]) -> Member {
    let node = |ordinal: &usize| format!("rabbit@bus-{ordinal}.bus-members.openstack.svc.cluster.local");
    let known: std::collections::BTreeSet<String> = known.iter().map(node).collect();
    let view = BusView { running: known.clone(), known };
    Member { ready: true, started: true, view: Some(MemberView::Bus(view)), ..member(ordinal, Some(EMPTY)) }
}

fn instructed(order: &str, member: Member) -> Member {
    Member { annotations: BTreeMap::from([(ORDER.to_owned(), order.to_owned())]), ..member }
}

fn directed(replicas: i32, members: &[Member], memory: &[(&str, &str)]) -> Direction {
    let memory = memory.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    direct("bus", replicas, members, &memory)
}

fn orders(direction: &Direction) -> Vec<(&str, Option<&str>)> {
    direction.orders.iter().map(|order| (order.pod.as_str(), order.value.as_deref())).collect()
}

const THREE: [usize; 3] = [0, 1, 2];

fn cluster() -> Vec<Member> {
    THREE.iter().map(|ordinal| serving(*ordinal, &THREE)).collect()
}

#[test]
fn a_cluster_that_serves_has_formed() {
    let direction = directed(3, &cluster(), &[]);
    assert_eq!(direction.memory[FORMED], "true");
    assert_eq!((direction.waiting, direction.stalled), (None, None));
    assert!(direction.orders.is_empty());
}

#[test]
fn members_of_separate_clusters_require_the_user() {
    let members = [serving(0, &[0]), serving(1, &[1, 2]), serving(2, &[1, 2])];
    let direction = directed(3, &members, &[(FORMED, "true")]);
    let message = direction.stalled.unwrap();
    assert!(message.starts_with("pods bus-0 and bus-1 are members of separate clusters"), "{message}");
    assert!(message.contains("delete the PersistentVolumeClaim data-POD"), "{message}");
}

#[test]
fn separate_clusters_do_not_shrink() {
    let members = [serving(0, &[0]), serving(1, &[1, 2]), serving(2, &[1, 2])];
    let direction = directed(1, &members, &[(SIZE, "3")]);
    assert!(direction.orders.is_empty() && direction.stalled.is_some());
}

#[test]
fn a_member_that_only_the_others_know_is_waited_for() {
    let members = [serving(0, &THREE), serving(1, &THREE), serving(2, &[2])];
    let direction = directed(3, &members, &[]);
    let message = direction.waiting.unwrap();
    assert_eq!(message, "pods bus-0 and bus-2 disagree about the members of the cluster");
    assert_eq!(direction.stalled, None);
}

#[test]
fn members_that_do_not_respond_belong_to_no_other_cluster() {
    let silent = Member { view: None, ..serving(1, &[]) };
    let unready = Member { ready: false, ..serving(2, &[2]) };
    let direction = directed(3, &[serving(0, &[0]), silent, unready], &[]);
    assert_eq!((direction.waiting, direction.stalled), (None, None));
}

#[test]
fn members_leave_one_by_one_and_only_while_the_others_are_ready() {
    let direction = directed(1, &cluster(), &[(SIZE, "3")]);
    assert_eq!(orders(&direction), [("bus-2", Some("leave/uid-2/0"))]);
    assert_eq!(direction.memory[SIZE], "3", "its pod stays until it has left");
    assert_eq!(direction.waiting.unwrap(), "pod bus-2 is leaving the cluster");
    let members = [member(0, Some(DATA)), serving(1, &THREE), serving(2, &THREE)];
    let degraded = directed(1, &members, &[(SIZE, "3")]);
    assert!(degraded.orders.is_empty());
    assert!(degraded.waiting.unwrap().contains("once all remaining pods are ready"));
}

#[test]
fn a_pod_is_deleted_only_after_its_member_has_left() {
    let size = |last: Member| directed(1, &[serving(0, &[0, 1]), last], &[(SIZE, "2")]).memory[SIZE].clone();
    let left = Member { restarts: 2, ..instructed("leave/uid-1/0", member(1, Some(LEFT))) };
    assert_eq!(size(left.clone()), "1");
    assert_eq!(size(instructed("leave/uid-1/2", left.clone())), "2", "it left before, and rejoined");
    assert_eq!(size(Member { started: true, ..left.clone() }), "2", "it serves again");
    assert_eq!(size(Member { annotations: BTreeMap::new(), ..left }), "2", "it was not instructed");
    assert_eq!(size(instructed("leave/uid-1/0", member(1, Some(EMPTY)))), "2", "others may know it");
}

#[test]
fn a_member_that_is_wanted_again_stays_or_rejoins() {
    for last in [serving(1, &[0, 1]), Member { restarts: 2, ..member(1, Some(LEFT)) }] {
        let members = [serving(0, &[0, 1]), instructed("leave/uid-1/0", last)];
        assert_eq!(orders(&directed(2, &members, &[(SIZE, "2")])), [("bus-1", None)]);
    }
}

const HAS_FORMED: [(&str, &str); 1] = [(FORMED, "true")];

/// A member with data whose broker has failed to start.
fn failed(ordinal: usize) -> Member {
    Member { restarts: 1, ..member(ordinal, Some("timeout_waiting_for_tables")) }
}

#[test]
fn a_cluster_that_lost_all_data_is_formed_again_by_one_recorded_pod() {
    let members = [member(0, Some(EMPTY)), member(1, Some(EMPTY)), member(2, Some(EMPTY))];
    let direction = directed(3, &members, &HAS_FORMED);
    assert_eq!(direction.memory[RECOVERY], "form/uid-0");
    assert_eq!(orders(&direction), [("bus-0", Some("form/uid-0"))]);
    let served = instructed("form/uid-0", serving(0, &[0]));
    let direction = directed(1, &[served], &[(FORMED, "true"), (RECOVERY, "form/uid-0")]);
    assert_eq!(orders(&direction), [("bus-0", None)], "the instruction is withdrawn");
    assert!(!direction.memory.contains_key(RECOVERY));
}

#[test]
fn brokers_that_wait_for_a_member_without_data_start_without_it() {
    let direction = directed(3, &[member(0, Some(EMPTY)), failed(1), failed(2)], &HAS_FORMED);
    assert_eq!(orders(&direction), [("bus-1", Some("boot/uid-1"))]);
    assert_eq!(direction.memory[RECOVERY], "boot/uid-1");
    let members = [member(0, Some(EMPTY)), failed(1), member(2, Some(DATA))];
    let direction = directed(3, &members, &HAS_FORMED);
    assert!(direction.orders.is_empty(), "a member with newer data may still start");
    let direction = directed(3, &[failed(0), failed(1), failed(2)], &HAS_FORMED);
    assert!(direction.orders.is_empty(), "no data is lost");
}

#[test]
fn no_member_is_instructed_while_another_may_have_data() {
    let running = Member { started: true, ..member(1, Some(EMPTY)) };
    for other in [member(1, Some(DATA)), running] {
        let members = [member(0, Some(EMPTY)), other, member(2, Some(EMPTY))];
        assert!(directed(3, &members, &HAS_FORMED).orders.is_empty());
    }
    for members in [vec![member(0, Some(EMPTY)), member(1, None)], vec![failed(0)]] {
        let direction = directed(2, &members, &HAS_FORMED);
        assert!(direction.orders.is_empty());
        assert_eq!(direction.waiting.unwrap(), "pod bus-1 has not reported the content of its volume");
    }
    let stranded = Member { stranded: true, ..member(1, None) };
    let direction = directed(2, &[failed(0), stranded], &HAS_FORMED);
    assert!(direction.orders.is_empty());
    assert!(direction.waiting.unwrap().contains("delete the PersistentVolumeClaim data-bus-1 and the pod"));
}

#[test]
fn a_new_cluster_needs_no_instruction() {
    let members = [member(0, Some(EMPTY)), member(1, Some(EMPTY))];
    let direction = directed(2, &members, &[]);
    assert!(direction.orders.is_empty() && direction.waiting.is_none());
}
