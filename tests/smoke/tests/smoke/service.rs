//! A Service distributes requests to its endpoints by its DNS name, for pods and for the host.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::ListParams;
use kube::runtime::wait::{Condition, conditions::is_deployment_completed};
use kube::{Api, ResourceExt};
use openstack_operator_smoke::pod::{PORT, answering, container, metadata, restricted, service};
use openstack_operator_smoke::wait::{POD_START, await_condition, eventually};
use openstack_operator_smoke::{PodSecurity, Sandbox, http, notice, with_namespace};

use crate::dns;

const ANSWER: Duration = Duration::from_mins(1);

/// Sends requests on new connections until both endpoints have answered, and prints their names.
const REQUEST_UNTIL_BOTH_ANSWERED: &str = "
import sys, time, urllib.request

names, deadline = set(), time.monotonic() + 60
while len(names) < 2 and time.monotonic() < deadline:
    try:
        names.add(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())
    except OSError as error:
        print(error, file=sys.stderr)
        time.sleep(1)
print(*sorted(names))
";

#[tokio::test]
async fn a_service_reaches_both_endpoints_by_name() -> Result<()> {
    with_namespace("service", PodSecurity::Restricted, async |sandbox| {
        let pods = start_two_endpoints(sandbox).await?;
        let mut names: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
        names.sort();

        let name = format!("names.{}.svc.cluster.local", sandbox.namespace);
        let url = format!("http://{name}/");
        let command = ["python3", "-c", REQUEST_UNTIL_BOTH_ANSWERED, &url];
        let log =
            sandbox.run("client", restricted(container("main", sandbox.image("base")?, &command))).await?;
        ensure!(
            log.lines().last() == Some(&names.join(" ")),
            "not both of {names:?} answered as {name}; the client's log:\n{log}"
        );

        if sandbox.environment.is_local() {
            request_from_host(sandbox, &name, &pods).await
        } else {
            notice("a foreign cluster need not route pods and Services to this host: not checked");
            Ok(())
        }
    })
    .await
}

async fn start_two_endpoints(sandbox: &Sandbox) -> Result<Vec<Pod>> {
    let labels = metadata("names").labels;
    let deployment = Deployment {
        metadata: metadata("names"),
        spec: Some(DeploymentSpec {
            replicas: Some(2),
            selector: LabelSelector { match_labels: labels.clone(), ..LabelSelector::default() },
            template: PodTemplateSpec {
                metadata: Some(metadata("names")),
                spec: Some(answering(sandbox.image("base")?)),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    };
    sandbox.create(&deployment).await?;
    sandbox.create(&service("names")).await?;
    await_condition(&sandbox.api(), "names", "to be complete", POD_START, |deployment: &Deployment| {
        is_deployment_completed().matches_object(Some(deployment))
    })
    .await?;
    let selector = ListParams::default().labels("app.kubernetes.io/name=names");
    let pods = sandbox.api::<Pod>().list(&selector).await.context("failed to list pods")?;
    ensure!(pods.items.len() == 2, "the Deployment has {} pods, not two", pods.items.len());
    Ok(pods.items)
}

/// Tests use the cloud's APIs without port forwarding, so the host must reach the same addresses as pods.
async fn request_from_host(sandbox: &Sandbox, name: &str, pods: &[Pod]) -> Result<()> {
    let address = cluster_address(&sandbox.api(), "names").await?;
    let answer =
        eventually("the Service to answer the host", ANSWER, async || http::get(&address, 80, name).await)
            .await?;
    ensure!(pods.iter().any(|pod| pod.name_any() == answer.body), "{answer:?} came from the Service");

    for pod in pods {
        let address = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref());
        let answer = http::get(address.context("the pod has no address")?, PORT, name).await?;
        ensure!(answer.body == pod.name_any(), "{answer:?} came from pod {}", pod.name_any());
    }

    let server = cluster_address(&Api::namespaced(sandbox.client.clone(), "kube-system"), "kube-dns").await?;
    let addresses = eventually("the cluster's DNS to answer the host", ANSWER, async || {
        dns::resolve(&server, name).await
    })
    .await?;
    ensure!(
        addresses == [address.parse::<Ipv4Addr>()?],
        "{name} resolves to {addresses:?} instead of {address}"
    );
    Ok(())
}

async fn cluster_address(services: &Api<Service>, name: &str) -> Result<String> {
    let service = services.get(name).await.with_context(|| format!("failed to read Service {name}"))?;
    service.spec.and_then(|spec| spec.cluster_ip).with_context(|| format!("Service {name} has no address"))
}
