//! End-to-end checks of clouds on a real cluster: clouds serve, heal, change as planned, run instances and are deleted.

mod availability;
mod changes;
mod checks;
mod client;
mod cloud;
mod deletion;
mod external;
mod healing;
mod instances;
mod node_removal;
mod nodes;
mod operator;
mod outage;
mod raft;
mod rotation;
mod snapshot;
mod suite;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use openstack_operator_e2e::runner::{Runner, Stage};
use openstack_operator_smoke::{
    Environment, PodSecurity, Sandbox, notice, print_namespace, with_cluster_alone,
};

use crate::cloud::{Cloud, Extent};
use crate::suite::Suite;

/// A cloud to run the proofs on, as NAMESPACE/NAME, instead of creating one.
const EXISTING: &str = "E2E_CLOUD";
/// Kinds of the services of that cloud, separated by commas.
const KINDS: &str = "E2E_KINDS";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let mut runner = Runner::new(std::env::args().skip(1))?;
    if let Ok(existing) = std::env::var(EXISTING) {
        prove(&mut runner, &existing).await?;
        return Ok(runner.finish());
    }
    // The interfaces of the samples are those of local clusters.
    let extent = if Environment::read()?.provider_range.is_some() { Extent::Whole } else { Extent::Identity };
    run(&mut runner, "cloud", checks::of_cloud(extent)?, Removal::OfCloud, |sandbox| match extent {
        Extent::Whole => Suite::with_compute_nodes(Cloud::minimal(sandbox, "whole", extent)),
        Extent::Identity => Suite::new(Cloud::minimal(sandbox, "identity", extent)),
    })
    .await;
    if extent == Extent::Identity {
        notice(
            "skipped the checks of instances, of clouds without OVN and of highly available clouds: they need a local cluster",
        );
        return Ok(runner.finish());
    }
    run(&mut runner, "without_ovn", checks::of_cloud_without_ovn(), Removal::OfCloud, |sandbox| {
        Suite::with_compute_nodes(Cloud::without_ovn(sandbox, "agents"))
    })
    .await;
    run(&mut runner, "highly_available", checks::of_highly_available_cloud()?, Removal::OfCloud, |sandbox| {
        Suite::new(Cloud::highly_available(sandbox, "available"))
    })
    .await;
    Ok(runner.finish())
}

/// Runs the proofs on a cloud that exists already.
async fn prove(runner: &mut Runner, cloud: &str) -> Result<()> {
    let names = cloud.split_once('/');
    let (namespace, name) = names.with_context(|| format!("{EXISTING} is {cloud:?}, not NAMESPACE/NAME"))?;
    let kinds = std::env::var(KINDS).with_context(|| format!("{KINDS} is not set"))?;
    let kinds: Vec<&str> = kinds.split(',').collect();
    run(runner, "existing", checks::of_existing_cloud(&kinds)?, Removal::OfNamespaceOnly, |sandbox| {
        Suite::new(Cloud::existing(sandbox, namespace, name))
    })
    .await;
    Ok(())
}

/// What is removed after the checks of a suite.
#[derive(Clone, Copy, PartialEq)]
enum Removal {
    OfCloud,
    OfNamespaceOnly,
}

/// Runs a suite in its own namespace, if any of its checks is selected.
async fn run(
    runner: &mut Runner,
    name: &str,
    stages: Vec<Stage<Suite>>,
    removal: Removal,
    create: impl FnOnce(Arc<Sandbox>) -> Result<Suite>,
) {
    if !runner.selects(name, &stages) {
        runner.ignore(name, &stages);
        return;
    }
    let topic = name.replace('_', "-");
    let outcome = with_cluster_alone(&topic, PodSecurity::Privileged, async |sandbox| {
        let suite = create(Arc::new(sandbox.clone()))?;
        runner.run(name, &suite, stages, async |suite: &Suite| print_namespace(&suite.sandbox).await).await;
        if removal == Removal::OfCloud { suite.tear_down().await } else { Ok(()) }
    })
    .await;
    if let Err(error) = outcome {
        runner.fail(&format!("{name}::removal"), &error);
    }
}
