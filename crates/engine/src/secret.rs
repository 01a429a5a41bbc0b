//! Secrets: generates missing values, fills in templates, rotates keys. Values stay in this file and in the ports. A Secret
//! of the user under the name of a planned one is used and not changed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kube::core::DynamicObject;
use openstack_operator_model::assess::{self, JobOutcome};
use openstack_operator_model::common::ACCEPT_LOSS_ANNOTATION;
use openstack_operator_model::condition::Progress;
use openstack_operator_model::keyring::{self, Decision, RingState};
use openstack_operator_model::kind::{JOB, SECRET};
use openstack_operator_model::lower::{
    Instance, Observed, ROTATIONS_ANNOTATION, SecretFacts, TASK_ANNOTATION, manifest, task,
};
use openstack_operator_model::plan::{Entry, KeyRing, Piece, Plan, SecretContent, SecretKey, SecretPlan};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use crate::apply::{Applied, hand_over_remedy, is_of_user};
use crate::engine::Engine;
use crate::ports::PortResult;
pub(crate) use crate::secret::content::Values;
use crate::secret::content::{REVISION_KEY, is_lost, revision, revision_key, unlike, values};

mod content;

/// Length of the key of the hash of the values.
const REVISION_KEY_LENGTH: usize = 32;
const ROTATED_AT: &str = "openstack.k8s.io/rotated-at";
const RETIRED: &str = "openstack.k8s.io/retired-keys";
const REQUEST: &str = "openstack.k8s.io/rotation-request";

/// The object whose Secrets are ensured.
pub(crate) struct Owner<'a> {
    pub(crate) instance: &'a Instance,
    pub(crate) plan: &'a Plan,
    /// What is known so far.
    pub(crate) observed: &'a Observed,
    /// Irreplaceable Secrets that the operator may create.
    pub(crate) replaceable: Replaceable<'a>,
}

/// Which irreplaceable Secrets the operator may create.
#[derive(Clone, Copy)]
pub(crate) enum Replaceable<'a> {
    /// All, because no data depends on them yet.
    All,
    /// Those whose loss the user has accepted.
    Accepted(&'a BTreeSet<String>),
}

impl Replaceable<'_> {
    fn contains(self, secret: &SecretPlan) -> bool {
        match self {
            Self::All => true,
            Self::Accepted(names) => !secret.irreplaceable || names.contains(&secret.name),
        }
    }
}

/// Keys and annotations of a key ring, and the time until its next rotation.
type Ring = (Values, Values, Option<Duration>);

/// Result of ensuring a Secret.
pub(crate) struct Ensured {
    pub(crate) facts: SecretFacts,
    pub(crate) progress: Progress,
    /// When a key rotation is due.
    pub(crate) due: Option<Duration>,
    pub(crate) remark: Option<String>,
}

impl Ensured {
    fn unfinished(progress: Progress) -> Self {
        Self { facts: SecretFacts::default(), progress, due: None, remark: None }
    }
}

impl Engine {
    /// Ensures a Secret of the plan, keeping its existing values.
    pub(crate) async fn ensure_secret(&self, owner: &Owner<'_>, plan: &SecretPlan) -> PortResult<Ensured> {
        let instance = owner.instance;
        let mut live = self.ports.cluster.get(SECRET, &instance.namespace, &plan.name).await?;
        if let Some(found) = live.as_ref().filter(|live| is_of_user(live, &instance.uid)) {
            return self.use_secret_of_user(instance, plan, found).await;
        }
        let known = live.as_ref().map(values).unwrap_or_default();
        if is_lost(&plan.content, live.as_ref(), &known) {
            if !owner.replaceable.contains(plan) {
                let progress = Progress::stalled(lost_message(instance, &plan.name));
                return Ok(Ensured::unfinished(progress));
            }
            // The record of the lost values does not apply to new ones.
            live = None;
        }
        let (wanted, mut annotations, due) = match &plan.content {
            SecretContent::Entries(entries) => {
                match self.resolve_entries(instance, plan, entries, &known).await? {
                    Ok(values) => (values, Values::new(), None),
                    Err(progress) => return Ok(Ensured::unfinished(progress)),
                }
            }
            SecretContent::KeyRing(ring) => {
                self.rotate_ring(owner, (&plan.name, ring), live.as_ref(), known).await?
            }
        };
        let mut metadata = instance.metadata(&plan.name, None);
        if plan.retained {
            metadata.owner_references = None;
        }
        let rotations =
            annotations.get(ROTATIONS_ANNOTATION).and_then(|count| count.parse().ok()).unwrap_or(0);
        let key = live.as_ref().and_then(revision_key).cloned();
        let key = key.unwrap_or_else(|| self.ports.environment.password(REVISION_KEY_LENGTH));
        annotations.insert(REVISION_KEY.to_owned(), key);
        metadata.annotations = Some(annotations);
        let data: Values = wanted.iter().map(|(key, value)| (key.clone(), STANDARD.encode(value))).collect();
        let fields = [("type", json!("Opaque")), ("data", json!(data))];
        match self.apply(&instance.namespace, &manifest(SECRET, &plan.name, &metadata, fields)).await? {
            Applied::Live(live) | Applied::Limited(live, _) => {
                let facts = SecretFacts { revision: revision(&live), rotations };
                Ok(Ensured { facts, progress: Progress::Done, due, remark: None })
            }
            Applied::NotYet(progress) => Ok(Ensured::unfinished(progress)),
        }
    }

