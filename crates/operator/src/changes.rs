//! Changes that objects would cause: objects to create, change and delete, pods to restart, tasks to run.

use std::collections::BTreeSet;

use openstack_operator_engine::engine::Key;
use openstack_operator_model::kind::{
    CONFIG_MAP, CONTROLLERS, DAEMON_SET, JOB, Kind, PERSISTENT_VOLUME_CLAIM, SECRET,
};
use openstack_operator_model::lower::{Source, TASK_ANNOTATION, task};
use openstack_operator_model::plan::{SecretContent, Task, TaskInput, VariableValue};
use openstack_operator_services::kinds;
use serde_json::{Map, Value, json};

use crate::desired::Desired;
use crate::difference::{Difference, Hunk, Line, file_hunks, hunks};
use crate::live::{Live, LiveSecret, is_owned, uid};
use crate::plan_all::Planned;
use crate::schema;

/// An object that would change.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) key: Key,
    pub(crate) action: Action,
    /// How many pods restart.
    pub(crate) restarts: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Create,
    Change(Vec<Hunk>),
    Delete,
}

/// All changes: the given objects first, then the objects of the operator, then deletions.
pub(crate) fn changes(planned: &[Planned], desired: &[Desired], live: &Live) -> Vec<Change> {
    let mut comparison = Comparison { planned, live, replaced: BTreeSet::new() };
    let written = planned.iter().filter(|planned| planned.parent.is_none());
    let mut all: Vec<Change> = written.filter_map(|planned| written_change(planned, live)).collect();
    all.extend(desired.iter().filter_map(|wanted| comparison.change(wanted, desired)));
    all.extend(comparison.deletions(desired));
    all
}

/// The change of an object of a file. The file is complete: fields that it does not have are removed.
fn written_change(planned: &Planned, live: &Live) -> Option<Change> {
    let Some(found) = live.objects.get(&planned.key) else {
        return Some(change(&planned.key, Action::Create));
    };
    let wanted = serde_json::to_value(&planned.object).unwrap_or_default();
    let service = openstack_operator_services::of_kind(planned.key.kind.kind)?;
    let schema = schema::of(service);
    let view = |object: &Value| {
        let mut view = json!({ "spec": object.get("spec").cloned().unwrap_or_else(|| json!({})) });
        schema::fill_defaults(&schema, &mut view);
        for part in ["labels", "annotations"] {
            // Others may add labels and annotations; those of the file are required.
            let required = wanted.pointer(&format!("/metadata/{part}")).and_then(Value::as_object);
            let here = object.pointer(&format!("/metadata/{part}")).and_then(Value::as_object);
            let kept: Map<String, Value> = here
                .into_iter()
                .flatten()
                .filter(|(name, _)| required.is_some_and(|required| required.contains_key(*name)))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            view["metadata"][part] = Value::Object(kept);
        }
        view
    };
    let hunks = hunks(&view(found), &view(&wanted));
    (!hunks.is_empty()).then(|| change(&planned.key, Action::Change(hunks)))
}

fn change(key: &Key, action: Action) -> Change {
    Change { key: key.clone(), action, restarts: None }
}

struct Comparison<'a> {
    planned: &'a [Planned],
    live: &'a Live,
    /// Objects that are replaced under another name.
    replaced: BTreeSet<Key>,
}

