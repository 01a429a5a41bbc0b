//! One cloud: the time with and without the operator, and the operator's activity at rest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use openstack_operator_model::assess;
use openstack_operator_model::node;
use openstack_operator_model::service::Site;
use openstack_operator_services::control_plane;
use openstack_operator_smoke::notice;
use openstack_operator_smoke::pod::{at_home, container};
use openstack_operator_smoke::wait::{POD_START, await_condition, await_deletion, eventually};
use serde_json::{Value, json};

use crate::OperatorArguments;
use crate::bare;
use crate::claims::CLIENT;
use crate::cluster::{
    PREFIX, api, connect, our_namespaces, recreate_namespace, remove_namespace, require_exclusive_use,
};
use crate::installed::{self, Installed};
use crate::metrics::Metrics;
use crate::planned::{Surroundings, plan_cloud};
use crate::table::{Table, mebibytes, median, seconds};

const IMAGES: &str = "bench-images";
const CLOUD_START: Duration = Duration::from_mins(15);
const CLOUD_END: Duration = Duration::from_mins(15);
/// The operator is at rest when it has written nothing for this time.
const STILL: Duration = Duration::from_secs(30);
const SETTLE: Duration = Duration::from_mins(5);

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    operator: OperatorArguments,
    /// The operator's image.
    #[arg(long, value_name = "REFERENCE")]
    operator_image: String,
    /// The control plane to measure with.
    #[arg(long, value_name = "FILE")]
    sample: PathBuf,
    /// Repetitions of each measurement.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: u32,
    /// Minutes of observation at rest.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1440))]
    rest_minutes: u64,
    /// Measure all services, not only Keystone and its infrastructure.
    #[arg(long)]
    whole: bool,
}

/// The operator's activity at rest.
struct Rest {
    memory: f64,
    writes: f64,
    reconciles: f64,
}

#[derive(Default)]
struct Times {
    operator: Vec<Duration>,
    by_hand: Vec<Duration>,
}

pub(crate) async fn measure(arguments: &Arguments) -> Result<String> {
    let client = connect().await?;
    require_exclusive_use(&client, installed::NAME).await?;
    let text = std::fs::read_to_string(&arguments.sample)
        .with_context(|| format!("failed to read {}", arguments.sample.display()))?;
    let mut sample: Value = serde_saphyr::from_str(&text).context("the sample is not YAML")?;
    for service in openstack_operator_services::fields_beyond_identity().filter(|_| !arguments.whole) {
        sample["spec"][service]["enabled"] = Value::Bool(false);
    }
    let sample: DynamicObject = serde_json::from_value(sample).context("the sample is not an object")?;
    let installed = Installed::install(&client, &arguments.operator, &arguments.operator_image).await?;
    let nodes = nodes(&client).await?;
    let client_image = arguments.operator.image("client");
    let run = Run { client, installed, sample, site: arguments.operator.site(), nodes, client_image };
    let outcome = run.measure(arguments).await;
    // Restores the operator of `up`, even after an error.
    let restored = run.installed.scale(1).await;
    let (times, rest) = outcome?;
    restored?;
    Ok(report(arguments, &times, &rest))
}

struct Run {
    client: Client,
    installed: Installed,
    sample: DynamicObject,
    site: Site,
    nodes: BTreeMap<String, node::Node>,
    client_image: String,
}

