//! Many control planes whose pods never run: the growth of the operator's time, memory and requests.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::{Client, ResourceExt};
use openstack_operator_model::kind::{Kind, STATEFUL_SET};
use openstack_operator_services::{control_plane, kinds};
use openstack_operator_smoke::notice;
use serde_json::json;
use tokio::time::sleep;

use crate::OperatorArguments;
use crate::cluster::{
    PREFIX, api, connect, fetch_metrics, is_ours, our_metadata, our_namespaces, recreate_namespace,
    remove_namespace, require_exclusive_use,
};
use crate::installed::{self, Installed, install_definitions};
use crate::metrics::Metrics;
use crate::process::Process;
use crate::table::{Table, mebibytes, seconds};

/// The namespace of the operator's Lease.
const LEASE_NAMESPACE: &str = "bench-lease";
const CLOUDS_IN_A_NAMESPACE: u32 = 50;
/// Concurrent requests of the benchmark.
const AT_ONCE: usize = 16;
const PAGE: u32 = 500;
/// The operator is done when it has written nothing for this time.
const STILL: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(500);
/// Pause between lists, which are long during a removal.
const PAUSE_IN_REMOVAL: Duration = Duration::from_secs(2);
const REST: Duration = Duration::from_mins(1);

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    operator: OperatorArguments,
    /// Numbers of control planes, one measurement each.
    #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clouds: Vec<u32>,
    /// File of the operator's log.
    #[arg(long, value_name = "FILE")]
    log: PathBuf,
}

/// The costs of one number of control planes.
struct Round {
    clouds: u32,
    idle_memory: f64,
    took: Duration,
    memory: f64,
    writes: f64,
    reconciles: f64,
    requests: f64,
    writes_at_rest: f64,
    gone_after: Duration,
}

pub(crate) async fn measure(arguments: &Arguments) -> Result<String> {
    let client = connect().await?;
    require_exclusive_use(&client, installed::NAME).await?;
    let installed = Installed::find(&client).await?;
    if let Some((operator, _)) = &installed {
        operator.scale(0).await?;
    }
    let outcome = rounds(&client, arguments).await;
    let restored = match &installed {
        Some((operator, replicas)) if *replicas > 0 => operator.scale(*replicas).await,
        _ => Ok(()),
    };
    let rounds = outcome.context("the next run removes the leftovers")?;
    restored?;
    Ok(report(&rounds))
}

async fn rounds(client: &Client, arguments: &Arguments) -> Result<Vec<Round>> {
    install_definitions(client).await?;
    recreate_namespace(client, LEASE_NAMESPACE).await?;
    let mut rounds = Vec::new();
    for &clouds in &arguments.clouds {
        // A new process for each number, because a process may keep memory that it once used.
        let operator = Process::start(&arguments.operator, LEASE_NAMESPACE, &arguments.log).await?;
        let mut fleet = Fleet { client, operator, clouds };
        // Leftovers of a failed run.
        fleet.remove().await?;
        let round = fleet.measure().await.with_context(|| format!("with {clouds} control planes"))?;
        notice(&format!("{clouds} control planes took {}", seconds(round.took)));
        rounds.push(round);
        fleet.operator.stop().await?;
    }
    remove_namespace(client, LEASE_NAMESPACE).await?;
    Ok(rounds)
}

struct Fleet<'a> {
    client: &'a Client,
    operator: Process,
    clouds: u32,
}