impl Comparison<'_> {
    fn change(&mut self, wanted: &Desired, all: &[Desired]) -> Option<Change> {
        if wanted.key.kind == SECRET {
            return self.secret_change(wanted);
        }
        let Some(found) = self.live.objects.get(&wanted.key) else {
            let file = (wanted.key.kind == CONFIG_MAP).then(|| self.predecessor(wanted, all)).flatten();
            return Some(file.unwrap_or_else(|| change(&wanted.key, Action::Create)));
        };
        if wanted.key.kind == JOB && self.is_same_task(wanted, found) {
            return None;
        }
        let difference = Difference::new(found, &wanted.body);
        let hunks =
            if wanted.key.kind == JOB { without_task_mark(difference.hunks()) } else { difference.hunks() };
        if hunks.is_empty() && wanted.key.kind != JOB {
            return None;
        }
        let has_pods = CONTROLLERS.contains(&wanted.key.kind) && difference.changes_pods();
        let restarts = has_pods.then(|| pods(wanted.key.kind, found)).filter(|pods| *pods > 0);
        Some(Change { key: wanted.key.clone(), action: Action::Change(hunks), restarts })
    }

    /// Secrets are compared by their keys: values are not read.
    fn secret_change(&self, wanted: &Desired) -> Option<Change> {
        let secrets = self.live.secrets.as_ref()?;
        let place = (wanted.key.namespace.clone(), wanted.key.name.clone());
        let Some(LiveSecret { keys: Some(keys), .. }) = secrets.get(&place) else {
            return (!secrets.contains_key(&place)).then(|| change(&wanted.key, Action::Create));
        };
        let is_ring = self.plan_of(&wanted.owner).is_some_and(|planned| {
            planned.plan.secrets.iter().any(|secret| {
                secret.name == wanted.key.name && matches!(secret.content, SecretContent::KeyRing(_))
            })
        });
        if is_ring {
            return None;
        }
        let planned = wanted.body.get("stringData").and_then(Value::as_object);
        let planned: BTreeSet<String> = planned.into_iter().flatten().map(|(key, _)| key.clone()).collect();
        let removed = keys.difference(&planned).map(|key| Line::Removed(format!("{key}: <value>")));
        let added = planned.difference(keys).map(|key| Line::Added(format!("{key}: <value>")));
        let lines: Vec<Line> = removed.chain(added).collect();
        let hunk = Hunk { place: "data".to_owned(), lines };
        (!hunk.lines.is_empty()).then(|| change(&wanted.key, Action::Change(vec![hunk])))
    }

    /// The ConfigMap with the earlier content of the same file. Its name differs, because it contains a hash.
    fn predecessor(&mut self, wanted: &Desired, all: &[Desired]) -> Option<Change> {
        let data = wanted.body.get("data")?.as_object()?;
        let (file, content) = data.iter().next().filter(|_| data.len() == 1)?;
        let owner = self.live.objects.get(&wanted.owner).map(uid)?;
        let candidates = self.live.objects.iter().filter(|(key, object)| {
            key.kind == CONFIG_MAP
                && key.namespace == wanted.key.namespace
                && is_owned(object, owner)
                && object["immutable"] == true
                && object["data"].get(file).is_some()
                && !all.iter().any(|desired| desired.key == **key)
        });
        // The youngest is in use; older ones are not pruned yet.
        let (key, object) = candidates.max_by_key(|(_, object)| {
            object.pointer("/metadata/creationTimestamp").and_then(Value::as_str)
        })?;
        let before = object["data"][file].as_str().unwrap_or_default();
        let hunks = file_hunks(file, before, content.as_str().unwrap_or_default());
        self.replaced.insert(key.clone());
        Some(change(&wanted.key, Action::Change(hunks)))
    }

    /// Whether the Job of a task exists. A mark that depends on values of Secrets cannot be computed here; the containers
    /// are compared instead.
    fn is_same_task(&self, wanted: &Desired, found: &Value) -> bool {
        let mark = |job: &Value| {
            job.pointer("/metadata/annotations").and_then(|all| all.get(TASK_ANNOTATION)).cloned()
        };
        if mark(&wanted.body) == mark(found) {
            return true;
        }
        let Source::Task(index) = wanted.source else { return false };
        let task = self.plan_of(&wanted.owner).and_then(|planned| planned.plan.tasks.get(index));
        let depends_on_values = |input: &TaskInput| matches!(input, TaskInput::Secret(_));
        task.is_some_and(|task| task.repeat_on.iter().any(depends_on_values) && runs_the_same(task, found))
    }

    fn plan_of(&self, owner: &Key) -> Option<&Planned> {
        self.planned.iter().find(|planned| planned.key == *owner)
    }

    /// Objects that planned objects own and no longer want, with all objects below them. Volumes go only with their owner.
    fn deletions(&self, desired: &[Desired]) -> Vec<Change> {
        let mut wanted: BTreeSet<&Key> = desired.iter().map(|desired| &desired.key).collect();
        wanted.extend(self.planned.iter().map(|planned| &planned.key));
        let owners = self.planned.iter().filter_map(|planned| self.live.objects.get(&planned.key).map(uid));
        let mut owners: Vec<String> = owners.map(str::to_owned).collect();
        let planned: BTreeSet<String> = owners.iter().cloned().collect();
        let mut found: Vec<Change> = Vec::new();
        while let Some(owner) = owners.pop() {
            for key in self.owned(&owner) {
                if wanted.contains(&key) || self.replaced.contains(&key) || self.is_kept_job(&key) {
                    continue;
                }
                if key.kind == PERSISTENT_VOLUME_CLAIM && planned.contains(&owner) {
                    continue;
                }
                owners.extend(self.live.objects.get(&key).map(|object| uid(object).to_owned()));
                found.push(change(&key, Action::Delete));
            }
        }
        let own = kinds();
        found.sort_by(|one, other| {
            let rank = |change: &Change| (!own.contains(&change.key.kind), change.key.clone());
            rank(one).cmp(&rank(other))
        });
        found
    }

    fn owned(&self, owner: &str) -> Vec<Key> {
        let objects = self.live.objects.iter().filter(|(_, object)| is_owned(object, owner));
        let secrets = self.live.secrets.iter().flatten();
        let secrets = secrets.filter(|(_, secret)| secret.owners.iter().any(|uid| uid == owner));
        let secret_key = |(namespace, name): &(String, String)| Key {
            kind: SECRET,
            namespace: namespace.clone(),
            name: name.clone(),
        };
        objects.map(|(key, _)| key.clone()).chain(secrets.map(|(place, _)| secret_key(place))).collect()
    }

    /// Without access to Secrets it is unknown whether a Job that follows a rotation is still wanted.
    fn is_kept_job(&self, key: &Key) -> bool {
        self.live.secrets.is_none()
            && key.kind == JOB
            && self.planned.iter().any(|planned| {
                planned.plan.tasks.iter().any(|task| task::job_name(&planned.key.name, task) == key.name)
            })
    }
}

