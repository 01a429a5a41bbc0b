//! Snapshots of instances: images of their disks, from which other instances start.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use openstack_operator_smoke::wait::eventually;

use crate::servers::{Server, Servers};

const IMAGE: &str = "snapshot";
/// How long an upload of a disk may take on a loaded machine.
const UPLOAD: Duration = Duration::from_mins(5);

impl Servers<'_> {
    /// Makes an image of an instance that runs, and another instance on a node from that image.
    pub(crate) async fn starts_from_a_snapshot(&self, server: &Server, node: &str) -> Result<()> {
        let name = server.name;
        let word = format!("snapshot-of-{name}");
        self.keeps(server, &word).await?;
        self.client
            .shell(&format!("openstack server image create --name {IMAGE} {name} >&2"))
            .await
            .with_context(|| format!("no snapshot of {name}"))?;
        eventually("the snapshot to be active", UPLOAD, async || {
            let image = self.client.openstack(&format!("image show {IMAGE} -c status -c size")).await?;
            ensure!(image["status"] == "active", "the snapshot is {}", image["status"]);
            ensure!(image["size"].as_u64().is_some_and(|size| size > 0), "the snapshot is empty: {image}");
            Ok(())
        })
        .await?;
        let copy = self.create_from(IMAGE, "copy", node).await?;
        self.has_booted(&copy).await?;
        self.holds(&copy, &word).await?;
        self.delete(copy).await?;
        self.client.shell(&format!("openstack image delete {IMAGE}")).await?;
        self.answers(server, UPLOAD).await
    }
}