    /// Uses a Secret that the user wrote under the name of a planned one, and never changes it.
    async fn use_secret_of_user(
        &self,
        instance: &Instance,
        plan: &SecretPlan,
        found: &DynamicObject,
    ) -> PortResult<Ensured> {
        let (name, known) = (&plan.name, values(found));
        let (problem, rotations, remark) = match &plan.content {
            SecretContent::Entries(entries) => {
                match self.resolve_entries(instance, plan, entries, &known).await? {
                    Ok(wanted) => (unlike(&known, &wanted), 0, None),
                    Err(progress) => return Ok(Ensured::unfinished(progress)),
                }
            }
            SecretContent::KeyRing(ring) => {
                let numbers = known.keys().filter_map(|number| number.parse().ok()).collect();
                let (_, rotations) = ring_state(ring, Some(found), numbers, self.ports.environment.now());
                let remark = format!(
                    "the keys in Secret {name} are not rotated, because the operator did not create it: {}",
                    hand_over_remedy()
                );
                let is_lost = is_lost(&plan.content, Some(found), &known);
                (is_lost.then(|| "has no key that can be used".to_owned()), rotations, Some(remark))
            }
        };
        if let Some(problem) = problem {
            let message = format!(
                "Secret {name} was not created by the operator and {problem}: correct or delete it, or {}",
                hand_over_remedy()
            );
            return Ok(Ensured::unfinished(Progress::stalled(message)));
        }
        let facts = SecretFacts { revision: revision(found), rotations };
        Ok(Ensured { facts, progress: Progress::Done, due: None, remark })
    }

    /// Facts about a Secret that the operator does not write; none if it does not exist.
    pub(crate) async fn secret_facts(&self, namespace: &str, name: &str) -> PortResult<Option<SecretFacts>> {
        let secret = self.ports.cluster.get(SECRET, namespace, name).await?;
        Ok(secret.map(|secret| SecretFacts { revision: revision(&secret), rotations: 0 }))
    }

    /// All values of a Secret; empty if it does not exist.
    pub(crate) async fn secret_values(&self, namespace: &str, secret: &str) -> PortResult<Values> {
        let secret = self.ports.cluster.get(SECRET, namespace, secret).await?;
        Ok(secret.as_ref().map(values).unwrap_or_default())
    }

    /// One value of a Secret, if it exists.
    pub(crate) async fn secret_value(&self, namespace: &str, key: &SecretKey) -> PortResult<Option<String>> {
        let secret = self.ports.cluster.get(SECRET, namespace, &key.secret).await?;
        Ok(secret.and_then(|secret| values(&secret).remove(&key.key)))
    }

    async fn resolve_entries(
        &self,
        instance: &Instance,
        plan: &SecretPlan,
        entries: &BTreeMap<String, Entry>,
        known: &Values,
    ) -> PortResult<Result<Values, Progress>> {
        let mut wanted = Values::new();
        for (key, entry) in entries {
            let value = match entry {
                Entry::Password { length } => known
                    .get(key)
                    .filter(|value| !value.is_empty())
                    .cloned()
                    .unwrap_or_else(|| self.ports.environment.password(*length)),
                Entry::Text(text) => text.clone(),
                Entry::Template(_) => continue,
            };
            wanted.insert(key.clone(), value);
        }
        for (key, entry) in entries {
            let Entry::Template(pieces) = entry else { continue };
            let mut text = String::new();
            for piece in pieces {
                let (source, escaped) = match piece {
                    Piece::Text(part) => {
                        text.push_str(part);
                        continue;
                    }
                    Piece::Value(source) => (source, false),
                    Piece::Escaped(source) => (source, true),
                };
                let value = if source.secret == plan.name {
                    wanted.get(&source.key).cloned()
                } else {
                    self.secret_value(&instance.namespace, source).await?
                };
                let Some(value) = value else {
                    let message = format!("Secret {} has no key {}", source.secret, source.key);
                    return Ok(Err(Progress::waiting(message)));
                };
                if escaped {
                    text.extend(utf8_percent_encode(&value, NON_ALPHANUMERIC));
                } else {
                    text.push_str(&value);
                }
            }
            wanted.insert(key.clone(), text);
        }
        Ok(Ok(wanted))
    }

