//! Object store of an API server: versions, generations, finalizers, owners and immutable fields.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use openstack_operator_model::kind::{CONFIG_MAP, Kind, SECRET};
use serde_json::{Map, Value, json};

use crate::environment::START;
use crate::merge;

mod admission;

/// Prefix of UIDs only.
pub(crate) const UID: &str = "00000000-0000-4000-8000-";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// Field manager. Each keeps its own fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Manager {
    Operator,
    User,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// The object has changed or is deleted.
    Conflict,
    Refused(String),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    objects: BTreeMap<Key, Stored>,
    /// Counts every change of any object.
    revision: u64,
    /// All UIDs, including those of deleted objects.
    uids: BTreeMap<String, Key>,
}

#[derive(Clone, Debug, Default)]
struct Stored {
    body: Value,
    /// Last applied intent of each manager.
    intents: BTreeMap<Manager, Value>,
}

impl Store {
    pub(crate) fn get(&self, key: &Key) -> Option<&Value> {
        self.objects.get(key).map(|stored| &stored.body)
    }

    pub(crate) fn objects(&self) -> impl Iterator<Item = (&Key, &Value)> {
        self.objects.iter().map(|(key, stored)| (key, &stored.body))
    }

    pub(crate) fn uids(&self) -> &BTreeMap<String, Key> {
        &self.uids
    }

    /// Server-side apply with force. Returns the new object, or its last state if this removed the last finalizer.
    pub(crate) fn apply(
        &mut self,
        key: &Key,
        manager: Manager,
        body: &Value,
        now: Timestamp,
    ) -> Result<Value, Rejection> {
        let intent = admission::intent(key, body)?;
        admission::preconditions(body.get("metadata"), self.get(key))?;
        let mut stored = match self.objects.get(key) {
            Some(stored) => stored.clone(),
            None => Stored { body: self.created(key), ..Stored::default() },
        };
        let former = stored.intents.remove(&manager);
        let kept: Vec<&Value> = stored.intents.values().chain([&intent]).collect();
        if let (Value::Object(live), Some(Value::Object(former))) = (&mut stored.body, &former) {
            merge::remove(live, former, &kept);
        }
        merge::set(&mut stored.body, &intent);
        admission::assign_address(key, &mut stored.body);
        if let Some(live) = self.get(key) {
            admission::immutable_fields(key.kind, live, &stored.body)?;
        }
        stored.intents.insert(manager, intent);
        Ok(self.save(key, stored, now))
    }

    /// Deletes an object, or marks it if it has finalizers.
    pub(crate) fn delete(&mut self, key: &Key, now: Timestamp) {
        let Some(stored) = self.objects.get(key) else { return };
        if finalizers(&stored.body) == 0 {
            self.remove(key, now);
        } else if stored.body.pointer("/metadata/deletionTimestamp").is_none() {
            let mut marked = stored.clone();
            let second = Timestamp::from_second(now.as_second()).expect("the second of a time is a time");
            marked.body["metadata"]["deletionTimestamp"] = json!(second.to_string());
            // The API server increments the generation on deletion.
            count_generation(key.kind, &mut marked.body);
            self.save(key, marked, now);
        }
    }

    /// Returns the new object.
    pub(crate) fn patch_metadata(
        &mut self,
        key: &Key,
        changes: &Value,
        now: Timestamp,
    ) -> Result<Value, Rejection> {
        let mut stored = self.objects.get(key).ok_or(Rejection::Conflict)?.clone();
        admission::preconditions(Some(changes), Some(&stored.body))?;
        let mut changes = changes.as_object().cloned().unwrap_or_default();
        admission::drop_server_fields(&mut changes);
        if let Some(metadata) = stored.body["metadata"].as_object_mut() {
            merge::patch(metadata, &changes);
        }
        Ok(self.save(key, stored, now))
    }

    /// Changes an object like `kubectl edit`.
    pub(crate) fn edit(
        &mut self,
        key: &Key,
        change: impl FnOnce(&mut Value),
        now: Timestamp,
    ) -> Result<(), Rejection> {
        let mut stored = self.objects.get(key).ok_or(Rejection::Conflict)?.clone();
        change(&mut stored.body);
        self.save(key, stored, now);
        Ok(())
    }

