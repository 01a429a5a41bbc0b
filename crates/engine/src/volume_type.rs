//! Types of volumes in the block storage API of an object.

use openstack_operator_model::condition::{ConditionType, Progress};
use openstack_operator_model::plan::VolumeTypes;

use crate::engine::Engine;
use crate::phase::Planned;
use crate::ports::{PortResult, RefusedChange, VolumeTypesServer};
use crate::reconcile::progress_or_failure;
use crate::work::Work;

impl Engine {
    /// Compares the types with the plan, once the API serves. Every reconcile does, so that drift is corrected.
    pub(crate) async fn check_volume_types(&self, planned: &Planned<'_>, work: &mut Work) {
        let Some(wanted) = &planned.plan.volume_types else { return };
        let progress = if work.is_stopped() {
            Progress::NotReached
        } else {
            progress_or_failure(self.ensure_volume_types(wanted, work).await)
        };
        work.record(ConditionType::VolumeTypesReady, progress);
    }

    /// The API refuses to change or to delete a type that volumes use. That does not affect other types, so it is a remark.
    async fn ensure_volume_types(&self, wanted: &VolumeTypes, work: &mut Work) -> PortResult<Progress> {
        let Some(identity) = self.identity_login(&work.key.namespace, &wanted.identity).await? else {
            return Ok(Progress::waiting(
                "the Secret of the cloud administrator does not exist yet or is incomplete",
            ));
        };
        let server = VolumeTypesServer { url: wanted.url.clone(), identity };
        let outcome = self.ports.block_storage.ensure_types(&server, &wanted.types).await?;
        if outcome.wrote {
            tracing::info!("updated the volume types");
        }
        let remark = |refused: RefusedChange| {
            let RefusedChange { name, change, reason } = refused;
            format!("volume type {name} cannot be {change}: {reason}")
        };
        work.findings.remarks.extend(outcome.refused.into_iter().map(remark));
        Ok(Progress::Done)
    }
}