    /// Rotates a key ring if it is due. **Invariant:** the loss of some keys never removes others, since existing tokens
    /// and credentials may still need them. A ring does not rotate, and loses no key, before the data is encrypted with
    /// the key of its last rotation.
    async fn rotate_ring(
        &self,
        owner: &Owner<'_>,
        (name, ring): (&str, &KeyRing),
        live: Option<&DynamicObject>,
        mut keys: Values,
    ) -> PortResult<Ring> {
        let now = self.ports.environment.now();
        keys.retain(|number, _| number.parse::<u32>().is_ok());
        keys.entry("0".to_owned()).or_insert_with(|| self.ports.environment.fernet_key());
        if keys.len() < 2 {
            keys.insert("1".to_owned(), self.ports.environment.fernet_key());
        }
        let numbers = keys.keys().filter_map(|number| number.parse().ok()).collect();
        let (state, mut rotations) = ring_state(ring, live, numbers, now);
        let rotation = match keyring::decide(ring, &state, now) {
            Decision::Wait(until) => {
                let due = now.duration_until(until).unsigned_abs();
                return Ok((keys, ring_annotations(&state, rotations), Some(due)));
            }
            // The end of the task triggers the next attempt.
            Decision::Rotate(_) if !self.is_reencrypted(owner, name, rotations).await? => {
                return Ok((keys, ring_annotations(&state, rotations), None));
            }
            Decision::Rotate(rotation) => rotation,
        };
        if let Some(staged) = keys.remove("0") {
            keys.insert(rotation.primary.to_string(), staged);
        }
        keys.insert("0".to_owned(), self.ports.environment.fernet_key());
        keys.retain(|number, _| !rotation.dropped.iter().any(|dropped| dropped.to_string() == *number));
        rotations += 1;
        let state = RingState {
            keys: Vec::new(),
            retired: rotation.retired,
            rotated_at: now,
            request: ring.request.clone().or(state.request),
        };
        tracing::info!(condition = ring.condition, rotations, "rotated keys");
        let due = next_rotation(ring, &state, now);
        Ok((keys, ring_annotations(&state, rotations), Some(due)))
    }

    /// Whether the task that follows the last rotation of a key ring is complete.
    async fn is_reencrypted(&self, owner: &Owner<'_>, ring: &str, rotations: u32) -> PortResult<bool> {
        let Owner { instance, plan, observed, .. } = owner;
        let Some(run) = task::after_rotation(&instance.name, plan, observed, ring, rotations) else {
            return Ok(true);
        };
        let Some(job) = self.ports.cluster.get(JOB, &instance.namespace, &run.job).await? else {
            return Ok(false);
        };
        let key = job.metadata.annotations.as_ref().and_then(|all| all.get(TASK_ANNOTATION));
        Ok(key == Some(&run.key) && assess::job_outcome(&job.data) == JobOutcome::Complete)
    }
}

fn lost_message(instance: &Instance, secret: &str) -> String {
    format!(
        "Secret {secret} is missing or incomplete, and a new one cannot decrypt existing data: restore it, or accept that \
         data encrypted with it is lost by setting annotation {ACCEPT_LOSS_ANNOTATION}: {secret} on {} {}",
        instance.kind.kind, instance.name
    )
}

fn next_rotation(ring: &KeyRing, state: &RingState, now: Timestamp) -> Duration {
    match keyring::decide(ring, state, now) {
        Decision::Wait(until) => now.duration_until(until).unsigned_abs(),
        Decision::Rotate(_) => Duration::ZERO,
    }
}

fn ring_annotations(state: &RingState, rotations: u32) -> Values {
    let mut annotations = Values::from([
        (ROTATIONS_ANNOTATION.to_owned(), rotations.to_string()),
        (ROTATED_AT.to_owned(), state.rotated_at.to_string()),
        (RETIRED.to_owned(), json!(state.retired).to_string()),
    ]);
    annotations.extend(state.request.clone().map(|request| (REQUEST.to_owned(), request)));
    annotations
}

/// State of a ring from the annotations of its Secret. Without them, all keys count as in use until now. Each rotation
/// adds one number, so the numbers still tell how often the ring was rotated.
fn ring_state(
    ring: &KeyRing,
    live: Option<&DynamicObject>,
    keys: Vec<u32>,
    now: Timestamp,
) -> (RingState, u32) {
    let read = || {
        let annotations = live?.metadata.annotations.as_ref()?;
        let retired = serde_json::from_str(annotations.get(RETIRED)?).ok()?;
        let rotated_at = annotations.get(ROTATED_AT)?.parse().ok()?;
        Some((
            retired,
            rotated_at,
            annotations.get(ROTATIONS_ANNOTATION)?.parse().ok()?,
            annotations.get(REQUEST).cloned(),
        ))
    };
    let (retired, rotated_at, rotations, request) = read().unwrap_or_else(|| {
        let primary = keys.iter().max();
        let retired = keys.iter().filter(|key| **key != 0 && Some(*key) != primary);
        let rotations = primary.map_or(0, |primary| primary.saturating_sub(1));
        (retired.map(|key| (*key, now)).collect(), now, rotations, ring.request.clone())
    });
    (RingState { keys, retired, rotated_at, request }, rotations)
}
