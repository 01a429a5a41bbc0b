//! Schedules, and tasks that run on deletion, as CronJobs.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::{CronJobSpec, JobSpec, JobTemplateSpec};
use serde_json::{Map, Value};

use super::{Lowering, Manifest, ON_DELETION_ANNOTATION, Source, manifest, task, value};
use crate::kind::{CRON_JOB, JOB};
use crate::name;
use crate::plan::{Schedule, Task};

/// Maximum length of the name of a CronJob: Kubernetes appends the time of a run.
const LONGEST_NAME: usize = 52;
/// Retries of a run. The next run follows anyway.
const TRIES: i32 = 2;
/// How late a run may start. Without a limit, a CronJob that missed 100 runs never starts again.
const STARTING_DEADLINE_SECONDS: i64 = 600;
/// A CronJob requires a schedule, even if it is suspended.
const UNUSED_SCHEDULE: &str = "0 0 1 1 *";

pub(super) fn manifests(lowering: &Lowering<'_>) -> Vec<Manifest> {
    lowering.plan.schedules.iter().map(|schedule| scheduled(lowering, schedule)).collect()
}

fn scheduled(lowering: &Lowering<'_>, schedule: &Schedule) -> Manifest {
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
    cron_job(lowering, schedule.name, &component, BTreeMap::new(), &spec)
}

/// A suspended CronJob with the Job of a task that runs on deletion.
pub(super) fn on_deletion(lowering: &Lowering<'_>, task: &Task) -> Manifest {
    let component = task::component(task);
    let spec = CronJobSpec {
        schedule: UNUSED_SCHEDULE.to_owned(),
        suspend: Some(true),
        job_template: JobTemplateSpec { metadata: None, spec: Some(task::job_spec(lowering, task)) },
        ..CronJobSpec::default()
    };
    let annotations = BTreeMap::from([(ON_DELETION_ANNOTATION.to_owned(), "true".to_owned())]);
    cron_job(lowering, task.name, &component, annotations, &spec)
}

fn cron_job(
    lowering: &Lowering<'_>,
    suffix: &str,
    component: &str,
    annotations: BTreeMap<String, String>,
    spec: &CronJobSpec,
) -> Manifest {
    let instance = lowering.instance;
    let name = name::shorten(&format!("{}-{suffix}", instance.name), LONGEST_NAME);
    let mut metadata = instance.metadata(&name, Some(component));
    metadata.annotations = (!annotations.is_empty()).then_some(annotations);
    manifest(CRON_JOB, &name, &metadata, [("spec", value(spec))])
}

/// The Job of a live CronJob that runs when its object is deleted.
pub fn deletion_job(cron_job: &Value) -> Option<Manifest> {
    let metadata = cron_job.get("metadata")?;
    metadata.get("annotations")?.get(ON_DELETION_ANNOTATION)?;
    let name = metadata.get("name")?.as_str()?.to_owned();
    let kept = ["name", "namespace", "labels", "ownerReferences"];
    let kept = kept.iter().filter_map(|field| Some(((*field).to_owned(), metadata.get(*field)?.clone())));
    let body = Map::from_iter([
        ("apiVersion".to_owned(), Value::String(JOB.api_version())),
        ("kind".to_owned(), Value::String(JOB.kind.to_owned())),
        ("metadata".to_owned(), Value::Object(kept.collect())),
        ("spec".to_owned(), without_nulls(cron_job.pointer("/spec/jobTemplate/spec")?)),
    ]);
    Some(Manifest { kind: JOB, name, body: Value::Object(body), source: Source::Other })
}

/// The API server returns fields that are not set as null, and does not accept them in an apply.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let set = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(set.map(|(field, value)| (field.clone(), without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_cron_job_for_the_deletion_has_a_job_that_runs_then() {
        let mut cron_job = json!({
            "metadata": { "name": "x-remove", "namespace": "n", "uid": "1", "labels": { "a": "b" },
                          "annotations": { ON_DELETION_ANNOTATION: "true" } },
            "spec": { "suspend": true, "jobTemplate": {
                "spec": { "template": { "metadata": { "creationTimestamp": null }, "spec": {} } } } },
        });
        let job = deletion_job(&cron_job).unwrap();
        assert_eq!((job.kind, job.name.as_str()), (JOB, "x-remove"));
        assert_eq!(
            job.body["metadata"],
            json!({ "name": "x-remove", "namespace": "n", "labels": { "a": "b" } })
        );
        assert_eq!(job.body["spec"], json!({ "template": { "metadata": {}, "spec": {} } }));
        cron_job["metadata"]["annotations"] = json!({});
        assert_eq!(deletion_job(&cron_job), None);
    }
}
