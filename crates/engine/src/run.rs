//! Runs the engine: one metadata watch per kind, one queue, and a bounded number of workers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use openstack_operator_model::kind::{CHILD_KINDS, Kind, NODE, POD, SECRET};
use openstack_operator_model::lower::{MANAGED_BY_LABEL, MANAGER};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::definition::Definitions;
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
        let definitions = Definitions::default();
        let foreign: Vec<Kind> = self.engine.foreign_kinds().iter().map(|foreign| foreign.kind).collect();
        let always =
            kinds.iter().chain(CHILD_KINDS).chain(&[POD, NODE]).filter(|kind| !foreign.contains(kind));
        for kind in always.chain(&foreign).copied() {
            let router = Router::new(kind, kinds.clone(), self.children.clone(), self.recent.clone());
            let (listed, list) = oneshot::channel();
            lists.push(list);
            let watch = Watch {
                client: client.clone(),
                kind,
                // Users' Secrets, nodes, and objects of other operators do not carry the operator's label; all other
                // relevant objects do.
                labelled: CHILD_KINDS.contains(&kind) && kind != SECRET || kind == POD,
                definitions: foreign.contains(&kind).then(|| definitions.clone()),
                router,
                engine: self.engine.clone(),
                queue: queue.clone(),
            };
            tasks.spawn(watch.run(listed));
        }
        tasks.spawn(definitions.follow(client));
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

/// A watch of one kind.
struct Watch {
    client: Client,
    kind: Kind,
    /// Whether only objects with the operator's label matter.
    labelled: bool,
    /// Definitions of the cluster, if not all clusters serve the kind.
    definitions: Option<Definitions>,
    router: Router,
    engine: Arc<Engine>,
    queue: Arc<Queue<Key>>,
}

impl Watch {
    /// Runs until the process ends. Drops `listed` once the objects are listed, or if the cluster does not serve the kind.
    async fn run(mut self, listed: oneshot::Sender<()>) {
        let mut listed = Some(listed);
        self.until_defined(&mut listed).await;
        let mut events = self.events();
        let mut has_list = false;
        loop {
            match events.try_next().await {
                Ok(Some(event)) => {
                    let is_listed = matches!(event, watcher::Event::InitDone);
                    for key in self.router.route(event, &self.engine.needs) {
                        self.queue.push(key, DEBOUNCE);
                    }
                    has_list |= is_listed;
                    listed = listed.filter(|_| !is_listed);
                }
                // The stream never ends; it retries after errors with backoff.
                Ok(None) => return,
                Err(error) if self.definitions.is_some() && is_not_served(&error) => {
                    self.until_defined(&mut listed).await;
                    // A new definition has other objects. A stream that has listed the former ones only continues there.
                    if std::mem::take(&mut has_list) {
                        events = self.events();
                    }
                }
                Err(error) => {
                    listed = listed.filter(|_| !is_not_served(&error));
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(kind = self.kind.kind, error, "watch interrupted; retrying");
                }
            }
        }
    }

    /// Waits until the cluster has the definition of the kind.
    async fn until_defined(&self, listed: &mut Option<oneshot::Sender<()>>) {
        let Some(definitions) = &self.definitions else { return };
        let name = self.kind.definition();
        if !definitions.contains(&name).await {
            tracing::info!(
                definition = name,
                "the cluster does not serve a kind; waiting for its definition"
            );
            *listed = None;
            definitions.until_contains(&name).await;
        }
    }

    fn events(&self) -> BoxStream<'static, Result<Metadata, watcher::Error>> {
        let api: Api<PartialObjectMeta<DynamicObject>> =
            Api::all_with(self.client.clone(), &self.kind.resource());
        let labels = format!("{MANAGED_BY_LABEL}={MANAGER}");
        let config = watcher::Config::default();
        let config = if self.labelled { config.labels(&labels) } else { config };
        watcher(api, config).default_backoff().boxed()
    }
}

type Metadata = watcher::Event<PartialObjectMeta<DynamicObject>>;

/// Whether the cluster does not serve the kind, which then has no objects.
fn is_not_served(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) = error else {
        return false;
    };
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
