//! The operator in the cluster, installed from its own manifests as users do.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::discovery::{Scope, pinned_kind};
use kube::runtime::wait::{Condition, conditions};
use kube::{Client, ResourceExt, core::GroupVersionKind};
use openstack_operator_model::assess::assess;
use openstack_operator_model::condition::Progress;
use openstack_operator_model::kind::DEPLOYMENT;
use openstack_operator_services::ALL;
use openstack_operator_smoke::wait::{POD_START, await_condition, eventually};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::OperatorArguments;
use crate::cluster::{api, fetch_metrics};
use crate::metrics::Metrics;

/// The namespace, the Deployment and the label of the operator.
pub(crate) const NAME: &str = "openstack-operator";
/// The field manager of the benchmark.
pub(crate) const MANAGER: &str = "openstack-operator-bench";
const DEFINITION_START: Duration = Duration::from_mins(1);
/// A Lease that was not released expires after 15 seconds.
const ELECTION: Duration = Duration::from_mins(2);
const PODS_END: Duration = Duration::from_mins(2);

pub(crate) struct Installed {
    client: Client,
}

impl Installed {
    /// The operator in the cluster, if there is one.
    pub(crate) async fn find(client: &Client) -> Result<Option<(Self, i32)>> {
        let found = Api::<Deployment>::namespaced(client.clone(), NAME).get_opt(NAME).await?;
        let replicas = |deployment: Deployment| deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1);
        Ok(found.map(|deployment| (Self { client: client.clone() }, replicas(deployment))))
    }

    pub(crate) async fn install(client: &Client, arguments: &OperatorArguments, image: &str) -> Result<Self> {
        let mut command = Command::new(&arguments.operator);
        command.args(["manifests", "--namespace", NAME, "--image", image]).args(arguments.flags());
        let output = command.output().await.context("failed to start the operator's program")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the operator failed to print its manifests: {errors}");
        let text = String::from_utf8(output.stdout).context("the manifests are not text")?;
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(&text).context("the manifests are not YAML")?;
        // The operator watches the kinds from its start.
        install_definitions(client).await?;
        for document in &documents {
            apply(client, document).await?;
        }
        let installed = Self { client: client.clone() };
        installed.wait_until_leading().await?;
        Ok(installed)
    }

    /// Scales the operator and waits until that is done.
    pub(crate) async fn scale(&self, replicas: i32) -> Result<()> {
        let deployments = Api::<Deployment>::namespaced(self.client.clone(), NAME);
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        deployments
            .patch_scale(NAME, &PatchParams::default(), &patch)
            .await
            .with_context(|| format!("failed to scale the operator to {replicas}"))?;
        if replicas > 0 {
            return self.wait_until_leading().await;
        }
        eventually("the operator's pods to be deleted", PODS_END, async || {
            let left: Vec<String> = self.pods().await?.iter().map(ResourceExt::name_any).collect();
            ensure!(left.is_empty(), "pods are left: {}", left.join(", "));
            Ok(())
        })
        .await
    }

    async fn wait_until_leading(&self) -> Result<()> {
        let complete = |deployment: &DynamicObject| {
            let live = serde_json::to_value(deployment).unwrap_or(Value::Null);
            assess(DEPLOYMENT, NAME, &live) == Progress::Done
        };
        let deployments = api(&self.client, DEPLOYMENT, Some(NAME));
        await_condition(&deployments, NAME, "to be complete", POD_START, complete).await?;
        eventually("the operator to lead", ELECTION, async || self.metrics().await.map(drop)).await
    }

    async fn pods(&self) -> Result<Vec<Pod>> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), NAME);
        let label = format!("app.kubernetes.io/name={NAME}");
        Ok(pods.list(&ListParams::default().labels(&label)).await?.items)
    }

    /// The metrics of the leader.
    pub(crate) async fn metrics(&self) -> Result<Metrics> {
        for pod in self.pods().await?.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            let path = format!("/api/v1/namespaces/{NAME}/pods/{}:8080/proxy/metrics", pod.name_any());
            let metrics = fetch_metrics(&self.client, &path).await?;
            if metrics.leads() {
                return Ok(metrics);
            }
        }
        anyhow::bail!("no pod of the operator leads")
    }
}

/// Installs every CRD as this checkout defines it.
pub(crate) async fn install_definitions(client: &Client) -> Result<()> {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    for service in ALL.iter() {
        let definition = service.crd();
        let name = definition.name_any();
        definitions
            .patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&definition))
            .await
            .with_context(|| format!("failed to apply the definition {name}"))?;
        let established = |definition: &CustomResourceDefinition| {
            conditions::is_crd_established().matches_object(Some(definition))
        };
        await_condition(&definitions, &name, "to be established", DEFINITION_START, established).await?;
    }
    Ok(())
}

/// Applies any object.
async fn apply(client: &Client, document: &Value) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(document.clone())?;
    let types = object.types.clone().context("a document has no kind")?;
    let name = object.metadata.name.clone().context("a document has no name")?;
    let (resource, capabilities) = pinned_kind(client, &GroupVersionKind::try_from(&types)?).await?;
    let api: Api<DynamicObject> = match (&capabilities.scope, &object.metadata.namespace) {
        (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), namespace, &resource),
        _ => Api::all_with(client.clone(), &resource),
    };
    api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(document))
        .await
        .with_context(|| format!("failed to apply {} {name}", types.kind))?;
    Ok(())
}
