//! The API server accepts the examples of the specification unchanged.

use anyhow::{Result, ensure};
use openstack_operator_apiserver::Server;
use openstack_operator_apiserver::definition::install;
use openstack_operator_apiserver::server::{accepted, title};
use openstack_operator_smoke::{PodSecurity, notice, with_namespace};
use openstack_operator_testkit::examples;

#[tokio::test]
async fn examples_are_accepted_unchanged() -> Result<()> {
    let examples = examples();
    if examples.is_empty() {
        notice("skipped the examples: their documents are not beside the repository");
        return Ok(());
    }
    with_namespace("examples", PodSecurity::Restricted, async |sandbox| {
        install(&sandbox.client).await?;
        let server = Server::new(sandbox);
        let mut problems = Vec::new();
        for object in &examples {
            let problem = accepted(object, server.create(object).await?).err();
            problems.extend(problem.map(|problem| format!("{}: {problem:#}", title(object))));
        }
        ensure!(problems.is_empty(), "{}", problems.join("\n"));
        Ok(())
    })
    .await
}
