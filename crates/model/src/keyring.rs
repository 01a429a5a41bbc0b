//! Rotation of key rings. It works on the numbers of keys and never sees a key.

use std::collections::BTreeMap;
use std::str::FromStr;

use croner::Cron;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::plan::KeyRing;

/// Time in which kubelets update a Secret in all pods. An earlier rotation could let a pod sign with a key that
/// another pod does not have yet.
pub const SETTLING: SignedDuration = SignedDuration::from_secs(120);

/// State of an existing key ring.
#[derive(Clone, Debug, PartialEq)]
pub struct RingState {
    /// Numbers of the existing keys.
    pub keys: Vec<u32>,
    /// Times when keys stopped signing.
    pub retired: BTreeMap<u32, Timestamp>,
    pub rotated_at: Timestamp,
    /// The last fulfilled rotation request.
    pub request: Option<String>,
}

/// Decision about a key ring.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Wait until then.
    Wait(Timestamp),
    Rotate(Rotation),
}

/// A rotation: the staged key becomes `primary`, a new one is staged, some are deleted.
#[derive(Clone, Debug, PartialEq)]
pub struct Rotation {
    pub primary: u32,
    pub dropped: Vec<u32>,
    pub retired: BTreeMap<u32, Timestamp>,
}

/// Checks a cron expression.
pub fn check_schedule(schedule: &str) -> Result<(), String> {
    parse(schedule).map(|_| ())
}

fn parse(schedule: &str) -> Result<Cron, String> {
    Cron::from_str(schedule).map_err(|error| {
        format!("{schedule:?} is not a cron expression ({error}): write five fields, e.g. \"0 0 * * 0\"")
    })
}

/// Decides whether to rotate a key ring now.
pub fn decide(ring: &KeyRing, state: &RingState, now: Timestamp) -> Decision {
    let settled = state.rotated_at.saturating_add(SETTLING).unwrap_or(now);
    let requested = ring.request.is_some() && ring.request != state.request;
    let due = if requested { settled } else { next(&ring.schedule, state.rotated_at).max(settled) };
    if now < due { Decision::Wait(due) } else { Decision::Rotate(rotate(ring, state, now)) }
}

/// The first scheduled time after `from`.
fn next(schedule: &str, from: Timestamp) -> Timestamp {
    let from = from.to_zoned(TimeZone::UTC);
    // Planning has checked the schedule. A schedule without a next time never triggers.
    parse(schedule)
        .ok()
        .and_then(|cron| cron.find_next_occurrence(&from, false).ok())
        .map_or(Timestamp::MAX, |next| next.timestamp())
}

/// **Invariant:** a key is deleted only when the ring is full *and* all tokens it signed have expired, so a token
/// survives any number of rotations.
fn rotate(ring: &KeyRing, state: &RingState, now: Timestamp) -> Rotation {
    let former = state.keys.iter().copied().max().unwrap_or(0);
    let primary = former + 1;
    let mut retired = state.retired.clone();
    if former > 0 {
        retired.insert(former, now);
    }
    let lifetime = SignedDuration::from_secs(ring.lifetime_seconds);
    let mut old: Vec<u32> = state.keys.iter().copied().filter(|&key| key != 0).collect();
    old.sort_unstable();
    // The new primary and the new staged key add two.
    let surplus = (old.len() + 2).saturating_sub(usize::try_from(ring.max_active_keys).unwrap_or(usize::MAX));
    let dropped: Vec<u32> = old
        .into_iter()
        .take(surplus)
        .filter(|key| retired.get(key).is_some_and(|&at| at.duration_until(now) > lifetime))
        .collect();
    retired.retain(|key, _| !dropped.contains(key));
    Rotation { primary, dropped, retired }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> KeyRing {
        KeyRing {
            condition: "FernetKeysReady",
            max_active_keys: 3,
            lifetime_seconds: 3600,
            schedule: "0 0 * * 0".to_owned(),
            request: None,
        }
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn state() -> RingState {
        RingState {
            keys: vec![0, 1],
            retired: BTreeMap::new(),
            rotated_at: at("2026-01-01T00:00:00Z"),
            request: None,
        }
    }

    #[test]
    fn waits_for_the_schedule() {
        // The first Sunday of 2026 is the fourth of January.
        let sunday = at("2026-01-04T00:00:00Z");
        assert_eq!(decide(&ring(), &state(), at("2026-01-02T00:00:00Z")), Decision::Wait(sunday));
        assert!(matches!(decide(&ring(), &state(), sunday), Decision::Rotate(_)));
    }

    #[test]
    fn a_request_is_fulfilled_once_and_only_after_the_last_rotation_has_settled() {
        let asked = KeyRing { request: Some("now".into()), ..ring() };
        let settled = at("2026-01-01T00:02:00Z");
        assert_eq!(decide(&asked, &state(), at("2026-01-01T00:00:30Z")), Decision::Wait(settled));
        assert!(matches!(decide(&asked, &state(), settled), Decision::Rotate(_)));
        let done = RingState { request: Some("now".into()), ..state() };
        assert!(matches!(decide(&asked, &done, settled), Decision::Wait(_)));
    }

    #[test]
    fn the_staged_key_becomes_primary() {
        let Decision::Rotate(rotation) = decide(&ring(), &state(), at("2026-02-01T00:00:00Z")) else {
            panic!("no rotation");
        };
        assert_eq!(rotation.primary, 2);
        assert!(rotation.dropped.is_empty());
        assert!(rotation.retired.contains_key(&1));
    }

    #[test]
    fn a_full_ring_keeps_a_key_until_all_its_tokens_have_expired() {
        let full = RingState {
            keys: vec![0, 4, 5],
            retired: BTreeMap::from([(4, at("2026-01-31T23:30:00Z"))]),
            ..state()
        };
        assert!(rotate(&ring(), &full, at("2026-02-01T00:00:00Z")).dropped.is_empty());
        assert_eq!(rotate(&ring(), &full, at("2026-02-01T01:00:00Z")).dropped, vec![4]);
    }

    #[test]
    fn an_invalid_schedule_is_rejected_with_a_remedy() {
        assert!(check_schedule("0 0 * * 0").is_ok());
        assert!(check_schedule("every week").unwrap_err().contains("five fields"));
    }
}
