//! Lowering: from a plan to manifests. It cannot fail; planning rejects everything that could.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Serialize;
use serde_json::Value;

use crate::kind::Kind;
use crate::name;
use crate::plan::{Child, Plan, Task, Workload};

mod addition;
mod config;
mod expose;
mod pod;
mod schedule;
pub mod task;
mod volume;
mod workload;

pub const MANAGER: &str = "openstack-operator";
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
const NAME_LABEL: &str = "app.kubernetes.io/name";
pub const INSTANCE_LABEL: &str = "app.kubernetes.io/instance";
pub const COMPONENT_LABEL: &str = "app.kubernetes.io/component";
/// Prefix of the component of pods that run on a schedule.
pub const SCHEDULE_COMPONENT: &str = "schedule-";
/// Kind of the object that a pod belongs to. The owner of a pod is a workload, which does not name it.
pub const KIND_LABEL: &str = "openstack.k8s.io/kind";
/// Hash of everything that defines a task. Another value is another task.
pub const TASK_ANNOTATION: &str = "openstack.k8s.io/task";
/// Hash of the values of the Secrets that pods read at start.
pub const SECRETS_ANNOTATION: &str = "openstack.k8s.io/secrets";
/// Hash of the fields that the operator last applied. Another value means that the operator dropped or added fields.
pub const APPLIED_ANNOTATION: &str = "openstack.k8s.io/applied";
/// Number of rotations of the keys of a Secret.
pub const ROTATIONS_ANNOTATION: &str = "openstack.k8s.io/rotations";

/// The object whose plan is lowered.
#[derive(Clone, Debug)]
pub struct Instance {
    pub kind: Kind,
    /// Name of the service.
    pub service: &'static str,
    pub name: String,
    pub namespace: String,
    /// Empty if the object is not in a cluster.
    pub uid: String,
}

/// Observed state that lowering depends on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Image whose database schema is installed.
    pub installed: Option<String>,
    pub secrets: BTreeMap<String, SecretFacts>,
    /// Pods that a scale-down has removed and whose records remain, by component.
    pub removed_pods: BTreeMap<String, Vec<String>>,
}

/// Facts about a Secret without its values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretFacts {
    /// Changes with the values.
    pub revision: String,
    /// Number of rotations of its keys.
    pub rotations: u32,
}

/// An object to apply.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    pub kind: Kind,
    pub name: String,
    pub body: Value,
    pub source: Source,
}

/// The part of a plan that a manifest comes from, by its index in the plan's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// One of `Plan::workloads`: its controller, its Services and its disruption budget.
    Workload(usize),
    /// One of `Plan::tasks`.
    Task(usize),
    /// One of `Plan::children`.
    Child(usize),
    /// Any other part.
    Other,
}

impl Manifest {
    /// The workload of a plan that the manifest comes from.
    pub fn workload<'a>(&self, plan: &'a Plan) -> Option<&'a Workload> {
        match self.source {
            Source::Workload(index) => plan.workloads.get(index),
            Source::Task(_) | Source::Child(_) | Source::Other => None,
        }
    }

    /// The task of a plan that the manifest comes from.
    pub fn task<'a>(&self, plan: &'a Plan) -> Option<&'a Task> {
        match self.source {
            Source::Task(index) => plan.tasks.get(index),
            Source::Workload(_) | Source::Child(_) | Source::Other => None,
        }
    }

    /// The child of a plan that the manifest comes from.
    pub fn child<'a>(&self, plan: &'a Plan) -> Option<&'a Child> {
        match self.source {
            Source::Child(index) => plan.children.get(index),
            Source::Workload(_) | Source::Task(_) | Source::Other => None,
        }
    }

    #[must_use]
    fn with_source(self, source: Source) -> Self {
        Self { source, ..self }
    }
}

/// Steps in which manifests are applied. Each starts when the previous ones are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Config,
    /// One after the other.
    Tasks,
    Workloads,
    /// After the rollout, one after the other. The following phases do not wait for it.
    Finish,
    Exposure,
    Children,
}

pub const PHASES: [Phase; 6] =
    [Phase::Config, Phase::Tasks, Phase::Workloads, Phase::Finish, Phase::Exposure, Phase::Children];

/// Every manifest of an object.
pub type Manifests = BTreeMap<Phase, Vec<Manifest>>;

