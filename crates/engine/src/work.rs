//! State of a running reconcile: findings, new status, and outcome.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::core::DynamicObject;
use openstack_operator_model::common::{ACCEPT_LOSS_ANNOTATION, ADOPT_ANNOTATION, Reference};
use openstack_operator_model::condition::{ConditionType, Findings, Progress};
use openstack_operator_model::lower::{Manifest, task};
use openstack_operator_model::plan::{Domain, Plan};
use openstack_operator_model::release::Release;
use openstack_operator_model::status::{Effect, EffectKind, ServiceStatus, Stage, Status};
use serde_json::Value;

use crate::claim::{Adoption, Claim};
use crate::engine::{Key, Outcome};
use crate::gather;
use crate::secret::Replaceable;

/// State of a running reconcile.
pub(crate) struct Work {
    pub(crate) key: Key,
    pub(crate) findings: Findings,
    pub(crate) status: Status,
    /// Time until the next scheduled action.
    pub(crate) due: Option<Duration>,
    /// Condition of the current step; it reports a failed call.
    pub(crate) current: ConditionType,
    /// The next step depends on the new status: reconcile again at once.
    pub(crate) requeue_now: bool,
    /// Version of the object after the last write of this reconcile. A status for another version is a conflict.
    pub(crate) version: Option<String>,
    /// Names of Secrets and databases whose loss the user has accepted.
    pub(crate) accepted_losses: BTreeSet<String>,
    /// Names of resources on other servers that the object may take over.
    pub(crate) adopted: BTreeSet<String>,
    /// Effects of the current plan.
    wanted: Vec<Effect>,
}

impl Work {
    pub(crate) fn new(key: &Key, object: &DynamicObject, status: Status) -> Self {
        let names = |annotation: &str| {
            let text = object.metadata.annotations.as_ref().and_then(|all| all.get(annotation));
            let names = text.into_iter().flat_map(|names| names.split(',')).map(str::trim);
            names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
        };
        Self {
            key: key.clone(),
            findings: Findings::default(),
            status,
            due: None,
            current: ConditionType::InputsReady,
            requeue_now: false,
            version: object.metadata.resource_version.clone(),
            accepted_losses: names(ACCEPT_LOSS_ANNOTATION),
            adopted: names(ADOPT_ANNOTATION),
            wanted: Vec::new(),
        }
    }

