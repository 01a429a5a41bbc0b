//! Waiting for a state with a time limit; errors name the expected and the last seen state.

use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::serde::{Serialize, de::DeserializeOwned};
use kube::runtime::{WatchStreamExt, watcher::watch_object};
use kube::{Api, Resource};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// How long a pod may take to pull its images and start on a loaded machine.
pub const POD_START: Duration = Duration::from_mins(5);

const PAUSE_BETWEEN_ATTEMPTS: Duration = Duration::from_millis(500);

/// Watches an object until it exists and fulfils `condition`.
pub async fn await_condition<K>(
    api: &Api<K>,
    name: &str,
    expectation: &str,
    limit: Duration,
    condition: impl Fn(&K) -> bool,
) -> Result<K>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned + Send + 'static,
{
    let found = observe(api, name, expectation, limit, |object| object.is_some_and(&condition)).await?;
    found.with_context(|| format!("{name} vanished"))
}

/// Watches an object until it is deleted or has another UID.
pub async fn await_deletion<K>(api: &Api<K>, name: &str, uid: Option<&str>, limit: Duration) -> Result<()>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned + Send + 'static,
{
    let is_gone = |object: Option<&K>| object.is_none_or(|object| object.meta().uid.as_deref() != uid);
    observe(api, name, "to be deleted", limit, is_gone).await.map(drop)
}

/// Repeats an attempt until it succeeds: for states that no watch reports.
pub async fn eventually<T>(
    expectation: &str,
    limit: Duration,
    mut attempt: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        let failure = match timeout_at(deadline, attempt()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(failure)) => failure,
            Err(_) => anyhow!("the last attempt did not end"),
        };
        if Instant::now() + PAUSE_BETWEEN_ATTEMPTS >= deadline {
            return Err(failure.context(format!("waited {limit:?} for {expectation}")));
        }
        sleep(PAUSE_BETWEEN_ATTEMPTS).await;
    }
}

#[must_use]
pub fn is_pod_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[must_use]
pub fn is_node_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[must_use]
pub fn is_pod_finished(pod: &Pod) -> bool {
    matches!(pod_phase(pod), "Succeeded" | "Failed")
}

#[must_use]
pub fn pod_phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Unknown")
}

async fn observe<K>(
    api: &Api<K>,
    name: &str,
    expectation: &str,
    limit: Duration,
    is_reached: impl Fn(Option<&K>) -> bool,
) -> Result<Option<K>>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned + Send + 'static,
{
    let mut states = pin!(watch_object(api.clone(), name).default_backoff());
    let mut last_seen = "nothing".to_owned();
    let reached = timeout(limit, async {
        while let Some(state) = states.next().await {
            match state {
                Ok(object) if is_reached(object.as_ref()) => return Some(object),
                Ok(object) => {
                    last_seen = object.as_ref().map_or_else(|| "no such object".to_owned(), summarize);
                }
                // The watcher opens a broken watch again: these tests power off nodes.
                Err(error) => last_seen = format!("{:#}", anyhow::Error::new(error)),
            }
        }
        None
    })
    .await;
    reached.ok().flatten().with_context(|| {
        format!("waited {limit:?} for {}/{name} {expectation}; last seen: {last_seen}", api.resource_url())
    })
}

/// The status explains an object best; kinds without one show only their name.
fn summarize<K: Resource + Serialize>(object: &K) -> String {
    let value = serde_json::to_value(object).unwrap_or_default();
    value.get("status").map_or_else(|| "the object, which has no status".to_owned(), ToString::to_string)
}
