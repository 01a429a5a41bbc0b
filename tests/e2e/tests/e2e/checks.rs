//! The checks of each suite, in the order in which they run.

use std::sync::Arc;

use anyhow::{Context, Result};
use futures::FutureExt;
use openstack_operator_e2e::proofs::proofs;
use openstack_operator_e2e::runner::{Check, Stage};
use openstack_operator_services::PARTS;
use openstack_operator_services::cloud::{AnyPart, Presence};
use openstack_operator_services::fields_beyond_identity;
use openstack_operator_smoke::power::power_cycle;
use openstack_operator_smoke::{PodSecurity, Sandbox};
use serde_json::json;

use crate::cloud::{CLOUD_START, Cloud, Extent, RECOVERY};
use crate::suite::{INSTALLED, READY, Suite, installation, proof_stages};
use crate::{
    availability, changes, deletion, external, healing, instances, node_removal, operator, outage, raft,
    rotation,
};

type Stages = Vec<Stage<Suite>>;

/// Declares a check by the future that it awaits.
macro_rules! check {
    ($name:expr, |$suite:ident| $future:expr) => {
        Check::new($name, |$suite: &Suite| async move { $future.await }.boxed_local())
    };
}

const BOOTED: &str = "instances_boot_on_two_nodes";
const OUTLIVED: &str = "an_instance_outlives_the_pods_around_it";
const BOOTED_LATER: &str = "an_instance_boots_after_pods_were_replaced";

/// One cloud for all checks. On a cluster without compute nodes it runs no service beyond identity.
pub(crate) fn of_cloud(extent: Extent) -> Result<Stages> {
    let runs = |part: &dyn AnyPart| {
        is_default(part)
            && (extent == Extent::Whole || !fields_beyond_identity().any(|other| other == part.field()))
    };
    let mut stages = vec![installation(), start(extent)];
    stages.extend(proof_stages(READY, runs)?);
    stages.extend(day_two());
    let retained = if extent == Extent::Whole {
        stages.extend(compute());
        deletion::WHOLE_VOLUMES
    } else {
        deletion::IDENTITY_VOLUMES
    };
    stages.extend(end(retained));
    Ok(stages)
}

/// Start of the cloud. Two checks on other objects mostly wait, so they run meanwhile.
fn start(extent: Extent) -> Stage<Suite> {
    let ready = Check::new(READY, move |suite: &Suite| {
        async move {
            if extent == Extent::Whole {
                suite.compute_nodes().await?;
            }
            suite.becomes_ready().await
        }
        .boxed_local()
    });
    let raft = Check::new("ovn_raft_clusters_grow_and_shrink", |suite: &Suite| {
        suite
            .sandbox
            .with_second_namespace("raft", PodSecurity::Restricted, raft::grows_and_shrinks)
            .boxed_local()
    });
    // The shared cloud cannot show this: each of its services would wait five minutes for Keystone, one after the other.
    // This cloud also runs under the restricted Pod Security Standard. For all services the apiserver suite proves that the
    // API server accepts every rendered workload, except DaemonSets, under that standard without a warning.
    let orphan = Check::new("a_cloud_without_keystone_can_be_deleted", |suite: &Suite| {
        let check = async |sandbox: &Sandbox| {
            let cloud = Cloud::minimal(Arc::new(sandbox.clone()), "orphan", Extent::Identity);
            cloud.apply(&json!({ "keystone": { "database": { "deletionPolicy": "Delete" } } })).await?;
            cloud.ready(CLOUD_START).await?;
            deletion::loses_keystone(&cloud).await?;
            deletion::deletes(&cloud, deletion::IDENTITY_VOLUMES).await
        };
        suite.sandbox.with_second_namespace("orphan", PodSecurity::Restricted, check).boxed_local()
    });
    [ready, raft, orphan].map(|check| check.after(INSTALLED)).into()
}

