//! A group of databases of networks that grows, loses a volume and becomes small again, with its data.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use openstack_operator_smoke::Sandbox;
use openstack_operator_smoke::wait::{await_deletion, eventually};
use serde_json::json;

use crate::cloud::Cloud;

const LIMIT: Duration = Duration::from_mins(5);

pub(crate) struct Group<'a> {
    sandbox: &'a Sandbox,
    name: &'static str,
    networks: Api<DynamicObject>,
}

impl<'a> Group<'a> {
    pub(crate) fn new(sandbox: &'a Sandbox, name: &'static str) -> Self {
        let networks = Cloud::new(sandbox, name).objects("OVNNetwork", "ovnnetworks");
        Self { sandbox, name, networks }
    }

    /// Waits until both databases have so many members, and every one of them knows of as many.
    pub(crate) async fn has(&self, members: usize) -> Result<()> {
        let object = json!({
            "apiVersion": "openstack.k8s.io/v1alpha1",
            "kind": "OVNNetwork",
            "metadata": { "name": self.name },
            "spec": {
                "northbound": { "replicas": members },
                "southbound": { "replicas": members },
                // Switches are not what this is about. Without one the whole is never Ready.
                "controller": { "nodeSelector": { "e2e.openstack.k8s.io/switch": "none" } },
            },
        });
        self.networks.patch(self.name, &PatchParams::apply("e2e").force(), &Patch::Apply(&object)).await?;
        self.counts(members).await
    }

    async fn counts(&self, members: usize) -> Result<()> {
        eventually(&format!("groups of {members}"), LIMIT, async || {
            for database in [("nb", "OVN_Northbound"), ("sb", "OVN_Southbound")] {
                for ordinal in 0..members {
                    let known = self.known_members(database, ordinal).await?;
                    ensure!(known == members, "{}-{ordinal} knows {known} members", database.0);
                }
                let next = self.pod(database.0, members);
                ensure!(self.sandbox.api::<Pod>().get_opt(&next).await?.is_none(), "{next} is still there");
            }
            Ok(())
        })
        .await
    }

    async fn known_members(&self, (short, schema): (&str, &str), ordinal: usize) -> Result<usize> {
        let ask = format!("ovs-appctl -t /run/ovn/{short}.ctl cluster/status {schema}");
        let status = self.sandbox.shell(&self.pod(short, ordinal), "server", &ask).await?;
        ensure!(status.contains("Status: cluster member"), "{status}");
        Ok(status.lines().filter(|line| line.contains(" at tcp:")).count())
    }

    fn pod(&self, database: &str, ordinal: usize) -> String {
        format!("{}-{database}-{ordinal}", self.name)
    }

    pub(crate) async fn remembers(&self, network: &str) -> Result<()> {
        self.northbound(&format!("ls-add {network}")).await?;
        Ok(())
    }

    pub(crate) async fn still_knows(&self, networks: &[&str]) -> Result<()> {
        let known = self.northbound("--bare --columns=name find Logical_Switch").await?;
        let lost: Vec<_> =
            networks.iter().filter(|name| !known.split_whitespace().any(|at| at == **name)).collect();
        ensure!(lost.is_empty(), "{lost:?} are lost: {known}");
        Ok(())
    }

    /// Any member may be the one that writes.
    async fn northbound(&self, command: &str) -> Result<String> {
        let command = format!("ovn-nbctl --no-leader-only --timeout=20 --db=unix:/run/ovn/nb.sock {command}");
        self.sandbox.shell(&self.pod("nb", 0), "server", &command).await
    }

    /// A member comes back without its volume.
    pub(crate) async fn loses_a_volume(&self, members: usize) -> Result<()> {
        let (pods, claims) = (self.sandbox.api::<Pod>(), self.sandbox.api::<PersistentVolumeClaim>());
        let pod = self.pod("nb", 1);
        let claim = format!("data-{pod}");
        let uid = pods.get(&pod).await?.metadata.uid;
        let claim_uid = claims.get(&claim).await?.metadata.uid;
        claims.delete(&claim, &DeleteParams::default()).await?;
        pods.delete(&pod, &DeleteParams::default()).await?;
        await_deletion(&claims, &claim, claim_uid.as_deref(), LIMIT).await?;
        await_deletion(&pods, &pod, uid.as_deref(), LIMIT).await?;
        self.counts(members).await
    }
}
