//! Nodes that a test chooses for servers.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use openstack_operator_smoke::Sandbox;
use serde_json::{Value, json};

const LABEL: &str = "e2e.openstack.k8s.io/servers";

/// Nodes with a label of the test's own.
pub(crate) struct Nodes<'a> {
    sandbox: &'a Sandbox,
    api: Api<Node>,
}

impl<'a> Nodes<'a> {
    pub(crate) fn new(sandbox: &'a Sandbox) -> Self {
        Self { sandbox, api: Api::all(sandbox.client.clone()) }
    }

    /// Settings of a cloud whose virtual networks and instances are on the test's nodes.
    pub(crate) fn topologies(&self) -> Value {
        let selector = json!({ LABEL: self.sandbox.namespace });
        json!({ "topologies": [{ "name": "compute", "nodeSelector": selector }] })
    }

    /// Takes as many nodes as asked for, in the order of their names.
    pub(crate) async fn take<const COUNT: usize>(&self) -> Result<[String; COUNT]> {
        let mut names: Vec<String> =
            self.api.list(&ListParams::default()).await?.items.iter().map(ResourceExt::name_any).collect();
        names.sort();
        ensure!(names.len() >= COUNT, "the cluster has only the nodes {names:?}");
        names.truncate(COUNT);
        for name in &names {
            self.label(name, &json!(self.sandbox.namespace)).await?;
        }
        <[String; COUNT]>::try_from(names).ok().context("nodes were lost in counting")
    }

    /// Takes a node out of the test's.
    pub(crate) async fn release(&self, name: &str) -> Result<()> {
        self.label(name, &Value::Null).await
    }

    async fn label(&self, name: &str, value: &Value) -> Result<()> {
        let patch = json!({ "metadata": { "labels": { LABEL: value } } });
        self.api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop)?;
        Ok(())
    }
}
