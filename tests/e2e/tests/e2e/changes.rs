//! A change does what its plan announces, and only the announced workloads restart.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use openstack_operator_smoke::wait::eventually;
use serde_json::{Value, json};

use crate::cloud::Cloud;
use crate::operator::Operator;

const CHANGE: Duration = Duration::from_mins(5);

pub(crate) async fn changes_as_planned(operator: &Operator, cloud: &Cloud) -> Result<()> {
    let keystone = cloud.part("keystone");
    let plan = Planner { operator, cloud, file: file(cloud) };

    let mut wanted = json!({ "keystone": { "replicas": 2 } });
    let text = plan.announces(&wanted).await?;
    ensure!(!text.contains("Restarts:"), "more replicas restart nothing: {text}");
    let before = cloud.pods().await?;
    change(cloud, &wanted).await?;
    let after = cloud.pods().await?;
    ensure!(kept(&before, &after) == before.len(), "a pod was replaced to add one: {before:?} {after:?}");
    ensure!(after.len() == before.len() + 1, "the change did not add exactly one pod: {after:?}");

    wanted["keystone"]["extraConfig"] =
        json!({ "keystone.conf": { "DEFAULT": { "insecure_debug": "true" } } });
    wanted["keystone"]["notifications"] = json!({ "enabled": true });
    let text = plan.announces(&wanted).await?;
    ensure!(text.contains("insecure_debug = true"), "the plan does not show the line: {text}");
    restarts_only(&text, &keystone)?;
    rolls_only(cloud, &wanted, &keystone).await?;

    // The operator compares references, so another tag of the same image is another image.
    let reference = cloud.sandbox.image("keystone")?;
    let tag = reference.rsplit_once(':').context("the image has no tag")?.1;
    wanted["components"] = json!([{ "service": "keystone", "image": { "tag": tag } }]);
    let text = plan.announces(&wanted).await?;
    for task in ["db-expand", "db-migrate", "db-contract"] {
        ensure!(text.contains(&format!("{keystone}-{task}")), "the plan does not announce {task}: {text}");
    }
    restarts_only(&text, &keystone)?;
    rolls_only(cloud, &wanted, &keystone).await?;
    let object = cloud.keystones().get(&keystone).await?;
    let installed = object.data["status"]["installed"].as_str().unwrap_or_default();
    ensure!(installed.ends_with(tag), "the installed image is {installed}");

    // The operator deletes finished tasks after the cloud is Ready.
    eventually("the plan to be empty", CHANGE, async || plan.is_empty(&wanted).await).await
}

/// The file of the manifest to plan.
fn file(cloud: &Cloud) -> PathBuf {
    std::env::temp_dir().join(format!("{}.json", cloud.namespace))
}

struct Planner<'a> {
    operator: &'a Operator,
    cloud: &'a Cloud,
    file: PathBuf,
}

impl Planner<'_> {
    async fn plan(&self, changes: &Value) -> Result<(i32, String)> {
        // JSON is YAML.
        std::fs::write(&self.file, self.cloud.manifest(changes)?.to_string())?;
        let registry = std::env::var("E2E_IMAGES_REGISTRY")?;
        let file = self.file.display().to_string();
        let arguments = ["plan", "-f", &file, "--images-family", "debian", "--images-registry", &registry];
        let outcome = self.operator.run(&arguments).await;
        std::fs::remove_file(&self.file)?;
        outcome
    }

    async fn announces(&self, changes: &Value) -> Result<String> {
        let (code, text) = self.plan(changes).await?;
        ensure!(code == 1, "a plan with changes ended with {code}: {text}");
        Ok(text)
    }

    async fn is_empty(&self, changes: &Value) -> Result<()> {
        let (code, text) = self.plan(changes).await?;
        ensure!(code == 0, "a plan without changes ended with {code}: {text}");
        Ok(())
    }
}

fn restarts_only(plan: &str, workload: &str) -> Result<()> {
    let line =
        plan.lines().find(|line| line.starts_with("Restarts:")).context("the plan announces no restart")?;
    ensure!(line.contains(workload), "the plan does not announce a restart of {workload}: {line}");
    let kinds = ["Deployment", "StatefulSet", "DaemonSet"];
    let restarts: usize = kinds.iter().map(|kind| line.matches(kind).count()).sum();
    ensure!(restarts == 1, "the plan announces other restarts too: {line}");
    Ok(())
}

async fn change(cloud: &Cloud, wanted: &Value) -> Result<()> {
    cloud.apply(wanted).await?;
    cloud.ready(CHANGE).await
}

async fn rolls_only(cloud: &Cloud, wanted: &Value, workload: &str) -> Result<()> {
    let before = cloud.pods().await?;
    change(cloud, wanted).await?;
    let after = cloud.pods().await?;
    for (name, uid) in &before {
        let same = after.get(name) == Some(uid);
        ensure!(
            same != name.starts_with(workload),
            "pod {name} was {}",
            if same { "not replaced" } else { "replaced without a reason" }
        );
    }
    Ok(())
}

/// Number of pods that are the same.
fn kept(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> usize {
    before.iter().filter(|(name, uid)| after.get(*name) == Some(*uid)).count()
}
