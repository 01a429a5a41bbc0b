//! The objects that the operator would apply, planned from the API server's answers.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use kube::core::DynamicObject;
use openstack_operator_model::common::PAUSE_ANNOTATION;
use openstack_operator_model::image::{Family, ImageDefaults};
use openstack_operator_model::kind::{
    CRON_JOB, DAEMON_SET, DEPLOYMENT, GROUP, HTTP_ROUTE, JOB, Kind, SECRET, STATEFUL_SET,
};
use openstack_operator_model::lower::{
    Instance, Manifest, Observed, Phase, SecretFacts, Source, lower, manifest, task,
};
use openstack_operator_model::need::{ObjectNeed, Resolved};
use openstack_operator_model::plan::{CERTIFICATE_KEYS, Plan, SSH_KEYS, SecretContent, SecretPlan};
use openstack_operator_model::service::{AnyObject, AnyService, Site};
use openstack_operator_services::of_kind;
use openstack_operator_testkit::Gadget;
use serde_json::{Value, json};

use crate::server::{Effect, Server, accepted, title};

/// The UID of an owner that is not stored.
const OWNER: &str = "00000000-0000-4000-8000-000000000000";
/// Base64 of `secret`.
const SECRET_VALUE: &str = "c2VjcmV0";

/// An object with its plan.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The object as the user writes it.
    pub object: Manifest,
    pub instance: Instance,
    pub plan: Plan,
}

/// Plans the operator's objects among these, their children, and the objects that they use.
pub async fn plan(server: &Server, objects: &[Value]) -> Result<Vec<Planned>> {
    let own = objects.iter().filter(|object| is_own(object));
    let waiting = own.map(|object| without_nulls(server.placed(object))).collect();
    let mut planning = Planning { server, waiting, resolved: Resolved::default(), planned: Vec::new() };
    while !planning.waiting.is_empty() {
        planning.step().await?;
    }
    Ok(planning.planned)
}

/// The test service with elements of a plan that few services need. Its object cannot be stored.
#[must_use]
pub fn gadget(server: &Server) -> Planned {
    let instance = Instance {
        kind: Gadget::KIND,
        service: Gadget.name(),
        name: "gadget".to_owned(),
        namespace: server.namespace().to_owned(),
        uid: String::new(),
    };
    let plan = Gadget::plan(&instance.name, &json!({}));
    let object = Manifest {
        kind: instance.kind,
        name: instance.name.clone(),
        body: Value::Null,
        source: Source::Other,
    };
    Planned { object, instance, plan }
}

fn is_own(object: &Value) -> bool {
    object["apiVersion"].as_str().is_some_and(|version| version.starts_with(GROUP))
}

/// The API server drops null fields, and so does a render without one.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let given = fields.into_iter().filter(|(_, value)| !value.is_null());
            given.map(|(field, value)| (field, without_nulls(value))).collect()
        }
        other => other,
    }
}

struct Planning<'a> {
    server: &'a Server,
    waiting: Vec<Value>,
    resolved: Resolved,
    planned: Vec<Planned>,
}

impl Planning<'_> {
    /// Plans one object whose needs are met, or adds a missing object that others use.
    async fn step(&mut self) -> Result<()> {
        let mut missing = Vec::new();
        for (index, object) in self.waiting.iter().enumerate() {
            let unmet = self.unmet(object)?;
            if unmet.is_empty() {
                let object = self.waiting.remove(index);
                return self
                    .plan_one(&object)
                    .await
                    .with_context(|| format!("failed to plan {}", title(&object)));
            }
            missing.extend(unmet);
        }
        let is_waiting = |need: &ObjectNeed| {
            self.waiting.iter().any(|object| title(object) == format!("{} {}", need.kind.kind, need.name))
        };
        let need =
            missing.into_iter().find(|need| !is_waiting(need)).context("objects wait for each other")?;
        let provider = json!({
            "apiVersion": need.kind.api_version(),
            "kind": need.kind.kind,
            "metadata": { "name": need.name },
            "spec": {},
        });
        self.waiting.push(self.server.placed(&provider));
        Ok(())
    }

    fn unmet(&self, object: &Value) -> Result<Vec<ObjectNeed>> {
        let needs = service(object)?.decode(&serde_json::from_value(object.clone())?)?.needs();
        let is_met = |need: &ObjectNeed| {
            self.resolved.objects.contains_key(&(need.kind.kind.to_owned(), need.name.clone()))
        };
        Ok(needs.objects.into_iter().filter(|need| !is_met(need)).collect())
    }

    async fn plan_one(&mut self, written: &Value) -> Result<()> {
        let service = service(written)?;
        let stored = accepted(written, self.server.apply(written, Effect::DryRun).await?)?;
        let object: DynamicObject = serde_json::from_value(stored)?;
        let decoded = service.decode(&object)?;
        let needs = decoded.needs();
        // Services have no addresses yet, so their names replace them.
        for name in needs.addresses {
            self.resolved.addresses.insert(name.clone(), name);
        }
        // One node, which every selector matches.
        self.resolved.nodes =
            needs.nodes.map(|need| ("node-a".to_owned(), need.labels)).into_iter().collect();
        let plan_of = |object: &dyn AnyObject| object.plan(&self.resolved, &site(), &BTreeMap::new());
        let plan = plan_of(decoded.as_ref())?;
        let without_cluster = service.decode(&serde_json::from_value(written.clone())?)?;
        let without_cluster = plan_of(without_cluster.as_ref())?;
        ensure!(
            plan == without_cluster,
            "the API server's defaults are not the operator's: with them {plan:#?}, without {without_cluster:#?}"
        );
        let name = object.metadata.name.unwrap_or_default();
        let instance = Instance {
            kind: service.kind(),
            service: service.name(),
            name: name.clone(),
            namespace: self.server.namespace().to_owned(),
            uid: String::new(),
        };
        self.resolved.objects.insert((service.kind().kind.to_owned(), name), plan.provides.clone());
        let children = lower(&instance, &plan, &Observed::default()).remove(&Phase::Children);
        self.waiting.extend(children.into_iter().flatten().map(|child| child.body));
        let object = Manifest {
            kind: instance.kind,
            name: instance.name.clone(),
            body: written.clone(),
            source: Source::Other,
        };
        self.planned.push(Planned { object, instance, plan });
        Ok(())
    }
}

