//! A cloud and all that its checks share.

use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result};
use futures::FutureExt;
use openstack_operator_e2e::proofs::proofs;
use openstack_operator_e2e::runner::{Check, Stage};
use openstack_operator_services::PARTS;
use openstack_operator_services::cloud::AnyPart;
use openstack_operator_smoke::Sandbox;
use serde_json::json;

use crate::client::Client;
use crate::cloud::{CLOUD_START, Cloud};
use crate::deletion;
use crate::instances::Instances;
use crate::nodes::Nodes;
use crate::operator::Operator;

/// The first checks of every suite.
pub(crate) const INSTALLED: &str = "operator_is_installed";
pub(crate) const READY: &str = "cloud_becomes_ready";
/// Prefix of the checks that run the proofs of services.
pub(crate) const PROOF: &str = "proof::";

pub(crate) struct Suite {
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) operator: Operator,
    pub(crate) cloud: Cloud,
    pub(crate) client: Client,
    pub(crate) nodes: Nodes,
    pub(crate) instances: Instances,
    /// Names of the two compute nodes.
    compute_nodes: OnceLock<[String; 2]>,
}

impl Suite {
    pub(crate) fn new(cloud: Cloud) -> Result<Self> {
        let sandbox = Arc::clone(&cloud.sandbox);
        let operator = Operator::new()?;
        let client = Client::new(&operator, &cloud);
        let nodes = Nodes::new(Arc::clone(&sandbox));
        let instances = Instances::new(&cloud, &client)?;
        Ok(Self { sandbox, operator, cloud, client, nodes, instances, compute_nodes: OnceLock::new() })
    }

    /// A suite whose cloud uses two nodes of the local cluster.
    pub(crate) fn with_compute_nodes(cloud: Cloud) -> Result<Self> {
        let topologies = Nodes::new(Arc::clone(&cloud.sandbox)).topologies();
        Self::new(cloud.with(&topologies))
    }

    /// The two compute nodes, labeled at the first call.
    pub(crate) async fn compute_nodes(&self) -> Result<&[String; 2]> {
        if self.compute_nodes.get().is_none() {
            let labeled = self.nodes.label().await?;
            self.compute_nodes.get_or_init(|| labeled);
        }
        self.compute_nodes.get().context("there are no compute nodes")
    }

    pub(crate) fn provider_range(&self) -> Result<&str> {
        let range = self.sandbox.environment.provider_range.as_deref();
        range.context("SMOKE_PROVIDER_RANGE is not set: only local clusters have the sample's interfaces")
    }

    /// Creates the cloud and logs a client in.
    pub(crate) async fn becomes_ready(&self) -> Result<()> {
        self.cloud.apply(&json!({})).await?;
        self.cloud.ready(CLOUD_START).await?;
        self.client.start().await
    }

    /// Releases all that the suite holds outside of its namespace.
    pub(crate) async fn tear_down(&self) -> Result<()> {
        deletion::delete_control_plane(&self.cloud).await?;
        self.nodes.release_all().await
    }
}

/// The stage that installs the operator.
pub(crate) fn installation() -> Stage<Suite> {
    vec![Check::new(INSTALLED, |suite: &Suite| suite.operator.install(&suite.sandbox).boxed_local())]
}

/// The proofs of these parts. Those that boot no instance run together: an instance that boots on a loaded machine may
/// give up on its metadata.
pub(crate) fn proof_stages(
    needed: &str,
    is_selected: impl Fn(&dyn AnyPart) -> bool,
) -> Result<Vec<Stage<Suite>>> {
    let (mut light, mut stages) = (Vec::new(), Vec::new());
    let part = |service: &str| PARTS.iter().copied().find(|part| part.field() == service);
    for proof in proofs()?.into_iter().filter(|proof| part(proof.service).is_some_and(&is_selected)) {
        let service = proof.service;
        let check = Check::new(format!("{PROOF}{service}"), move |suite: &Suite| {
            suite.client.proves(service).boxed_local()
        });
        let check = check.after(needed);
        if proof.program.contains("/guest/") { stages.push(vec![check]) } else { light.push(check) }
    }
    stages.insert(0, light);
    Ok(stages)
}
