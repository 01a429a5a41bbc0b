//! Volumes keep their data through a power cut, and several nodes can share one.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{
    Node, PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeClaimVolumeSource, Pod, PodSpec,
    PodTemplateSpec, Volume, VolumeMount, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use openstack_operator_smoke::pod::{container, metadata, restricted};
use openstack_operator_smoke::power::power_cycle;
use openstack_operator_smoke::wait::{POD_START, await_condition, eventually, is_pod_finished, is_pod_ready};
use openstack_operator_smoke::{
    Environment, PodSecurity, Sandbox, notice, with_cluster_alone, with_namespace,
};

/// The label with the name of a node.
const HOSTNAME: &str = "kubernetes.io/hostname";
const NODE_RETURN: Duration = Duration::from_mins(5);

#[tokio::test]
async fn a_volume_survives_a_power_cut_of_its_node() -> Result<()> {
    let Some(xtask) = Environment::read()?.xtask else {
        notice("skipped the power cut: it needs SMOKE_XTASK, the program that powers nodes off");
        return Ok(());
    };
    with_cluster_alone("storage", PodSecurity::Restricted, async |sandbox| {
        sandbox.create(&keeper(sandbox.image("base")?)).await?;
        let pods = sandbox.api::<Pod>();
        let before = await_condition(&pods, "keeper-0", "to be ready", POD_START, is_pod_ready).await?;
        let first_container = container_id(&before).context("the pod has no container")?;
        let node = before.spec.and_then(|spec| spec.node_name).context("the pod has no node")?;
        let witness = &sandbox.namespace;
        sandbox.shell("keeper-0", "main", &format!("echo {witness} > /data/witness; sync")).await?;

        let neighbours = ready_pods(sandbox, &node).await?;
        power_cycle(sandbox, &xtask, &node).await?;
        await_condition(&pods, "keeper-0", "to be ready in a new container", POD_START, |pod| {
            is_pod_ready(pod) && container_id(pod).is_some_and(|id| id != first_container)
        })
        .await?;

        let kept = sandbox.shell("keeper-0", "main", "cat /data/witness").await?;
        ensure!(kept.trim() == witness, "the volume holds {kept:?} instead of {witness:?}");
        await_neighbours(sandbox, &node, &neighbours).await
    })
    .await
}

#[tokio::test]
async fn two_nodes_share_a_volume() -> Result<()> {
    if !Environment::read()?.is_local() {
        notice("skipped shared volumes: only local clusters are known to have them");
        return Ok(());
    }
    with_namespace("shared", PodSecurity::Restricted, async |sandbox| {
        let mut nodes: Vec<String> = Api::<Node>::all(sandbox.client.clone())
            .list(&ListParams::default())
            .await?
            .items
            .iter()
            .filter_map(|node| node.labels().get(HOSTNAME).cloned())
            .collect();
        nodes.sort();
        let [one, other, ..] = nodes.as_slice() else {
            notice("skipped shared volumes: the cluster has one node");
            return Ok(());
        };
        sandbox.create(&claim("data", "ReadWriteMany")).await?;
        for (name, node) in [("one", one), ("other", other)] {
            let pod = sandbox.start(name, sharer(sandbox.image("base")?, node)).await?;
            let found = pod.spec.and_then(|spec| spec.node_name);
            ensure!(found.as_ref() == Some(node), "{name} runs on {found:?}, not on {node}");
        }
        for (writer, reader) in [("one", "other"), ("other", "one")] {
            let text = format!("{}-{writer}", sandbox.namespace);
            sandbox.shell(writer, "main", &format!("echo {text} > /data/{writer}")).await?;
            let read = sandbox.shell(reader, "main", &format!("cat /data/{writer}")).await?;
            ensure!(read.trim() == text, "{reader} reads {read:?}, not {text:?}");
        }
        Ok(())
    })
    .await
}

/// A pod on a node with the volume of claim `data`.
fn sharer(image: String, node: &str) -> PodSpec {
    let mut main = container("main", image, &["sleep", "infinity"]);
    main.volume_mounts = Some(vec![data_mount()]);
    let source = PersistentVolumeClaimVolumeSource { claim_name: "data".to_owned(), ..Default::default() };
    PodSpec {
        node_selector: Some([(HOSTNAME.to_owned(), node.to_owned())].into()),
        volumes: Some(vec![Volume {
            name: "data".to_owned(),
            persistent_volume_claim: Some(source),
            ..Volume::default()
        }]),
        ..restricted(main)
    }
}

fn data_mount() -> VolumeMount {
    VolumeMount { name: "data".to_owned(), mount_path: "/data".to_owned(), ..VolumeMount::default() }
}

/// Without a storage class: the cluster must have a default one.
fn claim(name: &str, access_mode: &str) -> PersistentVolumeClaim {
    let size = [("storage".to_owned(), Quantity("64Mi".to_owned()))];
    PersistentVolumeClaim {
        metadata: metadata(name),
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec![access_mode.to_owned()]),
            resources: Some(VolumeResourceRequirements {
                requests: Some(size.into()),
                ..VolumeResourceRequirements::default()
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        ..PersistentVolumeClaim::default()
    }
}

fn keeper(image: String) -> StatefulSet {
    let mut main = container("main", image, &["sleep", "infinity"]);
    main.volume_mounts = Some(vec![data_mount()]);
    StatefulSet {
        metadata: metadata("keeper"),
        spec: Some(StatefulSetSpec {
            replicas: Some(1),
            service_name: Some("keeper".to_owned()),
            selector: LabelSelector { match_labels: metadata("keeper").labels, ..LabelSelector::default() },
            template: PodTemplateSpec { metadata: Some(metadata("keeper")), spec: Some(restricted(main)) },
            volume_claim_templates: Some(vec![claim("data", "ReadWriteOnce")]),
            ..StatefulSetSpec::default()
        }),
        ..StatefulSet::default()
    }
}

fn container_id(pod: &Pod) -> Option<String> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()?.container_id.clone()
}

async fn ready_pods(sandbox: &Sandbox, node: &str) -> Result<Vec<Option<String>>> {
    let ready = pods_on(sandbox, node).await?.into_iter().filter(is_pod_ready);
    Ok(ready.map(|pod| pod.metadata.uid).collect())
}

/// Waits for the node's other pods: later tests need cluster DNS and the Gateway.
async fn await_neighbours(sandbox: &Sandbox, node: &str, neighbours: &[Option<String>]) -> Result<()> {
    eventually(&format!("the pods of {node} to be ready again"), NODE_RETURN, async || {
        let missing: Vec<String> = pods_on(sandbox, node)
            .await?
            .into_iter()
            .filter(|pod| neighbours.contains(&pod.metadata.uid) && pod.metadata.deletion_timestamp.is_none())
            .filter(|pod| !is_pod_ready(pod) && !is_pod_finished(pod))
            .map(|pod| pod.name_any())
            .collect();
        ensure!(missing.is_empty(), "not ready: {}", missing.join(", "));
        Ok(())
    })
    .await
}

async fn pods_on(sandbox: &Sandbox, node: &str) -> Result<Vec<Pod>> {
    let selector = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = Api::<Pod>::all(sandbox.client.clone()).list(&selector).await;
    Ok(pods.with_context(|| format!("failed to list the pods of {node}"))?.items)
}
