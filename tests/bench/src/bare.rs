//! The same cloud without the operator: its manifests, each created as soon as its dependencies are available.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use kube::api::{DynamicObject, Patch, PatchParams};
use openstack_operator_model::assess::assess;
use openstack_operator_model::common::Reference;
use openstack_operator_model::condition::Progress;
use openstack_operator_model::kind::{
    DAEMON_SET, DEPLOYMENT, HTTP_ROUTE, JOB, SECRET, SERVICE, STATEFUL_SET,
};
use openstack_operator_model::lower::{Manifest, Phase, Source};
use openstack_operator_model::name;
use openstack_operator_model::plan::Workload;
use openstack_operator_services::ovn;
use openstack_operator_smoke::Sandbox;
use openstack_operator_smoke::wait::await_condition;
use serde_json::{Value, json};

use crate::cluster::api;
use crate::planned::Planned;
use crate::secret::Values;

/// The field manager of objects that are created by hand.
const MANAGER: &str = "openstack-operator-bench";
/// How long one object may take.
const PART_START: Duration = Duration::from_mins(10);

/// Creates the cloud and returns the time that it took.
pub(crate) async fn run(sandbox: &Sandbox, cloud: &[Planned]) -> Result<Duration> {
    for part in cloud {
        let members = part.plan.workloads.iter().map(|workload| workload.replicas).max().unwrap_or(0);
        ensure!(
            !(part.service.directs() && members > 1),
            "{} has {members} members, and only the operator can form such a cluster: measure a cloud with one",
            part.name
        );
    }
    let started = Instant::now();
    let mut values = Values::default();
    for secret in cloud.iter().flat_map(|part| &part.plan.secrets) {
        let body = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": secret.name },
            "type": "Opaque", "stringData": values.make(secret)?,
        });
        create(sandbox, &Manifest { kind: SECRET, name: secret.name.clone(), body, source: Source::Other })
            .await?;
    }
    let work = Work { sandbox, cloud, values };
    let make = async |part| {
        let made = work.make(part).await;
        made.with_context(|| format!("failed to create {}", part.name))
    };
    try_join_all(cloud.iter().map(make)).await?;
    work.wait_for_hypervisors(cloud).await?;
    Ok(started.elapsed())
}

pub(crate) struct Work<'a> {
    pub(crate) sandbox: &'a Sandbox,
    cloud: &'a [Planned],
    pub(crate) values: Values,
}

impl Work<'_> {
    async fn make(&self, part: &Planned) -> Result<()> {
        let plan = &part.plan;
        for database in &plan.databases {
            self.wait_for_other(&database.provider).await?;
            self.create_database(database).await?;
        }
        for claim in &plan.messaging {
            self.wait_for_other(&claim.provider).await?;
            self.create_virtual_host(claim).await?;
        }
        for manifest in of(part, Phase::Config) {
            self.create(manifest).await?;
        }
        for task in of(part, Phase::Tasks) {
            self.create(task).await?;
            self.wait_for(task).await?;
        }
        // Keystone registers itself; other services are registered before they start.
        if let Some(catalog) = plan.catalog.as_ref().filter(|catalog| catalog.provider.name != part.name) {
            self.wait_for_other(&catalog.provider).await?;
            self.create_catalog(catalog).await?;
        }
        let (tasks, workloads): (Vec<_>, Vec<_>) =
            of(part, Phase::Workloads).partition(|manifest| manifest.kind == JOB);
        for task in tasks {
            self.create(task).await?;
        }
        let (later, at_once): (Vec<_>, Vec<_>) =
            workloads.into_iter().partition(|manifest| !after(part, manifest).is_empty());
        for manifest in at_once.into_iter().chain(of(part, Phase::Exposure)) {
            self.create(manifest).await?;
        }
        self.bootstrap_clusters(part).await?;
        for manifest in later {
            for other in after(part, manifest) {
                self.wait_for_other(other).await?;
            }
            self.create(manifest).await?;
        }
        self.wait_for_part(part).await
    }

    pub(crate) fn find(&self, kind: &str, name: &str) -> Result<&Planned> {
        let found = self.cloud.iter().find(|part| part.service.kind().kind == kind && part.name == name);
        found.with_context(|| format!("the cloud has no {kind} {name}"))
    }

    async fn create(&self, manifest: &Manifest) -> Result<()> {
        create(self.sandbox, manifest).await
    }

    async fn wait_for_other(&self, other: &Reference) -> Result<()> {
        self.wait_for_part(self.find(&other.kind, &other.name)?).await
    }

    async fn wait_for_part(&self, part: &Planned) -> Result<()> {
        for manifest in of(part, Phase::Workloads).chain(of(part, Phase::Exposure)) {
            self.wait_for(manifest).await?;
        }
        Ok(())
    }

    /// Watches an object until the operator would consider it done.
    async fn wait_for(&self, manifest: &Manifest) -> Result<()> {
        let Manifest { kind, name, .. } = manifest;
        // Objects of other kinds are done when they exist.
        if ![DEPLOYMENT, STATEFUL_SET, DAEMON_SET, JOB, HTTP_ROUTE].contains(kind) {
            return Ok(());
        }
        let progress = |object: &DynamicObject| {
            let live = serde_json::to_value(object).unwrap_or(Value::Null);
            assess(*kind, name, &live)
        };
        let ended =
            |object: &DynamicObject| matches!(progress(object), Progress::Done | Progress::Failed { .. });
        let objects = api(&self.sandbox.client, *kind, Some(&self.sandbox.namespace));
        let object = await_condition(&objects, name, "to be done", PART_START, ended).await?;
        match progress(&object) {
            Progress::Failed { message } => bail!("{} {name} failed: {message}", kind.kind),
            _ => Ok(()),
        }
    }
}

/// Creates or updates an object.
pub(crate) async fn create(sandbox: &Sandbox, manifest: &Manifest) -> Result<()> {
    let Manifest { kind, name, body, .. } = manifest;
    api(&sandbox.client, *kind, Some(&sandbox.namespace))
        .patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(body))
        .await
        .with_context(|| format!("failed to create {} {name}", kind.kind))?;
    Ok(())
}

/// Creates the Services whose addresses other plans contain, and returns the addresses.
pub(crate) async fn addresses(sandbox: &Sandbox, cloud: &[Planned]) -> Result<BTreeMap<String, String>> {
    let mut addresses = BTreeMap::new();
    for part in cloud.iter().filter(|part| part.service.kind() == ovn::KIND) {
        for manifest in part.manifests.values().flatten().filter(|manifest| manifest.kind == SERVICE) {
            create(sandbox, manifest).await?;
            let services = api(&sandbox.client, SERVICE, Some(&sandbox.namespace));
            let service = services.get(&manifest.name).await?;
            let address = service.data["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
            addresses.insert(manifest.name.clone(), address);
        }
    }
    Ok(addresses)
}

/// Objects that must be ready before a workload of a part is created.
fn after<'a>(part: &'a Planned, manifest: &Manifest) -> &'a [Reference] {
    let is_it = |workload: &&Workload| {
        workload.suffix.as_deref().is_some_and(|suffix| manifest.name == name::part(&part.name, suffix))
    };
    part.plan.workloads.iter().find(is_it).map(|workload| workload.after.as_slice()).unwrap_or_default()
}

/// The manifests of one phase.
fn of(part: &Planned, phase: Phase) -> impl Iterator<Item = &Manifest> {
    part.manifests.get(&phase).into_iter().flatten()
}
