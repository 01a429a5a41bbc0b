//! All fakes, and actions of users on them.

use std::sync::Arc;

use openstack_operator_engine::ports::{Environment, Ports};
use openstack_operator_model::kind::{CHILD_KINDS, Kind, NODE, POD, STORAGE_CLASS};
use serde_json::{Value, json};

use crate::agents::FakeAgents;
use crate::bus::FakeBus;
use crate::cluster::FakeCluster;
use crate::environment::FakeEnvironment;
use crate::fingerprint::fingerprint;
use crate::identity::FakeIdentity;
use crate::script::Script;
use crate::sql::FakeSql;
use crate::store::{Key, Manager};
use crate::yaml;

/// All systems outside of the process.
#[derive(Clone, Debug)]
pub struct World {
    pub script: Script,
    pub environment: Arc<FakeEnvironment>,
    pub cluster: Arc<FakeCluster>,
    pub sql: Arc<FakeSql>,
    pub bus: Arc<FakeBus>,
    pub identity: Arc<FakeIdentity>,
    pub agents: Arc<FakeAgents>,
    kinds: Vec<Kind>,
}

impl World {
    /// An empty world with these kinds of the operator and those of Kubernetes.
    pub fn new(own_kinds: &[Kind]) -> Self {
        let script = Script::default();
        let environment: Arc<FakeEnvironment> = Arc::default();
        Self {
            cluster: Arc::new(FakeCluster::new(script.clone(), Arc::clone(&environment))),
            sql: Arc::new(FakeSql::new(script.clone())),
            bus: Arc::new(FakeBus::new(script.clone())),
            identity: Arc::new(FakeIdentity::new(script.clone())),
            agents: Arc::new(FakeAgents::new(script.clone())),
            kinds: CHILD_KINDS
                .iter()
                .chain([&POD, &NODE, &STORAGE_CLASS])
                .chain(own_kinds)
                .copied()
                .collect(),
            script,
            environment,
        }
    }

    /// An independent copy of the world, without past calls and pending faults.
    #[must_use]
    pub fn fork(&self) -> Self {
        let script = Script::default();
        let environment = Arc::new(self.environment.fork());
        Self {
            cluster: Arc::new(self.cluster.fork(script.clone(), Arc::clone(&environment))),
            sql: Arc::new(self.sql.fork(script.clone())),
            bus: Arc::new(self.bus.fork(script.clone())),
            identity: Arc::new(self.identity.fork(script.clone())),
            agents: Arc::new(self.agents.fork(script.clone())),
            kinds: self.kinds.clone(),
            script,
            environment,
        }
    }

    pub fn ports(&self) -> Ports {
        Ports {
            cluster: self.cluster.clone(),
            sql: self.sql.clone(),
            bus: self.bus.clone(),
            identity: self.identity.clone(),
            agents: self.agents.clone(),
            environment: self.environment.clone(),
        }
    }

