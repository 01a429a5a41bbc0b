//! The CRDs of all kinds, installed once for all tests.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use openstack_operator_model::kind::{GROUP, VERSION};
use openstack_operator_services::{ALL, kinds};
use openstack_operator_smoke::wait::{await_condition, eventually};
use tokio::sync::OnceCell;

use crate::server::MANAGER;

const ESTABLISHMENT: Duration = Duration::from_mins(1);

static INSTALLED: OnceCell<()> = OnceCell::const_new();

/// Installs every CRD exactly as this checkout defines it. CRDs stay: deleting one would delete every object of its
/// kind.
pub async fn install(client: &Client) -> Result<()> {
    INSTALLED.get_or_try_init(|| install_all(client)).await.copied()
}

async fn install_all(client: &Client) -> Result<()> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    for service in ALL.iter() {
        let wanted = service.crd();
        let name = wanted.name_any();
        install_one(&api, &wanted).await.with_context(|| format!("failed to install {name}"))?;
        await_condition(&api, &name, "to be established", ESTABLISHMENT, |found| {
            condition(found, "Established") == Some("True")
        })
        .await?;
    }
    // The API server serves requests a moment after it reports Established.
    eventually("every kind to be served", ESTABLISHMENT, async || {
        let served = client.list_api_group_resources(&format!("{GROUP}/{VERSION}")).await?;
        let missing = kinds().into_iter().find(|kind| !served.resources.iter().any(|r| r.kind == kind.kind));
        ensure!(missing.is_none(), "{missing:?} is not served");
        Ok(())
    })
    .await
}

async fn install_one(api: &Api<CustomResourceDefinition>, wanted: &CustomResourceDefinition) -> Result<()> {
    let name = wanted.name_any();
    if api.get_opt(&name).await?.is_some_and(|found| is_same(&found, wanted)) {
        return Ok(());
    }
    let parameters = PatchParams::apply(MANAGER).force().validation_strict();
    let applied = api.patch(&name, &parameters, &Patch::Apply(wanted)).await?;
    if is_same(&applied, wanted) {
        return Ok(());
    }
    // Fields and rules of an older CRD with other field managers would remain, and tests would see another schema than
    // this checkout's.
    let replacement = CustomResourceDefinition { metadata: applied.metadata, ..wanted.clone() };
    let replaced = api.replace(&name, &PostParams::default(), &replacement).await?;
    ensure!(is_same(&replaced, wanted), "the API server stores another schema than this checkout's");
    Ok(())
}

fn is_same(found: &CustomResourceDefinition, wanted: &CustomResourceDefinition) -> bool {
    found.spec.versions == wanted.spec.versions
}

/// The status of a condition, if the CRD has it.
#[must_use]
pub fn condition<'a>(definition: &'a CustomResourceDefinition, name: &str) -> Option<&'a str> {
    let conditions = definition.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == name).map(|condition| condition.status.as_str())
}
