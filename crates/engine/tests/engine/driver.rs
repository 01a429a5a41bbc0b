//! Drives the engine against fakes, round by round.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use openstack_operator_engine::engine::{Engine, Key, Outcome};
use openstack_operator_model::image::{Family, ImageDefaults};
use openstack_operator_model::kind::Kind;
use openstack_operator_model::service::{AnyService, Site};
use openstack_operator_services as services;
use openstack_operator_testkit::{Gadget, World, yaml};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::test_services;

pub(crate) const NAMESPACE: &str = "openstack";
/// A cloud converges within this many rounds, or never.
const MAX_ROUNDS: usize = 60;

/// All services of the operator, and test services.
static SERVICES: LazyLock<Vec<&'static dyn AnyService>> = LazyLock::new(|| {
    let extra: [&'static dyn AnyService; 3] = [&test_services::Widget, &test_services::Bomb, &Gadget];
    services::ALL.iter().copied().chain(extra).collect()
});

pub(crate) fn world() -> World {
    World::new(&SERVICES.iter().map(|service| service.kind()).collect::<Vec<_>>())
}

/// A freshly started operator.
pub(crate) fn engine(world: &World) -> Engine {
    engine_with_images(world, ImageDefaults { family: Family::Kolla, registry: None, tags: BTreeMap::new() })
}

/// The same with other default images.
pub(crate) fn engine_with_images(world: &World, images: ImageDefaults) -> Engine {
    let site = Site { images, cluster_domain: "cluster.local".to_owned() };
    Engine::new(&SERVICES, site, world.ports())
}

/// An object of one of the operator's kinds, as a user writes it. Clouds are reduced to the identity service, so that
/// tests can inject a fault at every write.
pub(crate) fn object(kind: Kind, name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    if kind == services::control_plane::KIND {
        for service in services::fields_beyond_identity() {
            spec[service]["enabled"] = json!(false);
        }
    }
    full_object(kind, name, &spec)
}

/// The same, with all services that are enabled by default.
pub(crate) fn full_object(kind: Kind, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": kind.api_version(), "kind": kind.kind,
        "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec,
    })
}

/// A world with a control plane that uses all defaults.
pub(crate) fn new_cloud() -> World {
    let world = world();
    world.apply_object(&object(services::control_plane::KIND, "cloud", &json!({})));
    world
}

/// The same in Ready state, and a freshly started operator.
pub(crate) async fn cloud() -> (World, Engine) {
    static CLOUD: OnceCell<World> = OnceCell::const_new();
    let whole = async || {
        let world = new_cloud();
        converge(&world, &engine(&world)).await;
        world
    };
    let world = CLOUD.get_or_init(whole).await.fork();
    let engine = engine(&world);
    (world, engine)
}

pub(crate) fn key(kind: Kind, name: &str) -> Key {
    Key { kind, namespace: NAMESPACE.to_owned(), name: name.to_owned() }
}

/// All objects of the operator's kinds.
pub(crate) fn keys(world: &World, engine: &Engine) -> Vec<Key> {
    let mut keys = Vec::new();
    for kind in engine.kinds() {
        for body in world.cluster.objects(kind) {
            let text = |field: &str| body["metadata"][field].as_str().unwrap().to_owned();
            keys.push(Key { kind, namespace: text("namespace"), name: text("name") });
        }
    }
    keys
}

/// Whether the operator reconciles an object again without an event.
pub(crate) fn is_urgent(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed { .. } | Outcome::Waiting { after: Some(Duration::ZERO) })
}

/// Reconciles every object once, and lets the fake controllers run. Returns whether anything changed or is pending.
pub(crate) async fn round(world: &World, engine: &Engine) -> bool {
    let mut busy = false;
    for key in keys(world, engine) {
        let writes = world.script.writes().len();
        let outcome = engine.reconcile(&key).await;
        if world.script.crashed() {
            break;
        }
        busy |= is_urgent(&outcome) || world.script.writes().len() != writes;
    }
    world.cluster.settle() || busy
}

/// Runs rounds until nothing changes, or until the process is killed.
pub(crate) async fn converge(world: &World, engine: &Engine) {
    for _ in 0..MAX_ROUNDS {
        if !round(world, engine).await || world.script.crashed() {
            return;
        }
    }
    panic!("not converged after {MAX_ROUNDS} rounds:\n{}", statuses(world, engine));
}

/// The statuses of all objects, as YAML.
pub(crate) fn statuses(world: &World, engine: &Engine) -> String {
    let bodies = keys(world, engine).into_iter().filter_map(|key| {
        let body = world.object(key.kind, &key.namespace, &key.name)?;
        Some(format!("# {key}\n{}", yaml(&body["status"])))
    });
    bodies.collect()
}

pub(crate) fn get(world: &World, kind: Kind, name: &str) -> Value {
    world.object(kind, NAMESPACE, name).unwrap_or_else(|| panic!("{} {name} does not exist", kind.kind))
}

/// One condition of an object: its status, reason and message.
pub(crate) fn condition(world: &World, kind: Kind, name: &str, condition: &str) -> (String, String, String) {
    let body = get(world, kind, name);
    let conditions = body["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|found| found["type"] == condition);
    let found = found.unwrap_or_else(|| panic!("{} {name} has no condition {condition}", kind.kind));
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

pub(crate) fn is_ready(world: &World, kind: Kind, name: &str) -> bool {
    condition(world, kind, name, "Ready").0 == "True"
}

/// Calls that wrote, as text.
pub(crate) fn writes(world: &World) -> Vec<String> {
    world.script.writes().iter().map(ToString::to_string).collect()
}

/// Compares two fingerprints and shows only the lines that differ.
pub(crate) fn assert_same(found: &Value, expected: &Value, context: impl FnOnce() -> String) {
    if found == expected {
        return;
    }
    let (found, expected) = (format!("{found:#}"), format!("{expected:#}"));
    let missing = |these: &str, those: &str, mark: &str| -> String {
        let lines = these.lines().filter(|line| !those.lines().any(|other| other == *line));
        lines.flat_map(|line| [mark, line, "\n"]).collect()
    };
    let (more, less) = (missing(&found, &expected, "+"), missing(&expected, &found, "-"));
    panic!("different final state, {}\n{less}{more}", context());
}
