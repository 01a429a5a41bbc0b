//! Half-finished upgrades.

use Release::{Epoxy as OLD, Gazpacho as NEW};

use super::*;
use crate::PARTS;

/// A part with the release that it has reached.
fn part(field: &'static str, wave: Wave, release: Option<Release>) -> PartRelease {
    PartRelease { field, wave, releases: Releases::ALL, release, ready: release.is_some() }
}

const FIELDS: [(&str, Wave); 7] = [
    ("database", Wave::Backends),
    ("bus", Wave::Backends),
    ("identity", Wave::Identity),
    ("images", Wave::Resources),
    ("compute", Wave::Compute),
    ("nodes", Wave::ComputeNodes),
    ("dashboard", Wave::Others),
];

/// A cloud whose parts have these releases: `o` is old, `n` new, `N` new and not Ready, `O` old and not Ready, `+` a part
/// without data, and `.` a part that is disabled.
fn parts(states: &str) -> Vec<PartRelease> {
    let state = |((field, wave), state): ((&'static str, Wave), char)| {
        let known = |release, ready| Some(PartRelease { ready, ..part(field, wave, Some(release)) });
        match state {
            'o' => known(OLD, true),
            'O' => known(OLD, false),
            'n' => known(NEW, true),
            'N' => known(NEW, false),
            '+' => Some(part(field, wave, None)),
            _ => None,
        }
    };
    FIELDS.into_iter().zip(states.chars()).filter_map(state).collect()
}

/// The release that each enabled part gets: `o` is old and `n` new.
fn outcome(wanted: Release, states: &str) -> String {
    let targets = targets(wanted, &parts(states)).unwrap();
    let letter = |(field, _): &(&str, Wave)| match targets.releases.get(field) {
        Some(&OLD) => 'o',
        Some(_) => 'n',
        None => '.',
    };
    FIELDS.iter().map(letter).collect()
}

#[test]
fn every_half_finished_upgrade_continues_with_the_first_unfinished_wave() {
    for (case, states, expected) in [
        ("nothing has changed", "ooooooo", "nnooooo"),
        ("an unready part delays only later waves", "oOooooo", "nnooooo"),
        ("one part of the first wave has changed", "noooooo", "nnooooo"),
        ("the first wave is not Ready yet", "nNooooo", "nnooooo"),
        ("the first wave is complete", "nnooooo", "nnnoooo"),
        ("it was interrupted in the middle", "nnnnooo", "nnnnnoo"),
        ("a part that has changed stays new while an earlier one is not Ready", "nNnnooo", "nnnnooo"),
        ("compute nodes follow Nova", "nnnnNoo", "nnnnnoo"),
        ("the rest follows the compute nodes", "nnnnnno", "nnnnnnn"),
        ("the compute nodes are not Ready", "nnnnnNo", "nnnnnno"),
        ("it is complete", "nnnnnnn", "nnnnnnn"),
        ("a part is disabled", "nn.nooo", "nn.nnoo"),
        ("all parts of the first wave are disabled", "..ooooo", "..noooo"),
        ("a new part of a later wave starts with the old release", "nnoo+oo", "nnnoooo"),
        ("a new part of the open wave starts with the new release", "nn+oooo", "nnnoooo"),
        ("a new part of an earlier wave delays later ones", "n+noooo", "nnnoooo"),
        ("a new cloud starts with the wanted release", "+++++++", "nnnnnnn"),
        ("the first install was interrupted", "OO+++++", "nnooooo"),
    ] {
        assert_eq!(outcome(NEW, states), expected, "{case}");
    }
}

#[test]
fn without_a_change_of_release_every_part_keeps_it_whatever_its_state() {
    for states in ["ooooooo", "OOoOooO", "oo+oo+o", "+++++++", "o.o+O.o"] {
        let expected: String = states.chars().map(|state| if state == '.' { '.' } else { 'o' }).collect();
        assert_eq!(outcome(OLD, states), expected, "{states}");
        assert_eq!(targets(OLD, &parts(states)).unwrap().waves, [[""; 0]; 0], "{states}");
    }
}

#[test]
fn an_upgrade_can_be_taken_back_until_something_has_changed() {
    assert_eq!(outcome(OLD, "ooooooo"), "ooooooo");
    let invalid = targets(OLD, &parts("nNooooo")).unwrap_err();
    assert_eq!(invalid.path, "spec.release");
    assert!(
        invalid.reason.starts_with("database, bus: services of release 2026.1 wrote the data"),
        "{invalid}"
    );
    assert!(invalid.reason.contains("set it to 2026.1"), "{invalid}");
}

#[test]
fn the_waves_name_all_parts_that_still_change() {
    let waves = |states: &str| targets(NEW, &parts(states)).unwrap().waves;
    assert_eq!(
        waves("ooooooo"),
        [
            vec!["database", "bus"],
            vec!["identity"],
            vec!["images"],
            vec!["compute"],
            vec!["nodes"],
            vec!["dashboard"]
        ]
    );
    assert_eq!(waves("nnnN+.o"), [["compute"], ["dashboard"]], "a new part of a later wave changes, too");
    assert_eq!(waves("nnnnnnN"), [[""; 0]; 0]);
    assert_eq!(targets(NEW, &parts("nnnoooo")).unwrap().from, OLD);
    assert_eq!(targets(NEW, &parts("nnnnnnN")).unwrap().from, NEW);
}

#[test]
fn an_upgrade_is_refused_while_a_part_is_enabled_that_ends_with_the_release() {
    let mut all = parts("ooooooo");
    all.push(PartRelease { releases: Releases::until(OLD), ..part("graph", Wave::Others, Some(OLD)) });
    assert!(targets(OLD, &all).is_ok());
    let invalid = targets(NEW, &all).unwrap_err();
    assert_eq!(invalid.path, "spec.graph");
    assert!(invalid.reason.starts_with("ends with release 2025.1"), "{invalid}");
    assert!(invalid.reason.contains("set spec.graph.enabled to false"), "{invalid}");
}

/// From any state, an upgrade ends after finitely many waves with all parts on the wanted release, and a part changes only
/// while all earlier ones are Ready on it.
#[test]
fn every_upgrade_ends() {
    let mut all = parts("oooo+oo");
    let mut steps = 0;
    while all.iter().any(|part| !part.is_done(NEW)) {
        let targets = targets(NEW, &all).unwrap();
        for index in 0..all.len() {
            let target = targets.releases[all[index].field];
            if target != NEW || all[index].is_done(NEW) {
                continue;
            }
            let earlier = all.iter().filter(|part| part.wave < all[index].wave);
            assert!(earlier.into_iter().all(|part| part.is_done(NEW)), "{} is too early", all[index].field);
            all[index] = PartRelease { release: Some(NEW), ready: false, ..all[index] };
        }
        for part in &mut all {
            part.ready |= part.release == Some(NEW);
        }
        steps += 1;
        assert!(steps < 10);
    }
    assert_eq!(steps, 6);
}

#[test]
fn the_waves_of_the_services_are_those_of_the_documentation() {
    let mut waves: BTreeMap<Wave, Vec<&str>> = BTreeMap::new();
    // A service without a wave of its own changes last.
    for part in PARTS.iter().filter(|part| part.wave() != Wave::Others) {
        waves.entry(part.wave()).or_default().push(part.field());
    }
    assert_eq!(
        waves.into_iter().collect::<Vec<_>>(),
        [
            (Wave::Backends, vec!["mariadb", "rabbitmq", "ovn"]),
            (Wave::Identity, vec!["keystone"]),
            (Wave::Resources, vec!["glance", "placement", "neutron"]),
            (Wave::Compute, vec!["nova"]),
            (Wave::ComputeNodes, vec!["compute"]),
        ]
    );
}
