//! The same cloud by hand: the operator's own manifests, created and waited for in the order of what needs what.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kube::api::{DynamicObject, PostParams};
use openstack_operator_model::assess::assess;
use openstack_operator_model::condition::Progress;
use openstack_operator_model::kind::{DEPLOYMENT, HTTP_ROUTE, JOB, SECRET, STATEFUL_SET};
use openstack_operator_model::lower::{Manifest, Phase};
use openstack_operator_model::plan::Database;
use openstack_operator_smoke::Sandbox;
use openstack_operator_smoke::wait::await_condition;
use serde_json::{Value, json};

use crate::cluster::api;
use crate::planned::Planned;
use crate::secret::Values;

/// How long one object may take.
const PART_START: Duration = Duration::from_mins(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// As a person with a list of commands does it: each is waited for before the next.
    OneByOne,
    /// As fast as can be: everything that needs nothing of each other at once.
    SideBySide,
}

/// Makes the cloud and returns how long that took.
pub(crate) async fn run(sandbox: &Sandbox, cloud: &[Planned], order: Order) -> Result<Duration> {
    for part in cloud {
        let members = part.plan.workloads.iter().map(|workload| workload.replicas).max().unwrap_or(0);
        ensure!(
            !(part.service.directs() && members > 1),
            "{} has {members} members, which only the operator can join: measure a cloud with one",
            part.name
        );
        ensure!(
            part.plan.messaging.is_empty(),
            "{} has a virtual host, which is not made by hand: measure a cloud without notifications",
            part.name
        );
    }
    let begun = Instant::now();
    let mut work = Work { sandbox, cloud, values: Values::default() };
    for part in cloud {
        work.make(part, order).await.with_context(|| format!("failed to make {}", part.name))?;
    }
    for part in cloud {
        work.wait_for_part(part).await?;
    }
    Ok(begun.elapsed())
}

struct Work<'a> {
    sandbox: &'a Sandbox,
    cloud: &'a [Planned],
    values: Values,
}

impl Work<'_> {
    async fn make(&mut self, part: &Planned, order: Order) -> Result<()> {
        for (kind, name) in &part.needs {
            self.wait_for_part(self.find(kind, name)?).await?;
        }
        for secret in &part.plan.secrets {
            let values = self.values.make(secret)?;
            let body = json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": { "name": secret.name },
                "type": "Opaque", "stringData": values,
            });
            self.create(&Manifest { kind: SECRET, name: secret.name.clone(), body }).await?;
        }
        for database in &part.plan.databases {
            self.make_database(database).await?;
        }
        for manifest in of(part, Phase::Config) {
            self.create(manifest).await?;
        }
        for task in of(part, Phase::Tasks) {
            self.create(task).await?;
            self.wait_for(task).await?;
        }
        let (tasks, workloads): (Vec<_>, Vec<_>) =
            of(part, Phase::Workloads).partition(|manifest| manifest.kind == JOB);
        for task in tasks {
            self.create(task).await?;
            if order == Order::OneByOne {
                self.wait_for(task).await?;
            }
        }
        for manifest in workloads.into_iter().chain(of(part, Phase::Exposure)) {
            self.create(manifest).await?;
        }
        if order == Order::OneByOne {
            self.wait_for_part(part).await?;
        }
        Ok(())
    }

    fn find(&self, kind: &str, name: &str) -> Result<&Planned> {
        let found = self.cloud.iter().find(|part| part.service.kind().kind == kind && part.name == name);
        found.with_context(|| format!("the cloud has no {kind} {name}"))
    }

    async fn create(&self, manifest: &Manifest) -> Result<()> {
        let object: DynamicObject = serde_json::from_value(manifest.body.clone())?;
        api(&self.sandbox.client, manifest.kind, Some(&self.sandbox.namespace))
            .create(&PostParams::default(), &object)
            .await
            .with_context(|| format!("failed to create {} {}", manifest.kind.kind, manifest.name))?;
        Ok(())
    }

    async fn wait_for_part(&self, part: &Planned) -> Result<()> {
        for manifest in of(part, Phase::Workloads).chain(of(part, Phase::Exposure)) {
            self.wait_for(manifest).await?;
        }
        Ok(())
    }

    /// Watches an object until it is what the operator too would take as done.
    async fn wait_for(&self, manifest: &Manifest) -> Result<()> {
        let Manifest { kind, name, .. } = manifest;
        // What has no work to do is done when it is there.
        if ![DEPLOYMENT, STATEFUL_SET, JOB, HTTP_ROUTE].contains(kind) {
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

    /// What the operator does over SQL, here with the server's own client in its pod.
    async fn make_database(&self, claim: &Database) -> Result<()> {
        let provider = self.find(&claim.provider.kind, &claim.provider.name)?;
        let workload = provider.plan.workloads.first();
        let container = workload.and_then(|workload| workload.pod.containers.first());
        let container = container.with_context(|| format!("{} has no container", provider.name))?.name;
        let database = &claim.database;
        let user = self.values.get(&claim.secret, "username")?;
        // It is an argument for a moment; it was made for this run and goes with its namespace.
        let password = self.values.get(&claim.secret, "password")?;
        let script = format!(
            "mariadb --defaults-file=/etc/openstack/mariadb.cnf <<'END'\n\
             CREATE DATABASE `{database}` CHARACTER SET utf8mb3 COLLATE utf8mb3_general_ci;\n\
             CREATE USER '{user}'@'%' IDENTIFIED BY '{password}';\n\
             GRANT ALL PRIVILEGES ON `{database}`.* TO '{user}'@'%';\n\
             END\n"
        );
        let made = self.sandbox.shell(&format!("{}-0", provider.name), container, &script).await;
        made.map(drop).map_err(|error| {
            // The error quotes the script.
            anyhow::anyhow!(
                "failed to make database {database}: {}",
                format!("{error:#}").replace(password, "...")
            )
        })
    }
}

/// The manifests of one phase.
fn of(part: &Planned, phase: Phase) -> impl Iterator<Item = &Manifest> {
    part.manifests.get(&phase).into_iter().flatten()
}
