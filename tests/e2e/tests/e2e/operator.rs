//! The operator, installed from its own manifests as users do.

use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::runtime::wait::{Condition, conditions::is_deployment_completed};
use openstack_operator_smoke::wait::{POD_START, await_condition, eventually};
use openstack_operator_smoke::{Sandbox, notice};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::client::Client;
use crate::cloud::Cloud;

/// Namespace and Deployment of the operator.
pub(crate) const NAME: &str = "openstack-operator";
const FIELD_MANAGER: &str = "openstack-operator-e2e";
/// The operator checks databases and catalogs this often here, so that checks do not wait long.
const DRIFT_SECONDS: &str = "15";
/// Memory that the operator may occupy with one cloud, in bytes.
const MEMORY_BUDGET: u64 = 32 << 20;
const REST: Duration = Duration::from_mins(6);

#[derive(Clone)]
pub(crate) struct Operator {
    program: PathBuf,
}

impl Operator {
    pub(crate) fn new() -> Result<Self> {
        let program =
            env::var("E2E_OPERATOR").context("E2E_OPERATOR is not set: run through `cargo xtask test`")?;
        Ok(Self { program: program.into() })
    }

    pub(crate) async fn install(&self, sandbox: &Sandbox) -> Result<()> {
        require_no_other_operator(&sandbox.client).await?;
        let registry = env::var("E2E_IMAGES_REGISTRY")?;
        let image = sandbox.image("operator")?;
        let arguments = [
            ["manifests", "--namespace", NAME, "--image", &image, "--images-family", "debian"].as_slice(),
            &["--images-registry", &registry],
        ]
        .concat();
        let manifests = self.succeeds(&arguments).await?;
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(&manifests).context("the manifests are not YAML")?;
        for mut document in documents {
            if document["kind"] == "Deployment" {
                let environment = &mut document["spec"]["template"]["spec"]["containers"][0]["env"];
                let variables = environment.as_array_mut().context("the operator has no environment")?;
                variables.push(json!({ "name": "OPENSTACK_OPERATOR_DRIFT_SECONDS", "value": DRIFT_SECONDS }));
            }
            apply(&sandbox.client, &document).await?;
        }
        let deployments = Api::<Deployment>::namespaced(sandbox.client.clone(), NAME);
        await_condition(&deployments, NAME, "to be complete", POD_START, |deployment: &Deployment| {
            is_deployment_completed().matches_object(Some(deployment))
        })
        .await?;
        Ok(())
    }

    /// Runs the program as a command-line tool and returns its exit code and output.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Result<(i32, String)> {
        let output = Command::new(&self.program).args(arguments).output().await?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code().context("the program was killed")?;
        Ok((code, if code > 1 { format!("{text}{errors}") } else { text }))
    }

    pub(crate) async fn succeeds(&self, arguments: &[&str]) -> Result<String> {
        let (code, text) = self.run(arguments).await?;
        ensure!(code == 0, "openstack-operator {arguments:?} ended with {code}: {text}");
        Ok(text)
    }
}

/// Fails if the cluster has an operator that this project's tools did not install: it would be replaced.
async fn require_no_other_operator(client: &kube::Client) -> Result<()> {
    let labelled = ListParams::default().labels("app.kubernetes.io/name=openstack-operator");
    let found = Api::<Deployment>::all(client.clone()).list(&labelled).await?;
    let others: Vec<String> = found.iter().filter(|found| !is_ours(found)).map(title).collect();
    ensure!(
        others.is_empty(),
        "the cluster has an operator that the tests would replace: {}: uninstall it, or use another cluster",
        others.join(", ")
    );
    Ok(())
}

fn title(deployment: &Deployment) -> String {
    format!("{}/{}", deployment.namespace().unwrap_or_default(), deployment.name_any())
}

fn is_ours(deployment: &Deployment) -> bool {
    let mut managers = deployment.managed_fields().iter().filter_map(|fields| fields.manager.as_deref());
    title(deployment) == format!("{NAME}/{NAME}")
        && managers.any(|manager| matches!(manager, FIELD_MANAGER | "xtask"))
}

/// At rest the operator reconciles, writes nothing, and stays small.
pub(crate) async fn rests(cloud: &Cloud, client: &Client) -> Result<()> {
    let kinds = cloud.kinds().await?;
    let sandbox = &cloud.sandbox;
    let mut before = metrics(sandbox, client).await?;
    let memory = eventually("the operator to rest", REST, async || {
        let after = metrics(sandbox, client).await?;
        let written = written(&before, &after);
        if !written.is_empty() {
            before = after;
            anyhow::bail!("it wrote: {}", written.join(", "));
        }
        // Twice: a reconcile that started before the first look may have written before it.
        let waiting: Vec<&str> = kinds
            .iter()
            .copied()
            .filter(|kind| reconciles(&after, kind) < reconciles(&before, kind) + 2)
            .collect();
        ensure!(waiting.is_empty(), "it has not reconciled these twice: {}", waiting.join(", "));
        Ok(*after.get("process_resident_memory_bytes").context("there is no metric of memory")?)
    })
    .await?;
    ensure!(memory <= MEMORY_BUDGET, "the operator occupies {memory} bytes");
    notice(&format!("the operator rests in {} KiB", memory / 1024));
    Ok(())
}

/// Counters of writes that have changed.
fn written(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> Vec<String> {
    after
        .iter()
        .filter(|(name, value)| name.contains("_writes_total") && before.get(*name) != Some(*value))
        .map(|(name, value)| format!("{name} from {:?} to {value}", before.get(name)))
        .collect()
}

/// How often objects of a kind have been reconciled.
fn reconciles(metrics: &BTreeMap<String, u64>, kind: &str) -> u64 {
    let label = format!("kind=\"{kind}\"");
    let of_kind =
        metrics.iter().filter(|(name, _)| name.contains("_reconciles_total") && name.contains(&label));
    of_kind.map(|(_, count)| count).sum()
}

/// The metrics of the operator's leader.
async fn metrics(sandbox: &Sandbox, client: &Client) -> Result<BTreeMap<String, u64>> {
    let pods = Api::<Pod>::namespaced(sandbox.client.clone(), NAME);
    let list = pods.list(&ListParams::default().labels("app.kubernetes.io/name=openstack-operator")).await?;
    let address =
        list.items.iter().find_map(|pod| pod.status.as_ref()?.pod_ip.clone()).context("no operator runs")?;
    let text = client.fetch(&format!("http://{address}:8080/metrics")).await?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    Ok(lines
        .filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.split('.').next()?.parse().ok()?))
        })
        .collect())
}

/// Applies any object.
async fn apply(client: &kube::Client, document: &Value) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(document.clone())?;
    let types = object.types.clone().context("a document without a kind")?;
    let name = object.metadata.name.clone().context("a document without a name")?;
    let kind = GroupVersionKind::try_from(&types)?;
    let (resource, capabilities) = pinned_kind(client, &kind).await?;
    let api: Api<DynamicObject> = match (&capabilities.scope, &object.metadata.namespace) {
        (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), namespace, &resource),
        _ => Api::all_with(client.clone(), &resource),
    };
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&name, &parameters, &Patch::Apply(document))
        .await
        .with_context(|| format!("failed to apply {} {name}", types.kind))?;
    Ok(())
}
