//! One reconcile: from an object to a cluster that is what the object says, and a status that says how far.

use std::time::Duration;

use kube::core::DynamicObject;
use openstack_operator_model::common::PAUSE_ANNOTATION;
use openstack_operator_model::condition::{ConditionType, Findings, Progress, Stall};
use openstack_operator_model::lower::{self, Instance, Observed, task};
use openstack_operator_model::plan::{Container, Plan, SecretContent};
use openstack_operator_model::service::AnyService;
use serde_json::json;

use crate::engine::{Engine, FINALIZER, Key, Outcome, Stop, guarded, instance};
use crate::gather::{self, Gathered};
use crate::phase::Planned;
use crate::ports::{PortError, PortResult};
use crate::work::Work;

impl Engine {
    /// Brings the world one step closer to what an object says.
    pub async fn reconcile(&self, key: &Key) -> Outcome {
        match self.attempt(key).await {
            Ok(outcome) => outcome,
            // Somebody else was quicker; the next attempt sees what they did.
            Err(PortError::Conflict { .. }) => Outcome::Waiting { after: Some(Duration::ZERO) },
            Err(error) => Outcome::Failed { message: chain(&error) },
        }
    }

    async fn attempt(&self, key: &Key) -> PortResult<Outcome> {
        let Some(service) = self.service(key.kind) else { return Ok(Outcome::Gone) };
        let Some(object) = self.ports.cluster.get(key.kind, &key.namespace, &key.name).await? else {
            self.needs.remove(key);
            return Ok(Outcome::Gone);
        };
        let before = match gather::status(&object.data) {
            Ok(status) => status,
            Err(error) => {
                let message = format!(
                    "the status of {key} cannot be read, and without it nothing is done ({error}): run the operator \
                     that wrote it, or put right what it holds"
                );
                return Ok(Outcome::Failed { message });
            }
        };
        if object.metadata.deletion_timestamp.is_some() {
            return self.cleanup(key, &object, &before).await;
        }
        let mut work = Work {
            findings: Findings::default(),
            status: before.clone(),
            due: None,
            at: ConditionType::InputsReady,
            again: false,
        };
        let paused = object.metadata.annotations.as_ref().and_then(|all| all.get(PAUSE_ANNOTATION));
        let stopped = if paused.is_some_and(|value| value == "true") {
            Err(Stop::Stall(Stall::Paused))
        } else {
            self.add_finalizer(key, &object).await?;
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
                let message = chain(&error);
                work.found(work.at, Progress::Failed { message: message.clone() });
                Some(message)
            }
        };
        work.status.served |= work.findings.available == Some(true);
        let outcome = work.outcome(failure);
        self.report(key, &object, &before, &work.findings, work.status).await?;
        Ok(outcome)
    }

    async fn add_finalizer(&self, key: &Key, object: &DynamicObject) -> PortResult<()> {
        let mut finalizers = object.metadata.finalizers.clone().unwrap_or_default();
        if finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            return Ok(());
        }
        finalizers.push(FINALIZER.to_owned());
        let metadata =
            json!({ "finalizers": finalizers, "resourceVersion": object.metadata.resource_version });
        self.ports.cluster.patch_metadata(key.kind, &key.namespace, &key.name, metadata).await
    }

    async fn work(
        &self,
        key: &Key,
        service: &'static dyn AnyService,
        object: &DynamicObject,
        work: &mut Work,
    ) -> Result<(), Stop> {
        let instance = instance(service, object);
        let decoded = guarded("reading the object", || service.decode(object))?;
        let needs = guarded("reading needs", || Ok(decoded.needs()))?;
        let gathered = self.gather(key, &needs, &work.status.nodes).await?;
        work.status.uses.clone_from(&gathered.uses);
        if !(needs.objects.is_empty() && needs.secrets.is_empty() && needs.after.is_empty()) {
            work.found(ConditionType::InputsReady, gathered.progress.clone().unwrap_or(Progress::Done));
        }
        if work.is_stopped() {
            return Ok(());
        }
        let memory = work.status.memory.clone();
        let plan = guarded("planning", || decoded.plan(&gathered.resolved, &self.site, &memory))?;
        work.status.endpoint.clone_from(&plan.endpoint);
        // Others may plan with it before anything serves: what they do with it waits for that by itself.
        work.status.provides.clone_from(&plan.provides);
        let skipped = plan.skipped.iter().map(|skip| format!("no {}: {}", skip.name, skip.reason));
        work.findings.remarks = skipped.chain(plan.remarks.iter().cloned()).collect();
        let effects = self.effects(&key.namespace, &plan).await?;
        if !work.record_effects(&effects) {
            return Ok(());
        }
        let observed = self.claims(&instance, &plan, &gathered, work).await?;
        let manifests = guarded("lowering", || Ok(lower::lower(&instance, &plan, &observed)))?;
        let planned = Planned {
            key,
            service,
            object: decoded.as_ref(),
            plan: &plan,
            gathered: &gathered,
            manifests: &manifests,
        };
        self.phases(&planned, work).await?;
        if !work.is_stopped() {
            let wanted = task::wanted_install(&plan.tasks).map(str::to_owned);
            if work.status.installed != wanted {
                work.status.installed = wanted;
                work.again = true;
            }
            work.at = ConditionType::Pruned;
            self.undo_unwanted(&key.namespace, &effects, &mut work.status.effects).await?;
            self.prune(&instance, &plan, &manifests).await?;
        }
        // Nodes may leave whatever else is not done, and what is not wanted goes whatever nodes do.
        if let Some(roster) = &plan.agents {
            work.at = ConditionType::NodesReady;
            let progress = attempted(self.check_roster(&planned, roster, work).await);
            work.found(ConditionType::NodesReady, progress);
        }
        Ok(())
    }

    /// Secrets, databases and message buses.
    async fn claims(
        &self,
        instance: &Instance,
        plan: &Plan,
        gathered: &Gathered,
        work: &mut Work,
    ) -> Result<Observed, Stop> {
        work.at = ConditionType::ConfigReady;
        let mut observed = Observed { installed: work.status.installed.clone(), ..Observed::default() };
        let mut missing = Progress::Done;
        for secret in &plan.secrets {
            let ensured = self.ensure_secret(instance, secret).await?;
            work.sooner(ensured.due);
            if let SecretContent::KeyRing(ring) = &secret.content {
                work.found(ConditionType::Keys(ring.condition), ensured.progress);
            } else {
                missing = missing.and(ensured.progress);
            }
            observed.secrets.insert(secret.name.clone(), ensured.facts);
        }
        for name in foreign_secrets(plan) {
            if let Some(facts) = self.secret_facts(&instance.namespace, &name).await? {
                observed.secrets.insert(name, facts);
            }
        }
        if !plan.databases.is_empty() {
            let progress = match &missing {
                Progress::Done => self.ensure_databases(&instance.namespace, &plan.databases, gathered).await,
                waiting => Ok(waiting.clone()),
            };
            work.found(ConditionType::DatabaseReady, attempted(progress));
        }
        if !plan.messaging.is_empty() {
            let progress = match &missing {
                Progress::Done => self.ensure_messaging(&instance.namespace, &plan.messaging, gathered).await,
                waiting => Ok(waiting.clone()),
            };
            work.found(ConditionType::MessagingReady, attempted(progress));
        }
        if missing != Progress::Done && !work.is_stopped() {
            work.found(ConditionType::ConfigReady, missing);
        }
        Ok(observed)
    }
}

/// Secrets that others write, and for which pods are replaced.
fn foreign_secrets(plan: &Plan) -> Vec<String> {
    let containers = plan
        .workloads
        .iter()
        .flat_map(|workload| workload.pod.setup.iter().chain(&workload.pod.containers))
        .chain(plan.tasks.iter().map(|task| &task.container));
    let mut names: Vec<String> = containers
        .flat_map(Container::rolling_secrets)
        .filter(|name| !plan.secrets.iter().any(|secret| secret.name == **name))
        .cloned()
        .collect();
    names.sort();
    names.dedup();
    names
}

/// A call that failed is a part that failed: the others can still be told.
pub(crate) fn attempted(result: PortResult<Progress>) -> Progress {
    result.unwrap_or_else(|error| Progress::Failed { message: chain(&error) })
}

/// An error with all its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
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
