//! Collects the entries of a bundle from a cluster. Parts that cannot be read are recorded.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use futures::stream::iter;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, LogParams};
use openstack_operator_model::kind::{CHILD_KINDS, CONFIG_MAP, Kind, NODE, POD, SECRET};
use openstack_operator_model::lower::{MANAGED_BY_LABEL, MANAGER};
use openstack_operator_services::kinds;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::Entry;
use super::mask::Masker;
use crate::check::answer::{Answer, list};
use crate::foreign::{EVENT, GATEWAY, STORAGE_CLASS};
use crate::{installation, output, yaml};

/// A log larger than this is cut, at its beginning.
const LOG_BYTES: i64 = 4 << 20;
const LOG_TIMEOUT: Duration = Duration::from_secs(20);
/// How many requests are sent at once.
const CONCURRENCY: usize = 8;

/// Everything that was collected.
pub(crate) struct Collection {
    pub(crate) entries: Vec<Entry>,
    pub(crate) errors: Vec<String>,
    pub(crate) masker: Masker,
}

/// Reads some namespaces, and the objects of the cluster that clouds depend on.
pub(crate) async fn collect(client: &Client, namespaces: &BTreeSet<String>, tail: i64) -> Collection {
    output::remark(&format!("reading objects of {} namespaces", namespaces.len()));
    let (mut secrets, mut errors, mut unmasked) = (Vec::new(), Vec::new(), BTreeSet::new());
    let mut entries = Vec::new();
    for namespace in namespaces {
        match list(client, SECRET, Some(namespace), "").await {
            Ok(found) => {
                entries.push(Entry {
                    path: format!("objects/{namespace}/secrets.yaml"),
                    text: yaml::documents(&found.iter().map(without_values).collect::<Vec<_>>()),
                });
                secrets.extend(found);
            }
            Err(reason) => {
                errors.push(format!(
                    "{reason}: their values cannot be masked, so ConfigMaps, Events and logs of namespace {namespace} are left out"
                ));
                unmasked.insert(namespace.clone());
            }
        }
    }
    let masker = Masker::new(&secrets);
    let places = places(namespaces, &unmasked);
    let reads = places.iter().map(async |(kind, namespace)| {
        let found = list(client, *kind, namespace.as_deref(), "").await;
        (*kind, namespace.clone(), found)
    });
    let mut pods = Vec::new();
    for (kind, namespace, found) in join_all(reads).await {
        let directory = namespace.clone().unwrap_or_else(|| "cluster".to_owned());
        if let (POD, Ok(found)) = (kind, &found) {
            pods.extend(found.iter().filter(|pod| !unmasked.contains(namespace_of(pod))).cloned());
        }
        match document(found, &masker) {
            Ok(Some(text)) => {
                entries.push(Entry { path: format!("objects/{directory}/{}.yaml", kind.plural), text });
            }
            Ok(None) => {}
            Err(error) => errors.push(error),
        }
    }
    let logs = logs_to_read(&pods);
    output::remark(&format!("reading {} logs", logs.len()));
    let reads = iter(logs).map(|log| read_log(client, log, tail)).buffer_unordered(CONCURRENCY);
    for read in reads.collect::<Vec<_>>().await {
        match read {
            Ok(entry) => entries.push(entry),
            Err(error) => errors.push(error),
        }
    }
    // The same kind may be unreadable in several namespaces.
    errors.sort();
    errors.dedup();
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    Collection { entries, errors, masker }
}

/// Kinds to read, each with its namespace.
fn places(namespaces: &BTreeSet<String>, unmasked: &BTreeSet<String>) -> Vec<(Kind, Option<String>)> {
    let children = CHILD_KINDS.iter().copied().filter(|kind| *kind != SECRET);
    let all: Vec<Kind> = kinds().into_iter().chain(children).chain([POD, EVENT, GATEWAY]).collect();
    let mut places = vec![(NODE, None), (STORAGE_CLASS, None)];
    for namespace in namespaces {
        let is_left_out = |kind: Kind| unmasked.contains(namespace) && [CONFIG_MAP, EVENT].contains(&kind);
        let read = all.iter().filter(|kind| !is_left_out(**kind));
        places.extend(read.map(|kind| (*kind, Some(namespace.clone()))));
    }
    places
}

fn namespace_of(object: &Value) -> &str {
    object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default()
}

/// Name and keys of a Secret. **Invariant:** no value.
fn without_values(secret: &Value) -> Value {
    let keys: Vec<&String> = secret["data"].as_object().into_iter().flatten().map(|(key, _)| key).collect();
    json!({
        "kind": "Secret",
        "metadata": { "name": secret["metadata"]["name"], "namespace": secret["metadata"]["namespace"] },
        "type": secret["type"],
        "keys": keys,
    })
}