impl Fleet<'_> {
    async fn measure(&mut self) -> Result<Round> {
        let namespaces = self.clouds.div_ceil(CLOUDS_IN_A_NAMESPACE);
        for index in 0..namespaces {
            recreate_namespace(self.client, &namespace(index)).await?;
        }
        let idle = self.operator.metrics().await?;
        let requests = self.requests().await?;
        let started = Instant::now();
        stream::iter(0..self.clouds)
            .map(|index| create(self.client, index))
            .buffer_unordered(AT_ONCE)
            .try_collect::<Vec<()>>()
            .await?;
        let (took, done) = self.wait_until_still(started).await?;
        let requests = self.requests().await? - requests;
        let before = self.operator.metrics().await?;
        sleep(REST).await;
        let after = self.operator.metrics().await?;
        let removal = Instant::now();
        self.remove().await?;
        let grown = |figure: fn(&Metrics) -> f64| figure(&done) - figure(&idle);
        Ok(Round {
            clouds: self.clouds,
            idle_memory: idle.memory(),
            took,
            memory: done.memory(),
            writes: grown(Metrics::writes),
            reconciles: grown(Metrics::reconciles),
            requests,
            writes_at_rest: after.writes() - before.writes(),
            gone_after: removal.elapsed(),
        })
    }

    /// All requests for the operator's kinds, nearly all of which are the operator's.
    async fn requests(&self) -> Result<f64> {
        let metrics = fetch_metrics(self.client, "/metrics").await?;
        Ok(metrics.sum("apiserver_request_total", "group=\"openstack.k8s.io\""))
    }

    /// Waits until all objects are reconciled and the operator writes no more. Returns the time of the last write.
    async fn wait_until_still(&mut self, started: Instant) -> Result<(Duration, Metrics)> {
        let limit = self.limit();
        let mut metrics = self.operator.metrics().await?;
        let mut changed = Instant::now();
        let mut checked = started;
        let mut missing = "it still writes".to_owned();
        while started.elapsed() < limit {
            sleep(PAUSE).await;
            let now = self.operator.metrics().await?;
            if now.writes() > metrics.writes() {
                changed = Instant::now();
            }
            metrics = now;
            // The lists are long, so they are requested only when all may be done.
            if changed.elapsed() >= STILL && checked.elapsed() >= STILL {
                checked = Instant::now();
                match self.unseen().await? {
                    None => return Ok((changed.duration_since(started), metrics)),
                    Some(reason) => missing = reason,
                }
            }
        }
        bail!("not all objects are up to date after {limit:?}: {missing}")
    }

    /// The first reason why not all objects are up to date.
    async fn unseen(&self) -> Result<Option<String>> {
        let clouds = list(self.client, control_plane::KIND).await?;
        let seen = clouds.iter().filter(|cloud| is_seen(cloud)).count();
        if seen != usize::try_from(self.clouds)? {
            return Ok(Some(format!("{seen} of {} control planes are up to date", self.clouds)));
        }
        let parts = |cloud: &DynamicObject| cloud.data["status"]["services"].as_array().map_or(0, Vec::len);
        let expected: usize = clouds.iter().map(parts).sum();
        let mut seen = 0;
        for kind in kinds().into_iter().filter(|kind| *kind != control_plane::KIND) {
            seen += list(self.client, kind).await?.iter().filter(|object| is_seen(object)).count();
        }
        if seen != expected || expected == 0 {
            return Ok(Some(format!("{seen} of {expected} parts of control planes are up to date")));
        }
        // A pod that is created later triggers a reconcile, which would count as activity.
        let sets = list(self.client, STATEFUL_SET).await?;
        let behind =
            sets.iter().filter(|set| set.data["status"]["updatedReplicas"] != set.data["spec"]["replicas"]);
        let behind = behind.count();
        Ok((behind > 0)
            .then(|| format!("{behind} of {} StatefulSets have not created their pods", sets.len())))
    }

    /// Deletes all control planes while the operator can finalize them, and then their namespaces.
    async fn remove(&mut self) -> Result<()> {
        let (started, limit) = (Instant::now(), self.limit());
        let mut namespaces: Vec<String> = our_metadata(self.client, control_plane::KIND)
            .await?
            .into_iter()
            .filter_map(|cloud| cloud.metadata.namespace)
            .collect();
        namespaces.sort();
        namespaces.dedup();
        for namespace in &namespaces {
            let clouds = api(self.client, control_plane::KIND, Some(namespace));
            let all = ListParams::default();
            clouds.delete_collection(&DeleteParams::default(), &all).await.context("failed to delete")?;
        }
        while let Some(left) = self.left().await? {
            ensure!(started.elapsed() < limit, "{left} are left after {limit:?}");
            // An operator that has exited finalizes nothing.
            self.operator.metrics().await?;
            sleep(PAUSE_IN_REMOVAL).await;
        }
        self.remove_namespaces(started, limit).await
    }

    /// The number of objects of the first kind that has any.
    async fn left(&self) -> Result<Option<String>> {
        for kind in kinds() {
            let count = our_metadata(self.client, kind).await?.len();
            if count > 0 {
                return Ok(Some(format!("{count} {}", kind.plural)));
            }
        }
        Ok(None)
    }

    async fn remove_namespaces(&self, started: Instant, limit: Duration) -> Result<()> {
        let namespaces = Api::<Namespace>::all(self.client.clone());
        loop {
            let mut left = our_namespaces(self.client).await?;
            left.retain(|namespace| namespace.name_any() != LEASE_NAMESPACE);
            if left.is_empty() {
                return Ok(());
            }
            ensure!(
                started.elapsed() < limit,
                "{limit:?} were too short: {} namespaces are left",
                left.len()
            );
            for namespace in left.iter().filter(|namespace| namespace.metadata.deletion_timestamp.is_none()) {
                let deleted = namespaces.delete(&namespace.name_any(), &DeleteParams::default()).await;
                deleted.with_context(|| format!("failed to delete namespace {}", namespace.name_any()))?;
            }
            sleep(PAUSE_IN_REMOVAL).await;
        }
    }

    /// The limit of a step: Kubernetes creates and deletes a few dozen objects per second.
    fn limit(&self) -> Duration {
        Duration::from_mins(10) + Duration::from_secs(5) * self.clouds
    }
}

