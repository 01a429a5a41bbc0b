//! The CRD of a cloud with all services of OpenStack stays within the limits of the API server.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::DeleteParams;
use openstack_operator_apiserver::definition::condition;
use openstack_operator_apiserver::server::accepted;
use openstack_operator_apiserver::{Effect, Server};
use openstack_operator_services::{ALL, PARTS, control_plane};
use openstack_operator_smoke::wait::{await_condition, eventually};
use openstack_operator_smoke::{PodSecurity, Sandbox, with_namespace};
use openstack_operator_testkit::with_services;
use serde_json::{Value, json};

/// Number of services of a complete cloud.
const SERVICES: usize = 35;
/// Maximum size of the CRD as compact JSON, in bytes.
const LARGEST: usize = 170_000;
const ESTABLISHMENT: Duration = Duration::from_mins(1);
/// Another API group, so that the operator's CRDs stay unchanged.
const GROUP: &str = "wide.example.com";
const NAME: &str = "widecontrolplanes.wide.example.com";

#[tokio::test]
async fn a_cloud_of_many_services_is_within_the_limits_of_the_api_server() -> Result<()> {
    let definition = wide()?;
    let size = definition.to_string().len();
    ensure!(size < LARGEST, "the definition has {size} bytes");
    with_namespace("wide", PodSecurity::Restricted, async |sandbox| {
        let outcome = check(sandbox, &definition).await;
        let api = Api::<CustomResourceDefinition>::all(sandbox.client.clone());
        let removed = api.delete(NAME, &DeleteParams::default()).await;
        outcome?;
        removed.context("failed to remove the definition").map(|_| ())
    })
    .await
}

/// The CRD of a cloud with further services, under another name.
fn wide() -> Result<Value> {
    let plane = ALL.iter().find(|service| service.kind() == control_plane::KIND);
    let definition = serde_json::to_value(plane.context("there is no control plane")?.crd())?;
    let mut wide = with_services(&definition, PARTS.len(), SERVICES);
    wide["metadata"]["name"] = NAME.into();
    wide["spec"]["group"] = GROUP.into();
    wide["spec"]["names"] = json!({
        "kind": "WideControlPlane", "plural": "widecontrolplanes", "singular": "widecontrolplane",
    });
    Ok(wide)
}

async fn check(sandbox: &Sandbox, definition: &Value) -> Result<()> {
    let server = Server::new(sandbox);
    accepted(definition, server.apply(definition, Effect::Stored).await?)?;
    let api = Api::<CustomResourceDefinition>::all(sandbox.client.clone());
    await_condition(&api, NAME, "to be established", ESTABLISHMENT, |found| {
        condition(found, "Established") == Some("True")
    })
    .await?;
    let cloud = |spec: Value| {
        json!({ "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "WideControlPlane",
                "metadata": { "name": "cloud" }, "spec": spec })
    };
    // The API server serves requests a moment after it reports Established.
    let least = cloud(json!({}));
    eventually("the kind to be served", ESTABLISHMENT, async || {
        accepted(&least, server.create(&least).await?)
    })
    .await?;
    let last = format!("service{SERVICES}");
    let wrong = cloud(json!({ last.as_str(): { "topology": "unknown" } }));
    let Err(refusal) = server.create(&wrong).await? else {
        bail!("the API server does not enforce the rules of {last}")
    };
    let expected = format!("spec.{last}.topology is not in spec.topologies");
    ensure!(refusal.message.contains(&expected), "{}", refusal.message);
    Ok(())
}
