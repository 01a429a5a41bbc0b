//! Watch events alone, and periodic reconciles where events are lost, lead to the same state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::core::{DynamicObject, PartialObjectMeta};
use kube::runtime::watcher::Event;
use openstack_operator_engine::engine::{Engine, Key, Outcome};
use openstack_operator_engine::index::ChildIndex;
use openstack_operator_engine::ports::ChildReference;
use openstack_operator_engine::recent::RecentObjects;
use openstack_operator_engine::route::Router;
use openstack_operator_model::kind::{CHILD_KINDS, Kind, POD, SECRET};
use openstack_operator_model::lower::{MANAGED_BY_LABEL, MANAGER};
use openstack_operator_services::control_plane;
use openstack_operator_testkit::World;
use serde_json::{Value, json};

use crate::driver::{
    NAMESPACE, assert_same, cloud, converge, engine, is_urgent, keys, new_cloud, object, round, statuses,
};

/// More reconciles than this mean an endless loop.
const MAX_RECONCILES: usize = 400;

type Objects = BTreeMap<(Kind, String), Value>;

/// One watch for each kind, as the running operator has them.
struct Watches {
    routers: Vec<(Kind, Router)>,
    own: Vec<Kind>,
    children: Arc<ChildIndex>,
    seen: Objects,
    /// Every nth event is lost.
    lost: Option<usize>,
    count: usize,
}

impl Watches {
    fn new(engine: &Engine, lost: Option<usize>) -> Self {
        let own = engine.kinds();
        let children = Arc::new(ChildIndex::default());
        let watched = own.iter().chain(CHILD_KINDS).chain([&POD]).copied();
        let recent = Arc::new(RecentObjects::new(own.clone()));
        let router = |kind| Router::new(kind, own.as_slice().into(), children.clone(), recent.clone());
        let routers = watched.map(|kind| (kind, router(kind)));
        Self { routers: routers.collect(), own, children, seen: Objects::new(), lost, count: 0 }
    }

    /// Whether the operator watches an object: all Secrets, all objects of its own kinds, and objects with its label.
    fn is_watched(&self, kind: Kind, body: &Value) -> bool {
        kind == SECRET || self.own.contains(&kind) || body["metadata"]["labels"][MANAGED_BY_LABEL] == MANAGER
    }

    /// Keys affected by all changes since the last call.
    fn poll(&mut self, world: &World, engine: &Engine) -> BTreeSet<Key> {
        let mut now = Objects::new();
        for kind in self.routers.iter().map(|(kind, _)| *kind) {
            for body in world.cluster.objects(kind).into_iter().filter(|body| self.is_watched(kind, body)) {
                let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                now.insert((kind, name), body);
            }
        }
        let before = std::mem::take(&mut self.seen);
        let changed = now.iter().filter(|(place, body)| before.get(*place) != Some(body));
        let changed = changed.map(|(place, body)| (place.0, Event::Apply(metadata(body))));
        let deleted = before.iter().filter(|(place, _)| !now.contains_key(*place));
        let deleted = deleted.map(|(place, body)| (place.0, Event::Delete(metadata(body))));
        let mut affected = BTreeSet::new();
        for (kind, event) in changed.chain(deleted).collect::<Vec<_>>() {
            self.count += 1;
            if self.lost.is_none_or(|lost| !self.count.is_multiple_of(lost)) {
                let (_, router) = self.routers.iter_mut().find(|(routed, _)| *routed == kind).unwrap();
                affected.extend(router.route(event, &engine.needs));
            }
        }
        self.seen = now;
        affected
    }
}

fn metadata(body: &Value) -> PartialObjectMeta<DynamicObject> {
    serde_json::from_value(json!({ "metadata": body["metadata"] })).unwrap()
}

/// Reconciles keys from events and keys that requeue themselves, until none is left.
async fn follow(world: &World, engine: &Engine, watches: &mut Watches) {
    let mut due = watches.poll(world, engine);
    for _ in 0..MAX_RECONCILES {
        let Some(key) = due.pop_first() else {
            world.cluster.settle();
            due = watches.poll(world, engine);
            if due.is_empty() {
                return;
            }
            continue;
        };
        let outcome = engine.reconcile(&key).await;
        if is_urgent(&outcome) && !matches!(outcome, Outcome::Gone) {
            due.insert(key);
        }
        due.extend(watches.poll(world, engine));
    }
    panic!("not converged after {MAX_RECONCILES} reconciles:\n{}", statuses(world, engine));
}

async fn follow_new(world: &World, lost: Option<usize>) -> (Engine, Watches) {
    let engine = engine(world);
    let mut watches = Watches::new(&engine, lost);
    follow(world, &engine, &mut watches).await;
    (engine, watches)
}

#[tokio::test]
async fn events_alone_lead_to_the_same_state_as_rounds_over_all_objects() {
    let (by_rounds, _) = cloud().await;
    let world = new_cloud();
    let (engine, watches) = follow_new(&world, None).await;
    assert_same(&world.fingerprint(), &by_rounds.fingerprint(), || statuses(&world, &engine));
    for key in keys(&world, &engine) {
        let owner = world.object(key.kind, NAMESPACE, &key.name).unwrap();
        let uid = owner["metadata"]["uid"].as_str().unwrap();
        let known: Vec<ChildReference> = watches.children.children_of(uid);
        let ports = world.ports();
        let owned = ports.cluster.children(NAMESPACE, uid).await.unwrap();
        assert_eq!(known, owned, "children of {key}");
    }
}

#[tokio::test]
async fn events_alone_complete_a_change_and_a_deletion() {
    let (by_rounds, running) = cloud().await;
    let world = by_rounds.fork();
    let (engine, mut watches) = follow_new(&world, None).await;
    let changed = object(
        control_plane::KIND,
        "cloud",
        &json!({ "images": { "tag": "next" }, "keystone": { "notifications": { "enabled": true } } }),
    );
    for world in [&world, &by_rounds] {
        world.apply_object(&changed);
    }
    follow(&world, &engine, &mut watches).await;
    converge(&by_rounds, &running).await;
    assert_same(&world.fingerprint(), &by_rounds.fingerprint(), || statuses(&world, &engine));
    for world in [&world, &by_rounds] {
        world.delete_object(control_plane::KIND, NAMESPACE, "cloud");
    }
    follow(&world, &engine, &mut watches).await;
    converge(&by_rounds, &running).await;
    assert_same(&world.fingerprint(), &by_rounds.fingerprint(), || statuses(&world, &engine));
    assert!(keys(&world, &engine).is_empty());
}

#[tokio::test]
async fn periodic_reconciles_compensate_for_lost_events() {
    let (by_rounds, _) = cloud().await;
    for lost in 1..=7 {
        let world = new_cloud();
        let (engine, mut watches) = follow_new(&world, Some(lost)).await;
        if lost == 1 {
            assert!(world.script.log().is_empty(), "without events nothing is reconciled");
        }
        while round(&world, &engine).await {
            follow(&world, &engine, &mut watches).await;
        }
        let context = || format!("every event number {lost} was lost\n{}", statuses(&world, &engine));
        assert_same(&world.fingerprint(), &by_rounds.fingerprint(), context);
    }
}