impl Run {
    async fn measure(&self, arguments: &Arguments) -> Result<(Times, Rest)> {
        self.remove_leftovers().await?;
        self.pull_images().await?;
        let mut times = Times::default();
        let mut rest = None;
        for repetition in 1..=arguments.repetitions {
            // Cluster DNS may cache the names of the previous run, so each run has its own namespace.
            let namespace = format!("{PREFIX}operator-{repetition}");
            self.installed.scale(1).await?;
            let took = self.by_operator(&namespace).await?;
            notice(&format!("{repetition}: the operator took {}", seconds(took)));
            times.operator.push(took);
            if rest.is_none() {
                rest = Some(self.rest(Duration::from_secs(arguments.rest_minutes * 60)).await?);
            }
            self.remove_cloud(&namespace).await?;
            // The operator must not run during the measurement without it.
            self.installed.scale(0).await?;
            let took = self.by_hand(&format!("{PREFIX}by-hand-{repetition}")).await?;
            notice(&format!("{repetition}: by hand it took {}", seconds(took)));
            times.by_hand.push(took);
        }
        Ok((times, rest.context("nothing was measured")?))
    }

    fn sample(&self, namespace: &str) -> DynamicObject {
        let mut sample = self.sample.clone();
        sample.metadata.namespace = Some(namespace.to_owned());
        sample
    }

    /// Pulls every image to every node, so that no measurement includes that.
    async fn pull_images(&self) -> Result<()> {
        let cloud = plan_cloud(vec![self.sample(IMAGES)], &self.site, &Surroundings::default())?;
        let pods = cloud.iter().flat_map(|part| &part.plan.workloads).map(|workload| &workload.pod);
        let images: BTreeSet<&str> = pods
            .flat_map(|pod| pod.setup.iter().chain(&pod.containers))
            .chain(cloud.iter().flat_map(|part| &part.plan.tasks).map(|task| &task.container))
            .map(|container| container.image.as_str())
            .chain([self.client_image.as_str()])
            .collect();
        let containers: Vec<Value> = images
            .iter()
            .enumerate()
            .map(|(index, image)| {
                json!({ "name": format!("image-{index}"), "image": image, "command": ["sleep", "infinity"] })
            })
            .collect();
        let labels = json!({ "app.kubernetes.io/name": IMAGES });
        let set: DaemonSet = serde_json::from_value(json!({
            "metadata": { "name": IMAGES },
            "spec": {
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": { "containers": containers, "terminationGracePeriodSeconds": 1 },
                },
            },
        }))?;
        let sandbox = recreate_namespace(&self.client, IMAGES).await?;
        sandbox.create(&set).await?;
        let everywhere = |set: &DaemonSet| {
            set.status.as_ref().is_some_and(|status| {
                status.desired_number_scheduled > 0 && status.number_ready == status.desired_number_scheduled
            })
        };
        let sets = sandbox.api::<DaemonSet>();
        await_condition(&sets, IMAGES, "to run on every node", POD_START, everywhere).await?;
        remove_namespace(&self.client, IMAGES).await
    }

    async fn by_operator(&self, namespace: &str) -> Result<Duration> {
        recreate_namespace(&self.client, namespace).await?;
        let sample = self.sample(namespace);
        let name = sample.metadata.name.as_deref().context("the sample has no name")?;
        let clouds = api(&self.client, control_plane::KIND, Some(namespace));
        let parameters = PatchParams::apply(installed::MANAGER).force();
        let started = Instant::now();
        clouds
            .patch(name, &parameters, &Patch::Apply(&sample))
            .await
            .context("failed to apply the sample")?;
        await_condition(&clouds, name, "to be Ready", CLOUD_START, is_ready).await?;
        Ok(started.elapsed())
    }

    async fn by_hand(&self, namespace: &str) -> Result<Duration> {
        let sandbox = recreate_namespace(&self.client, namespace).await?;
        let client = container(CLIENT, self.client_image.clone(), &["sleep", "infinity"]);
        sandbox.start(CLIENT, at_home(client)).await?;
        let mut surroundings = Surroundings { nodes: self.nodes.clone(), addresses: BTreeMap::new() };
        let cloud = plan_cloud(vec![self.sample(namespace)], &self.site, &surroundings)?;
        surroundings.addresses = bare::addresses(&sandbox, &cloud).await?;
        let cloud = plan_cloud(vec![self.sample(namespace)], &self.site, &surroundings)?;
        let took = bare::run(&sandbox, &cloud).await?;
        remove_namespace(&self.client, namespace).await?;
        Ok(took)
    }

    /// Measures the operator's activity at rest.
    async fn rest(&self, span: Duration) -> Result<Rest> {
        let before = eventually("the operator to come to rest", SETTLE, async || {
            let one = self.installed.metrics().await?;
            tokio::time::sleep(STILL).await;
            let other = self.installed.metrics().await?;
            ensure!(other.writes() <= one.writes(), "it has just written");
            Ok(other)
        })
        .await?;
        notice(&format!("the operator rests in {}", mebibytes(before.memory())));
        tokio::time::sleep(span).await;
        let after = self.installed.metrics().await?;
        let grown = |figure: fn(&Metrics) -> f64| figure(&after) - figure(&before);
        let reconciles = grown(Metrics::reconciles);
        // Counters start at zero with the process.
        ensure!(reconciles >= 0.0, "the operator restarted during the measurement");
        Ok(Rest { memory: after.memory(), writes: grown(Metrics::writes), reconciles })
    }

    /// Removes the leftovers of a failed run.
    async fn remove_leftovers(&self) -> Result<()> {
        for namespace in our_namespaces(&self.client).await? {
            self.remove_cloud(&namespace.name_any()).await?;
        }
        Ok(())
    }

    /// Deletes control planes while the operator can finalize them, then the namespace.
    async fn remove_cloud(&self, namespace: &str) -> Result<()> {
        let clouds = api(&self.client, control_plane::KIND, Some(namespace));
        for found in clouds.list_metadata(&ListParams::default()).await?.items {
            let name = found.name_any();
            clouds.delete(&name, &DeleteParams::default()).await.context("failed to delete the cloud")?;
            await_deletion(&clouds, &name, found.metadata.uid.as_deref(), CLOUD_END).await?;
        }
        remove_namespace(&self.client, namespace).await
    }
}

