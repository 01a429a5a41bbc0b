//! Registration of a service and its users in the catalog of the identity service.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use openstack_operator_model::condition::{ConditionType, Progress};
use openstack_operator_model::kind::JOB;
use openstack_operator_model::lower::task;
use openstack_operator_model::plan::{Catalog, TaskStage};
use openstack_operator_model::status::EffectKind;

use crate::apply::completed_at;
use crate::effect::{incomplete_secret, not_available, stalled_if_refused};
use crate::engine::{Engine, Key};
use crate::gather::Gathered;
use crate::phase::Planned;
use crate::ports::{
    IdentityAccount, IdentityDomainEntry, IdentityEntries, IdentityLogin, IdentityService, Login, PortError,
    PortResult,
};
use crate::reconcile::progress_or_failure;
use crate::work::Work;

/// Minimum time between two runs of a bootstrap task for the same reason.
const REPETITION_INTERVAL: SignedDuration = SignedDuration::from_mins(5);
/// For how long the registration of an object that waits for something else is not checked again. A check costs the
/// identity service the hash of a password, and the start of a cloud causes dozens of reconciles.
const TRUST: SignedDuration = SignedDuration::from_mins(1);

/// State of a registration before the workloads start.
pub(crate) struct Registration {
    pub(crate) progress: Progress,
    /// What an earlier reconcile has registered and this one has not checked.
    unchecked: Option<Entries>,
}

/// What objects have registered, and when.
#[derive(Default)]
pub(crate) struct Registrations {
    known: Mutex<HashMap<Key, (Entries, Timestamp)>>,
}

/// All that a check depends on.
type Entries = (IdentityLogin, IdentityEntries);

impl Registrations {
    fn known(&self) -> MutexGuard<'_, HashMap<Key, (Entries, Timestamp)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_recent(&self, key: &Key, entries: &Entries, now: Timestamp) -> bool {
        let known = self.known();
        known.get(key).is_some_and(|(known, at)| known == entries && at.duration_until(now) < TRUST)
    }

    /// Also forgets what is too old to be trusted.
    fn remember(&self, key: &Key, entries: Entries, now: Timestamp) {
        let mut known = self.known();
        known.retain(|_, (_, at)| at.duration_until(now) < TRUST);
        known.insert(key.clone(), (entries, now));
    }
}

impl Engine {
    /// Registers the object in the catalog before its pods start; not for the identity service itself.
    pub(crate) async fn register_before_start(
        &self,
        planned: &Planned<'_>,
        work: &Work,
    ) -> Option<Registration> {
        let catalog = planned.plan.catalog.as_ref()?;
        if planned.key.matches(&catalog.provider) || work.is_stopped() {
            return None;
        }
        let checked = |progress| Some(Registration { progress, unchecked: None });
        let entries = match self.entries(catalog, planned.gathered, work).await {
            Ok(Ok(entries)) => entries,
            Ok(Err(progress)) => return checked(progress),
            Err(error) => return checked(progress_or_failure(Err(error))),
        };
        if self.registrations.is_recent(planned.key, &entries, self.ports.environment.now()) {
            return Some(Registration { progress: Progress::Done, unchecked: Some(entries) });
        }
        checked(progress_or_failure(self.ensure_entries(catalog, entries, work).await))
    }

    /// Reports the registration. An object that does not wait for anything checks it in every reconcile. The identity
    /// service registers itself here, once it is exposed.
    pub(crate) async fn register(&self, planned: &Planned<'_>, early: Option<Registration>, work: &mut Work) {
        let Some(catalog) = &planned.plan.catalog else { return };
        let progress = match early {
            Some(Registration { unchecked: Some(entries), .. }) if !work.is_stopped() => {
                progress_or_failure(self.ensure_entries(catalog, entries, work).await)
            }
            Some(early) => early.progress,
            None if work.is_stopped() => Progress::NotReached,
            None => match self.ensure_catalog(catalog, planned.gathered, work).await {
                Err(error @ PortError::LoginRejected { .. }) => {
                    progress_or_failure(self.repeat_bootstrap(planned, error).await)
                }
                result => progress_or_failure(result),
            },
        };
        work.record(ConditionType::Registered, progress);
    }