fn namespace(index: u32) -> String {
    format!("{PREFIX}{index}")
}

async fn create(client: &Client, index: u32) -> Result<()> {
    // No node has this label, so pods never run.
    let nowhere = json!({ "name": "control", "nodeSelector": { "openstack.k8s.io/bench": "nowhere" } });
    let name = format!("cloud-{index}");
    let mut spec = json!({ "topologies": [nowhere] });
    for service in openstack_operator_services::beyond_identity() {
        spec[service] = json!({ "enabled": false });
    }
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": control_plane::KIND.api_version(),
        "kind": control_plane::KIND.kind,
        "metadata": { "name": name },
        "spec": spec,
    }))?;
    let namespace = namespace(index / CLOUDS_IN_A_NAMESPACE);
    api(client, control_plane::KIND, Some(&namespace))
        .create(&PostParams::default(), &object)
        .await
        .with_context(|| format!("failed to create {namespace}/{name}"))?;
    Ok(())
}

/// All objects of a kind in namespaces of the benchmark, page by page.
async fn list(client: &Client, kind: Kind) -> Result<Vec<DynamicObject>> {
    let objects = api(client, kind, None);
    let mut found = Vec::new();
    let mut parameters = ListParams::default().limit(PAGE);
    loop {
        let page =
            objects.list(&parameters).await.with_context(|| format!("failed to list {}", kind.plural))?;
        let next = page.metadata.continue_.clone().filter(|token| !token.is_empty());
        found.extend(page.items.into_iter().filter(|object| is_ours(&object.metadata)));
        match next {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// Whether the operator has reconciled this generation of an object.
fn is_seen(object: &DynamicObject) -> bool {
    let seen = object.data["status"]["observedGeneration"].as_i64();
    seen.is_some() && seen == object.metadata.generation
}

fn report(rounds: &[Round]) -> String {
    let mut table = Table::new(&[
        "control planes",
        "up to date after",
        "memory before",
        "memory then",
        "writes each",
        "reconciles each",
        "requests for own kinds each",
        "writes in a minute at rest",
        "gone after",
    ]);
    for round in rounds {
        let each = |figure: f64| format!("{:.1}", figure / f64::from(round.clouds));
        table.row(&[
            round.clouds.to_string(),
            seconds(round.took),
            mebibytes(round.idle_memory),
            mebibytes(round.memory),
            each(round.writes),
            each(round.reconciles),
            each(round.requests),
            format!("{:.0}", round.writes_at_rest),
            seconds(round.gone_after),
        ]);
    }
    table.text()
}
