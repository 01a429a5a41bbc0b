//! Power cuts of nodes.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use tokio::process::Command;
use tokio::time::timeout;

use crate::Sandbox;
use crate::wait::{await_condition, is_node_ready};

/// Kubernetes marks a silent node as not ready after a grace period, a minute by default.
const NODE_LOSS: Duration = Duration::from_mins(4);
const NODE_RETURN: Duration = Duration::from_mins(5);
const SWITCH: Duration = Duration::from_mins(5);

/// Powers a node off until the cluster marks it as not ready, and on again. Its pods may still start.
pub async fn power_cycle(sandbox: &Sandbox, xtask: &Path, node: &str) -> Result<()> {
    let nodes = Api::<Node>::all(sandbox.client.clone());
    let lost = async {
        switch(xtask, "power-off", node).await?;
        await_condition(&nodes, node, "not to be ready", NODE_LOSS, |node| !is_node_ready(node)).await
    }
    .await;
    // Other tests need the node, even if this one fails.
    switch(xtask, "power-on", node).await?;
    lost?;
    await_condition(&nodes, node, "to be ready again", NODE_RETURN, is_node_ready).await.map(drop)
}

async fn switch(xtask: &Path, action: &str, node: &str) -> Result<()> {
    let task = format!("{} cluster {action} {node}", xtask.display());
    let command = Command::new(xtask).args(["cluster", action, node]).kill_on_drop(true).output();
    let output = timeout(SWITCH, command)
        .await
        .with_context(|| format!("{task} did not end within {SWITCH:?}"))?
        .with_context(|| format!("failed to start {task}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    bail!("{task} failed, {}:\n{}", output.status, String::from_utf8_lossy(&text));
}