    /// Repeats the bootstrap tasks of an identity service that rejects its administrator, because they set the password
    /// of the Secret again. A task that has just run is not repeated.
    async fn repeat_bootstrap(&self, planned: &Planned<'_>, rejection: PortError) -> PortResult<Progress> {
        let namespace = &planned.key.namespace;
        for task in planned.plan.tasks.iter().filter(|task| task.stage == TaskStage::Bootstrap) {
            let name = task::job_name(&planned.key.name, task);
            let Some(job) = self.ports.cluster.get(JOB, namespace, &name).await? else { continue };
            let age = completed_at(&job.data).map(|at| at.duration_until(self.ports.environment.now()));
            if age.is_some_and(|age| age >= REPETITION_INTERVAL) {
                let uid = job.metadata.uid.as_deref().unwrap_or_default();
                self.ports.cluster.delete(JOB, namespace, &name, uid).await?;
                tracing::info!(job = name, "the administrator's login is rejected; repeating the task");
                let message =
                    format!("the administrator's login is rejected: the operator repeats Job {name}");
                return Ok(Progress::waiting(message));
            }
        }
        Err(rejection)
    }

    async fn ensure_catalog(
        &self,
        catalog: &Catalog,
        gathered: &Gathered,
        work: &Work,
    ) -> PortResult<Progress> {
        match self.entries(catalog, gathered, work).await? {
            Ok(entries) => self.ensure_entries(catalog, entries, work).await,
            Err(progress) => Ok(progress),
        }
    }

    /// What an object registers, or why that is not known yet.
    async fn entries(
        &self,
        catalog: &Catalog,
        gathered: &Gathered,
        work: &Work,
    ) -> PortResult<Result<Entries, Progress>> {
        let (namespace, provider) = (&work.key.namespace, &catalog.provider);
        if gathered.unavailable.contains(provider) {
            return Ok(Err(not_available(provider)));
        }
        let Some(login) = self.identity_login(namespace, &catalog.server).await? else {
            let secret = catalog.server.secret.as_deref().unwrap_or_default();
            return Ok(Err(Progress::waiting(incomplete_secret(secret))));
        };
        let services = catalog.services.iter().map(|entry| IdentityService {
            claim: work.claim(EffectKind::CatalogService, provider, &entry.service_type),
            entry: entry.clone(),
        });
        let domains = catalog.domains.iter().map(|domain| IdentityDomainEntry {
            claim: work.claim(EffectKind::IdentityDomain, provider, &domain.name),
            name: domain.name.clone(),
        });
        let mut entries = IdentityEntries {
            owner: work.key.to_string(),
            domains: domains.collect(),
            projects: catalog.projects.clone(),
            roles: catalog.roles.clone(),
            service_roles: catalog.service_roles.clone(),
            services: services.collect(),
            users: Vec::new(),
        };
        for user in &catalog.users {
            let Some(password) = self.secret_value(namespace, &user.password).await? else {
                return Ok(Err(Progress::waiting(incomplete_secret(&user.password.secret))));
            };
            entries.users.push(IdentityAccount {
                claim: work.claim_in(&user.domain, EffectKind::IdentityUser, provider, &user.name),
                login: Login { username: user.name.clone(), password },
                domain: user.domain.clone(),
                grants: user.grants.clone(),
            });
        }
        Ok(Ok((login, entries)))
    }

    async fn ensure_entries(&self, catalog: &Catalog, entries: Entries, work: &Work) -> PortResult<Progress> {
        let ensured = self.ports.identity.ensure(&entries.0, &entries.1).await.map(|wrote| {
            if wrote {
                tracing::info!("updated the service catalog");
            }
            self.registrations.remember(&work.key, entries, self.ports.environment.now());
            Progress::Done
        });
        stalled_if_refused(&work.key, &catalog.provider, ensured)
    }
}
