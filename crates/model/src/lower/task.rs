//! Tasks as Jobs with stable names and a hash of their definition.

use std::collections::BTreeMap;
use std::fmt::Write;

use k8s_openapi::api::batch::v1::JobSpec;
use k8s_openapi::api::core::v1::PodTemplateSpec;

use super::{Lowering, Manifest, Observed, Source, TASK_ANNOTATION, manifest, pod, schedule, value};
use crate::kind::JOB;
use crate::name;
use crate::plan::{
    Container, Plan, Pod, REMOVED_COMPONENTS, REMOVED_PODS, Task, TaskInput, TaskStage, Variable,
    VariableValue,
};

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
            TaskStage::ScaleDown { .. } => {
                if let Some(task) = with_removed(task, &lowering.observed.removed) {
                    after.push(self::job(lowering, &task, 0).with_source(Source::Task(index)));
                }
            }
            TaskStage::Deletion => beside.push(schedule::on_deletion(lowering, task)),
            TaskStage::Install | TaskStage::Expand | TaskStage::Migrate | TaskStage::Contract => {}
        }
    }
    (before, beside, after)
}

/// The task with the names of removed pods and components, if it removes records of some of them.
fn with_removed(task: &Task, removed: &BTreeMap<String, Removed>) -> Option<Task> {
    let removed = removed.iter().filter(|(component, _)| task.stage.removes_records_of(component));
    let (mut pods, mut components): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for (component, Removed { pods: gone, extent }) in removed {
        pods.extend(gone.iter().map(String::as_str));
        components.extend((*extent == Extent::Component).then_some(component.as_str()));
    }
    if pods.is_empty() {
        return None;
    }
    let mut task = task.clone();
    task.container.environment.push(Variable::text(REMOVED_PODS, pods.join(" ")));
    task.container.environment.push(Variable::text(REMOVED_COMPONENTS, components.join(" ")));
    Some(task)
}

/// What an object has no longer and whose records may remain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Names of the pods.
    pub pods: Vec<String>,
    pub extent: Extent,
}

/// How much of a component is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    Pods,
    Component,
}

/// Whether the records of a component are removed when its pods are.
pub fn has_records(plan: &Plan, component: &str) -> bool {
    plan.tasks.iter().any(|task| task.stage.removes_records_of(component))
}

/// Numbers of pods of the components whose removed pods leave records.
pub fn recorded_scale(plan: &Plan) -> BTreeMap<String, i32> {
    let recorded = plan.workloads.iter().filter(|workload| has_records(plan, &workload.component));
    recorded.map(|workload| (workload.component.clone().into_owned(), workload.replicas)).collect()
}

/// Pods by component that the object had at an earlier scale and no longer has by its plan.
pub fn surplus_pods(object: &str, plan: &Plan, earlier: &BTreeMap<String, i32>) -> BTreeMap<String, Removed> {
    let mut surplus = BTreeMap::new();
    for (component, known) in earlier.iter().filter(|(component, _)| has_records(plan, component)) {
        let workload = plan.workloads.iter().find(|workload| workload.component == *component);
        // The name of a workload that is gone had the component as suffix.
        let suffix = workload.map_or(Some(component.as_str()), |workload| workload.suffix.as_deref());
        let set = name::set(object, suffix);
        let wanted = workload.map_or(0, |workload| workload.replicas);
        let pods: Vec<String> = (wanted..*known).map(|ordinal| format!("{set}-{ordinal}")).collect();
        let extent = if workload.is_some() { Extent::Pods } else { Extent::Component };
        if !pods.is_empty() {
            surplus.insert(component.clone(), Removed { pods, extent });
        }
    }
    surplus
}

/// The pod of a command that runs to completion, with the scheduling of the first workload, if there is one.
pub(super) fn template(
    lowering: &Lowering<'_>,
    component: &str,
    user: i64,
    container: &Container,
) -> PodTemplateSpec {
    let first = lowering.plan.workloads.first();
    let scheduling = first.map_or(&lowering.plan.task_scheduling, |workload| &workload.pod.scheduling);
    let pod = Pod::new(user, scheduling, vec![container.clone()]);
    let mut template = pod::template(lowering, component, &pod);
    if let Some(spec) = &mut template.spec {
        // Restart in place, so that the log of a failure stays with the pod.
        spec.restart_policy = Some("OnFailure".to_owned());
        spec.topology_spread_constraints = None;
    }
    template
}

/// Component of the pods of a task.
pub(super) fn component(task: &Task) -> String {
    format!("task-{}", task.name)
}

pub(super) fn job_spec(lowering: &Lowering<'_>, task: &Task) -> JobSpec {
    let template = template(lowering, &component(task), task.user, &task.container);
    JobSpec { backoff_limit: Some(TRIES), template, ..JobSpec::default() }
}

fn job(lowering: &Lowering<'_>, task: &Task, rotations: u32) -> Manifest {
    let component = component(task);
    let spec = job_spec(lowering, task);
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
