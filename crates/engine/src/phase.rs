//! Applies the manifests of an object phase by phase, and stops at the first phase that is not done.

use kube::core::DynamicObject;
use openstack_operator_model::assess;
use openstack_operator_model::common::Reference;
use openstack_operator_model::condition::{ConditionType, Progress};
use openstack_operator_model::kind::{CONTROLLERS, JOB};
use openstack_operator_model::lower::{Manifest, Manifests, PHASES, Phase};
use openstack_operator_model::plan::Plan;
use openstack_operator_model::service::{AnyObject, AnyService};
use serde_json::Value;

use crate::apply::{Applied, is_same_task, to_json};
use crate::engine::{Engine, Key, Stop};
use crate::gather::Gathered;
use crate::ports::PortResult;
use crate::registration::Registration;
use crate::work::{Work, service_row};

/// An object with its plan and manifests.
pub(crate) struct Planned<'a> {
    pub(crate) key: &'a Key,
    pub(crate) service: &'static dyn AnyService,
    pub(crate) object: &'a dyn AnyObject,
    pub(crate) plan: &'a Plan,
    pub(crate) gathered: &'a Gathered,
    pub(crate) manifests: &'a Manifests,
}

impl Planned<'_> {
    /// Manifests of a phase; none if the object does not have the phase.
    fn phase(&self, phase: Phase) -> Option<&[Manifest]> {
        match self.manifests.get(&phase) {
            Some(list) => Some(list),
            // An object with tasks keeps the phase and its condition while no task is due.
            None if matches!(phase, Phase::Tasks | Phase::Finish) && !self.plan.tasks.is_empty() => Some(&[]),
            None => None,
        }
    }
}

/// A manifest, the live object, and its progress.
struct Item<'a> {
    manifest: &'a Manifest,
    /// Null if the cluster does not have it as specified.
    live: Value,
    progress: Progress,
}

