//! Changes do what their plan said: only what must roll, rolls.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use openstack_operator_smoke::Sandbox;
use openstack_operator_smoke::wait::eventually;
use serde_json::{Value, json};

use crate::cloud::Cloud;
use crate::operator::Operator;

const CHANGE: Duration = Duration::from_mins(5);

pub(crate) async fn changes_as_planned(
    sandbox: &Sandbox,
    operator: &Operator,
    cloud: &Cloud<'_>,
) -> Result<()> {
    let keystone = cloud.part("keystone");
    let plan = Planner { operator, cloud, file: file(sandbox) };

    let mut wanted = json!({ "keystone": { "replicas": 2 } });
    let text = plan.announces(&wanted).await?;
    ensure!(!text.contains("Restarts:"), "more replicas restart nothing: {text}");
    let before = cloud.pods().await?;
    change(cloud, &wanted).await?;
    let after = cloud.pods().await?;
    ensure!(kept(&before, &after) == before.len(), "a pod was replaced to add one: {before:?} {after:?}");
    ensure!(after.len() == before.len() + 1, "there is not one pod more: {after:?}");

    wanted["keystone"]["extraConfig"] =
        json!({ "keystone.conf": { "DEFAULT": { "insecure_debug": "true" } } });
    wanted["keystone"]["notifications"] = json!({ "enabled": true });
    let text = plan.announces(&wanted).await?;
    ensure!(text.contains("insecure_debug = true"), "the plan does not show the line: {text}");
    restarts_only(&text, &keystone)?;
    rolls_only(cloud, &wanted, &keystone).await?;

    // Another name of the same image is another image to everybody but its author.
    let reference = sandbox.image("keystone")?;
    let tag = reference.rsplit_once(':').context("an image without a tag")?.1;
    wanted["components"] = json!([{ "service": "keystone", "image": { "tag": tag } }]);
    let text = plan.announces(&wanted).await?;
    for task in ["db-expand", "db-migrate", "db-contract"] {
        ensure!(text.contains(&format!("{keystone}-{task}")), "the plan does not announce {task}: {text}");
    }
    restarts_only(&text, &keystone)?;
    rolls_only(cloud, &wanted, &keystone).await?;
    let object = cloud.keystones().get(&keystone).await?;
    let installed = object.data["status"]["installed"].as_str().unwrap_or_default();
    ensure!(installed.ends_with(tag), "the image in place is {installed}");

    // Tasks that are done are removed right after the cloud is Ready.
    eventually("nothing to be left to do", CHANGE, async || plan.is_quiet(&wanted).await).await
}

/// Where the manifest to be planned is written.
fn file(sandbox: &Sandbox) -> PathBuf {
    std::env::temp_dir().join(format!("{}.json", sandbox.namespace))
}

struct Planner<'a> {
    operator: &'a Operator,
    cloud: &'a Cloud<'a>,
    file: PathBuf,
}

impl Planner<'_> {
    async fn plan(&self, changes: &Value) -> Result<(i32, String)> {
        // YAML reads JSON too.
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

    /// After a change has been made, there is nothing left to do.
    async fn is_quiet(&self, changes: &Value) -> Result<()> {
        let (code, text) = self.plan(changes).await?;
        ensure!(code == 0, "a plan without changes ended with {code}: {text}");
        Ok(())
    }
}

fn restarts_only(plan: &str, workload: &str) -> Result<()> {
    let line =
        plan.lines().find(|line| line.starts_with("Restarts:")).context("the plan announces no restart")?;
    ensure!(line.contains(workload), "the plan does not announce that {workload} restarts: {line}");
    ensure!(
        line.matches("Deployment").count() + line.matches("StatefulSet").count() == 1,
        "more restarts: {line}"
    );
    Ok(())
}

async fn change(cloud: &Cloud<'_>, wanted: &Value) -> Result<()> {
    cloud.apply(wanted).await?;
    cloud.ready(CHANGE).await
}

async fn rolls_only(cloud: &Cloud<'_>, wanted: &Value, workload: &str) -> Result<()> {
    let before = cloud.pods().await?;
    change(cloud, wanted).await?;
    let after = cloud.pods().await?;
    for (name, uid) in &before {
        let same = after.get(name) == Some(uid);
        ensure!(
            same != name.starts_with(workload),
            "pod {name} was {}",
            if same { "kept" } else { "replaced" }
        );
    }
    Ok(())
}

/// How many pods are the same.
fn kept(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> usize {
    before.iter().filter(|(name, uid)| after.get(*name) == Some(*uid)).count()
}
