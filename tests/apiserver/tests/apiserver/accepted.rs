//! The API server accepts the samples and the examples of users.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use openstack_operator_apiserver::corpus::{files, samples};
use openstack_operator_apiserver::definition::install;
use openstack_operator_apiserver::{Server, server};
use openstack_operator_services::ALL;
use openstack_operator_smoke::{PodSecurity, notice, with_namespace};

#[tokio::test]
async fn every_example_and_every_sample_is_accepted_without_a_warning() -> Result<()> {
    with_namespace("accepted", PodSecurity::Restricted, async |sandbox| {
        install(&sandbox.client).await?;
        let server = Server::new(sandbox);
        let samples = samples()?;
        if samples.is_empty() {
            notice("skipped the samples: there are none");
        }
        let mut problems = Vec::new();
        let mut kinds = BTreeSet::new();
        for file in files("accepted")?.iter().chain(&samples) {
            for object in &file.objects {
                kinds.extend(object["kind"].as_str().map(str::to_owned));
                let answer = server.create(object).await?;
                let problem = server::accepted(object, answer).err();
                problems.extend(problem.map(|problem| format!("{}: {problem:#}", file.name)));
            }
        }
        ensure!(problems.is_empty(), "{}", problems.join("\n"));
        for service in ALL.iter() {
            let kind = service.kind().kind;
            ensure!(kinds.contains(kind), "there is no example of kind {kind}");
        }
        Ok(())
    })
    .await
}
