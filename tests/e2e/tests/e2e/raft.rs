//! The Raft clusters of OVN grow, lose a volume and shrink without losing data.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use openstack_operator_smoke::Sandbox;
use openstack_operator_smoke::wait::{await_deletion, eventually};
use serde_json::json;

use crate::cloud::{Cloud, Extent};

/// A whole cloud may start on the same machine meanwhile.
const LIMIT: Duration = Duration::from_mins(10);
const NAME: &str = "networks";

pub(crate) async fn grows_and_shrinks(sandbox: &Sandbox) -> Result<()> {
    let raft = Raft { sandbox };
    raft.resize(1).await?;
    raft.add_network("of-one").await?;
    raft.resize(3).await?;
    raft.add_network("of-three").await?;
    raft.lose_a_volume(3).await?;
    raft.resize(1).await?;
    raft.has_networks(&["of-one", "of-three"]).await?;
    // Members that have left can join again.
    raft.resize(3).await?;
    raft.has_networks(&["of-one", "of-three"]).await
}

struct Raft<'a> {
    sandbox: &'a Sandbox,
}

impl Raft<'_> {
    /// Sets the size of both clusters and waits until all members know that size.
    async fn resize(&self, members: usize) -> Result<()> {
        let object = json!({
            "apiVersion": "openstack.k8s.io/v1alpha1",
            "kind": "OVNNetwork",
            "metadata": { "name": NAME },
            "spec": {
                "northbound": { "replicas": members },
                "southbound": { "replicas": members },
                // No node runs a switch: this is about the databases. Without a node the object is never Ready.
                "controller": { "nodeSelector": { "e2e.openstack.k8s.io/switch": "none" } },
            },
        });
        let sandbox = Arc::new(self.sandbox.clone());
        let networks = Cloud::minimal(sandbox, NAME, Extent::Whole).objects("OVNNetwork", "ovnnetworks");
        networks.patch(NAME, &PatchParams::apply("e2e").force(), &Patch::Apply(&object)).await?;
        self.has_members(members).await
    }

    async fn has_members(&self, members: usize) -> Result<()> {
        eventually(&format!("Raft clusters of {members}"), LIMIT, async || {
            for database in [("nb", "OVN_Northbound"), ("sb", "OVN_Southbound")] {
                for ordinal in 0..members {
                    let known = self.known_members(database, ordinal).await?;
                    ensure!(known == members, "{}-{ordinal} knows {known} members", database.0);
                }
                let next = pod(database.0, members);
                ensure!(self.sandbox.api::<Pod>().get_opt(&next).await?.is_none(), "{next} still exists");
            }
            Ok(())
        })
        .await
    }

    async fn known_members(&self, (short, schema): (&str, &str), ordinal: usize) -> Result<usize> {
        let command = format!("ovs-appctl -t /run/ovn/{short}.ctl cluster/status {schema}");
        let status = self.sandbox.shell(&pod(short, ordinal), "server", &command).await?;
        ensure!(status.contains("Status: cluster member"), "{status}");
        Ok(status.lines().filter(|line| line.contains(" at tcp:")).count())
    }

    async fn add_network(&self, network: &str) -> Result<()> {
        self.northbound(&format!("ls-add {network}")).await?;
        Ok(())
    }

    async fn has_networks(&self, networks: &[&str]) -> Result<()> {
        let known = self.northbound("--bare --columns=name find Logical_Switch").await?;
        let lost: Vec<_> =
            networks.iter().filter(|name| !known.split_whitespace().any(|found| found == **name)).collect();
        ensure!(lost.is_empty(), "networks {lost:?} are lost: {known}");
        Ok(())
    }

    /// Any member accepts writes.
    async fn northbound(&self, command: &str) -> Result<String> {
        let command = format!("ovn-nbctl --no-leader-only --timeout=20 --db=unix:/run/ovn/nb.sock {command}");
        self.sandbox.shell(&pod("nb", 0), "server", &command).await
    }

    /// A member loses its volume and joins again.
    async fn lose_a_volume(&self, members: usize) -> Result<()> {
        let (pods, claims) = (self.sandbox.api::<Pod>(), self.sandbox.api::<PersistentVolumeClaim>());
        let pod = pod("nb", 1);
        let claim = format!("data-{pod}");
        let uid = pods.get(&pod).await?.metadata.uid;
        let claim_uid = claims.get(&claim).await?.metadata.uid;
        claims.delete(&claim, &DeleteParams::default()).await?;
        pods.delete(&pod, &DeleteParams::default()).await?;
        await_deletion(&claims, &claim, claim_uid.as_deref(), LIMIT).await?;
        await_deletion(&pods, &pod, uid.as_deref(), LIMIT).await?;
        self.has_members(members).await
    }
}

fn pod(database: &str, ordinal: usize) -> String {
    format!("{NAME}-{database}-{ordinal}")
}
