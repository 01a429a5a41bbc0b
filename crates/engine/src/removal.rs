//! Removal: runs the tasks of an object that is being deleted, which its last plan left in suspended CronJobs.

use openstack_operator_model::common::Reference;
use openstack_operator_model::condition::Progress;
use openstack_operator_model::kind::{CRON_JOB, JOB};
use openstack_operator_model::{assess, lower};

use crate::apply::{Applied, to_json};
use crate::engine::{Engine, Key};
use crate::ports::PortResult;

impl Engine {
    /// Runs the tasks, and returns the Jobs that are not complete. They cannot run in a namespace that is being deleted.
    pub(crate) async fn run_deletion_tasks(&self, key: &Key, uid: &str) -> PortResult<Vec<Reference>> {
        let mut unfinished = Vec::new();
        for child in self.ports.cluster.children(&key.namespace, uid).await? {
            if child.kind != CRON_JOB {
                continue;
            }
            let live = self.ports.cluster.get(CRON_JOB, &key.namespace, &child.name).await?;
            let Some(job) = live.and_then(|live| lower::deletion_job(&to_json(&live))) else { continue };
            let progress = match self.apply(&key.namespace, &job).await {
                Ok(Applied::Live(live) | Applied::Limited(live, _)) => {
                    assess::assess(JOB, &job.name, &to_json(&live))
                }
                Ok(Applied::NotYet(progress)) => progress,
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        job = job.name,
                        "failed to run a task"
                    );
                    Progress::waiting(String::new())
                }
            };
            if !progress.is_met() {
                unfinished.push(Reference::new(JOB, job.name));
            }
        }
        Ok(unfinished)
    }
}