    /// Which irreplaceable Secrets may be created.
    pub(crate) fn replaceable(&self) -> Replaceable<'_> {
        if self.status.served || self.status.installed.is_some() {
            Replaceable::Accepted(&self.accepted_losses)
        } else {
            Replaceable::All
        }
    }

    /// Records the progress of a condition; of two, the less advanced one counts.
    pub(crate) fn record(&mut self, condition: ConditionType, progress: Progress) {
        match self.findings.parts.iter_mut().find(|(known, _)| *known == condition) {
            Some((_, known)) => *known = known.clone().and(progress),
            None => self.findings.parts.push((condition, progress)),
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.findings.unmet().is_some()
    }

    /// **Invariant:** the status records a release before anything of it is applied to the data of the object, so that the
    /// object cannot go back. An object without pods only reports the release that all its children have reached.
    pub(crate) fn record_release(&mut self, plan: &Plan, wanted: Release) -> bool {
        if !plan.has_images() {
            return true;
        }
        let is_recorded = self.status.data_release().is_none_or(|known| known == wanted);
        self.status.release = Some(plan.upgrade.as_ref().map_or(wanted, |upgrade| upgrade.from));
        if is_recorded || !plan.has_pods() {
            return true;
        }
        self.requeue_now = true;
        self.record(ConditionType::ConfigReady, Progress::waiting("not started"));
        // Its pods still serve as before.
        self.findings.available = Some(gather::is_true(&self.status, "Available"));
        false
    }

    /// Records the image whose database schema is in place: after the install task, or after all tasks of an upgrade.
    /// Neither a route nor the catalog has to follow, since the next image must not install a second time.
    pub(crate) fn record_install(&mut self, plan: &Plan) {
        let last = if self.status.installed.is_none() {
            ConditionType::TasksComplete
        } else {
            ConditionType::Finished
        };
        let (is_complete, have_databases) = (self.is_met(last), self.is_met(ConditionType::DatabaseReady));
        let wanted = task::wanted_install(&plan.tasks);
        if is_complete && self.status.installed.as_deref() != wanted {
            self.status.installed = wanted.map(str::to_owned);
            self.requeue_now = true;
        }
        if have_databases && self.status.installed.is_some() {
            self.status.databases = plan.databases.iter().map(|database| database.database.clone()).collect();
        }
    }

    pub(crate) fn recheck_within(&mut self, due: Option<Duration>) {
        self.due = [self.due, due].into_iter().flatten().min();
    }

    /// **Invariant:** the status records an effect before the operator creates it, so that deletion always undoes it.
    pub(crate) fn record_effects(&mut self, wanted: &[Effect]) -> bool {
        self.wanted = wanted.to_vec();
        let known = &self.status.effects;
        let is_confirmed = |effect: &Effect| {
            known.iter().any(|one| !one.pending && one.covers(effect) && one.address == effect.address)
        };
        let missing: Vec<Effect> = wanted
            .iter()
            .filter(|effect| !known.iter().any(|one| one.matches(effect)))
            .map(|effect| Effect { pending: !is_confirmed(effect), ..effect.clone() })
            .collect();
        if missing.is_empty() {
            return true;
        }
        self.status.effects.extend(missing);
        self.status.effects.sort();
        self.requeue_now = true;
        self.record(ConditionType::ConfigReady, Progress::waiting("not started"));
        false
    }

    /// The claim of the object to a recorded resource. It owns everything on a server that it provides itself.
    pub(crate) fn claim(&self, kind: EffectKind, provider: &Reference, name: &str) -> Claim {
        self.claim_in(&Domain::Default, kind, provider, name)
    }

    /// The same for a resource of a domain of the identity service.
    pub(crate) fn claim_in(
        &self,
        domain: &Domain,
        kind: EffectKind,
        provider: &Reference,
        name: &str,
    ) -> Claim {
        let is_it = |effect: &&Effect| {
            let is_same_name = effect.name == name && effect.domain.as_deref() == domain.name();
            effect.kind == kind && effect.provider == *provider && is_same_name && self.wants(effect)
        };
        let is_confirmed = self.status.effects.iter().filter(is_it).any(|effect| !effect.pending);
        let adoption = if self.key.matches(provider) || self.adopted.contains(name) {
            Adoption::Anything
        } else if is_confirmed {
            Adoption::Unowned
        } else {
            Adoption::Nothing
        };
        Claim { owner: self.key.to_string(), adoption }
    }

    fn wants(&self, effect: &Effect) -> bool {
        self.wanted.iter().any(|wanted| wanted.matches(effect))
    }

    /// Records that the resources on other servers belong to the object, once they carry its name.
    pub(crate) fn confirm_effects(&mut self) {
        let is_confirmed = |effect: &Effect| {
            let condition = match effect.kind {
                EffectKind::Database | EffectKind::DatabaseUser => ConditionType::DatabaseReady,
                EffectKind::MessagingHost | EffectKind::MessagingUser => ConditionType::MessagingReady,
                EffectKind::CatalogService
                | EffectKind::IdentityUser
                | EffectKind::IdentityDomain
                | EffectKind::IdentityRole => ConditionType::Registered,
            };
            self.wants(effect) && self.is_met(condition)
        };
        let confirmed: Vec<bool> = self.status.effects.iter().map(is_confirmed).collect();
        for (effect, confirmed) in self.status.effects.iter_mut().zip(confirmed) {
            effect.pending &= !confirmed;
        }
    }

    pub(crate) fn is_met(&self, wanted: ConditionType) -> bool {
        self.findings.parts.iter().any(|(condition, progress)| *condition == wanted && progress.is_met())
    }

    /// Reports the state of each service and the phase of the cloud.
    pub(crate) fn report_services(&mut self, plan: &Plan, rows: Vec<Option<(Stage, ServiceStatus)>>) {
        let rows: Vec<(Stage, ServiceStatus)> = rows.into_iter().flatten().collect();
        if rows.is_empty() && plan.skipped.is_empty() {
            return;
        }
        let unready = rows.iter().filter(|(_, row)| !row.ready).map(|(stage, _)| *stage).min();
        self.status.phase = Some(unready.unwrap_or(Stage::Ready));
        self.findings.available = Some(unready.is_none());
        let skipped = plan.skipped.iter().map(|skip| ServiceStatus {
            kind: skip.kind.kind.to_owned(),
            name: skip.name.clone(),
            ready: false,
            waiting_for: Some(format!("not deployed: {}", skip.reason)),
            endpoint: None,
            release: None,
            extent: None,
        });
        self.status.services = rows.into_iter().map(|(_, row)| row).chain(skipped).collect();
    }

    pub(crate) fn outcome(&self, failure: Option<String>) -> Outcome {
        if let Some(message) = failure {
            return Outcome::Failed { message };
        }
        if self.findings.stall.is_some() {
            return Outcome::Stalled;
        }
        if self.requeue_now {
            return Outcome::Waiting { after: Some(Duration::ZERO) };
        }
        let failed = self.findings.parts.iter().find_map(|(_, progress)| match progress {
            Progress::Failed { message } => Some(message.clone()),
            _ => None,
        });
        if let Some(message) = failed {
            return Outcome::Failed { message };
        }
        match self.findings.unmet() {
            None => Outcome::Done { recheck: self.due },
            Some((_, Progress::Waiting { after, .. })) => {
                Outcome::Waiting { after: [*after, self.due].into_iter().flatten().min() }
            }
            Some(_) => Outcome::Waiting { after: self.due },
        }
    }
}

/// State of one service of a cloud.
pub(crate) fn service_row(
    plan: &Plan,
    manifest: &Manifest,
    live: &Value,
    progress: &Progress,
) -> Option<(Stage, ServiceStatus)> {
    let child = manifest.child(plan)?;
    let waiting_for = match progress {
        Progress::Waiting { message, .. } | Progress::Failed { message } | Progress::Stalled { message } => {
            Some(message.clone())
        }
        Progress::Degraded { losses } => Some(format!("degraded: {}", losses.join("; "))),
        Progress::Done | Progress::NotReached => None,
    };
    let stage = child.stage?;
    let endpoint = live.pointer("/status/endpoint").and_then(Value::as_str).map(str::to_owned);
    let status = gather::status(live).ok();
    let row = ServiceStatus {
        kind: child.kind.kind.to_owned(),
        name: child.name.clone(),
        ready: progress.is_met(),
        waiting_for,
        endpoint,
        release: status.as_ref().and_then(|status| status.release),
        extent: status.and_then(|status| status.extent()),
    };
    Some((stage, row))
}
