//! Schedules as CronJobs.

use k8s_openapi::api::batch::v1::{CronJobSpec, JobSpec, JobTemplateSpec};

use super::{Lowering, Manifest, manifest, task, value};
use crate::kind::CRON_JOB;
use crate::name;
use crate::plan::Schedule;

/// Maximum length of the name of a CronJob: Kubernetes appends the time of a run.
const LONGEST_NAME: usize = 52;
/// Retries of a run. The next run follows anyway.
const TRIES: i32 = 2;
/// How late a run may start. Without a limit, a CronJob that missed 100 runs never starts again.
const STARTING_DEADLINE_SECONDS: i64 = 600;

pub(super) fn manifests(lowering: &Lowering<'_>) -> Vec<Manifest> {
    lowering.plan.schedules.iter().map(|schedule| cron_job(lowering, schedule)).collect()
}

fn cron_job(lowering: &Lowering<'_>, schedule: &Schedule) -> Manifest {
    let component = format!("{}{}", super::SCHEDULE_COMPONENT, schedule.name);
    let job = JobSpec {
        backoff_limit: Some(TRIES),
        active_deadline_seconds: Some(schedule.deadline_seconds),
        template: task::template(lowering, &component, schedule.user, &schedule.container),
        ..JobSpec::default()
    };
    let spec = CronJobSpec {
        schedule: schedule.cron.as_str().to_owned(),
        time_zone: Some("Etc/UTC".to_owned()),
        concurrency_policy: Some("Forbid".to_owned()),
        starting_deadline_seconds: Some(STARTING_DEADLINE_SECONDS),
        // The last failure stays for its log.
        successful_jobs_history_limit: Some(1),
        failed_jobs_history_limit: Some(1),
        job_template: JobTemplateSpec { metadata: None, spec: Some(job) },
        ..CronJobSpec::default()
    };
    let instance = lowering.instance;
    let name = name::shorten(&format!("{}-{}", instance.name, schedule.name), LONGEST_NAME);
    let metadata = instance.metadata(&name, Some(&component));
    manifest(CRON_JOB, &name, &metadata, [("spec", value(&spec))])
}