fn document(found: Answer<Vec<Value>>, masker: &Masker) -> Result<Option<String>, String> {
    let mut objects = match found {
        Ok(objects) if objects.is_empty() => return Ok(None),
        Ok(objects) => objects,
        Err(reason) => return Err(reason.to_string()),
    };
    for object in &mut objects {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        masker.mask_strings(object);
    }
    Ok(Some(yaml::documents(&objects)))
}

/// A log of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Log {
    namespace: String,
    pod: String,
    container: String,
    /// Whether it is that of the container before its last restart.
    previous: bool,
}

/// Logs of all containers of the clouds and of the operator, and of the containers before their last restart.
fn logs_to_read(pods: &[Value]) -> Vec<Log> {
    let is_ours = |pod: &&Value| {
        let labels = &pod["metadata"]["labels"];
        labels[MANAGED_BY_LABEL] == MANAGER || labels["app.kubernetes.io/name"] == installation::NAME
    };
    let mut logs = Vec::new();
    for pod in pods.iter().filter(is_ours) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let statuses = ["initContainerStatuses", "containerStatuses"]
            .into_iter()
            .flat_map(|list| pod["status"][list].as_array().into_iter().flatten());
        for status in statuses {
            let has_started =
                ["running", "terminated"].iter().any(|state| !status["state"][*state].is_null());
            let has_restarted = status["restartCount"].as_i64().unwrap_or(0) > 0;
            for (exists, previous) in [(has_started, false), (has_restarted, true)] {
                if exists {
                    logs.push(Log {
                        namespace: namespace_of(pod).to_owned(),
                        pod: text(&pod["metadata"]["name"]),
                        container: text(&status["name"]),
                        previous,
                    });
                }
            }
        }
    }
    logs
}

async fn read_log(client: &Client, log: Log, tail: i64) -> Result<Entry, String> {
    let Log { namespace, pod, container, previous } = log;
    let parameters = LogParams {
        container: Some(container.clone()),
        previous,
        tail_lines: Some(tail),
        limit_bytes: Some(LOG_BYTES),
        timestamps: true,
        ..LogParams::default()
    };
    let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let suffix = if previous { ".previous" } else { "" };
    let path = format!("logs/{namespace}/{pod}/{container}{suffix}.log");
    match timeout(LOG_TIMEOUT, api.logs(&pod, &parameters)).await {
        Ok(Ok(text)) => Ok(Entry { path, text }),
        Ok(Err(error)) => Err(format!("cannot read {path}: {}", output::chain(&error))),
        Err(_) => Err(format!("cannot read {path}: no answer within {} s", LOG_TIMEOUT.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_listed_by_name_and_keys() {
        let secret = json!({ "metadata": { "name": "s", "namespace": "n", "annotations": { "a": "b" } },
                             "type": "Opaque", "data": { "password": "cGFzc3dvcmQ=" } });
        let listed = without_values(&secret);
        assert_eq!(listed["keys"], json!(["password"]));
        assert!(!listed.to_string().contains("cGFz"), "{listed}");
    }

    #[test]
    fn logs_are_those_of_containers_that_started() {
        let pod = |labels: Value| {
            json!({
                "metadata": { "name": "p", "namespace": "n", "labels": labels },
                "status": {
                    "initContainerStatuses": [{ "name": "prepare", "restartCount": 0, "state": { "terminated": {} } }],
                    "containerStatuses": [
                        { "name": "api", "restartCount": 2, "state": { "running": {} } },
                        { "name": "new", "restartCount": 0, "state": { "waiting": {} } },
                    ],
                },
            })
        };
        let ours = pod(json!({ "app.kubernetes.io/managed-by": "openstack-operator" }));
        let foreign = pod(json!({ "app": "other" }));
        let found: Vec<(String, bool)> =
            logs_to_read(&[ours, foreign]).into_iter().map(|log| (log.container, log.previous)).collect();
        let expected = [("prepare", false), ("api", false), ("api", true)];
        assert_eq!(found, expected.map(|(name, previous)| (name.to_owned(), previous)));
    }

    #[test]
    fn texts_that_cannot_be_masked_are_left_out() {
        let namespaces = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        let read = places(&namespaces, &BTreeSet::from(["b".to_owned()]));
        let is_read = |kind: Kind, namespace: &str| read.contains(&(kind, Some(namespace.to_owned())));
        assert!(is_read(CONFIG_MAP, "a") && is_read(EVENT, "a") && is_read(POD, "b"));
        assert!(!is_read(CONFIG_MAP, "b") && !is_read(EVENT, "b"));
        assert!(!read.iter().any(|(kind, _)| *kind == SECRET));
    }
}
