//! Secrets: generates missing values, fills in templates, rotates keys. Values stay in this file and in the ports. A Secret
//! of the user under the name of a planned one is used and not changed.

use std::collections::BTreeSet;
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
use openstack_operator_model::plan::{
    Encoding, KeyRing, Plan, SSH_KEYS, SecretContent, SecretKey, SecretPlan,
};
use serde_json::json;

use crate::apply::{Applied, hand_over_remedy, is_of_user};
use crate::engine::Engine;
use crate::ports::{KeyPair, PortResult};
pub(crate) use crate::secret::content::Values;
use crate::secret::content::{REVISION_KEY, is_lost, revision, revision_key, unlike, values};

mod certificate;
mod content;
mod entries;

/// Length of the key of the hash of the values.
const REVISION_KEY_LENGTH: usize = 32;
const FERNET_KEY_BYTES: usize = 32;
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

/// Values and annotations of a Secret, and the time until values must change.
struct Made {
    values: Values,
    annotations: Values,
    due: Option<Duration>,
}

impl Made {
    /// Values that stay.
    fn once(values: Values) -> Self {
        Self { values, annotations: Values::new(), due: None }
    }
}

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
        let found = self.ports.cluster.get(SECRET, &instance.namespace, &plan.name).await?;
        if let Some(found) = found.as_ref().filter(|found| is_of_user(found, &instance.uid)) {
            return self.use_secret_of_user(instance, plan, found).await;
        }
        let known = found.as_ref().map(values).unwrap_or_default();
        let mut live = found.as_ref();
        if is_lost(&plan.content, live, &known) {
            if !owner.replaceable.contains(plan) {
                let progress = Progress::stalled(lost_message(instance, &plan.name));
                return Ok(Ensured::unfinished(progress));
            }
            // The record of the lost values does not apply to new ones.
            live = None;
        }
        let Made { values: wanted, mut annotations, due } = match self.make(owner, plan, live, known).await? {
            Ok(made) => made,
            Err(progress) => return Ok(Ensured::unfinished(progress)),
        };
        let mut metadata = instance.metadata(&plan.name, None);
        if plan.retained {
            metadata.owner_references = None;
        }
        let rotations =
            annotations.get(ROTATIONS_ANNOTATION).and_then(|count| count.parse().ok()).unwrap_or(0);
        let key = live.and_then(revision_key).cloned();
        let key = key.unwrap_or_else(|| self.ports.environment.password(REVISION_KEY_LENGTH));
        annotations.insert(REVISION_KEY.to_owned(), key);
        metadata.annotations = Some(annotations);
        let data: Values = wanted.iter().map(|(key, value)| (key.clone(), STANDARD.encode(value))).collect();
        let fields = [("type", json!("Opaque")), ("data", json!(data))];
        let manifest = manifest(SECRET, &plan.name, &metadata, fields);
        match self.apply_to(&instance.namespace, &manifest, found).await? {
            Applied::Live(live) | Applied::Limited(live, _) => {
                let facts = SecretFacts { revision: revision(&live), rotations };
                Ok(Ensured { facts, progress: Progress::Done, due, remark: None })
            }
            Applied::NotYet(progress) => Ok(Ensured::unfinished(progress)),
        }
    }

    /// The values that a Secret must have. Generated ones are kept if they exist.
    async fn make(
        &self,
        owner: &Owner<'_>,
        plan: &SecretPlan,
        live: Option<&DynamicObject>,
        known: Values,
    ) -> PortResult<Result<Made, Progress>> {
        match &plan.content {
            SecretContent::Entries(entries) => {
                let values = self.resolve_entries(owner.instance, plan, entries, &known).await?;
                Ok(values.map(Made::once))
            }
            SecretContent::KeyRing(ring) => {
                Ok(Ok(self.rotate_ring(owner, (&plan.name, ring), live, known).await?))
            }
            SecretContent::Certificate(certificate) => {
                self.renew_certificate(owner.instance, certificate, live, known).await
            }
            SecretContent::SshKey => {
                if !is_lost(&plan.content, live, &known) {
                    return Ok(Ok(Made::once(known)));
                }
                let KeyPair { public, private } = self.ports.environment.ssh_key()?;
                let values = SSH_KEYS.map(str::to_owned).into_iter().zip([private, public]);
                Ok(Ok(Made::once(values.collect())))
            }
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
            SecretContent::Certificate(_) | SecretContent::SshKey => {
                let is_lost = is_lost(&plan.content, Some(found), &known);
                (is_lost.then(|| "does not have all keys".to_owned()), 0, None)
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

    /// Rotates a key ring if it is due. **Invariant:** the loss of some keys never removes others, since existing tokens
    /// and credentials may still need them. A ring does not rotate, and loses no key, before the data is encrypted with
    /// the key of its last rotation.
    async fn rotate_ring(
        &self,
        owner: &Owner<'_>,
        (name, ring): (&str, &KeyRing),
        live: Option<&DynamicObject>,
        mut keys: Values,
    ) -> PortResult<Made> {
        let now = self.ports.environment.now();
        keys.retain(|number, _| number.parse::<u32>().is_ok());
        keys.entry("0".to_owned()).or_insert_with(|| self.fernet_key());
        if keys.len() < 2 {
            keys.insert("1".to_owned(), self.fernet_key());
        }
        let numbers = keys.keys().filter_map(|number| number.parse().ok()).collect();
        let (state, mut rotations) = ring_state(ring, live, numbers, now);
        let rotation = match keyring::decide(ring, &state, now) {
            Decision::Wait(until) => {
                let due = now.duration_until(until).unsigned_abs();
                return Ok(Made {
                    values: keys,
                    annotations: ring_annotations(&state, rotations),
                    due: Some(due),
                });
            }
            // The end of the task triggers the next attempt.
            Decision::Rotate(_) if !self.is_reencrypted(owner, name, rotations).await? => {
                return Ok(Made {
                    values: keys,
                    annotations: ring_annotations(&state, rotations),
                    due: None,
                });
            }
            Decision::Rotate(rotation) => rotation,
        };
        if let Some(staged) = keys.remove("0") {
            keys.insert(rotation.primary.to_string(), staged);
        }
        keys.insert("0".to_owned(), self.fernet_key());
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
        Ok(Made { values: keys, annotations: ring_annotations(&state, rotations), due: Some(due) })
    }

    fn fernet_key(&self) -> String {
        self.ports.environment.bytes(FERNET_KEY_BYTES, Encoding::Base64Url)
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
