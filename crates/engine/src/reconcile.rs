//! One reconcile: brings the cluster to the state an object specifies and writes its status.

use std::time::Duration;

use kube::core::DynamicObject;
use openstack_operator_model::common::{ACCEPT_LOSS_ANNOTATION, ADOPT_ANNOTATION, PAUSE_ANNOTATION};
use openstack_operator_model::condition::{ConditionType, Progress, Stall};
use openstack_operator_model::lower::{self, Instance, Observed};
use openstack_operator_model::plan::{Container, Plan, SecretContent, SecretPlan};
use openstack_operator_model::service::{AnyObject, AnyService};
use serde_json::json;

use crate::engine::{Engine, FINALIZER, Key, Outcome, Stop, catch_panic, instance};
use crate::gather::{self, Gathered};
use crate::node_claim::Claim;
use crate::phase::Planned;
use crate::ports::{PortError, PortResult};
use crate::secret::Owner;
use crate::work::Work;

impl Engine {
    /// Brings cluster and servers one step closer to the object's spec.
    pub async fn reconcile(&self, key: &Key) -> Outcome {
        match self.attempt(key).await {
            Ok(outcome) => outcome,
            // The next attempt reads the concurrent change.
            Err(PortError::Conflict { .. }) => Outcome::Waiting { after: Some(Duration::ZERO) },
            Err(error) => Outcome::Failed { message: error_chain(&error) },
        }
    }

    async fn attempt(&self, key: &Key) -> PortResult<Outcome> {
        let Some(service) = self.service(key.kind) else { return Ok(Outcome::Gone) };
        let Some(mut object) = self.ports.cluster.get(key.kind, &key.namespace, &key.name).await? else {
            self.needs.remove(key);
            self.applied.forget_owner(key);
            self.reservations.forget(key);
            return Ok(Outcome::Gone);
        };
        let before = match gather::status(&object.data) {
            Ok(status) => status,
            Err(error) => {
                let message = format!(
                    "cannot read the status of {key}: {error}; a newer operator version has written it: run that \
                     version again, or correct the status; until then the operator changes nothing"
                );
                self.report_stall(key, &object, Stall::UnreadableStatus(message.clone())).await?;
                return Ok(Outcome::Failed { message });
            }
        };
        if object.metadata.deletion_timestamp.is_some() {
            return self.cleanup(key, &object, &before).await;
        }
        let mut work = Work::new(key, &object, before.clone());
        let paused = object.metadata.annotations.as_ref().and_then(|all| all.get(PAUSE_ANNOTATION));
        let stopped = if paused.is_some_and(|value| value == "true") {
            Err(Stop::Stall(Stall::Paused))
        } else {
            self.add_finalizer(key, &object, &mut work).await?;
            self.work(key, service, &object, &mut work).await
        };
        let failure = match stopped {
            Ok(()) => None,
            Err(Stop::Stall(stall)) => {
                work.findings.stall = Some(stall);
                None
            }
            Err(Stop::Port(error @ PortError::Conflict { .. })) => return Err(error),
            Err(Stop::Port(error)) => {
                work.record(work.current, failure(&error));
                Some(error_chain(&error))
            }
        };
        work.status.served |= work.findings.available == Some(true);
        let outcome = work.outcome(failure);
        object.metadata.resource_version.clone_from(&work.version);
        self.report(key, &object, &before, &work.findings, work.status).await?;
        Ok(outcome)
    }

