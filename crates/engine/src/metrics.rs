//! What the engine counts. Labels are kinds and outcomes, never names.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reconcile {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Write {
    verb: &'static str,
}

#[derive(Clone)]
pub struct Metrics {
    reconciles: Family<Reconcile, Counter>,
    durations: Family<OfKind, Histogram>,
    queue: Gauge,
    writes: Family<Write, Counter>,
}

impl Metrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            reconciles: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.005, 2.0, 12))),
            queue: Gauge::default(),
            writes: Family::default(),
        };
        registry.register("reconciles", "Reconciles by kind and outcome", metrics.reconciles.clone());
        registry.register("reconcile_seconds", "How long reconciles take", metrics.durations.clone());
        registry.register("queue_depth", "Objects that are due to be reconciled", metrics.queue.clone());
        registry.register("writes", "Requests that write to the API server", metrics.writes.clone());
        metrics
    }

    pub fn reconciled(&self, kind: &'static str, outcome: &'static str, took: Duration) {
        self.reconciles.get_or_create(&Reconcile { kind, outcome }).inc();
        self.durations.get_or_create(&OfKind { kind }).observe(took.as_secs_f64());
    }

    pub fn wrote(&self, verb: &'static str) {
        self.writes.get_or_create(&Write { verb }).inc();
    }

    pub fn queued(&self, depth: usize) {
        self.queue.set(i64::try_from(depth).unwrap_or(i64::MAX));
    }
}
