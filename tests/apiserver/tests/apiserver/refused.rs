//! The API server rejects every mistake with a message that explains it.

use anyhow::{Result, ensure};
use openstack_operator_apiserver::Server;
use openstack_operator_apiserver::corpus::{Expectation, files};
use openstack_operator_apiserver::definition::install;
use openstack_operator_apiserver::server::title;
use openstack_operator_smoke::{PodSecurity, with_namespace};

#[tokio::test]
async fn every_mistake_is_rejected_for_its_own_reason() -> Result<()> {
    with_namespace("refused", PodSecurity::Restricted, async |sandbox| {
        install(&sandbox.client).await?;
        let server = Server::new(sandbox);
        let mut problems = Vec::new();
        for file in files("refused")? {
            let Expectation::Refused(part) = &file.expectation else { continue };
            for object in &file.objects {
                let problem = match server.create(object).await? {
                    Ok(_) => "it is accepted".to_owned(),
                    Err(refusal) if refusal.message.contains(part) => continue,
                    Err(refusal) => {
                        format!("the message ({}) has no {part:?}: {}", refusal.code, refusal.message)
                    }
                };
                problems.push(format!("{}, {}: {problem}", file.name, title(object)));
            }
        }
        ensure!(problems.is_empty(), "{}", problems.join("\n"));
        Ok(())
    })
    .await
}