    async fn add_finalizer(&self, key: &Key, object: &DynamicObject, work: &mut Work) -> PortResult<()> {
        let mut finalizers = object.metadata.finalizers.clone().unwrap_or_default();
        if finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            return Ok(());
        }
        finalizers.push(FINALIZER.to_owned());
        let metadata = json!({ "finalizers": finalizers, "resourceVersion": work.version });
        work.version =
            self.ports.cluster.patch_metadata(key.kind, &key.namespace, &key.name, metadata).await?;
        Ok(())
    }

    async fn work(
        &self,
        key: &Key,
        service: &'static dyn AnyService,
        object: &DynamicObject,
        work: &mut Work,
    ) -> Result<(), Stop> {
        let instance = instance(service, object);
        let decoded = catch_panic("decoding the object", || service.decode(object))?;
        let needs = catch_panic("determining needs", || Ok(decoded.needs()))?;
        let gathered = self.gather(key, &needs, &work.status).await?;
        work.status.uses.clone_from(&gathered.uses);
        let has_inputs = !(needs.objects.is_empty() && needs.secrets.is_empty() && needs.after.is_empty());
        if has_inputs || !gathered.progress.is_met() {
            work.record(ConditionType::InputsReady, gathered.progress.clone());
        }
        if work.is_stopped() {
            return Ok(());
        }
        let claim = self.claim_nodes(key, service, object, &gathered, work).await?;
        if work.is_stopped() {
            return Ok(());
        }
        let plan = self.plan(decoded.as_ref(), &gathered, work)?;
        if !work.record_release(&plan, decoded.runtime(&self.site).release) {
            return Ok(());
        }
        let effects = self.effects(&key.namespace, &plan).await?;
        let (has_effects, has_scale) = (work.record_effects(&effects), work.record_scale(&plan));
        if !has_effects || !has_scale || claim == Claim::New {
            return Ok(());
        }
        let mut observed = self.ensure_config(&instance, &plan, &gathered, work).await?;
        observed.removed_pods = self.removed_pods(key, &plan, work).await?;
        let manifests = catch_panic("lowering", || Ok(lower::lower(&instance, &plan, &observed)))?;
        let planned = Planned {
            key,
            service,
            object: decoded.as_ref(),
            plan: &plan,
            gathered: &gathered,
            manifests: &manifests,
        };
        self.phases(&planned, work).await?;
        work.record_install(&plan);
        work.forget_removed_pods(&plan, &observed.removed_pods);
        work.confirm_effects();
        if !work.is_stopped() {
            work.current = ConditionType::Pruned;
            self.undo_unwanted(key, &effects, &mut work.status.effects).await?;
            let retained = self.prune(&instance, &plan, &manifests).await?;
            work.findings.remarks.extend(retained);
            self.forget_consents(key, work).await?;
        }
        // Nodes leave even while other parts are not done, and pruning does not depend on nodes.
        if let Some(roster) = &plan.agents {
            work.current = ConditionType::NodesReady;
            let progress = progress_or_failure(self.check_roster(&planned, roster, work).await);
            work.record(ConditionType::NodesReady, progress);
        }
        Ok(())
    }

    /// Plans an object, and reports what others may know about it.
    fn plan(&self, decoded: &dyn AnyObject, gathered: &Gathered, work: &mut Work) -> Result<Plan, Stop> {
        let memory = work.status.memory.clone();
        let runtime = decoded.runtime(&self.site);
        let plan = catch_panic("planning", || {
            let plan = decoded.plan(&gathered.resolved, &self.site, &memory)?;
            if plan.has_images() {
                work.status.check_runtime(runtime)?;
            }
            Ok(plan)
        })?;
        if plan.has_images() {
            work.status.family = Some(runtime.family);
        }
        work.status.endpoint.clone_from(&plan.endpoint);
        // Dependents may plan with it before it serves; their effects on it wait until it is Available.
        work.status.provides.clone_from(&plan.provides);
        let skipped =
            plan.skipped.iter().map(|skip| format!("{} is not deployed: {}", skip.name, skip.reason));
        work.findings.remarks = skipped.chain(plan.remarks.iter().cloned()).collect();
        Ok(plan)
    }

    /// Removes what the user agreed to once the object is complete, so that it does not apply to a later loss or owner.
    async fn forget_consents(&self, key: &Key, work: &mut Work) -> PortResult<()> {
        if (work.accepted_losses.is_empty() && work.adopted.is_empty()) || work.requeue_now {
            return Ok(());
        }
        let metadata = json!({
            "annotations": { ACCEPT_LOSS_ANNOTATION: null, ADOPT_ANNOTATION: null },
            "resourceVersion": work.version,
        });
        work.version =
            self.ports.cluster.patch_metadata(key.kind, &key.namespace, &key.name, metadata).await?;
        Ok(())
    }

    /// Ensures Secrets, databases and message buses.
    async fn ensure_config(
        &self,
        instance: &Instance,
        plan: &Plan,
        gathered: &Gathered,
        work: &mut Work,
    ) -> Result<Observed, Stop> {
        work.current = ConditionType::ConfigReady;
        let mut observed = Observed { installed: work.status.installed.clone(), ..Observed::default() };
        let mut missing = Progress::Done;
        for name in foreign_secrets(plan) {
            if let Some(facts) = self.secret_facts(&instance.namespace, &name).await? {
                observed.secrets.insert(name, facts);
            }
        }
        for secret in in_order(&plan.secrets) {
            let replaceable = work.replaceable();
            let owner = Owner { instance, plan, observed: &observed, replaceable };
            let ensured = self.ensure_secret(&owner, secret).await?;
            work.recheck_within(ensured.due);
            work.findings.remarks.extend(ensured.remark);
            if let SecretContent::KeyRing(ring) = &secret.content {
                work.record(ConditionType::Keys(ring.condition), ensured.progress);
            } else {
                missing = missing.and(ensured.progress);
            }
            observed.secrets.insert(secret.name.clone(), ensured.facts);
        }
        if !plan.databases.is_empty() {
            let progress = match &missing {
                Progress::Done => self.ensure_databases(instance, plan, gathered, work).await,
                waiting => Ok(waiting.clone()),
            };
            work.record(ConditionType::DatabaseReady, progress_or_failure(progress));
        }
        if !plan.messaging.is_empty() {
            let progress = match &missing {
                Progress::Done => self.ensure_messaging(&plan.messaging, gathered, work).await,
                waiting => Ok(waiting.clone()),
            };
            work.record(ConditionType::MessagingReady, progress_or_failure(progress));
        }
        if missing != Progress::Done && !work.is_stopped() {
            work.record(ConditionType::ConfigReady, missing);
        }
        Ok(observed)
    }
}