/// Failures, changes and rotation of the services that every cloud has.
fn day_two() -> Stages {
    let checks = [
        check!("the_operator_rests", |suite| operator::rests(&suite.cloud, &suite.client)),
        check!("lost_infrastructure_pods_return", |suite| healing::recreates_infrastructure_pods(
            &suite.cloud
        )),
        check!("deleted_configuration_returns", |suite| healing::recreates_configuration(&suite.cloud)),
        check!("deleted_passwords_are_regenerated", |suite| healing::regenerates_passwords(
            &suite.cloud,
            &suite.client
        )),
        check!("drift_is_corrected", |suite| healing::corrects_drift(&suite.cloud, &suite.client)),
        check!("a_restarted_operator_heals", |suite| healing::heals_after_the_operator_restarts(
            &suite.cloud
        )),
        check!("changes_do_what_their_plan_announces", |suite| changes::changes_as_planned(
            &suite.operator,
            &suite.cloud
        )),
        check!("tokens_outlive_key_rotation", |suite| rotation::rotates_keys(&suite.cloud, &suite.client)),
        check!("a_second_keystone_on_the_same_database_is_refused", |suite| external::refuses_a_rival(
            &suite.cloud,
            &suite.client
        )),
        check!("services_of_another_namespace_use_the_cloud", |suite| external::serves_another_namespace(
            &suite.cloud,
            &suite.client
        ))
        .long(),
        check!("the_operator_rests_after_changes", |suite| operator::rests(&suite.cloud, &suite.client)),
    ];
    checks.map(|check| vec![check.after(READY)]).into()
}

/// Instances on two nodes, through the loss of pods, of power and of a node.
fn compute() -> Stages {
    let boot = check!(BOOTED, |suite| boot_two(suite)).after(READY);
    let checks = [
        check!("an_instance_that_powers_off_starts_again", |suite| suite
            .instances
            .powers_off_and_starts("first")),
        check!("an_instance_boots_from_a_snapshot", |suite| async {
            let [one, _] = suite.compute_nodes().await?;
            suite.instances.boots_from_a_snapshot("first", one).await
        }),
        check!("instances_of_two_nodes_reach_each_other", |suite| suite.instances.reaches("first", "second")),
        check!("an_instance_survives_a_failed_live_migration", |suite| async {
            let [_, other] = suite.compute_nodes().await?;
            suite.instances.survives_a_failed_live_migration("first", other).await
        }),
        check!(OUTLIVED, |suite| suite.instances.outlives("first", &instances::PODS)),
        check!(BOOTED_LATER, |suite| async {
            let [_, other] = suite.compute_nodes().await?;
            suite.instances.boot("third", other).await
        }),
        check!("an_instance_keeps_its_disk_through_a_power_cut", |suite| loses_power(suite)),
        check!("a_removed_node_leaves_the_cloud", |suite| async {
            let [_, other] = suite.compute_nodes().await?;
            let Suite { cloud, client, instances, nodes, .. } = suite;
            let held = ["second", "third"];
            node_removal::removes_a_node(cloud, client, instances, nodes, other, &held).await?;
            node_removal::removes_the_chassis(cloud).await
        })
        .after(BOOTED_LATER),
        check!("deleted_instances_leave_nothing", |suite| async {
            suite.instances.delete("first").await?;
            suite.instances.left_nothing().await?;
            suite.instances.left_no_device().await
        })
        .after("a_removed_node_leaves_the_cloud"),
    ];
    let mut stages = vec![vec![boot]];
    stages.extend(checks.into_iter().map(|check| vec![check.after(BOOTED)]));
    stages
}

async fn boot_two(suite: &Suite) -> Result<()> {
    let [one, other] = suite.compute_nodes().await?;
    suite.instances.prepare(suite.provider_range()?).await?;
    let (first, second) =
        futures::join!(suite.instances.boot("first", one), suite.instances.boot("second", other));
    first.and(second)?;
    suite.instances.is_usable("first").await
}

async fn loses_power(suite: &Suite) -> Result<()> {
    let [one, _] = suite.compute_nodes().await?;
    let xtask = suite.sandbox.environment.xtask.as_deref().context("SMOKE_XTASK is not set")?;
    let text = &suite.sandbox.namespace;
    suite.instances.write("first", text).await?;
    power_cycle(&suite.sandbox, xtask, one).await?;
    suite.cloud.settles().await?;
    suite.instances.starts_after_a_power_cut("first", text).await
}