/// The cluster's nodes.
async fn nodes(client: &Client) -> Result<BTreeMap<String, node::Node>> {
    let list = Api::<Node>::all(client.clone()).list(&ListParams::default()).await;
    let nodes = list.context("failed to list the nodes")?.items.into_iter();
    let read = |node: Node| {
        let object = serde_json::to_value(&node)?;
        Ok((node.name_any(), node::Node::new(node.labels().clone(), &object)))
    };
    nodes.map(read).collect()
}

/// Whether this generation of the cloud is Ready.
fn is_ready(cloud: &DynamicObject) -> bool {
    let seen = cloud.data["status"]["observedGeneration"].as_i64() == cloud.metadata.generation;
    seen && matches!(assess::ready(&cloud.data), Some((true, _)))
}

fn report(arguments: &Arguments, times: &Times, rest: &Rest) -> String {
    let mut table = Table::new(&["what", "median", "budget", "each"]);
    let each = |list: &[Duration]| list.iter().map(|&time| seconds(time)).collect::<Vec<_>>().join(", ");
    let ratio = median(&times.operator).as_secs_f64() / median(&times.by_hand).as_secs_f64();
    let mut add = |what: &str, figure: String, budget: &str, each: String| {
        table.row(&[what.to_owned(), figure, budget.to_owned(), each]);
    };
    for (what, list) in [("operator, from apply to Ready", &times.operator), ("by hand", &times.by_hand)] {
        add(what, seconds(median(list)), "", each(list));
    }
    add("operator / by hand", format!("{ratio:.2}"), "1.05", String::new());
    let minutes = arguments.rest_minutes;
    add("memory of the operator with one cloud", mebibytes(rest.memory), "32 MiB", String::new());
    add(&format!("writes in {minutes} minutes at rest"), format!("{:.0}", rest.writes), "0", String::new());
    add(
        &format!("reconciles in {minutes} minutes at rest"),
        format!("{:.0}", rest.reconciles),
        "",
        String::new(),
    );
    table.text()
}
