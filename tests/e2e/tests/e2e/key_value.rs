//! A key-value store fails over, loses volumes, grows and shrinks without losing data.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use openstack_operator_smoke::Sandbox;
use openstack_operator_smoke::wait::{await_deletion, eventually};
use serde_json::json;

use crate::cloud::{Cloud, Extent};

/// A whole cloud may start on the same machine meanwhile.
const LIMIT: Duration = Duration::from_mins(10);
const NAME: &str = "store";

pub(crate) async fn keeps_its_data(sandbox: &Sandbox) -> Result<()> {
    let store = Store { sandbox };
    store.resize(1).await?;
    store.set("of-one").await?;
    store.resize(3).await?;
    store.set("of-three").await?;
    let first = store.primary().await?;
    store.kill(&[&first]).await?;
    let second = store.other_primary(&first).await?;
    store.set("after-the-primary").await?;
    store.lose_a_volume(&second).await?;
    store.set("after-a-volume").await?;
    let pods: Vec<String> = (0..3).map(pod).collect();
    store.kill(&pods.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    store.set("after-all").await?;
    store.resize(1).await?;
    store.set("of-one-again").await?;
    // The volumes of the removed members have outdated data.
    store.resize(3).await?;
    store
        .has(&["of-one", "of-three", "after-the-primary", "after-a-volume", "after-all", "of-one-again"])
        .await
}

struct Store<'a> {
    sandbox: &'a Sandbox,
}

impl Store<'_> {
    async fn resize(&self, members: usize) -> Result<()> {
        let object = json!({
            "apiVersion": "openstack.k8s.io/v1alpha1",
            "kind": "Valkey",
            "metadata": { "name": NAME },
            "spec": { "replicas": members },
        });
        let sandbox = Arc::new(self.sandbox.clone());
        let stores = Cloud::minimal(sandbox, NAME, Extent::Whole).objects("Valkey", "valkeys");
        let applied = stores.patch(NAME, &PatchParams::apply("e2e").force(), &Patch::Apply(&object)).await?;
        let generation = applied.metadata.generation;
        eventually(&format!("{members} members"), LIMIT, async || {
            let found = stores.get(NAME).await?;
            let conditions = found.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let is_ready = conditions.iter().any(|one| {
                one["type"] == "Ready"
                    && one["status"] == "True"
                    && one["observedGeneration"] == json!(generation)
            });
            ensure!(is_ready, "{}", found.data["status"]["conditions"]);
            let next = pod(members);
            ensure!(self.sandbox.api::<Pod>().get_opt(&next).await?.is_none(), "{next} still exists");
            Ok(())
        })
        .await
    }

    /// Runs a command of clients in a pod, on the server at an address.
    async fn command(&self, address: &str, command: &str) -> Result<String> {
        let login = "REDISCLI_AUTH=$(cat /etc/openstack/password/password)";
        let command = format!("{login} valkey-cli --no-auth-warning -t 5 -h {address} {command}");
        Ok(self.sandbox.shell(&pod(0), "server", &command).await?.trim().to_owned())
    }

    /// Address of the server that accepts writes.
    async fn address(&self) -> Result<String> {
        if self.sandbox.api::<Pod>().get_opt(&pod(1)).await?.is_none() {
            return Ok("127.0.0.1".to_owned());
        }
        let ask = format!("valkey-cli -t 5 -h {NAME} -p 26379 SENTINEL get-master-addr-by-name {NAME}");
        let answer = self.sandbox.shell(&pod(0), "server", &ask).await?;
        answer.lines().next().map(str::to_owned).context("no Sentinel knows a primary")
    }

    /// Name of the pod that is the primary.
    async fn primary(&self) -> Result<String> {
        let address = self.address().await?;
        for pod in (0..3).map(pod) {
            let resolve = format!("getent ahosts {pod} | awk '{{ print $1; exit }}'");
            if self.sandbox.shell(&self::pod(0), "server", &resolve).await?.trim() == address {
                return Ok(pod);
            }
        }
        anyhow::bail!("{address} is the address of no member")
    }

    async fn other_primary(&self, former: &str) -> Result<String> {
        eventually("another primary", LIMIT, async || {
            let primary = self.primary().await?;
            ensure!(primary != former, "{primary} is still the primary");
            Ok(primary)
        })
        .await
    }

    /// Clients repeat what a primary refuses.
    async fn set(&self, key: &str) -> Result<()> {
        eventually(&format!("{key} to be written"), LIMIT, async || {
            let answer = self.command(&self.address().await?, &format!("SET {key} yes")).await?;
            ensure!(answer == "OK", "{answer}");
            Ok(())
        })
        .await
    }

    async fn has(&self, keys: &[&str]) -> Result<()> {
        let address = self.address().await?;
        for key in keys {
            let value = self.command(&address, &format!("GET {key}")).await?;
            ensure!(value == "yes", "{key} is lost: {value:?}");
        }
        Ok(())
    }

    /// Kills pods without a chance to hand over, and waits until others have replaced them.
    async fn kill(&self, names: &[&str]) -> Result<()> {
        let pods = self.sandbox.api::<Pod>();
        try_join_all(names.iter().map(async |name| {
            let uid = pods.get(name).await?.metadata.uid;
            pods.delete(name, &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() })
                .await?;
            await_deletion(&pods, name, uid.as_deref(), LIMIT).await
        }))
        .await?;
        self.are_ready().await
    }

    async fn are_ready(&self) -> Result<()> {
        eventually("all members to be ready", LIMIT, async || {
            for name in (0..3).map(pod) {
                let pod = self.sandbox.api::<Pod>().get(&name).await?;
                let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
                let is_ready = conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True");
                ensure!(is_ready, "{name} is not ready");
            }
            Ok(())
        })
        .await
    }

    /// A primary that lost its volume must not replace the data of the others.
    async fn lose_a_volume(&self, name: &str) -> Result<()> {
        let claims = self.sandbox.api::<PersistentVolumeClaim>();
        let claim = format!("data-{name}");
        let uid = claims.get(&claim).await?.metadata.uid;
        claims.delete(&claim, &DeleteParams::default()).await?;
        self.sandbox.api::<Pod>().delete(name, &DeleteParams::default()).await?;
        await_deletion(&claims, &claim, uid.as_deref(), LIMIT).await?;
        self.are_ready().await
    }
}

fn pod(ordinal: usize) -> String {
    format!("{NAME}-{ordinal}")
}
