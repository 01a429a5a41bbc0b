//! The API server rejects changes that the operator cannot make, and accepts others.

use anyhow::{Context, Result, ensure};
use openstack_operator_apiserver::corpus::{Expectation, File, files};
use openstack_operator_apiserver::definition::install;
use openstack_operator_apiserver::server::accepted;
use openstack_operator_apiserver::{Effect, Server};
use openstack_operator_model::common::PAUSE_ANNOTATION;
use openstack_operator_smoke::{PodSecurity, with_namespace};
use serde_json::Value;

#[tokio::test]
async fn only_changes_that_the_operator_can_make_are_accepted() -> Result<()> {
    with_namespace("changed", PodSecurity::Restricted, async |sandbox| {
        install(&sandbox.client).await?;
        let server = Server::new(sandbox);
        let mut problems = Vec::new();
        for file in files("changed")? {
            let problem = check(&server, &file).await.err();
            problems.extend(problem.map(|problem| format!("{}: {problem:#}", file.name)));
        }
        ensure!(problems.is_empty(), "{}", problems.join("\n"));
        Ok(())
    })
    .await
}

/// The first object of a file is stored, with its status if it has one; each of the others is a change of it.
async fn check(server: &Server, file: &File) -> Result<()> {
    let (first, changes) = file.objects.split_first().context("it is empty")?;
    ensure!(!changes.is_empty(), "it has no change");
    accepted(first, server.apply(&paused(first), Effect::Stored).await?)?;
    if first.get("status").is_some() {
        accepted(first, server.apply_status(first).await?)?;
    }
    for change in changes {
        let answer = server.apply(&paused(change), Effect::DryRun).await?;
        let spec = &change["spec"];
        match &file.expectation {
            Expectation::Accepted => {
                accepted(change, answer).with_context(|| format!("changed to {spec}"))?;
            }
            Expectation::Refused(part) => {
                let Err(refusal) = answer else { anyhow::bail!("a change to {spec} is accepted") };
                ensure!(
                    refusal.message.contains(part),
                    "the API server rejects a change to {spec} for another reason: {}",
                    refusal.message
                );
            }
        }
    }
    Ok(())
}

/// An operator in the cluster must not reconcile the object.
fn paused(object: &Value) -> Value {
    let mut paused = object.clone();
    paused["metadata"]["annotations"][PAUSE_ANNOTATION] = "true".into();
    paused
}
