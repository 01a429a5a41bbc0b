//! Tasks as Jobs with stable names and a hash of their definition.

use std::collections::BTreeMap;
use std::fmt::Write;

use k8s_openapi::api::batch::v1::JobSpec;
use k8s_openapi::api::core::v1::PodTemplateSpec;

use super::{Lowering, Manifest, Observed, Source, TASK_ANNOTATION, manifest, pod, value};
use crate::kind::JOB;
use crate::name;
use crate::plan::{Container, Plan, Pod, REMOVED_PODS, Task, TaskInput, TaskStage, Variable, VariableValue};

/// Retries of a task before it fails: about half an hour with the kubelet's backoff.
const TRIES: i32 = 10;

/// Image whose database schema the plan requires, if any.
pub fn wanted_install(tasks: &[Task]) -> Option<&str> {
    tasks.iter().find(|task| task.stage == TaskStage::Install).map(|task| task.container.image.as_str())
}

/// Name of the Job of an object's task.
pub fn job_name(object: &str, task: &Task) -> String {
    name::part(object, task.name)
}

/// A Job and the task that it must have run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRun {
    pub job: String,
    /// Value of its `TASK_ANNOTATION`.
    pub key: String,
}

/// The run of the task that follows this rotation of a key ring. None if the ring was never rotated, or if no task
/// follows its rotations.
pub fn after_rotation(
    object: &str,
    plan: &Plan,
    observed: &Observed,
    ring: &str,
    rotations: u32,
) -> Option<TaskRun> {
    let follows = |task: &&Task| matches!(&task.stage, TaskStage::Rotate { ring: known } if known == ring);
    let task = plan.tasks.iter().find(follows).filter(|_| rotations > 0)?;
    Some(TaskRun { job: job_name(object, task), key: key(plan, observed, task, rotations) })
}

/// Jobs before, beside and after the workloads.
pub(super) fn manifests(lowering: &Lowering<'_>) -> (Vec<Manifest>, Vec<Manifest>, Vec<Manifest>) {
    let installed = lowering.observed.installed.as_deref();
    let wanted = wanted_install(&lowering.plan.tasks);
    let upgrading = installed.is_some() && installed != wanted;
    let (mut before, mut beside, mut after) = (Vec::new(), Vec::new(), Vec::new());
    for (index, task) in lowering.plan.tasks.iter().enumerate() {
        let job = |rotations| job(lowering, task, rotations).with_source(Source::Task(index));
        match &task.stage {
            TaskStage::Install if installed.is_none() => before.push(job(0)),
            TaskStage::Expand | TaskStage::Migrate if upgrading => before.push(job(0)),
            TaskStage::Contract if upgrading => after.push(job(0)),
            TaskStage::Bootstrap => beside.push(job(0)),
            TaskStage::Configure => after.push(job(0)),
            TaskStage::Rotate { ring } => {
                let rotations = lowering.observed.secrets.get(ring).map_or(0, |facts| facts.rotations);
                if rotations > 0 {
                    after.push(job(rotations));
                }
            }
            TaskStage::ScaleDown { component } => {
                let removed = lowering.observed.removed_pods.get(*component);
                if let Some(pods) = removed.filter(|pods| !pods.is_empty()) {
                    let task = with_variable(task, Variable::text(REMOVED_PODS, pods.join(" ")));
                    after.push(self::job(lowering, &task, 0).with_source(Source::Task(index)));
                }
            }
            TaskStage::Install | TaskStage::Expand | TaskStage::Migrate | TaskStage::Contract => {}
        }
    }
    (before, beside, after)
}

fn with_variable(task: &Task, variable: Variable) -> Task {
    let mut task = task.clone();
    task.container.environment.push(variable);
    task
}

/// Numbers of pods of the components whose removed pods leave records.
pub fn recorded_scale(plan: &Plan) -> BTreeMap<String, i32> {
    let components = plan.tasks.iter().filter_map(|task| match task.stage {
        TaskStage::ScaleDown { component } => Some(component),
        _ => None,
    });
    let replicas = |component: &str| {
        let workload = plan.workloads.iter().find(|workload| workload.component == component)?;
        Some((component.to_owned(), workload.replicas))
    };
    components.filter_map(replicas).collect()
}

/// Pods by component that the object had at an earlier scale and no longer has by its plan.
pub fn surplus_pods(
    object: &str,
    plan: &Plan,
    earlier: &BTreeMap<String, i32>,
) -> BTreeMap<String, Vec<String>> {
    let mut surplus = BTreeMap::new();
    for (component, wanted) in recorded_scale(plan) {
        let known = earlier.get(&component).copied().unwrap_or_default();
        let Some(workload) = plan.workloads.iter().find(|workload| workload.component == component) else {
            continue;
        };
        let set = name::optional_part(object, workload.suffix.as_deref());
        let pods: Vec<String> = (wanted..known).map(|ordinal| format!("{set}-{ordinal}")).collect();
        if !pods.is_empty() {
            surplus.insert(component, pods);
        }
    }
    surplus
}

/// The pod of a command that runs to completion, with the scheduling of the first workload.
pub(super) fn template(
    lowering: &Lowering<'_>,
    component: &str,
    user: i64,
    container: &Container,
) -> PodTemplateSpec {
    let first = lowering.plan.workloads.first();
    let scheduling = first.map(|workload| workload.pod.scheduling.clone()).unwrap_or_default();
    let pod = Pod::new(user, &scheduling, vec![container.clone()]);
    let mut template = pod::template(lowering, component, &pod);
    if let Some(spec) = &mut template.spec {
        // Restart in place, so that the log of a failure stays with the pod.
        spec.restart_policy = Some("OnFailure".to_owned());
        spec.topology_spread_constraints = None;
    }
    template
}

fn job(lowering: &Lowering<'_>, task: &Task, rotations: u32) -> Manifest {
    let component = format!("task-{}", task.name);
    let template = template(lowering, &component, task.user, &task.container);
    let spec = JobSpec { backoff_limit: Some(TRIES), template, ..JobSpec::default() };
    let name = job_name(&lowering.instance.name, task);
    let mut metadata = lowering.instance.metadata(&name, Some(&component));
    let key = key(lowering.plan, lowering.observed, task, rotations);
    metadata.annotations = Some(BTreeMap::from([(TASK_ANNOTATION.to_owned(), key)]));
    manifest(JOB, &name, &metadata, [("spec", value(&spec))])
}

/// Hash that identifies a task: image, command, plain environment and inputs. Other configuration files are excluded,
/// because database schemas do not depend on them.
fn key(plan: &Plan, observed: &Observed, task: &Task, rotations: u32) -> String {
    let container = &task.container;
    let mut text = format!("{}\n{:?}\n{rotations}\n", container.image, container.command);
    for variable in &container.environment {
        if let VariableValue::Text(value) = &variable.value {
            let _ = writeln!(text, "{}={value}", variable.name);
        }
    }
    for input in &task.repeat_on {
        let (name, revision) = match input {
            TaskInput::Secret(secret) => (
                secret,
                observed.secrets.get(secret).map_or_else(String::new, |facts| facts.revision.clone()),
            ),
            TaskInput::File(file) => {
                (file, plan.files.get(file).map_or_else(String::new, |file| name::hash(file.bytes())))
            }
        };
        let _ = writeln!(text, "{name}={revision}");
    }
    name::hash(text)
}
