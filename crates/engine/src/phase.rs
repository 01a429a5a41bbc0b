//! Phases: applies the manifests of an object phase by phase, and stops at the first phase that is not done.

use openstack_operator_model::assess;
use openstack_operator_model::condition::{ConditionType, Progress};
use openstack_operator_model::kind::CONTROLLERS;
use openstack_operator_model::lower::{Manifest, Manifests, PHASES, Phase};
use openstack_operator_model::plan::Plan;
use openstack_operator_model::service::{AnyObject, AnyService};
use serde_json::Value;

use crate::apply::{Applied, whole};
use crate::engine::{Engine, Key, Stop};
use crate::gather::Gathered;
use crate::ports::PortResult;
use crate::reconcile::attempted;
use crate::work::{Work, row};

/// What a reconcile carries once its object is planned.
pub(crate) struct Planned<'a> {
    pub(crate) key: &'a Key,
    pub(crate) service: &'static dyn AnyService,
    pub(crate) object: &'a dyn AnyObject,
    pub(crate) plan: &'a Plan,
    pub(crate) gathered: &'a Gathered,
    pub(crate) manifests: &'a Manifests,
}

impl Planned<'_> {
    /// Manifests of a phase; none where the phase is no part of the object.
    fn phase(&self, phase: Phase) -> Option<&[Manifest]> {
        match self.manifests.get(&phase) {
            Some(list) => Some(list),
            // Tasks that have nothing to do at the moment are still part of the object.
            None if matches!(phase, Phase::Tasks | Phase::Finish) && !self.plan.tasks.is_empty() => Some(&[]),
            None => None,
        }
    }
}

/// In which order the manifests of a phase are applied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// All of them, whatever the others have come to.
    Together,
    /// One begins when the one before it is done.
    OneByOne,
}

/// One manifest, what the cluster has of it, and how far that has come.
struct Item<'a> {
    manifest: &'a Manifest,
    /// Null where the cluster does not have it as it is wanted.
    live: Value,
    progress: Progress,
}

