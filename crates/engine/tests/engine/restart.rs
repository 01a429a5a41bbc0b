//! A restarted operator changes nothing before it knows all objects.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use kube::Client;
use openstack_operator_engine::engine::Engine;
use openstack_operator_engine::index::ChildIndex;
use openstack_operator_engine::metrics::Metrics;
use openstack_operator_engine::recent::RecentObjects;
use openstack_operator_engine::run::Runner;
use openstack_operator_model::kind::{CHILD_KINDS, HTTP_ROUTE, Kind, NODE, POD};
use openstack_operator_services::{control_plane, keystone, mariadb, memcached};
use openstack_operator_testkit::World;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::driver::{NAMESPACE, cloud, engine, get, writes};

/// Longer than any delay of a running operator that has work.
const LONG: Duration = Duration::from_mins(1);

/// Lists and watches of an API server.
#[derive(Clone)]
struct Lists {
    world: World,
    kinds: Vec<Kind>,
    /// A list that the server answers late.
    late: Kind,
    released: watch::Receiver<bool>,
}

impl Lists {
    fn kind(&self, path: &str) -> Option<Kind> {
        let path_of = |kind: &Kind| {
            let group = if kind.group.is_empty() { "/api" } else { "/apis" };
            format!("{group}/{}/{}", kind.api_version(), kind.plural)
        };
        self.kinds.iter().copied().find(|kind| path_of(kind) == path)
    }
}

async fn answer(State(mut lists): State<Lists>, request: Request) -> Response {
    if request.uri().query().is_some_and(|query| query.contains("watch=")) {
        // A watch without events.
        std::future::pending::<()>().await;
    }
    let Some(kind) = lists.kind(request.uri().path()).filter(|kind| *kind != HTTP_ROUTE) else {
        return (StatusCode::NOT_FOUND, "404 page not found\n").into_response();
    };
    if kind == lists.late {
        lists.released.wait_for(|released| *released).await.unwrap();
    }
    let items: Vec<Value> = lists.world.cluster.objects(kind);
    let list = json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
        "metadata": { "resourceVersion": "1" },
        "items": items.iter().map(|object| json!({
            "apiVersion": kind.api_version(), "kind": kind.kind, "metadata": object["metadata"],
        })).collect::<Vec<_>>(),
    });
    ([(header::CONTENT_TYPE, "application/json")], list.to_string()).into_response()
}

/// A started operator on a cluster that answers one list only after the sender says so, and does not serve routes.
fn start(world: &World, late: Kind) -> (impl Future<Output = ()>, watch::Sender<bool>) {
    let engine: Engine = engine(world);
    let kinds = engine.kinds().into_iter().chain(CHILD_KINDS.iter().copied()).chain([POD, NODE]).collect();
    let (release, released) = watch::channel(false);
    let lists = Lists { world: world.clone(), kinds, late, released };
    let client = Client::new(Router::new().fallback(answer).with_state(lists), NAMESPACE);
    let children = Arc::new(ChildIndex::default());
    world.cluster.watch_children(children.clone());
    let metrics = Metrics::register(&mut Registry::default());
    let recent = Arc::new(RecentObjects::new(engine.kinds()));
    let drift_interval = Duration::from_mins(2);
    let runner = Runner { engine: Arc::new(engine), children, recent, metrics, drift_interval };
    (runner.run(client), release)
}

#[tokio::test(start_paused = true)]
async fn the_deletion_order_survives_a_restart_of_the_operator() {
    for late in [keystone::KIND, control_plane::KIND, POD] {
        let (world, _) = cloud().await;
        world.delete_object(control_plane::KIND, NAMESPACE, "cloud");
        let (running, release) = start(&world, late);
        let mut running = Box::pin(running);
        assert!(timeout(LONG, &mut running).await.is_err(), "the operator ended");
        assert!(world.script.log().is_empty(), "{} is not listed yet: {:?}", late.kind, writes(&world));
        release.send(true).unwrap();
        assert!(timeout(LONG, &mut running).await.is_err(), "the operator ended");
        assert!(!world.script.log().is_empty(), "a kind that the cluster does not serve is not awaited");
        let cloud = get(&world, control_plane::KIND, "cloud");
        assert_eq!(cloud["metadata"]["finalizers"].as_array().map(Vec::len), Some(1), "it has parts left");
        let deleted = |kind: Kind, name: &str| {
            world
                .object(kind, NAMESPACE, name)
                .is_none_or(|body| body["metadata"].get("deletionTimestamp").is_some())
        };
        assert!(deleted(keystone::KIND, "cloud-keystone"));
        for used in [mariadb::KIND, memcached::KIND] {
            assert!(
                !deleted(used, &format!("cloud-{}", used.kind.to_lowercase())),
                "Keystone uses {}",
                used.kind
            );
        }
    }
}