/// Secrets in the order in which they are ensured. A key ring depends on a task, whose identity depends on other Secrets;
/// files with the keys of a ring depend on it.
fn in_order(secrets: &[SecretPlan]) -> Vec<&SecretPlan> {
    let mut sorted: Vec<&SecretPlan> = secrets.iter().collect();
    sorted.sort_by_key(|secret| match &secret.content {
        SecretContent::KeyRing(_) => 1,
        content if content.has_keys_of_ring() => 2,
        _ => 0,
    });
    sorted
}

/// Secrets that the operator does not write, and whose changes restart pods.
fn foreign_secrets(plan: &Plan) -> Vec<String> {
    let mut names: Vec<String> = plan
        .containers()
        .flat_map(Container::rolling_secrets)
        .filter(|name| !plan.secrets.iter().any(|secret| secret.name == **name))
        .cloned()
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Turns a failed call into failed progress of its part, so that the status still reports the other parts.
pub(crate) fn progress_or_failure(result: PortResult<Progress>) -> Progress {
    result.unwrap_or_else(|error| failure(&error))
}

/// Progress of a failed call. A rejected request fails again until the user changes what the reason names.
fn failure(error: &PortError) -> Progress {
    let message = error_chain(error);
    match error {
        PortError::Rejected { .. } | PortError::Foreign { .. } => Progress::Stalled { message },
        PortError::Unavailable { .. } | PortError::LoginRejected { .. } | PortError::Conflict { .. } => {
            Progress::Failed { message }
        }
    }
}

/// An error and all its causes in one line.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Some errors repeat their cause.
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
