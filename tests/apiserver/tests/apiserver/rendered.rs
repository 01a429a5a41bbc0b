//! The API server accepts every rendered object, and applying it again changes nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use openstack_operator_apiserver::corpus::{File, files, samples};
use openstack_operator_apiserver::definition::install;
use openstack_operator_apiserver::render::{gadget, inert, plan};
use openstack_operator_apiserver::server::{MANAGER, accepted, title};
use openstack_operator_apiserver::{Effect, Server};
use openstack_operator_model::kind::{CHILD_KINDS, DAEMON_SET, Kind};
use openstack_operator_services::kinds;
use openstack_operator_smoke::wait::eventually;
use openstack_operator_smoke::{PodSecurity, with_namespace};
use serde_json::{Value, json};

/// How long other controllers may take to finish their writes to an object.
const REST: Duration = Duration::from_mins(1);

#[tokio::test]
async fn every_rendered_object_is_accepted_under_the_restricted_standard_without_a_warning() -> Result<()> {
    is_accepted("rendered", PodSecurity::Restricted, |kind| kind != DAEMON_SET).await
}

/// The unit tests of the services limit the privileges of node pods.
#[tokio::test]
async fn every_rendered_daemon_set_is_accepted_without_a_warning() -> Result<()> {
    is_accepted("nodes", PodSecurity::Privileged, |kind| kind == DAEMON_SET).await
}

/// Applies every rendered object of the selected kinds as a dry run.
async fn is_accepted(topic: &str, security: PodSecurity, is_selected: impl Fn(Kind) -> bool) -> Result<()> {
    with_namespace(topic, security, async |sandbox| {
        install(&sandbox.client).await?;
        let server = Server::new(sandbox);
        let mut problems = Vec::new();
        let mut rendered = BTreeSet::new();
        let mut all = vec![("gadget".to_owned(), gadget(&server))];
        for file in sources()? {
            let planned = plan(&server, &file.objects).await.with_context(|| file.name.clone())?;
            all.extend(planned.into_iter().map(|planned| (file.name.clone(), planned)));
        }
        for (source, planned) in all {
            for manifest in
                planned.owned_manifests().into_iter().filter(|manifest| is_selected(manifest.kind))
            {
                rendered.insert(manifest.kind);
                let answer = server.apply(&manifest.body, Effect::DryRun).await?;
                let problem = accepted(&manifest.body, answer).err();
                problems.extend(problem.map(|problem| format!("{source}: {problem:#}")));
            }
        }
        ensure!(problems.is_empty(), "{}", problems.join("\n"));
        for kind in CHILD_KINDS.iter().filter(|kind| is_selected(**kind)) {
            ensure!(rendered.contains(kind), "no object of kind {} was rendered", kind.kind);
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_api_server_warns_of_an_unrestricted_workload() -> Result<()> {
    with_namespace("warned", PodSecurity::Restricted, async |sandbox| {
        let labels = json!({ "app": "x" });
        let workload = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "x" },
            "spec": { "selector": { "matchLabels": labels }, "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "x", "image": "x" }] },
            } },
        });
        let answer = Server::new(sandbox).apply(&workload, Effect::DryRun).await?;
        let warnings = answer.map_err(|refusal| refusal.of(&workload))?.warnings;
        let is_expected = |warning: &String| warning.contains("would violate PodSecurity \"restricted");
        ensure!(warnings.iter().any(is_expected), "the API server warns of {warnings:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn applying_again_changes_nothing() -> Result<()> {
    // All of them run to their end, so that all namespaces are deleted.
    let sources = sources()?.into_iter().map(Some).chain([None]);
    let outcomes = join_all(sources.map(apply_again)).await;
    let stored: Vec<BTreeSet<String>> = outcomes.into_iter().collect::<Result<_>>()?;
    let stored: BTreeSet<String> = stored.into_iter().flatten().collect();
    for kind in CHILD_KINDS.iter().chain(&kinds()) {
        ensure!(stored.contains(kind.kind), "no object of kind {} was stored", kind.kind);
    }
    Ok(())
}

fn sources() -> Result<Vec<File>> {
    Ok([files("accepted")?, samples()?].concat())
}

/// Applies all objects of a file, or of the test service, twice, and returns their kinds.
async fn apply_again(file: Option<File>) -> Result<BTreeSet<String>> {
    let mut kinds = BTreeSet::new();
    // Node pods need privileges.
    with_namespace("again", PodSecurity::Privileged, async |sandbox| {
        install(&sandbox.client).await?;
        let server = Server::new(sandbox);
        let mut stored = BTreeSet::new();
        let all = match &file {
            Some(file) => plan(&server, &file.objects).await?,
            None => vec![gadget(&server)],
        };
        for planned in all {
            let object = file.is_some().then(|| planned.object.clone());
            for manifest in object.into_iter().chain(planned.manifests()) {
                if stored.insert((manifest.kind, manifest.name.clone())) {
                    kinds.insert(manifest.kind.kind.to_owned());
                    check(&server, &inert(&manifest)).await?;
                }
            }
        }
        Ok(())
    })
    .await
    .with_context(|| file.map_or_else(|| "gadget".to_owned(), |file| file.name))?;
    Ok(kinds)
}

async fn check(server: &Server, object: &Value) -> Result<()> {
    let first = managed(&accepted(object, server.apply(object, Effect::Stored).await?)?)?;
    // Other controllers may write to the object in between, but not to the fields of this manager.
    let again = eventually(&format!("{} to be applied without a change", title(object)), REST, async || {
        let before = server.get(object).await?;
        let after = accepted(object, server.apply(object, Effect::Stored).await?)?;
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        let again = managed(&after)?;
        let is_final = again != first || version(&before) == version(&after);
        ensure!(is_final, "it changed from {before} to {after}");
        Ok(again)
    })
    .await?;
    ensure!(again == first, "{} differs when it is applied again: {again} instead of {first}", title(object));
    Ok(())
}

/// Generation and managed fields, which only this manager changes.
fn managed(object: &Value) -> Result<Value> {
    let managers = object["metadata"]["managedFields"].as_array();
    let own = managers.into_iter().flatten().find(|entry| entry["manager"] == MANAGER);
    let fields = &own.with_context(|| format!("{object} has no fields of {MANAGER}"))?["fieldsV1"];
    Ok(json!({ "generation": object["metadata"]["generation"], "fields": fields }))
}
