//! The API server sets defaults, so that users see them.

use anyhow::{Context, Result, ensure};
use openstack_operator_apiserver::Server;
use openstack_operator_apiserver::corpus::files;
use openstack_operator_apiserver::definition::install;
use openstack_operator_apiserver::server::accepted;
use openstack_operator_services::ALL;
use openstack_operator_smoke::{PodSecurity, with_namespace};

#[tokio::test]
async fn the_shortest_object_of_every_kind_gets_all_defaults() -> Result<()> {
    with_namespace("defaults", PodSecurity::Restricted, async |sandbox| {
        install(&sandbox.client).await?;
        let server = Server::new(sandbox);
        let files = files("defaults")?;
        for service in ALL.iter() {
            let kind = service.kind().kind;
            let file = files.iter().find(|file| file.objects[0]["kind"] == kind);
            let file = file.with_context(|| format!("corpus/defaults has no file for kind {kind}"))?;
            let [written, expected] = file.objects.as_slice() else {
                anyhow::bail!("{} needs an object and its stored form", file.name)
            };
            let stored = accepted(written, server.create(written).await?)?;
            let seen = serde_json::to_string_pretty(&stored["spec"])?;
            ensure!(stored["spec"] == expected["spec"], "{} is not the stored form: {seen}", file.name);
        }
        Ok(())
    })
    .await
}
