//! Key rotation reaches running pods, and tokens stay valid.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use openstack_operator_smoke::wait::{await_condition, eventually};
use serde_json::json;

use crate::client::Client;
use crate::cloud::Cloud;

const ROTATE: &str = "openstack.k8s.io/rotate-keys";
const ROTATIONS: &str = "openstack.k8s.io/rotations";
/// The operator rotates again only when the previous rotation has reached every pod.
const ROTATION: Duration = Duration::from_mins(4);

pub(crate) async fn rotates_keys(cloud: &Cloud, client: &Client) -> Result<()> {
    let sandbox = &cloud.sandbox;
    let keystone = cloud.part("keystone");
    let pods = cloud.pods().await?;
    let token = client.openstack("token issue").await?;
    let token = token["id"].as_str().context("the client got no token")?.to_owned();
    for rotation in ["1", "2"] {
        let annotation = json!({ "metadata": { "annotations": { ROTATE: rotation } } });
        cloud.keystones().patch(&keystone, &PatchParams::default(), &Patch::Merge(&annotation)).await?;
        for secret in ["keystone-fernet", "keystone-credential"] {
            let rotated = |secret: &Secret| {
                let annotations = secret.metadata.annotations.as_ref();
                annotations.and_then(|all| all.get(ROTATIONS)).is_some_and(|count| count == rotation)
            };
            await_condition(&sandbox.api(), &cloud.part(secret), "to be rotated", ROTATION, rotated).await?;
        }
        let succeeded = |job: &Job| job.status.as_ref().is_some_and(|status| status.succeeded == Some(1));
        let task = format!("{keystone}-credential-migrate");
        await_condition(&sandbox.api(), &task, "to encrypt credentials again", ROTATION, succeeded).await?;
    }
    let secret = sandbox.api::<Secret>().get(&cloud.part("keystone-fernet")).await?;
    let numbers: Vec<String> = secret.data.context("the key ring is empty")?.into_keys().collect();
    let pod = pods.keys().find(|name| name.starts_with(&keystone)).context("Keystone has no pod")?;
    eventually("the keys to reach the pods", ROTATION, async || {
        let seen = sandbox.shell(pod, "api", "ls /etc/keystone/fernet-keys").await?;
        ensure!(seen.split_whitespace().eq(numbers.iter().map(String::as_str)), "the pod sees {seen}");
        Ok(())
    })
    .await?;
    // The client would request a new token, so this is a plain request.
    let url = format!("http://{}/v3/auth/tokens", cloud.hostname());
    let program = format!(
        "import urllib.request as r; h = {{'X-Auth-Token': '{token}', 'X-Subject-Token': '{token}'}}; \
         print(r.urlopen(r.Request('{url}', headers=h), timeout=10).status)"
    );
    let status = client.shell(&format!("python3 -c \"{program}\"")).await?;
    ensure!(status.trim() == "200", "Keystone answers {status} to a token from before the rotations");
    ensure!(cloud.pods().await? == pods, "a rotation replaced a pod");
    Ok(())
}