/// How many pods a controller has.
fn pods(kind: Kind, found: &Value) -> i64 {
    // Kubernetes counts the selected nodes before it creates the first pod.
    let (pointer, least) =
        if kind == DAEMON_SET { ("/status/desiredNumberScheduled", 0) } else { ("/spec/replicas", 1) };
    found.pointer(pointer).and_then(Value::as_i64).unwrap_or(least)
}

fn runs_the_same(task: &Task, found: &Value) -> bool {
    let container = found.pointer("/spec/template/spec/containers/0").cloned().unwrap_or_default();
    let variables: Vec<Value> = container["env"].as_array().cloned().unwrap_or_default();
    let has = |name: &str, value: &str| {
        variables.iter().any(|variable| variable["name"] == name && variable["value"] == value)
    };
    container["image"] == task.container.image
        && container["command"] == json!(task.container.command)
        && task.container.environment.iter().all(|variable| match &variable.value {
            VariableValue::Text(value) => has(&variable.name, value),
            VariableValue::Secret(_) | VariableValue::Field(_) => true,
        })
}

/// The mark of a task adds nothing: the Job is reported as changed.
fn without_task_mark(hunks: Vec<Hunk>) -> Vec<Hunk> {
    let keep = |line: &Line| {
        let (Line::Removed(text) | Line::Added(text)) = line;
        !text.trim_start().starts_with(TASK_ANNOTATION)
    };
    let kept =
        hunks.into_iter().map(|hunk| Hunk { lines: hunk.lines.into_iter().filter(keep).collect(), ..hunk });
    kept.filter(|hunk| !hunk.lines.is_empty()).collect()
}

#[cfg(test)]
mod tests;
