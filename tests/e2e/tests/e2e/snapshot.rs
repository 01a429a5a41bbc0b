//! Snapshots: images of running instances, from which other instances boot.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use openstack_operator_smoke::wait::eventually;

use crate::instances::Instances;

const IMAGE: &str = "snapshot";
/// How long the upload of a disk may take on a loaded machine.
const UPLOAD: Duration = Duration::from_mins(5);

impl Instances {
    /// Takes a snapshot of an instance and boots another one from it on a node.
    pub(crate) async fn boots_from_a_snapshot(&self, name: &str, node: &str) -> Result<()> {
        let text = format!("snapshot-of-{name}");
        self.write(name, &text).await?;
        self.client
            .shell(&format!("openstack server image create --name {IMAGE} {name} >&2"))
            .await
            .with_context(|| format!("failed to take a snapshot of {name}"))?;
        eventually("the snapshot to be active", UPLOAD, async || {
            let image = self.client.openstack(&format!("image show {IMAGE} -c status -c size")).await?;
            ensure!(image["status"] == "active", "the snapshot is {}", image["status"]);
            ensure!(image["size"].as_u64().is_some_and(|size| size > 0), "the snapshot is empty: {image}");
            Ok(())
        })
        .await?;
        self.boot_from(IMAGE, "copy", node).await?;
        self.has_booted("copy").await?;
        self.holds("copy", &text).await?;
        self.delete("copy").await?;
        self.client.shell(&format!("openstack image delete {IMAGE}")).await?;
        self.answers(name, UPLOAD).await
    }
}
