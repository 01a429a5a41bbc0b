//! Runs the engine: one metadata watch per kind, one queue, and a bounded number of workers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use futures::{StreamExt, TryStreamExt};
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use openstack_operator_model::kind::{CHILD_KINDS, Kind, NODE, POD, SECRET};
use openstack_operator_model::lower::{MANAGED_BY_LABEL, MANAGER};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::engine::{Engine, Key, Outcome};
use crate::index::ChildIndex;
use crate::metrics::Metrics;
use crate::queue::Queue;
use crate::recent::RecentObjects;
use crate::route::Router;

/// Concurrent reconciles. More would only queue up at the API server.
const WORKERS: usize = 16;
/// Events of an object within this time cause one reconcile.
const DEBOUNCE: Duration = Duration::from_millis(50);

pub struct Runner {
    pub engine: Arc<Engine>,
    pub children: Arc<ChildIndex>,
    pub recent: Arc<RecentObjects>,
    pub metrics: Metrics,
    /// How often external state without a watch is compared: catalogs, databases, message buses.
    pub drift_interval: Duration,
}

impl Runner {
    /// Runs until dropped.
    pub async fn run(self, client: Client) {
        let queue = Arc::new(Queue::<Key>::default());
        let kinds: Arc<[Kind]> = self.engine.kinds().into();
        let mut tasks = JoinSet::new();
        let mut lists = Vec::new();
        for kind in kinds.iter().chain(CHILD_KINDS).chain(&[POD, NODE]).copied() {
            let router = Router::new(kind, kinds.clone(), self.children.clone(), self.recent.clone());
            let (listed, list) = oneshot::channel();
            lists.push(list);
            tasks.spawn(watch(
                client.clone(),
                kind,
                kinds.clone(),
                router,
                self.engine.clone(),
                queue.clone(),
                listed,
            ));
        }
        // Until the index is complete, an object that is being deleted seems to have no parts left.
        join_all(lists).await;
        tracing::info!("listed all objects");
        let runner = Arc::new(self);
        for _ in 0..WORKERS {
            tasks.spawn(runner.clone().work(queue.clone()));
        }
        // The tasks never end.
        while tasks.join_next().await.is_some() {}
    }

    async fn work(self: Arc<Self>, queue: Arc<Queue<Key>>) {
        loop {
            let key = queue.pop().await;
            self.metrics.set_queue_depth(queue.depth());
            let span = tracing::info_span!(
                "reconcile",
                kind = key.kind.kind,
                namespace = key.namespace,
                object = key.name
            );
            let started = Instant::now();
            let outcome = self.engine.reconcile(&key).instrument(span.clone()).await;
            self.metrics.record_reconcile(key.kind.kind, outcome.name(), started.elapsed());
            span.in_scope(|| self.schedule(&queue, &key, outcome));
            queue.done(&key);
        }
    }

    /// Schedules the next reconcile of an object that a watch alone may not trigger.
    fn schedule(&self, queue: &Queue<Key>, key: &Key, outcome: Outcome) {
        let jitter = self.engine.ports.environment.jitter();
        // Spread, so that a thousand objects are not reconciled in the same second.
        let drift = self.drift_interval.mul_f64(0.9 + jitter / 5.0);
        tracing::debug!(?outcome, "reconciled");
        match outcome {
            Outcome::Failed { message } => {
                let delay = queue.push_failed(key.clone(), jitter);
                tracing::warn!(reason = message, retry_seconds = delay.as_secs(), "reconcile failed");
            }
            Outcome::Done { recheck } => {
                queue.succeeded(key);
                queue.push(key.clone(), recheck.map_or(drift, |recheck| recheck.min(drift)));
            }
            Outcome::Waiting { after } => {
                queue.succeeded(key);
                // A watch covers the dependency; the periodic reconcile compensates for a lost event.
                queue.push(key.clone(), after.map_or(drift, |after| after.min(drift)));
            }
            Outcome::Stalled | Outcome::Gone => queue.succeeded(key),
        }
    }
}

/// Watches one kind until the process ends. It drops `listed` once the kind's objects are listed, or if the cluster does
/// not serve the kind.
async fn watch(
    client: Client,
    kind: Kind,
    kinds: Arc<[Kind]>,
    mut router: Router,
    engine: Arc<Engine>,
    queue: Arc<Queue<Key>>,
    listed: oneshot::Sender<()>,
) {
    let mut listed = Some(listed);
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client, &kind.resource());
    // Users' Secrets and nodes do not carry the operator's label; all other relevant objects do.
    let all = kind == SECRET || kind == NODE || kinds.contains(&kind);
    let labels = format!("{MANAGED_BY_LABEL}={MANAGER}");
    let config = if all { watcher::Config::default() } else { watcher::Config::default().labels(&labels) };
    let mut events = watcher(api, config).default_backoff().boxed();
    loop {
        match events.try_next().await {
            Ok(Some(event)) => {
                let is_listed = matches!(event, watcher::Event::InitDone);
                for key in router.route(event, &engine.needs) {
                    queue.push(key, DEBOUNCE);
                }
                listed = listed.filter(|_| !is_listed);
            }
            // The stream never ends; it retries after errors with backoff.
            Ok(None) => return,
            Err(error) => {
                listed = listed.filter(|_| !is_not_served(&error));
                let error = &error as &dyn std::error::Error;
                tracing::warn!(kind = kind.kind, error, "watch interrupted; retrying");
            }
        }
    }
}

/// Whether the cluster does not serve the kind, which then has no objects.
fn is_not_served(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
}