fn service(object: &Value) -> Result<&'static dyn AnyService> {
    let kind = object["kind"].as_str().unwrap_or_default();
    of_kind(kind).with_context(|| format!("{kind:?} is not a kind of the operator"))
}

fn site() -> Site {
    Site {
        images: ImageDefaults { family: Family::Kolla, registry: None, tags: BTreeMap::new() },
        cluster_domain: "cluster.local".to_owned(),
    }
}

impl Planned {
    /// Every manifest of the object: of its creation, and of a change of its image after a key rotation. Of two manifests
    /// with the same name, that of the change comes first.
    #[must_use]
    pub fn manifests(&self) -> Vec<Manifest> {
        let facts = SecretFacts { revision: "1".to_owned(), rotations: 1 };
        let secrets = self.plan.secrets.iter().map(|secret| (secret.name.clone(), facts.clone()));
        let removed = task::recorded_scale(&self.plan).into_keys();
        let changed = Observed {
            installed: Some("another".to_owned()),
            secrets: secrets.collect(),
            removed_pods: removed.map(|component| (component, vec!["removed-1".to_owned()])).collect(),
        };
        let mut all: Vec<Manifest> =
            self.plan.secrets.iter().map(|plan| secret(&self.instance, plan)).collect();
        for observed in [changed, Observed::default()] {
            for manifest in lower(&self.instance, &self.plan, &observed).into_values().flatten() {
                if !all.contains(&manifest) {
                    all.push(manifest);
                }
            }
        }
        all
    }

    /// The same with an owner that is not stored.
    #[must_use]
    pub fn owned_manifests(&self) -> Vec<Manifest> {
        let instance = Instance { uid: OWNER.to_owned(), ..self.instance.clone() };
        Self { instance, ..self.clone() }.manifests()
    }
}

/// A Secret of the plan with placeholders for generated values.
fn secret(instance: &Instance, plan: &SecretPlan) -> Manifest {
    let keys: Vec<&str> = match &plan.content {
        SecretContent::Entries(entries) => entries.keys().map(String::as_str).collect(),
        SecretContent::KeyRing(_) => vec!["0", "1"],
        SecretContent::Certificate(_) => CERTIFICATE_KEYS.to_vec(),
        SecretContent::SshKey => SSH_KEYS.to_vec(),
    };
    let data: BTreeMap<&str, &str> = keys.into_iter().map(|key| (key, SECRET_VALUE)).collect();
    let fields = [("type", json!("Opaque")), ("data", json!(data))];
    manifest(SECRET, &plan.name, &instance.metadata(&plan.name, None), fields)
}

/// The manifest without effects when it is stored: no pod starts, no route serves, and the operator is paused.
#[must_use]
pub fn inert(manifest: &Manifest) -> Value {
    let mut body = manifest.body.clone();
    match manifest.kind {
        DEPLOYMENT | STATEFUL_SET => body["spec"]["replicas"] = json!(0),
        DAEMON_SET => body["spec"]["template"]["spec"]["nodeSelector"] = json!({ "nowhere": "" }),
        JOB | CRON_JOB => body["spec"]["suspend"] = json!(true),
        HTTP_ROUTE => {
            for parent in body["spec"]["parentRefs"].as_array_mut().into_iter().flatten() {
                parent["name"] = json!("nowhere");
                parent.as_object_mut().map(|parent| parent.remove("namespace"));
            }
        }
        Kind { group: GROUP, .. } => body["metadata"]["annotations"][PAUSE_ANNOTATION] = json!("true"),
        _ => {}
    }
    body
}
