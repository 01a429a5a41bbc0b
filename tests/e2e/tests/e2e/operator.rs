//! The operator as it is installed for users: by the manifests that it prints itself, with its own rights.

use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::discovery::pinned_kind;
use kube::runtime::wait::{Condition, conditions::is_deployment_completed};
use kube::{Client, core::GroupVersionKind};
use openstack_operator_smoke::wait::{POD_START, await_condition, eventually};
use openstack_operator_smoke::{Sandbox, notice};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::client;

const NAME: &str = "openstack-operator";
/// Catalogs and databases are looked at this often here, so that a test need not wait long.
const DRIFT_SECONDS: &str = "15";
/// What the operator may occupy with one cloud, in bytes.
const MEMORY_BUDGET: u64 = 32 << 20;

pub(crate) struct Operator {
    program: PathBuf,
}

impl Operator {
    /// Installs the operator, or finds it installed by an earlier test.
    pub(crate) async fn install(sandbox: &Sandbox) -> Result<Self> {
        let program =
            env::var("E2E_OPERATOR").context("E2E_OPERATOR is not set: run through `cargo xtask test`")?;
        let operator = Self { program: program.into() };
        let registry = env::var("E2E_IMAGES_REGISTRY")?;
        let image = sandbox.image("operator")?;
        let arguments = [
            ["manifests", "--namespace", NAME, "--image", &image, "--images-family", "debian"].as_slice(),
            &["--images-registry", &registry],
        ]
        .concat();
        let manifests = operator.succeeds(&arguments).await?;
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(&manifests).context("the manifests are no YAML")?;
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
        Ok(operator)
    }

    /// Runs the program as a person would, and returns its exit code and what it wrote.
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

    /// At rest the operator writes nothing, and stays small.
    pub(crate) async fn rests(&self, sandbox: &Sandbox, client: &client::Client<'_>) -> Result<()> {
        // Long enough for everything to have been looked at twice.
        let span = Duration::from_secs(40);
        eventually("the operator to rest", Duration::from_mins(5), async || {
            let before = metrics(sandbox, client).await?;
            tokio::time::sleep(span).await;
            let after = metrics(sandbox, client).await?;
            let changed: Vec<String> = after
                .iter()
                .filter(|(name, value)| name.contains("_writes_total") && before.get(*name) != Some(*value))
                .map(|(name, value)| format!("{name} from {:?} to {value}", before.get(name)))
                .collect();
            ensure!(changed.is_empty(), "it wrote: {}", changed.join(", "));
            let looked = |metrics: &BTreeMap<String, u64>| -> u64 {
                metrics
                    .iter()
                    .filter(|(name, _)| name.contains("_reconciles_total"))
                    .map(|(_, value)| value)
                    .sum()
            };
            ensure!(looked(&after) > looked(&before), "it looked at nothing, so that it says nothing");
            let memory = *after.get("process_resident_memory_bytes").context("no memory metric")?;
            ensure!(memory <= MEMORY_BUDGET, "it occupies {memory} bytes");
            notice(&format!("the operator rests in {} KiB", memory / 1024));
            Ok(())
        })
        .await
    }
}

/// The metrics of the operator's leader.
async fn metrics(sandbox: &Sandbox, client: &client::Client<'_>) -> Result<BTreeMap<String, u64>> {
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
async fn apply(client: &Client, document: &Value) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(document.clone())?;
    let types = object.types.clone().context("a document without a kind")?;
    let name = object.metadata.name.clone().context("a document without a name")?;
    let kind = GroupVersionKind::try_from(&types)?;
    let (resource, capabilities) = pinned_kind(client, &kind).await?;
    let api: Api<DynamicObject> = match (&capabilities.scope, &object.metadata.namespace) {
        (kube::discovery::Scope::Namespaced, Some(namespace)) => {
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
        _ => Api::all_with(client.clone(), &resource),
    };
    let parameters = PatchParams::apply("openstack-operator-e2e").force();
    api.patch(&name, &parameters, &Patch::Apply(document))
        .await
        .with_context(|| format!("failed to apply {} {name}", types.kind))?;
    Ok(())
}
