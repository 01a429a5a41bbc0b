//! Conditions that follow from findings.

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn status<'a>(conditions: &'a [Condition], kind: &str) -> &'a Condition {
    conditions.iter().find(|condition| condition.type_ == kind).unwrap()
}

#[test]
fn an_object_is_ready_only_when_all_parts_are_done() {
    let done = Findings { parts: vec![(ConditionType::ConfigReady, Progress::Done)], ..Findings::default() };
    let found = conditions(&done, 3, &[], at(10));
    assert_eq!(status(&found, "Ready").status, "True");
    assert_eq!(status(&found, "Ready").observed_generation, Some(3));
    let waiting =
        Findings { parts: vec![(ConditionType::ConfigReady, Progress::waiting("x"))], ..Findings::default() };
    let found = conditions(&waiting, 3, &found, at(20));
    assert_eq!(status(&found, "Ready").status, "False");
    assert_eq!(status(&found, "Ready").message, "x");
    assert_eq!(status(&found, "Reconciling").status, "True");
    assert_eq!(status(&found, "Stalled").status, "False");
}

#[test]
fn an_unchanged_status_keeps_its_transition_time() {
    let done = Findings { parts: vec![(ConditionType::ConfigReady, Progress::Done)], ..Findings::default() };
    let first = conditions(&done, 1, &[], at(10));
    let second = conditions(&done, 1, &first, at(20));
    assert_eq!(first, second);
}

#[test]
fn a_part_that_is_not_reached_keeps_its_condition() {
    let kind = ConditionType::WorkloadsReady;
    let done = Findings { parts: vec![(kind, Progress::Done)], available: Some(true), ..Findings::default() };
    let first = conditions(&done, 1, &[], at(10));
    let later = Findings {
        parts: vec![(ConditionType::InputsReady, Progress::waiting("x")), (kind, Progress::NotReached)],
        ..Findings::default()
    };
    let second = conditions(&later, 2, &first, at(20));
    assert_eq!(status(&second, "WorkloadsReady"), status(&first, "WorkloadsReady"));
    assert_eq!(status(&second, "Available").status, "True");
    assert_eq!(status(&second, "Ready").status, "False");
}

#[test]
fn an_interrupted_reconcile_keeps_conditions_and_a_complete_one_removes_obsolete_ones() {
    let part = |kind| (kind, Progress::Done);
    let parts = vec![part(ConditionType::ConfigReady), part(ConditionType::Exposed)];
    let first = conditions(&Findings { parts, ..Findings::default() }, 1, &[], at(10));
    let failed = Progress::Failed { message: "x".into() };
    let cut = Findings { parts: vec![(ConditionType::ConfigReady, failed)], ..Findings::default() };
    let second = conditions(&cut, 1, &first, at(20));
    assert_eq!(status(&second, "Exposed"), status(&first, "Exposed"));
    assert_eq!(second.iter().filter(|condition| condition.type_ == "Ready").count(), 1);
    let done = Findings { parts: vec![part(ConditionType::ConfigReady)], ..Findings::default() };
    let third = conditions(&done, 2, &second, at(30));
    assert!(!third.iter().any(|condition| condition.type_ == "Exposed"));
}

#[test]
fn a_part_that_needs_the_user_stalls_the_object_even_behind_a_part_that_waits() {
    let waiting = (ConditionType::WorkloadsReady, Progress::waiting("0 of 3 pods ready"));
    let stalled = (ConditionType::MembersReady, Progress::stalled("restore the volume"));
    let found =
        conditions(&Findings { parts: vec![waiting, stalled], ..Findings::default() }, 1, &[], at(10));
    for kind in ["Ready", "Stalled"] {
        let condition = status(&found, kind);
        assert_eq!(
            (condition.reason.as_str(), condition.message.as_str()),
            (ACTION_REQUIRED, "restore the volume")
        );
    }
    assert_eq!(status(&found, "Stalled").status, "True");
    assert_eq!(status(&found, "Reconciling").status, "False");
    let failed = || Progress::Failed { message: "x".into() };
    assert_eq!(failed().and(Progress::stalled("y")), Progress::stalled("y"));
    assert_eq!(Progress::stalled("y").and(failed()), Progress::stalled("y"));
}

#[test]
fn a_loss_degrades_and_does_not_prevent_ready() {
    let lost = |loss: &str| (ConditionType::WorkloadsReady, Progress::degraded(loss));
    let nodes = (ConditionType::NodesReady, Progress::degraded("node b is not Ready"));
    let parts = vec![lost("node b is not Ready"), nodes];
    let found = conditions(&Findings { parts, ..Findings::default() }, 1, &[], at(10));
    assert_eq!(status(&found, "WorkloadsReady").status, "True");
    assert_eq!(status(&found, "Ready").status, "True");
    assert_eq!(status(&found, "Degraded").status, "True");
    assert_eq!(status(&found, "Degraded").message, "node b is not Ready", "reported once");

    // An interrupted reconcile keeps Degraded; a complete one without losses clears it.
    let waiting = (ConditionType::InputsReady, Progress::waiting("x"));
    let cut = Findings { parts: vec![waiting], ..Findings::default() };
    assert_eq!(status(&conditions(&cut, 1, &found, at(20)), "Degraded").status, "True");
    let parts = vec![(ConditionType::WorkloadsReady, Progress::Done)];
    let healed = conditions(&Findings { parts, ..Findings::default() }, 1, &found, at(30));
    assert_eq!(status(&healed, "Degraded").status, "False");
}

#[test]
fn losses_accumulate_and_waiting_outweighs_them() {
    let both = Progress::degraded("a").and(Progress::Done).and(Progress::degraded("b"));
    assert_eq!(both.clone().and(Progress::degraded("a")), both);
    assert_eq!(Progress::Done.and(both.clone()), both);
    assert_eq!(both.clone().and(Progress::waiting("x")), Progress::waiting("x"));
    assert_eq!(Progress::waiting("x").and(both), Progress::waiting("x"));
    let many: Vec<String> = (0..7).map(|number| number.to_string()).collect();
    assert_eq!(join_losses(&many), "0; 1; 2; 3; 4; and 2 more");
}

#[test]
fn an_invalid_spec_stalls_and_names_the_field() {
    let stalled = Findings { stall: Some(Stall::InvalidSpec("spec.x: no".into())), ..Findings::default() };
    let found = conditions(&stalled, 1, &[], at(1));
    assert_eq!(status(&found, "Stalled").status, "True");
    assert_eq!(status(&found, "Ready").reason, "InvalidSpec");
    assert_eq!(status(&found, "Reconciling").status, "False");
}