    /// Creates or changes an object like `kubectl apply`, without its status. The default namespace is `default`.
    /// Returns the stored object.
    pub fn apply_object(&self, object: &Value) -> Value {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("/apiVersion"), text("/kind"));
        let kind = self
            .kinds
            .iter()
            .find(|known| known.kind == kind && known.api_version() == api_version)
            .unwrap_or_else(|| panic!("{api_version} {kind} is unknown: pass it to World::new"));
        let namespace = match text("/metadata/namespace") {
            "" if *kind == NODE || *kind == STORAGE_CLASS => "",
            "" => "default",
            namespace => namespace,
        };
        let key = Key::new(*kind, namespace, text("/metadata/name"));
        assert!(!key.name.is_empty(), "an object needs a name: {object}");
        let now = self.environment.now();
        let applied = self.cluster.with_store(|store| store.apply(&key, Manager::User, object, now));
        applied.unwrap_or_else(|rejection| panic!("{} {}: {rejection:?}", kind.kind, key.name))
    }

    /// The same for a YAML document.
    pub fn apply_yaml(&self, document: &str) -> Value {
        self.apply_object(&yaml::parse(document))
    }

    pub fn object(&self, kind: Kind, namespace: &str, name: &str) -> Option<Value> {
        self.cluster.object(kind, namespace, name)
    }

    /// Deletes an object like a user. An object with finalizers stays until they are removed.
    pub fn delete_object(&self, kind: Kind, namespace: &str, name: &str) {
        let now = self.environment.now();
        let key = Key::new(kind, namespace, name);
        self.cluster.with_store(|store| {
            assert!(store.get(&key).is_some(), "{} {namespace}/{name} does not exist", kind.kind);
            store.delete(&key, now);
        });
    }

    /// Changes an object like `kubectl edit`.
    pub fn edit_object(&self, kind: Kind, namespace: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let now = self.environment.now();
        let key = Key::new(kind, namespace, name);
        let edited = self.cluster.with_store(|store| store.edit(&key, change, now));
        edited.unwrap_or_else(|rejection| panic!("{} {namespace}/{name}: {rejection:?}", kind.kind));
    }

    /// Sets the status of an object like its controller.
    pub fn set_status(&self, kind: Kind, namespace: &str, name: &str, status: Value) {
        let now = self.environment.now();
        let key = Key::new(kind, namespace, name);
        let changed = self.cluster.with_store(|store| store.set_status(&key, status, now));
        changed.unwrap_or_else(|rejection| panic!("{} {name}: {rejection:?}", kind.kind));
    }

    /// The whole state, equal for two runs with the same result: without versions and events, with placeholders for
    /// UIDs, times, and generated and derived values.
    pub fn fingerprint(&self) -> Value {
        let servers = [
            ("sql", json!(self.sql.states())),
            ("bus", json!(self.bus.states())),
            ("identity", json!(self.identity.states())),
            ("agents", json!(self.agents.states())),
        ];
        let generated = self.environment.generated();
        self.cluster.with_store(|store| fingerprint(store, &generated, &servers))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use openstack_operator_engine::ports::{Login, SqlGrant, SqlServer};
    use openstack_operator_model::kind::{CONFIG_MAP, JOB, SECRET};
    use openstack_operator_model::lower::{Manifest, Source, TASK_ANNOTATION};

    use super::*;

    const CLOUD: Kind = Kind::own("Cloud", "clouds");

    const DOCUMENT: &str = "
apiVersion: openstack.k8s.io/v1alpha1
kind: Cloud
metadata: { name: cloud }
spec: { region: one, replicas: 2 }
";

    #[test]
    fn a_user_changes_only_the_applied_fields() {
        let world = World::new(&[CLOUD]);
        let first = world.apply_yaml(DOCUMENT);
        assert_eq!(first["metadata"]["generation"], 1);
        world.set_status(CLOUD, "default", "cloud", json!({ "observedGeneration": 1 }));
        let second = world.apply_yaml(&DOCUMENT.replace("region: one, ", ""));
        assert_eq!(second["spec"], json!({ "replicas": 2 }));
        assert_eq!(second["status"], json!({ "observedGeneration": 1 }));
        assert_eq!(second["metadata"]["generation"], 2);
        world.edit_object(CLOUD, "default", "cloud", |cloud| cloud["spec"] = json!({}));
        let third = world.object(CLOUD, "default", "cloud").unwrap();
        assert_eq!((&third["spec"], &third["metadata"]["generation"]), (&json!({}), &json!(3)));
        assert!(world.script.log().is_empty(), "a user is not the operator");
        world.delete_object(CLOUD, "default", "cloud");
        assert_eq!(world.object(CLOUD, "default", "cloud"), None);
    }

    /// A world in which the operator created a Secret, a Job and a database user.
    async fn run(tries: usize) -> World {
        let world = World::new(&[CLOUD]);
        let ports = world.ports();
        for _ in 1..tries {
            // A lost password and a recreated object.
            ports.environment.password(20);
            world.apply_yaml("{ apiVersion: v1, kind: ConfigMap, metadata: { name: other } }");
            world.delete_object(CONFIG_MAP, "default", "other");
            world.environment.advance(Duration::from_mins(1));
        }
        let owner = world.apply_yaml(DOCUMENT);
        let password = ports.environment.password(20);
        let now = ports.environment.now().to_string();
        let owners =
            json!([{ "apiVersion": "v1", "kind": "Cloud", "name": "x", "uid": owner["metadata"]["uid"] }]);
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "x", "ownerReferences": owners },
            "stringData": { "password": password, "url": format!("mysql://x:{password}@db") },
        });
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": { "name": "x", "annotations": { TASK_ANNOTATION: format!("hash{tries}"), "at": now } },
        });
        for (kind, body) in [(SECRET, secret), (JOB, job)] {
            let manifest = Manifest { kind, name: "x".into(), body, source: Source::Other };
            ports.cluster.apply("default", &manifest).await.unwrap();
        }
        let administrator = Login { username: "root".into(), password: "root".into() };
        let server = SqlServer { host: "db".into(), port: 3306, administrator };
        let claim = crate::server::claim();
        let grant = SqlGrant {
            charset: openstack_operator_model::plan::Charset::Utf8mb3,
            database: "x".into(),
            database_claim: claim.clone(),
            user: Login { username: "x".into(), password },
            user_claim: claim,
        };
        ports.sql.ensure(&server, &grant).await.unwrap();
        world
    }

    #[tokio::test]
    async fn runs_with_the_same_result_have_the_same_fingerprint() {
        let (straight, detour) = (run(1).await, run(3).await);
        let raw = |world: &World| world.object(SECRET, "default", "x").unwrap();
        assert_ne!(raw(&straight), raw(&detour));
        let print = straight.fingerprint();
        assert_eq!(print, detour.fingerprint());
        let secret = &print["objects"]["Secret default/x"];
        assert_eq!(
            secret["data"],
            json!({ "password": "<generated 1>", "url": "mysql://x:<generated 1>@db" })
        );
        assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], "<uid of Cloud default/cloud>");
        assert_eq!(secret["metadata"]["creationTimestamp"], "<time>");
        assert_eq!(print["objects"]["Job default/x"]["metadata"]["annotations"][TASK_ANNOTATION], "<task 1>");
        assert_eq!(print["sql"]["db"]["users"]["x"], "<generated 1>");
    }

    #[tokio::test]
    async fn a_fork_starts_equal_and_is_independent() {
        let world = run(1).await;
        let fork = world.fork();
        assert_eq!(fork.fingerprint(), world.fingerprint());
        assert!(fork.script.log().is_empty());
        fork.delete_object(SECRET, "default", "x");
        fork.sql.edit("db", |state| state.users.clear());
        fork.environment.advance(Duration::from_mins(1));
        assert!(world.object(SECRET, "default", "x").is_some());
        assert_eq!(world.sql.state("db").users.len(), 1);
        assert_ne!(fork.environment.now(), world.environment.now());
        // Both may generate equal values later, but independently.
        assert_eq!(fork.environment.password(20), world.environment.password(20));
    }

    #[tokio::test]
    async fn a_different_result_has_a_different_fingerprint() {
        let world = run(1).await;
        let before = world.fingerprint();
        world.sql.edit("db", |state| {
            state.users.insert("x".into(), "stale".into());
        });
        assert_ne!(world.fingerprint(), before);
    }
}
