//! Probes and metrics of the process.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use openstack_operator_engine::metrics::Metrics;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use snafu::{ResultExt, Snafu};
use tokio::net::TcpListener;

#[derive(Debug, Snafu)]
pub(crate) enum Error {
    #[snafu(display("failed to listen on {address}"))]
    Listen { address: SocketAddr, source: std::io::Error },
    #[snafu(display("failed to serve probes and metrics"))]
    Serve { source: std::io::Error },
}

/// Probes and metrics.
#[derive(Clone)]
pub(crate) struct Admin {
    registry: Arc<Registry>,
    /// Why the process is not ready; empty if it is.
    waiting: Arc<Mutex<String>>,
    leader: Gauge,
    metrics: Metrics,
    memory: Gauge,
}

impl Admin {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::default();
        let memory = Gauge::default();
        // The usual name of this metric.
        registry.register("process_resident_memory_bytes", "Resident memory of the process", memory.clone());
        let own = registry.sub_registry_with_prefix("openstack_operator");
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        own.register("build", "Version of the operator", version);
        let leader = Gauge::default();
        own.register("leader", "Whether this process is the leader", leader.clone());
        let metrics = Metrics::register(own);
        let waiting = Arc::new(Mutex::new("the API server has not answered yet".to_owned()));
        Self { registry: Arc::new(registry), waiting, leader, metrics, memory }
    }

    /// Sets the readiness probe to ready.
    pub(crate) fn set_ready(&self) {
        self.set_waiting("");
    }

    /// Sets the reason why the process is not ready.
    pub(crate) fn set_waiting(&self, reason: &str) {
        reason.clone_into(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Metrics of the engine.
    pub(crate) fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    pub(crate) fn set_leader(&self) {
        self.leader.set(1);
    }

    /// Binds first, so that a port in use ends the process before it does anything else.
    pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
        TcpListener::bind(address).await.context(ListenSnafu { address })
    }

    pub(crate) async fn serve(self, listener: TcpListener) -> Result<(), Error> {
        axum::serve(listener, self.router()).await.context(ServeSnafu)
    }

    fn router(self) -> Router {
        Router::new()
            .route("/livez", get(async || "alive"))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics))
            .with_state(self)
    }
}

async fn ready(State(admin): State<Admin>) -> impl IntoResponse {
    let waiting = admin.waiting.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if waiting.is_empty() {
        (StatusCode::OK, "ready".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, waiting)
    }
}

async fn metrics(State(admin): State<Admin>) -> impl IntoResponse {
    admin.memory.set(resident_memory());
    let mut text = String::new();
    match encode(&mut text, &admin.registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            (StatusCode::OK, [(header::CONTENT_TYPE, kind)], text)
        }
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, "text/plain")], error.to_string())
        }
    }
}

/// Resident memory as the kernel reports it, or 0.
fn resident_memory() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<i64>().ok());
    kibibytes.unwrap_or_default() * 1024
}
