//! Metrics of the engine. Labels are kinds and outcomes, never object names.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabel {
    verb: &'static str,
}

#[derive(Clone)]
pub struct Metrics {
    reconciles: Family<ReconcileLabels, Counter>,
    durations: Family<KindLabel, Histogram>,
    queue: Gauge,
    writes: Family<WriteLabel, Counter>,
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
        registry.register("reconcile_seconds", "Duration of reconciles", metrics.durations.clone());
        registry.register("queue_depth", "Objects due for a reconcile", metrics.queue.clone());
        registry.register("writes", "Write requests to the API server", metrics.writes.clone());
        metrics
    }

    pub fn record_reconcile(&self, kind: &'static str, outcome: &'static str, duration: Duration) {
        self.reconciles.get_or_create(&ReconcileLabels { kind, outcome }).inc();
        self.durations.get_or_create(&KindLabel { kind }).observe(duration.as_secs_f64());
    }

    pub fn record_write(&self, verb: &'static str) {
        self.writes.get_or_create(&WriteLabel { verb }).inc();
    }

    pub fn set_queue_depth(&self, depth: usize) {
        self.queue.set(i64::try_from(depth).unwrap_or(i64::MAX));
    }
}