/// Rest and deletion.
fn end(retained_volumes: usize) -> Stages {
    let rest = check!("the_operator_rests_at_the_end", |suite| operator::rests(&suite.cloud, &suite.client));
    let deletion = Check::new("deletion_leaves_only_retained_volumes", move |suite: &Suite| {
        deletion::deletes(&suite.cloud, retained_volumes).boxed_local()
    });
    vec![vec![rest.after(READY)], vec![deletion.after(READY)]]
}

/// A cloud whose networks Neutron's own agents build.
pub(crate) fn of_cloud_without_ovn() -> Stages {
    let ready = check!(READY, |suite| async {
        suite.compute_nodes().await?;
        suite.becomes_ready().await
    });
    let boot = check!(BOOTED, |suite| boot_two(suite));
    let checks = [
        check!("instances_of_two_nodes_reach_each_other", |suite| suite.instances.reaches("first", "second")),
        check!(OUTLIVED, |suite| suite.instances.outlives("first", &instances::AGENTS)),
        check!("a_removed_node_leaves_the_cloud", |suite| async {
            let [_, other] = suite.compute_nodes().await?;
            let Suite { cloud, client, instances, nodes, .. } = suite;
            node_removal::removes_a_node(cloud, client, instances, nodes, other, &["second"]).await?;
            node_removal::removes_agents(client, other).await
        }),
        check!("deleted_instances_leave_nothing", |suite| async {
            suite.instances.answers("first", RECOVERY).await?;
            suite.instances.delete("first").await?;
            suite.instances.left_nothing().await
        }),
    ];
    let mut stages = vec![installation(), vec![ready.after(INSTALLED)], vec![boot.after(READY)]];
    stages.extend(checks.into_iter().map(|check| vec![check.after(BOOTED)]));
    stages.push(vec![
        check!("deletion_leaves_only_retained_volumes", |suite| deletion::deletes(
            &suite.cloud,
            deletion::WITHOUT_OVN_VOLUMES
        ))
        .after(READY),
    ]);
    long(stages)
}

/// A cloud with two or three pods of every workload.
pub(crate) fn of_highly_available_cloud() -> Result<Stages> {
    let ready = check!(READY, |suite| async {
        availability::has_enough_nodes(&suite.sandbox).await?;
        suite.cloud.apply(&json!({ "publicScheme": "http" })).await?;
        suite.cloud.ready(2 * CLOUD_START).await?;
        suite.client.start().await
    });
    let redundant =
        check!("every_workload_has_redundant_pods", |suite| availability::has_redundant_pods(&suite.sandbox));
    let mut stages = vec![installation(), vec![ready.after(INSTALLED)], vec![redundant.after(READY)]];
    stages.extend(proof_stages(READY, is_default)?);
    stages.push(vec![
        check!("deletion_leaves_only_retained_volumes", |suite| deletion::deletes(
            &suite.cloud,
            deletion::AVAILABLE_VOLUMES
        ))
        .after(READY),
    ]);
    Ok(long(stages))
}

/// The other services have their proofs on request: `cargo xtask test --only catalogue`.
fn is_default(part: &dyn AnyPart) -> bool {
    part.presence() == Presence::ByDefault
}

/// The proofs alone, on a cloud that exists already and has services of these kinds. The proofs of services that run on
/// request also run after outages of what they depend on.
pub(crate) fn of_existing_cloud(kinds: &[&str]) -> Result<Stages> {
    const LOGGED_IN: &str = "a_client_logs_in";
    let client = check!(LOGGED_IN, |suite| suite.client.start());
    let mut stages = vec![vec![client]];
    let runs = |part: &dyn AnyPart| kinds.contains(&part.kind().kind);
    stages.extend(proof_stages(LOGGED_IN, runs)?);
    let proven: Vec<&str> = proofs()?.iter().map(|proof| proof.service).collect();
    let on_request = PARTS.iter().filter(|part| runs(**part) && !is_default(**part)).map(|part| part.field());
    let services: Vec<&'static str> = on_request.filter(|service| proven.contains(service)).collect();
    stages.extend(outage::stages(LOGGED_IN, &services));
    Ok(stages)
}

fn long(stages: Stages) -> Stages {
    stages.into_iter().map(|stage| stage.into_iter().map(Check::long).collect()).collect()
}
