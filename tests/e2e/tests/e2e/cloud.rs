//! A cloud in a test's namespace.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use openstack_operator_services::fields_beyond_identity;
use openstack_operator_smoke::Sandbox;
use openstack_operator_smoke::wait::await_condition;
use serde_json::{Value, json};

pub(crate) struct Cloud<'a> {
    pub(crate) sandbox: &'a Sandbox,
    pub(crate) name: &'static str,
    sample: &'static str,
    whole: bool,
}

const MINIMAL: &str = include_str!("../../../../samples/minimal.yaml");
const HIGHLY_AVAILABLE: &str = include_str!("../../../../samples/ha.yaml");
const WITHOUT_OVN: &str = include_str!("../../../../samples/ovs.yaml");

/// Pods that do not end by themselves, by their labels.
pub(crate) const LASTING_PODS: &str =
    "app.kubernetes.io/managed-by=openstack-operator,!batch.kubernetes.io/job-name";

impl<'a> Cloud<'a> {
    /// A cloud of the sample that gives tokens, and nothing more.
    pub(crate) fn new(sandbox: &'a Sandbox, name: &'static str) -> Self {
        Self { sandbox, name, sample: MINIMAL, whole: false }
    }

    /// The sample's whole cloud.
    pub(crate) fn whole(sandbox: &'a Sandbox, name: &'static str) -> Self {
        Self { sandbox, name, sample: MINIMAL, whole: true }
    }

    /// A whole cloud whose networks are made by Neutron's own agents.
    pub(crate) fn without_ovn(sandbox: &'a Sandbox, name: &'static str) -> Self {
        Self { sandbox, name, sample: WITHOUT_OVN, whole: true }
    }

    /// A whole cloud that survives the loss of a node.
    pub(crate) fn highly_available(sandbox: &'a Sandbox, name: &'static str) -> Self {
        Self { sandbox, name, sample: HIGHLY_AVAILABLE, whole: true }
    }

    /// Name of one of the cloud's parts, e.g. `cloud-keystone`.
    pub(crate) fn part(&self, part: &str) -> String {
        format!("{}-{part}", self.name)
    }

    /// Objects of one of the operator's kinds.
    pub(crate) fn objects(&self, kind: &str, plural: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("openstack.k8s.io", "v1alpha1", kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        Api::namespaced_with(self.sandbox.client.clone(), &self.sandbox.namespace, &resource)
    }

    pub(crate) fn control_planes(&self) -> Api<DynamicObject> {
        self.objects("OpenStackControlPlane", "openstackcontrolplanes")
    }

    pub(crate) fn keystones(&self) -> Api<DynamicObject> {
        self.objects("Keystone", "keystones")
    }

    /// The sample's control plane, in this namespace and with its own name in DNS, changed by `changes`.
    pub(crate) fn manifest(&self, changes: &Value) -> Result<Value> {
        let mut object: Value = serde_saphyr::from_str(self.sample).context("the sample is no YAML")?;
        object["metadata"]["name"] = json!(self.name);
        object["metadata"]["namespace"] = json!(self.sandbox.namespace);
        object["spec"]["publicDomain"] = json!(self.hostname());
        object["spec"]["keystone"] = json!({ "publicHostname": self.hostname() });
        for service in fields_beyond_identity().filter(|_| !self.whole) {
            object["spec"][service]["enabled"] = json!(false);
        }
        merge(&mut object["spec"], changes);
        Ok(object)
    }

    pub(crate) fn hostname(&self) -> String {
        format!("{}.openstack.test", self.sandbox.namespace)
    }

    pub(crate) async fn apply(&self, changes: &Value) -> Result<()> {
        let object = self.manifest(changes)?;
        let parameters = PatchParams::apply("e2e").force();
        self.control_planes()
            .patch(self.name, &parameters, &Patch::Apply(&object))
            .await
            .context("failed to apply the control plane")?;
        Ok(())
    }

    /// Waits until this generation of the cloud is Ready.
    pub(crate) async fn ready(&self, limit: Duration) -> Result<()> {
        await_condition(&self.control_planes(), self.name, "to be Ready", limit, is_ready).await?;
        Ok(())
    }

    /// Pods that do not end by themselves: name and uid.
    pub(crate) async fn pods(&self) -> Result<BTreeMap<String, String>> {
        let pods = self.sandbox.api::<Pod>().list(&ListParams::default().labels(LASTING_PODS)).await?;
        Ok(pods
            .items
            .into_iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            .filter_map(|pod| Some((pod.metadata.name?, pod.metadata.uid?)))
            .collect())
    }
}

pub(crate) fn is_ready(object: &DynamicObject) -> bool {
    let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    ready.is_some_and(|ready| ready["status"] == "True")
        && object.data["status"]["observedGeneration"].as_i64() == object.metadata.generation
}

/// Lays one value over another.
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