    /// Replaces the status of the version that the operator has read, and returns the new object.
    pub(crate) fn write_status(
        &mut self,
        key: &Key,
        version: Option<&str>,
        status: Value,
        now: Timestamp,
    ) -> Result<Value, Rejection> {
        admission::preconditions(Some(&json!({ "resourceVersion": version })), self.get(key))?;
        self.set_status(key, status, now)?;
        self.get(key).cloned().ok_or(Rejection::Conflict)
    }

    /// Returns whether the status changed.
    pub(crate) fn set_status(&mut self, key: &Key, status: Value, now: Timestamp) -> Result<bool, Rejection> {
        let mut stored = self.objects.get(key).ok_or(Rejection::Conflict)?.clone();
        stored.body["status"] = merge::without_nulls(status);
        let before = self.revision;
        self.save(key, stored, now);
        Ok(self.revision != before)
    }

    /// Deletes objects whose owners are all deleted, recursively. Returns whether it deleted any.
    pub(crate) fn collect_garbage(&mut self, now: Timestamp) -> bool {
        let before = self.revision;
        let known: BTreeSet<&str> = self.objects().filter_map(|(_, body)| uid(body)).collect();
        let orphans: Vec<Key> = self
            .objects()
            .filter(|(_, body)| {
                owners(body).next().is_some() && !owners(body).any(|owner| known.contains(owner))
            })
            .map(|(key, _)| key.clone())
            .collect();
        for orphan in orphans {
            self.delete(&orphan, now);
        }
        self.revision != before
    }

    /// Removes an owner from all its dependents.
    pub(crate) fn orphan_dependents(&mut self, owner: &str, now: Timestamp) -> Result<(), Rejection> {
        let dependents: Vec<Key> = self
            .objects()
            .filter(|(_, body)| owners(body).any(|uid| uid == owner))
            .map(|(key, _)| key.clone())
            .collect();
        for dependent in dependents {
            self.edit(
                &dependent,
                |body| {
                    let references =
                        body.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut);
                    if let Some(list) = references {
                        list.retain(|reference| reference["uid"] != owner);
                    }
                },
                now,
            )?;
        }
        Ok(())
    }

    fn created(&mut self, key: &Key) -> Value {
        let uid = format!("{UID}{:012}", self.uids.len() + 1);
        self.uids.insert(uid.clone(), key.clone());
        json!({ "metadata": { "uid": uid, "creationTimestamp": START } })
    }

    /// Stores an object and returns it. An equal object is no change.
    fn save(&mut self, key: &Key, mut stored: Stored, now: Timestamp) -> Value {
        let live = self.get(key);
        if live != Some(&stored.body) {
            if live.is_none_or(|live| wanted(live) != wanted(&stored.body)) {
                count_generation(key.kind, &mut stored.body);
            }
            self.revision += 1;
            stored.body["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        }
        let body = stored.body.clone();
        let ends = body.pointer("/metadata/deletionTimestamp").is_some() && finalizers(&body) == 0;
        self.objects.insert(key.clone(), stored);
        if ends {
            self.remove(key, now);
        }
        body
    }

    fn remove(&mut self, key: &Key, now: Timestamp) {
        self.objects.remove(key);
        self.revision += 1;
        self.collect_garbage(now);
    }
}

/// Increments the generation. `ConfigMap` and `Secret` have none.
fn count_generation(kind: Kind, body: &mut Value) {
    if kind != CONFIG_MAP && kind != SECRET {
        let generation = body.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0);
        body["metadata"]["generation"] = json!(generation + 1);
    }
}

/// Fields whose changes increment the generation.
fn wanted(body: &Value) -> Map<String, Value> {
    let fields = body.as_object().into_iter().flatten();
    fields
        .filter(|(field, _)| !matches!(field.as_str(), "metadata" | "status"))
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect()
}

fn finalizers(body: &Value) -> usize {
    body.pointer("/metadata/finalizers").and_then(Value::as_array).map_or(0, Vec::len)
}

fn uid(body: &Value) -> Option<&str> {
    body.pointer("/metadata/uid").and_then(Value::as_str)
}

/// Uids of an object's owners.
pub(crate) fn owners(body: &Value) -> impl Iterator<Item = &str> {
    let references = body.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    references.into_iter().flatten().filter_map(|reference| reference.get("uid").and_then(Value::as_str))
}

#[cfg(test)]
mod tests;