fn combined_progress(items: &[Item<'_>]) -> Progress {
    items.iter().fold(Progress::Done, |progress, item| progress.and(item.progress.clone()))
}

impl Engine {
    /// Applies phase by phase; phases after the first unfinished one are reported as not reached. The tasks after the
    /// rollout need neither the route nor the catalog, and neither of these waits for them.
    pub(crate) async fn phases(&self, planned: &Planned<'_>, work: &mut Work) -> Result<(), Stop> {
        let mut registration = self.register_before_start(planned, work).await;
        let mut finished = None;
        for phase in PHASES {
            if phase == Phase::Children {
                self.register(planned, registration.take(), work).await;
                if let Some(progress) = finished.take() {
                    work.record(ConditionType::Finished, progress);
                }
            }
            let Some(list) = planned.phase(phase) else { continue };
            let condition = condition_of(phase);
            work.current = condition;
            let progress = match phase {
                _ if work.is_stopped() => Progress::NotReached,
                Phase::Config | Phase::Exposure => combined_progress(&self.apply_all(planned, list).await?),
                Phase::Tasks | Phase::Finish => self.run_tasks(planned, list).await?,
                Phase::Workloads => self.start_workloads(planned, list, registration.as_ref(), work).await?,
                Phase::Children => self.create_children(planned, list, work).await?,
            };
            if phase == Phase::Finish {
                finished = Some(progress);
            } else {
                work.record(condition, progress);
            }
        }
        Ok(())
    }

    /// Applies all manifests, regardless of each other's progress.
    async fn apply_all<'a>(&self, planned: &Planned<'_>, list: &'a [Manifest]) -> PortResult<Vec<Item<'a>>> {
        let mut items = Vec::new();
        for manifest in list {
            items.push(item(manifest, self.apply(&planned.key.namespace, manifest).await?));
        }
        Ok(items)
    }

    /// Runs each task after its predecessor is done.
    async fn run_tasks(&self, planned: &Planned<'_>, list: &[Manifest]) -> PortResult<Progress> {
        let mut progress = Progress::Done;
        for manifest in list {
            let applied = match self.task_blocker(planned, manifest).await? {
                Some(waiting) => Applied::NotYet(waiting),
                None => self.apply(&planned.key.namespace, manifest).await?,
            };
            progress = progress.and(item(manifest, applied).progress);
            if !progress.is_met() {
                break;
            }
        }
        self.with_pod_problem(planned.key, progress).await
    }

    /// Why a task must not start yet: an object that it waits for is not Ready. A task that has started continues.
    async fn task_blocker(&self, planned: &Planned<'_>, manifest: &Manifest) -> PortResult<Option<Progress>> {
        let after = manifest.task(planned.plan).map_or(&[][..], |task| task.after.as_slice());
        let Some(Reference { kind, name }) =
            after.iter().find(|reference| planned.gathered.unready.contains(reference))
        else {
            return Ok(None);
        };
        let live = self.ports.cluster.get(JOB, &planned.key.namespace, &manifest.name).await?;
        let has_started = live.is_some_and(|live| is_same_task(&to_json(&live), &manifest.body));
        let message = format!("Job {} waits for {kind} {name}", manifest.name);
        Ok((!has_started).then(|| Progress::waiting(message)))
    }

    /// Applies workloads, reports whether they serve, and directs the members of a clustered service.
    async fn start_workloads(
        &self,
        planned: &Planned<'_>,
        list: &[Manifest],
        registration: Option<&Registration>,
        work: &mut Work,
    ) -> Result<Progress, Stop> {
        let mut items = Vec::new();
        for manifest in list {
            let applied = match self.start_blocker(planned, manifest, registration).await? {
                Some(waiting) => Applied::NotYet(waiting),
                None => self.apply(&planned.key.namespace, manifest).await?,
            };
            let mut item = item(manifest, applied);
            item.progress = self.without_lost_nodes(planned, manifest, &item.live, item.progress).await?;
            items.push(item);
        }
        // Delete pods only after the workloads that replace them exist.
        if items.iter().all(|item| !item.live.is_null()) {
            self.delete_stray_pods(planned, work).await?;
        }
        work.findings.remarks.extend(self.shared_nodes(planned).await?);
        let failed =
            |item: &Item<'_>| assess::failed_schedule(item.manifest.kind, &item.manifest.name, &item.live);
        work.findings.remarks.extend(items.iter().filter_map(failed));
        let progress = self.with_pod_problem(planned.key, combined_progress(&items)).await?;
        let serves = items.iter().all(|item| assess::serves(item.manifest.kind, &item.live));
        // A member that joins a cluster copies the data of another one, and misses changes of schemas meanwhile. The first
        // users, which install their schemas, therefore wait for all members.
        let is_complete = work.status.served || combined_progress(&items).is_met();
        work.findings.available = Some(serves && (is_complete || !planned.service.directs()));
        if planned.service.directs() {
            self.direct_members(planned, work).await?;
        }
        Ok(progress)
    }

    async fn direct_members(&self, planned: &Planned<'_>, work: &mut Work) -> Result<(), Stop> {
        work.current = ConditionType::MembersReady;
        let directed = self.direct(planned, &work.status.memory).await?;
        work.findings.remarks.extend(directed.remarks);
        work.recheck_within(directed.poll);
        if directed.memory != work.status.memory {
            work.status.memory = directed.memory;
            work.requeue_now = true;
        }
        work.record(ConditionType::MembersReady, directed.progress);
        Ok(())
    }

    /// Applies the objects that this one consists of, and reports the state of each.
    async fn create_children(
        &self,
        planned: &Planned<'_>,
        list: &[Manifest],
        work: &mut Work,
    ) -> PortResult<Progress> {
        let items = self.apply_all(planned, list).await?;
        let rows =
            items.iter().map(|item| service_row(planned.plan, item.manifest, &item.live, &item.progress));
        work.report_services(planned.plan, rows.collect());
        let progress = combined_progress(&items);
        // All children may be Ready between two waves.
        Ok(planned.plan.upgrade.as_ref().map_or(progress.clone(), |upgrade| {
            let release = upgrade.to.number();
            progress.and(Progress::waiting(format!("services still change to release {release}")))
        }))
    }

    /// Appends the reason why pods are not ready.
    async fn with_pod_problem(&self, key: &Key, mut progress: Progress) -> PortResult<Progress> {
        if let Progress::Waiting { message, .. } = &mut progress
            && let Some(problem) = self.pod_problem(key).await?
        {
            *message = format!("{message} ({problem})");
        }
        Ok(progress)
    }

    /// Why a workload must not start for the first time: it cannot use an object that it depends on, or its user is not
    /// registered yet. A worker that starts without its user retries only after minutes; an API uses it with the first
    /// request, which comes after the registration. Running workloads are always updated.
    async fn start_blocker(
        &self,
        planned: &Planned<'_>,
        manifest: &Manifest,
        registration: Option<&Registration>,
    ) -> PortResult<Option<Progress>> {
        if !CONTROLLERS.contains(&manifest.kind) {
            return Ok(None);
        }
        let Some(workload) = manifest.workload(planned.plan) else { return Ok(None) };
        let unusable = workload.after.iter().find(|reference| planned.gathered.unusable.contains(reference));
        let is_worker = workload.services.is_empty();
        let reason = match (unusable, registration) {
            (Some(unusable), _) => format!("{} {}", unusable.kind, unusable.name),
            (None, Some(registration)) if is_worker && registration.progress != Progress::Done => {
                "the registration of its service user".to_owned()
            }
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
        Applied::Live(live) => live_item(manifest, &live, Progress::Done),
        Applied::Limited(live, progress) => live_item(manifest, &live, progress),
    }
}

fn live_item<'a>(manifest: &'a Manifest, live: &DynamicObject, progress: Progress) -> Item<'a> {
    let live = to_json(live);
    let progress = assess::assess(manifest.kind, &manifest.name, &live).and(progress);
    Item { manifest, live, progress }
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
