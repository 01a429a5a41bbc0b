//! The API server accepts every CRD without a warning and serves it under all its names.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, ResourceExt};
use openstack_operator_apiserver::definition::{condition, install};
use openstack_operator_apiserver::server::accepted;
use openstack_operator_apiserver::{Effect, Server};
use openstack_operator_model::kind::{GROUP, VERSION};
use openstack_operator_services::ALL;
use openstack_operator_smoke::wait::eventually;
use openstack_operator_smoke::{PodSecurity, with_namespace};

/// How long a change of a CRD may take to take effect.
const SERVED: Duration = Duration::from_secs(30);

#[tokio::test]
async fn every_crd_is_accepted_without_a_warning() -> Result<()> {
    with_namespace("definitions", PodSecurity::Restricted, async |sandbox| {
        let server = Server::new(sandbox);
        for service in ALL.iter() {
            let definition = serde_json::to_value(service.crd())?;
            accepted(&definition, server.apply(&definition, Effect::DryRun).await?)?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn every_crd_is_established_without_a_complaint() -> Result<()> {
    with_namespace("established", PodSecurity::Restricted, async |sandbox| {
        install(&sandbox.client).await?;
        let api = Api::<CustomResourceDefinition>::all(sandbox.client.clone());
        for service in ALL.iter() {
            let name = service.crd().name_any();
            let found = api.get(&name).await?;
            for (wanted, status) in [
                ("Established", Some("True")),
                ("NamesAccepted", Some("True")),
                ("NonStructuralSchema", None),
            ] {
                let seen = condition(&found, wanted);
                ensure!(
                    seen == status,
                    "{name} has {wanted} {seen:?} instead of {status:?}: {:?}",
                    found.status
                );
            }
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn every_kind_is_found_by_its_short_name_and_its_category() -> Result<()> {
    with_namespace("discovery", PodSecurity::Restricted, async |sandbox| {
        install(&sandbox.client).await?;
        // The API server serves the previous version of a changed CRD for a moment.
        let mut short_names = eventually("all kinds to be served as defined", SERVED, async || {
            let served = sandbox.client.list_api_group_resources(&format!("{GROUP}/{VERSION}")).await?;
            let mut short_names = Vec::new();
            for service in ALL.iter() {
                let kind = service.kind();
                let resource = served.resources.iter().find(|resource| resource.name == kind.plural);
                let resource = resource.with_context(|| format!("{} is not served", kind.plural))?;
                ensure!(resource.kind == kind.kind && resource.namespaced, "{resource:?}");
                let categories = resource.categories.iter().flatten();
                ensure!(categories.into_iter().any(|category| category == "openstack"), "{resource:?}");
                let wanted = service.crd().spec.names.short_names;
                ensure!(
                    wanted.is_some() && resource.short_names == wanted,
                    "{resource:?} instead of {wanted:?}"
                );
                short_names.extend(wanted.into_iter().flatten());
                let status = format!("{}/status", kind.plural);
                ensure!(
                    served.resources.iter().any(|resource| resource.name == status),
                    "there is no {status}"
                );
            }
            Ok(short_names)
        })
        .await?;
        let count = short_names.len();
        short_names.sort();
        short_names.dedup();
        ensure!(short_names.len() == count, "two kinds share a short name: {short_names:?}");
        Ok(())
    })
    .await
}
