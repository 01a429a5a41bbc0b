//! Compute nodes of a suite.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use openstack_operator_smoke::Sandbox;
use serde_json::{Value, json};

const LABEL: &str = "e2e.openstack.k8s.io/compute";

/// Nodes that carry the label of a suite.
pub(crate) struct Nodes {
    sandbox: Arc<Sandbox>,
    api: Api<Node>,
}

impl Nodes {
    pub(crate) fn new(sandbox: Arc<Sandbox>) -> Self {
        let api = Api::all(sandbox.client.clone());
        Self { sandbox, api }
    }

    /// Settings of a cloud that uses the labeled nodes for virtual networks and instances.
    pub(crate) fn topologies(&self) -> Value {
        let selector = json!({ LABEL: self.sandbox.namespace });
        json!({ "topologies": [{ "name": "compute", "nodeSelector": selector }] })
    }

    /// Labels nodes in the order of their names.
    pub(crate) async fn label<const COUNT: usize>(&self) -> Result<[String; COUNT]> {
        let mut names: Vec<String> =
            self.api.list(&ListParams::default()).await?.items.iter().map(ResourceExt::name_any).collect();
        names.sort();
        ensure!(names.len() >= COUNT, "the cluster has only the nodes {names:?}");
        names.truncate(COUNT);
        for name in &names {
            self.set_label(name, &json!(self.sandbox.namespace)).await?;
        }
        <[String; COUNT]>::try_from(names).ok().context("the number of nodes differs")
    }

    /// Removes the label from a node.
    pub(crate) async fn release(&self, name: &str) -> Result<()> {
        self.set_label(name, &Value::Null).await
    }

    /// Removes the label from all nodes of this suite.
    pub(crate) async fn release_all(&self) -> Result<()> {
        let selector = format!("{LABEL}={}", self.sandbox.namespace);
        for node in self.api.list(&ListParams::default().labels(&selector)).await? {
            self.release(&node.name_any()).await?;
        }
        Ok(())
    }

    async fn set_label(&self, name: &str, value: &Value) -> Result<()> {
        let patch = json!({ "metadata": { "labels": { LABEL: value } } });
        self.api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop)?;
        Ok(())
    }
}
