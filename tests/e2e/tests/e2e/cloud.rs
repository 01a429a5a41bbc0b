//! A cloud in a namespace.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::wait::{Condition, conditions::is_deployment_completed};
use openstack_operator_services::{PARTS, fields_beyond_identity};
use openstack_operator_smoke::Sandbox;
use openstack_operator_smoke::wait::{await_condition, eventually, is_pod_ready};
use serde_json::{Value, json};

/// How long a cloud may take to become Ready on a loaded machine.
pub(crate) const CLOUD_START: Duration = Duration::from_mins(15);
/// How long a cloud may take to recover from a lost pod or to roll out a change.
pub(crate) const RECOVERY: Duration = Duration::from_mins(10);
/// Labels of pods that do not belong to Jobs.
pub(crate) const LASTING_PODS: &str =
    "app.kubernetes.io/managed-by=openstack-operator,!batch.kubernetes.io/job-name";

const MINIMAL: &str = include_str!("../../../../samples/minimal.yaml");
const HIGHLY_AVAILABLE: &str = include_str!("../../../../samples/ha.yaml");
const WITHOUT_OVN: &str = include_str!("../../../../samples/ovs.yaml");

#[derive(Clone)]
pub(crate) struct Cloud {
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) namespace: String,
    pub(crate) name: String,
    sample: &'static str,
    extent: Extent,
    /// Changes to the sample that every manifest of the cloud has.
    settings: Value,
}

/// The services that a cloud runs.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Extent {
    /// Keystone and the infrastructure that it uses.
    Identity,
    /// All services of the sample.
    Whole,
}

impl Cloud {
    fn new(sandbox: Arc<Sandbox>, name: &str, sample: &'static str) -> Self {
        let (namespace, name) = (sandbox.namespace.clone(), name.to_owned());
        Self { sandbox, namespace, name, sample, extent: Extent::Whole, settings: json!({}) }
    }

    pub(crate) fn minimal(sandbox: Arc<Sandbox>, name: &str, extent: Extent) -> Self {
        Self { extent, ..Self::new(sandbox, name, MINIMAL) }
    }

    /// A cloud whose networks are built by Neutron's own agents.
    pub(crate) fn without_ovn(sandbox: Arc<Sandbox>, name: &str) -> Self {
        Self::new(sandbox, name, WITHOUT_OVN)
    }

    pub(crate) fn highly_available(sandbox: Arc<Sandbox>, name: &str) -> Self {
        Self::new(sandbox, name, HIGHLY_AVAILABLE)
    }