/// How far all items together have come.
fn progress_of(items: &[Item<'_>]) -> Progress {
    items.iter().fold(Progress::Done, |progress, item| progress.and(item.progress.clone()))
}

impl Engine {
    /// Applies phase by phase, and stops at the first that is not done.
    pub(crate) async fn phases(&self, planned: &Planned<'_>, work: &mut Work) -> Result<(), Stop> {
        let mut registration = self.register_early(planned, work).await;
        for phase in PHASES {
            if phase == Phase::Finish {
                self.register(planned, registration.take(), work).await;
            }
            let Some(list) = planned.phase(phase) else { continue };
            let condition = condition_of(phase);
            work.at = condition;
            if work.is_stopped() {
                work.found(condition, Progress::NotReached);
                continue;
            }
            let progress = match phase {
                Phase::Config | Phase::Exposure => {
                    progress_of(&self.apply_all(planned, list, Order::Together).await?)
                }
                Phase::Tasks | Phase::Finish => self.run_tasks(planned, list).await?,
                Phase::Workloads => self.start_workloads(planned, list, registration.as_ref(), work).await?,
                Phase::Children => self.make_children(planned, list, work).await?,
            };
            work.found(condition, progress);
        }
        Ok(())
    }

    async fn apply_all<'a>(
        &self,
        planned: &Planned<'_>,
        list: &'a [Manifest],
        order: Order,
    ) -> PortResult<Vec<Item<'a>>> {
        let mut items = Vec::new();
        for manifest in list {
            let applied = self.apply(&planned.key.namespace, manifest).await?;
            let item = item(manifest, applied);
            let is_met = item.progress.is_met();
            items.push(item);
            if order == Order::OneByOne && !is_met {
                break;
            }
        }
        Ok(items)
    }

    async fn run_tasks(&self, planned: &Planned<'_>, list: &[Manifest]) -> PortResult<Progress> {
        let items = self.apply_all(planned, list, Order::OneByOne).await?;
        self.explained(planned.key, progress_of(&items)).await
    }

    /// Starts workloads, says whether they serve, and directs the members of a group.
    async fn start_workloads(
        &self,
        planned: &Planned<'_>,
        list: &[Manifest],
        registration: Option<&Progress>,
        work: &mut Work,
    ) -> Result<Progress, Stop> {
        let mut items = Vec::new();
        for manifest in list {
            let applied = match self.held_back(planned, manifest, registration).await? {
                Some(waiting) => Applied::NotYet(waiting),
                None => self.apply(&planned.key.namespace, manifest).await?,
            };
            let mut item = item(manifest, applied);
            item.progress =
                self.without_lost_nodes(planned.plan, manifest, &item.live, item.progress).await?;
            items.push(item);
        }
        // Pods must not end before those that take their place may start.
        if items.iter().all(|item| !item.live.is_null()) {
            self.end_stray_pods(planned, work).await?;
        }
        let progress = self.explained(planned.key, progress_of(&items)).await?;
        work.findings.available =
            Some(items.iter().all(|item| assess::serves(item.manifest.kind, &item.live)));
        if planned.service.directs() {
            self.direct_members(planned, work).await?;
        }
        Ok(progress)
    }

    async fn direct_members(&self, planned: &Planned<'_>, work: &mut Work) -> Result<(), Stop> {
        work.at = ConditionType::MembersReady;
        let directed = self.direct(planned.key, planned.object, &work.status.memory).await?;
        if directed.memory != work.status.memory {
            work.status.memory = directed.memory;
            work.again = true;
        }
        work.found(ConditionType::MembersReady, directed.progress);
        Ok(())
    }

    /// Makes the objects that this one consists of, and says how each of them is.
    async fn make_children(
        &self,
        planned: &Planned<'_>,
        list: &[Manifest],
        work: &mut Work,
    ) -> PortResult<Progress> {
        let items = self.apply_all(planned, list, Order::Together).await?;
        let rows = items.iter().map(|item| row(planned.plan, item.manifest, &item.live, &item.progress));
        work.tell_services(planned.plan, rows.collect());
        Ok(progress_of(&items))
    }

    /// Adds to what is waited for why pods do not become ready.
    async fn explained(&self, key: &Key, mut progress: Progress) -> PortResult<Progress> {
        if let Progress::Waiting { message, .. } = &mut progress
            && let Some(trouble) = self.trouble(key).await?
        {
            *message = format!("{message} ({trouble})");
        }
        Ok(progress)
    }

    /// Tells the identity service of an object that is not the identity service itself.
    async fn register_early(&self, planned: &Planned<'_>, work: &Work) -> Option<Progress> {
        let catalog = planned.plan.catalog.as_ref()?;
        if planned.key.is(&catalog.provider) || work.is_stopped() {
            return None;
        }
        Some(attempted(self.ensure_catalog(&planned.key.namespace, catalog, planned.gathered).await))
    }

    /// Says what came of the registration. The identity service itself can be spoken to when there is a way in, and
    /// before a rollout is finished.
    async fn register(&self, planned: &Planned<'_>, early: Option<Progress>, work: &mut Work) {
        let Some(catalog) = &planned.plan.catalog else { return };
        let progress = match early {
            Some(progress) => progress,
            None if work.is_stopped() => Progress::NotReached,
            None => attempted(self.ensure_catalog(&planned.key.namespace, catalog, planned.gathered).await),
        };
        work.found(ConditionType::Registered, progress);
    }

    /// Why a workload is not started for the first time: it waits for other objects, or its user is not registered, and
    /// programs that start without theirs would not try again for long. What runs is changed whatever else is down.
    async fn held_back(
        &self,
        planned: &Planned<'_>,
        manifest: &Manifest,
        registration: Option<&Progress>,
    ) -> PortResult<Option<Progress>> {
        if !CONTROLLERS.contains(&manifest.kind) {
            return Ok(None);
        }
        let after = manifest.workload(planned.plan).into_iter().flat_map(|workload| &workload.after);
        let unready = after.into_iter().find(|reference| planned.gathered.unready.contains(reference));
        let reason = match (unready, registration) {
            (Some(unready), _) => format!("{} {}", unready.kind, unready.name),
            (None, Some(progress)) if *progress != Progress::Done => "its user".to_owned(),
            _ => return Ok(None),
        };
        let live = self.ports.cluster.get(manifest.kind, &planned.key.namespace, &manifest.name).await?;
        let (kind, name) = (manifest.kind.kind, &manifest.name);
        Ok(live.is_none().then(|| Progress::waiting(format!("{kind} {name} waits for {reason}"))))
    }
}

fn item(manifest: &Manifest, applied: Applied) -> Item<'_> {
    match applied {
        Applied::NotYet(progress) => Item { manifest, live: Value::Null, progress },
        Applied::Live(live) => {
            let live = whole(&live);
            let progress = assess::assess(manifest.kind, &manifest.name, &live);
            Item { manifest, live, progress }
        }
    }
}

fn condition_of(phase: Phase) -> ConditionType {
    match phase {
        Phase::Config => ConditionType::ConfigReady,
        Phase::Tasks => ConditionType::TasksComplete,
        Phase::Workloads => ConditionType::WorkloadsReady,
        Phase::Exposure => ConditionType::Exposed,
        Phase::Finish => ConditionType::Finished,
        Phase::Children => ConditionType::ServicesReady,
    }
}
