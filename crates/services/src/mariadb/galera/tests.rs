//! Decisions on the members of a Galera cluster.

use super::*;

const EMPTY: &str = r#"{"state":"empty","ticket":"TICKET"}"#;

/// A pod whose first start waits with the ticket `ticket-ORDINAL`.
fn member(ordinal: usize, report: &str) -> Member {
    Member {
        name: format!("db-{ordinal}"),
        uid: format!("uid-{ordinal}"),
        report: Some(report.replace("TICKET", &format!("ticket-{ordinal}"))),
        ..Member::default()
    }
}

fn data_of(uuid: &str, sequence: i64, safe: u8) -> String {
    format!(r#"{{"state":"data","uuid":"{uuid}","sequence":{sequence},"safe":{safe},"ticket":"TICKET"}}"#)
}

fn data(sequence: i64, safe: u8) -> String {
    data_of("u", sequence, safe)
}

/// A member whose server responds.
fn running(ordinal: usize, view: SqlView) -> Member {
    let ready = view.primary;
    let view = Some(MemberView::Sql(view));
    Member { ready, started: true, view, ..member(ordinal, EMPTY) }
}

fn synced(size: usize) -> SqlView {
    SqlView { primary: true, replication: Replication::Synced, size, committed: 50, history: "u".to_owned() }
}

fn survivor(committed: i64) -> SqlView {
    SqlView { primary: false, replication: Replication::Joining, committed, ..synced(1) }
}

fn formed() -> BTreeMap<String, String> {
    [(FORMED, "true"), (HISTORY, "u"), (SIZE, "3")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

fn directed(replicas: i32, members: &[Member], memory: &BTreeMap<String, String>) -> Direction {
    direct(&Wanted { name: "db", replicas, lost: &[] }, members, memory)
}

/// Pod and ticket of the only instruction.
fn ordered(direction: &Direction) -> Option<(&str, &str)> {
    assert!(direction.orders.len() < 2, "{:?}", direction.orders);
    let order = direction.orders.first()?;
    Some((&order.pod, order.value.as_deref()?))
}

#[test]
fn the_first_of_empty_members_bootstraps() {
    let members = [member(0, EMPTY), member(1, EMPTY), member(2, EMPTY)];
    let direction = directed(3, &members, &BTreeMap::new());
    assert_eq!(ordered(&direction), Some(("db-0", "ticket-0")));
    assert_eq!(direction.memory[ORDER], "db-0/ticket-0");
}

#[test]
fn no_member_bootstraps_before_all_have_reported() {
    let direction = directed(3, &[member(0, EMPTY), member(2, EMPTY)], &BTreeMap::new());
    assert_eq!(ordered(&direction), None);
    assert!(direction.waiting.unwrap().contains("db-1"));
}

#[test]
fn the_newest_data_wins_and_a_clean_shutdown_breaks_ties() {
    let members = [member(0, &data(7, 0)), member(1, &data(9, 0)), member(2, &data(9, 1))];
    assert_eq!(ordered(&directed(3, &members, &formed())), Some(("db-2", "ticket-2")));
    let members = [member(0, &data(9, 0)), member(1, &data(9, 0)), member(2, EMPTY)];
    assert_eq!(ordered(&directed(3, &members, &formed())), Some(("db-0", "ticket-0")));
}

#[test]
fn the_data_of_an_excluded_member_is_the_last_choice() {
    let excluded = data(9, 0).replace("\"safe\"", "\"excluded\":1,\"safe\"");
    let members = [member(0, &excluded), member(1, &data(7, 0)), member(2, &data(7, 0))];
    assert_eq!(ordered(&directed(3, &members, &formed())), Some(("db-1", "ticket-1")));
    let members = [member(0, &excluded), member(1, EMPTY), member(2, EMPTY)];
    assert_eq!(ordered(&directed(3, &members, &formed())), Some(("db-0", "ticket-0")));
    let members = [member(0, &excluded), running(1, survivor(8)), running(2, survivor(8))];
    let direction = directed(3, &members, &formed());
    assert!(matches!(&direction.commands[..], [Command::RestoreQuorum { .. }]), "{:?}", direction.commands);
}

#[test]
fn a_member_with_data_wins_over_empty_ones() {
    let members = [member(0, EMPTY), member(1, &data(1, 0)), member(2, EMPTY)];
    assert_eq!(ordered(&directed(3, &members, &BTreeMap::new())), Some(("db-1", "ticket-1")));
}

#[test]
fn a_report_from_before_the_server_ran_is_not_used() {
    // All three are unready for a moment, long after their birth reports.
    let mut members = [member(0, &data(7, 0)), member(1, &data(9, 0)), member(2, &data(8, 0))];
    for member in &mut members {
        member.started = true;
    }
    let direction = directed(3, &members, &formed());
    assert_eq!(ordered(&direction), None);
    assert!(direction.waiting.unwrap().contains("db-0 has not reported"));
}

#[test]
fn a_cluster_that_has_served_is_never_bootstrapped_empty() {
    let members = [member(0, EMPTY), member(1, EMPTY), member(2, EMPTY)];
    let direction = directed(3, &members, &formed());
    assert_eq!(ordered(&direction), None);
    assert!(direction.stalled.unwrap().contains("restore a volume"));
}

#[test]
fn a_single_member_that_lost_its_volume_needs_the_user() {
    let memory = BTreeMap::from([(FORMED.to_owned(), "true".to_owned())]);
    let without_position = data_of("00000000-0000", -1, 0);
    for report in [EMPTY, &without_position] {
        let direction = directed(1, &[member(0, report)], &memory);
        assert!(direction.orders.is_empty() && direction.stalled.is_some(), "{report}");
        let lost = ["db-0".to_owned()];
        let direction =
            direct(&Wanted { name: "db", replicas: 1, lost: &lost }, &[member(0, report)], &memory);
        assert_eq!(ordered(&direction), Some(("db-0", "ticket-0")), "{report}");
    }
    for memory in [memory, BTreeMap::new()] {
        let direction = directed(1, &[member(0, &data(5, 0))], &memory);
        assert!(direction.orders.is_empty() && direction.waiting.is_none() && direction.stalled.is_none());
    }
}

#[test]
fn a_member_without_a_position_neither_wins_nor_blocks() {
    let without_position = data_of("00000000-0000-0000-0000-000000000000", -1, 0);
    let members = [member(0, &without_position), member(1, &data(9, 0)), member(2, &data_of("", -1, 0))];
    assert_eq!(ordered(&directed(3, &members, &BTreeMap::new())), Some(("db-1", "ticket-1")));
    let members = [member(0, EMPTY), member(1, &without_position), member(2, &without_position)];
    assert_eq!(ordered(&directed(3, &members, &BTreeMap::new())), Some(("db-1", "ticket-1")));
    assert!(directed(3, &members, &formed()).orders.is_empty());
}

#[test]
fn data_of_another_history_than_the_served_one_is_ignored_and_otherwise_needs_the_user() {
    let other = data_of("other", 900, 1);
    let members = [member(0, &data(1, 0)), member(1, &other), member(2, EMPTY)];
    assert_eq!(ordered(&directed(3, &members, &formed())), Some(("db-0", "ticket-0")));
    let direction = directed(3, &members, &BTreeMap::new());
    assert!(direction.orders.is_empty());
    assert!(direction.stalled.unwrap().contains("db-0 and db-1 contain data of different clusters"));
}

#[test]
fn an_instruction_stays_until_its_start_ends() {
    let mut members = [member(0, &data(9, 0)), member(1, &data(7, 0)), member(2, &data(7, 0))];
    let first = directed(3, &members, &formed());
    members[0].annotations.insert(BOOTSTRAP.to_owned(), "ticket-0".to_owned());
    let pending = directed(3, &members, &first.memory);
    assert!(pending.orders.is_empty());
    assert_eq!(pending.waiting.as_deref(), Some("pod db-0 bootstraps the cluster"));
    // Another member reports newer data while the first one starts.
    members[1] = member(1, &data(99, 0));
    assert!(directed(3, &members, &first.memory).orders.is_empty());
    // The start ended, and the pod reports again with another ticket.
    members[0].report = members[0].report.take().map(|report| report.replace("ticket-0", "ticket-9"));
    assert_eq!(ordered(&directed(3, &members, &first.memory)), Some(("db-1", "ticket-1")));
}

#[test]
fn an_instruction_is_withdrawn_when_a_member_serves() {
    let mut members = [running(0, synced(1)), member(1, &data(7, 0)), member(2, &data(7, 0))];
    members[0].annotations.insert(BOOTSTRAP.to_owned(), "ticket-0".to_owned());
    let mut memory = formed();
    memory.insert(ORDER.to_owned(), "db-0/ticket-0".to_owned());
    let direction = directed(3, &members, &memory);
    assert!(!direction.memory.contains_key(ORDER));
    assert_eq!(direction.orders, [instruction(&members[0], None)]);
}

#[test]
fn a_survivor_with_the_newest_data_restores_the_quorum() {
    let members = [running(0, survivor(50)), member(1, &data(49, 0)), member(2, EMPTY)];
    let direction = directed(3, &members, &formed());
    assert_eq!(direction.commands, [Command::RestoreQuorum { pod: "db-0".to_owned() }]);
    assert!(direction.orders.is_empty());
    assert_eq!(direction.poll, Some(RECOVERY_POLL));
    let silent = Member { started: true, ..member(2, EMPTY) };
    let members = [running(0, survivor(50)), member(1, &data(49, 0)), silent];
    let direction = directed(3, &members, &formed());
    assert!(direction.commands.is_empty(), "the third member may contain newer data");
}

#[test]
fn survivors_restart_if_a_stopped_member_contains_newer_data() {
    let members = [running(0, survivor(50)), member(1, &data(51, 0)), member(2, &data(51, 0))];
    let restart = Command::Restart { pod: "db-0".to_owned(), uid: "uid-0".to_owned() };
    assert_eq!(directed(3, &members, &formed()).commands, [restart]);
}

#[test]
fn a_lost_member_does_not_block_once_the_user_gives_it_up() {
    let stranded = Member { stranded: true, started: true, ..member(2, EMPTY) };
    let members = [member(0, &data(9, 0)), member(1, &data(8, 0)), stranded];
    let direction = directed(3, &members, &formed());
    assert!(direction.orders.is_empty());
    assert!(direction.stalled.unwrap().contains("add db-2 to spec.recovery.lostMembers"));
    let lost = ["db-2".to_owned()];
    let wanted = Wanted { name: "db", replicas: 3, lost: &lost };
    assert_eq!(ordered(&direct(&wanted, &members, &formed())), Some(("db-0", "ticket-0")));
    let serving = [running(0, synced(2)), running(1, synced(2))];
    assert!(direct(&wanted, &serving, &formed()).remarks[0].contains("remove db-2"));
}

#[test]
fn the_writer_stays_while_it_serves() {
    let ready = |ordinal| Member { ready: true, ..member(ordinal, EMPTY) };
    let direction = directed(3, &[ready(1)], &BTreeMap::new());
    assert_eq!(direction.memory[WRITER], "db-1");
    let later = directed(3, &[ready(0), ready(1)], &direction.memory);
    assert_eq!(later.memory[WRITER], "db-1");
    assert_eq!(directed(3, &[ready(0)], &later.memory).memory[WRITER], "db-0");
}

#[test]
fn a_cut_off_writer_is_replaced_before_the_kubelet_notices() {
    let mut memory = formed();
    memory.insert(WRITER.to_owned(), "db-0".to_owned());
    let silent = Member { ready: true, started: true, ..member(0, EMPTY) };
    let writer = |members: &[Member]| directed(3, members, &memory).memory[WRITER].clone();
    assert_eq!(writer(&[silent.clone(), running(1, synced(2)), running(2, synced(2))]), "db-1");
    assert_eq!(
        writer(&[silent.clone(), running(1, synced(3)), running(2, synced(3))]),
        "db-0",
        "the others still count it"
    );
    let donor = SqlView { replication: Replication::Donor, ..synced(2) };
    assert_eq!(writer(&[silent, running(1, donor), running(2, synced(2))]), "db-2");
    let outvoted = [running(0, survivor(50)), running(1, synced(2)), running(2, synced(2))];
    assert_eq!(writer(&outvoted), "db-1", "it lost the quorum");
}

#[test]
fn a_member_that_does_not_respond_is_asked_again_soon() {
    let others = [running(1, synced(3)), running(2, synced(3))];
    let poll = |first: Member| {
        let members = [first, others[0].clone(), others[1].clone()];
        directed(3, &members, &formed()).poll
    };
    assert_eq!(poll(running(0, synced(3))), Some(SERVING_POLL));
    let silent = Member { ready: true, started: true, ..member(0, EMPTY) };
    assert_eq!(poll(silent), Some(RECOVERY_POLL));
}

#[test]
fn members_leave_one_at_a_time_and_never_the_writer() {
    let mut memory = formed();
    memory.insert(WRITER.to_owned(), "db-2".to_owned());
    let members = [0, 1, 2].map(|ordinal| running(ordinal, synced(3)));
    let moved = directed(1, &members, &memory);
    assert_eq!((moved.memory[WRITER].as_str(), moved.memory[SIZE].as_str()), ("db-0", "3"));
    let smaller = directed(1, &members, &moved.memory);
    assert_eq!(smaller.memory[SIZE], "2");
    let stopping = directed(1, &members, &smaller.memory);
    assert_eq!(stopping.memory[SIZE], "2", "the last pod still stops");
    let smallest = directed(1, &members[..2], &stopping.memory);
    assert_eq!(smallest.memory[SIZE], "1");
    assert!(directed(1, &members[..1], &smallest.memory).waiting.is_none());
    let unready = [members[0].clone(), member(1, EMPTY), members[2].clone()];
    assert_eq!(directed(3, &unready, &memory).memory[SIZE], "3");
}