    /// A cloud that exists already, e.g. the one of `cargo xtask up`.
    pub(crate) fn existing(sandbox: Arc<Sandbox>, namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..Self::new(sandbox, name, MINIMAL) }
    }

    pub(crate) fn with(mut self, settings: &Value) -> Self {
        merge(&mut self.settings, settings);
        self
    }

    /// Name of one of the cloud's parts, e.g. `cloud-keystone`.
    pub(crate) fn part(&self, part: &str) -> String {
        format!("{}-{part}", self.name)
    }

    /// Objects of one of the operator's kinds.
    pub(crate) fn objects(&self, kind: &str, plural: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("openstack.k8s.io", "v1alpha1", kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        Api::namespaced_with(self.sandbox.client.clone(), &self.namespace, &resource)
    }

    pub(crate) fn control_planes(&self) -> Api<DynamicObject> {
        self.objects("OpenStackControlPlane", "openstackcontrolplanes")
    }

    pub(crate) fn keystones(&self) -> Api<DynamicObject> {
        self.objects("Keystone", "keystones")
    }

    /// The sample's control plane in this namespace, with its own DNS name and these changes.
    pub(crate) fn manifest(&self, changes: &Value) -> Result<Value> {
        let mut object: Value = serde_saphyr::from_str(self.sample).context("the sample is not YAML")?;
        object["metadata"]["name"] = json!(self.name);
        object["metadata"]["namespace"] = json!(self.namespace);
        object["spec"]["publicDomain"] = json!(self.hostname());
        object["spec"]["keystone"] = json!({ "publicHostname": self.hostname() });
        for service in fields_beyond_identity().filter(|_| self.extent == Extent::Identity) {
            object["spec"][service]["enabled"] = json!(false);
        }
        merge(&mut object["spec"], &self.settings);
        merge(&mut object["spec"], changes);
        Ok(object)
    }

    pub(crate) fn hostname(&self) -> String {
        format!("{}.openstack.test", self.namespace)
    }

    pub(crate) async fn apply(&self, changes: &Value) -> Result<()> {
        let object = self.manifest(changes)?;
        let parameters = PatchParams::apply("e2e").force();
        self.control_planes()
            .patch(&self.name, &parameters, &Patch::Apply(&object))
            .await
            .context("failed to apply the control plane")?;
        Ok(())
    }

    /// Waits until this generation of the cloud is Ready.
    pub(crate) async fn ready(&self, limit: Duration) -> Result<()> {
        await_condition(&self.control_planes(), &self.name, "to be Ready", limit, is_ready).await?;
        Ok(())
    }

    /// Names and UIDs of the pods that do not belong to Jobs.
    pub(crate) async fn pods(&self) -> Result<BTreeMap<String, String>> {
        let pods = self.list_pods().await?.into_iter();
        Ok(pods
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            .filter_map(|pod| Some((pod.metadata.name?, pod.metadata.uid?)))
            .collect())
    }

    async fn list_pods(&self) -> Result<Vec<Pod>> {
        Ok(self.sandbox.api::<Pod>().list(&ListParams::default().labels(LASTING_PODS)).await?.items)
    }

    /// Kinds of the objects that the cloud consists of.
    pub(crate) async fn kinds(&self) -> Result<Vec<&'static str>> {
        let mut kinds = vec!["OpenStackControlPlane"];
        for part in PARTS {
            let kind = part.kind();
            let object = self.objects(kind.kind, kind.plural).get_opt(&self.part(part.field())).await?;
            kinds.extend(object.map(|_| kind.kind));
        }
        Ok(kinds)
    }

    /// Waits until every part is Ready, every Deployment is rolled out and every pod is ready.
    pub(crate) async fn settles(&self) -> Result<()> {
        eventually("the cloud to settle", RECOVERY, async || {
            for part in PARTS {
                let kind = part.kind();
                let objects = self.objects(kind.kind, kind.plural);
                if let Some(object) = objects.get_opt(&self.part(part.field())).await? {
                    ensure!(is_ready(&object), "{}: {}", kind.kind, object.data["status"]["conditions"]);
                }
            }
            for deployment in self.sandbox.api::<Deployment>().list(&ListParams::default()).await?.items {
                let is_complete = is_deployment_completed().matches_object(Some(&deployment));
                ensure!(is_complete, "{} is rolling out", deployment.name_any());
            }
            let pods = self.list_pods().await?;
            let waiting: Vec<String> =
                pods.iter().filter(|pod| !is_serving(pod)).map(ResourceExt::name_any).collect();
            ensure!(waiting.is_empty(), "pods are not ready: {}", waiting.join(", "));
            let cloud = self.control_planes().get(&self.name).await?;
            ensure!(is_ready(&cloud), "the control plane is not Ready: {}", cloud.data["status"]);
            Ok(())
        })
        .await
    }
}

pub(crate) fn is_ready(object: &DynamicObject) -> bool {
    let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    ready.is_some_and(|ready| ready["status"] == "True")
        && object.data["status"]["observedGeneration"].as_i64() == object.metadata.generation
}

/// Whether a pod is ready and stays.
pub(crate) fn is_serving(pod: &Pod) -> bool {
    is_pod_ready(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Overlays one value with another.
fn merge(target: &mut Value, changes: &Value) {
    match (target, changes) {
        (Value::Object(target), Value::Object(changes)) => {
            for (field, change) in changes {
                merge(target.entry(field.clone()).or_insert(Value::Null), change);
            }
        }
        (target, change) => *target = change.clone(),
    }
}
