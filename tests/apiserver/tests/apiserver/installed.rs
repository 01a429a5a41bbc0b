//! The kustomize base and the chart install the same objects, and the API server accepts them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use openstack_operator_apiserver::installation::{by_title, charted, committed, kustomized, lint_chart};
use openstack_operator_apiserver::server::accepted;
use openstack_operator_apiserver::{Effect, Server};
use openstack_operator_smoke::{PodSecurity, with_namespace};
use serde_json::{Value, json};

/// Helm creates the namespace of a chart, not the chart itself.
const NAMESPACE: &str = "Namespace openstack-operator";

#[test]
fn helm_reports_no_problem_of_the_chart() -> Result<()> {
    lint_chart()
}

#[tokio::test]
async fn the_base_has_the_committed_objects_and_is_accepted_without_a_warning() -> Result<()> {
    let objects = kustomized()?;
    compare(&by_title(&objects)?, &by_title(&committed()?)?)?;
    dry_run("kustomized", &objects).await
}

#[tokio::test]
async fn the_chart_equals_the_base_and_is_accepted_without_a_warning() -> Result<()> {
    let objects = charted(&[])?;
    let mut base = by_title(&committed()?)?;
    base.remove(NAMESPACE).context("the base has no namespace")?;
    compare(&by_title(&objects)?, &base)?;
    dry_run("charted", &objects).await
}

#[tokio::test]
async fn every_value_of_the_chart_has_its_effect_and_is_accepted_without_a_warning() -> Result<()> {
    let objects = charted(&[
        "name=second",
        "replicas=2",
        "image.repository=registry.example.com/operator",
        "image.tag=7",
        "image.pullSecrets[0].name=login",
        "images.family=debian",
        "images.registry=registry.example.com/openstack",
        "images.tags[0]=2025.1=8",
        "clusterDomain=example.local",
        "resources.limits.memory=1Gi",
    ])?;
    let titled = by_title(&objects)?;
    ensure!(titled.contains_key("PodDisruptionBudget second"), "{:?}", titled.keys());
    let deployment = titled.get("Deployment second").context("there is no Deployment second")?;
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let variables = container["env"].as_array().into_iter().flatten();
    let is_setting = |variable: &&Value| {
        variable["name"].as_str().is_some_and(|name| name.starts_with("OPENSTACK_OPERATOR_"))
    };
    let variables: Vec<&Value> = variables.filter(is_setting).map(|variable| &variable["value"]).collect();
    let found = json!([
        deployment["spec"]["replicas"],
        container["image"],
        pod["imagePullSecrets"],
        variables,
        container["resources"]["limits"]["memory"],
    ]);
    let wanted = json!([
        2.0,
        "registry.example.com/operator:7",
        [{ "name": "login" }],
        ["debian", "registry.example.com/openstack", "2025.1=8", "example.local"],
        "1Gi",
    ]);
    ensure!(found == wanted, "{found} instead of {wanted}");
    dry_run("values", &objects).await
}

fn compare(found: &BTreeMap<String, Value>, wanted: &BTreeMap<String, Value>) -> Result<()> {
    let (titles, others): (Vec<_>, Vec<_>) = (found.keys().collect(), wanted.keys().collect());
    ensure!(titles == others, "{titles:?} instead of {others:?}");
    for (title, object) in found {
        ensure!(object == &wanted[title], "{title} is {object} instead of {}", wanted[title]);
    }
    Ok(())
}

/// Applies all objects as a dry run.
async fn dry_run(topic: &str, objects: &[Value]) -> Result<()> {
    with_namespace(topic, PodSecurity::Restricted, async |sandbox| {
        let server = Server::new(sandbox);
        for object in objects {
            accepted(object, server.apply(object, Effect::DryRun).await?)?;
        }
        Ok(())
    })
    .await
}
