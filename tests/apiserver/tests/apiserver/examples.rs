//! The examples that the project was asked for are taken as they are written.

use anyhow::{Result, ensure};
use openstack_operator_apiserver::Server;
use openstack_operator_apiserver::definition::install;
use openstack_operator_apiserver::server::{accepted, title};
use openstack_operator_smoke::{PodSecurity, notice, with_namespace};
use openstack_operator_testkit::examples;

#[tokio::test]
async fn examples_are_taken_as_they_are_written() -> Result<()> {
    let examples = examples();
    if examples.is_empty() {
        notice("the documents with the examples are not beside the repository: nothing is checked");
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