/// Turns a plan into manifests.
pub fn lower(instance: &Instance, plan: &Plan, observed: &Observed) -> Manifests {
    let mut manifests = Manifests::new();
    let files = config::files(instance, plan);
    let lowering = Lowering { instance, plan, observed, files: &files };
    let mut config = config::manifests(&lowering);
    config.extend(volume::manifests(&lowering));
    manifests.insert(Phase::Config, config);
    let (before, beside, after) = task::manifests(&lowering);
    manifests.insert(Phase::Tasks, before);
    let mut workloads: Vec<Manifest> = plan
        .workloads
        .iter()
        .enumerate()
        .flat_map(|(index, workload)| {
            let manifests = workload::manifests(&lowering, workload).into_iter();
            manifests.map(move |manifest| manifest.with_source(Source::Workload(index)))
        })
        .collect();
    workloads.extend(beside);
    workloads.extend(schedule::manifests(&lowering));
    manifests.insert(Phase::Workloads, workloads);
    manifests.insert(Phase::Finish, after);
    manifests.insert(Phase::Exposure, expose::manifests(&lowering));
    manifests.insert(Phase::Children, children(&lowering));
    manifests.retain(|_, list| !list.is_empty());
    manifests
}

struct Lowering<'a> {
    instance: &'a Instance,
    plan: &'a Plan,
    observed: &'a Observed,
    /// Names of the ConfigMaps that hold the files.
    files: &'a BTreeMap<String, String>,
}

fn children(lowering: &Lowering<'_>) -> Vec<Manifest> {
    lowering
        .plan
        .children
        .iter()
        .enumerate()
        .map(|(index, child)| {
            let metadata = lowering.instance.metadata(&child.name, None);
            manifest(child.kind, &child.name, &metadata, [("spec", child.spec.clone())])
                .with_source(Source::Child(index))
        })
        .collect()
}

impl Instance {
    /// Labels that select the pods of a component. Objects of different kinds can have the same name.
    fn selector(&self, component: &str) -> BTreeMap<String, String> {
        BTreeMap::from([
            (NAME_LABEL.to_owned(), self.service.to_owned()),
            (INSTANCE_LABEL.to_owned(), self.name.clone()),
            (COMPONENT_LABEL.to_owned(), component.to_owned()),
        ])
    }

    fn labels(&self, component: Option<&str>) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::from([
            (NAME_LABEL.to_owned(), self.service.to_owned()),
            (INSTANCE_LABEL.to_owned(), self.name.clone()),
            ("app.kubernetes.io/part-of".to_owned(), "openstack".to_owned()),
            (MANAGED_BY_LABEL.to_owned(), MANAGER.to_owned()),
            (KIND_LABEL.to_owned(), self.kind.kind.to_owned()),
        ]);
        labels.extend(component.map(|component| (COMPONENT_LABEL.to_owned(), component.to_owned())));
        labels
    }

    /// Metadata of a child: owner and labels.
    pub fn metadata(&self, name: &str, component: Option<&str>) -> ObjectMeta {
        let owner = OwnerReference {
            api_version: self.kind.api_version(),
            kind: self.kind.kind.to_owned(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        };
        ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(self.namespace.clone()),
            labels: Some(self.labels(component)),
            // Without a cluster there is no owner UID.
            owner_references: (!self.uid.is_empty()).then(|| vec![owner]),
            ..ObjectMeta::default()
        }
    }

    fn part(&self, suffix: Option<&str>) -> String {
        name::optional_part(&self.name, suffix)
    }
}

/// Builds an object from its metadata and other fields. Its source is `Other`.
pub fn manifest<const N: usize>(
    kind: Kind,
    name: &str,
    metadata: &ObjectMeta,
    fields: [(&str, Value); N],
) -> Manifest {
    let mut body = serde_json::Map::new();
    body.insert("apiVersion".to_owned(), Value::String(kind.api_version()));
    body.insert("kind".to_owned(), Value::String(kind.kind.to_owned()));
    body.insert("metadata".to_owned(), value(metadata));
    body.extend(fields.map(|(field, value)| (field.to_owned(), value)));
    Manifest { kind, name: name.to_owned(), body: Value::Object(body), source: Source::Other }
}

/// A typed part of an object as JSON. Kubernetes types always serialize.
fn value(part: &impl Serialize) -> Value {
    serde_json::to_value(part).unwrap_or(Value::Null)
}
