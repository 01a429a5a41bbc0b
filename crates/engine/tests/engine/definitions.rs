//! Kinds of other projects are watched once the cluster has their definitions.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::stream;
use kube::Client;
use openstack_operator_engine::index::ChildIndex;
use openstack_operator_engine::metrics::Metrics;
use openstack_operator_engine::recent::RecentObjects;
use openstack_operator_engine::run::Runner;
use openstack_operator_model::kind::CUSTOM_RESOURCE_DEFINITION;
use openstack_operator_testkit::{Gadget, World};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::driver::{NAMESPACE, condition, engine, full_object, world};

/// Longer than any delay of a running operator that has work, shorter than the periodic reconcile.
const LONG: Duration = Duration::from_mins(1);
const DRIFT: Duration = Duration::from_hours(24);

/// An API server that serves the kind of the parts once the receiver says so, and counts requests for it until then.
#[derive(Clone)]
struct Server {
    world: World,
    defined: watch::Receiver<bool>,
    early: Arc<watch::Sender<usize>>,
}

fn event(type_: &str, name: &str) -> Bytes {
    let object = json!({
        "apiVersion": CUSTOM_RESOURCE_DEFINITION.api_version(), "kind": CUSTOM_RESOURCE_DEFINITION.kind,
        "metadata": { "name": name, "resourceVersion": "2" },
    });
    format!("{}\n", json!({ "type": type_, "object": object })).into()
}

async fn answer(State(mut server): State<Server>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
    if path.ends_with("/parts") && !*server.defined.borrow() {
        server.early.send_modify(|count| *count += 1);
        return (StatusCode::NOT_FOUND, "404 page not found\n").into_response();
    }
    if is_watch && path.ends_with("/customresourcedefinitions") {
        let first = async move {
            server.defined.wait_for(|defined| *defined).await.unwrap();
            Ok::<Bytes, std::convert::Infallible>(event("ADDED", "parts.example.com"))
        };
        let events = futures::StreamExt::chain(stream::once(first), stream::pending());
        return ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(events)).into_response();
    }
    if is_watch {
        std::future::pending::<()>().await;
    }
    let gadgets = path.ends_with("/gadgets").then(|| server.world.cluster.objects(Gadget::KIND));
    let items: Vec<Value> = gadgets.into_iter().flatten().map(|object| metadata(&object)).collect();
    let list = json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
        "metadata": { "resourceVersion": "1" }, "items": items,
    });
    ([(header::CONTENT_TYPE, "application/json")], list.to_string()).into_response()
}

fn metadata(object: &Value) -> Value {
    json!({ "apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": object["metadata"] })
}

#[tokio::test(start_paused = true)]
async fn an_object_that_needs_a_kind_continues_when_the_cluster_starts_to_serve_it() {
    let world = world();
    world.cluster.remove_crd(Gadget::PART.kind);
    world.apply_object(&full_object(Gadget::KIND, "x", &json!({ "part": 3 })));
    let (define, defined) = watch::channel(false);
    let early = Arc::new(watch::Sender::new(0));
    let server = Server { world: world.clone(), defined, early: early.clone() };
    let client = Client::new(Router::new().fallback(answer).with_state(server), NAMESPACE);
    let engine = engine(&world);
    let recent = Arc::new(RecentObjects::new(engine.kinds()));
    let metrics = Metrics::register(&mut Registry::default());
    let children = Arc::new(ChildIndex::default());
    let runner = Runner { engine: Arc::new(engine), children, recent, metrics, drift_interval: DRIFT };
    let mut running = Box::pin(runner.run(client));
    assert!(timeout(LONG, &mut running).await.is_err(), "the operator ended");
    assert_eq!(condition(&world, Gadget::KIND, "x", "Stalled").0, "True");
    assert_eq!(*early.borrow(), 0, "a kind without a definition is not requested");
    world.cluster.install_crd(Gadget::PART.kind);
    define.send(true).unwrap();
    assert!(timeout(LONG, &mut running).await.is_err(), "the operator ended");
    assert!(world.object(Gadget::PART.kind, NAMESPACE, "x-part").is_some());
    assert_eq!(condition(&world, Gadget::KIND, "x", "Stalled").0, "False");
}
