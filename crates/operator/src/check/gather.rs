//! Gathers facts from a cluster: all requests at once, each within a time limit.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use axum::http::Request;
use futures::future::{join_all, try_join_all};
use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use kube::core::DynamicObject;
use kube::{Client, Error};
use openstack_operator_engine::engine::Key;
use openstack_operator_model::kind::{DEPLOYMENT, GROUP, HTTP_ROUTE, Kind, NODE, POD, SECRET, STATEFUL_SET};
use openstack_operator_model::lower::{MANAGED_BY_LABEL, MANAGER};
use openstack_operator_services::{control_plane, kinds};
use serde_json::Value;
use tokio::time::timeout;

use super::answer::{Answer, TIMEOUT, Unreadable, get, list};
use super::cloud::{CloudFacts, NamedGateway};
use super::cluster::{ClusterFacts, Permission};
use super::endpoint::{probe_all, targets};
use super::operator::OperatorFacts;
use super::requirements::{Requirements, SecretRequirement};
use super::{items, text};
use crate::cluster::api;
use crate::foreign::{
    CLUSTER_ROLE, CLUSTER_ROLE_BINDING, DEFINITION, GATEWAY, LEASE, NAMESPACE, STORAGE_CLASS,
};
use crate::leadership;
use crate::live::{self, LiveSecret};
use crate::tree::select;
use crate::{installation, output};

/// Facts about a cluster before a cloud runs on it.
pub(crate) async fn cluster(client: &Client, required: &Requirements) -> Answer<ClusterFacts> {
    let version = version(client).await?;
    let (operator, definitions, gateways, storage_classes, nodes, namespaces, secrets) = futures::join!(
        operator(client),
        list(client, DEFINITION, None, ""),
        list(client, GATEWAY, None, ""),
        list(client, STORAGE_CLASS, None, ""),
        list(client, NODE, None, ""),
        namespaces(client, required),
        secrets(client, &required.secrets),
    );
    let group = |found: Vec<Value>| {
        found.into_iter().filter(|definition| text(definition, "/spec/group") == GROUP).collect()
    };
    let permissions = permissions(client, required, operator.is_installed()).await;
    Ok(ClusterFacts {
        now: Timestamp::now(),
        version,
        permissions,
        definitions: definitions.map(group),
        gateways,
        storage_classes,
        nodes,
        namespaces,
        secrets,
        operator,
    })
}

/// Facts about the clouds of a namespace, or of the whole cluster.
pub(crate) async fn cloud(
    client: &Client,
    namespace: Option<&str>,
    name: Option<&str>,
) -> Answer<CloudFacts> {
    let managed = format!("{MANAGED_BY_LABEL}={MANAGER}");
    let (objects, operator, routes, stateful_sets) = futures::join!(
        objects(client, namespace),
        operator(client),
        list(client, HTTP_ROUTE, namespace, &managed),
        list(client, STATEFUL_SET, namespace, &managed),
    );
    let objects = select(objects?, name);
    let uids: BTreeSet<&str> =
        objects.iter().filter_map(|(_, object)| object.metadata.uid.as_deref()).collect();
    let is_owned = |child: &Value| {
        items(child, "/metadata/ownerReferences").any(|owner| uids.contains(text(owner, "/uid")))
    };
    let owned = |found: Vec<Value>| found.into_iter().filter(is_owned).collect::<Vec<Value>>();
    let (routes, stateful_sets) = (routes.map(owned), stateful_sets.map(owned));
    let known = routes.clone().unwrap_or_default();
    let gateways = gateways(client, &known).await;
    let probes = probe_all(targets(&objects, &known), gateway_address(&gateways)).await;
    Ok(CloudFacts { now: Timestamp::now(), objects, stateful_sets, routes, gateways, probes, operator })
}

/// The version of the API server; the first request, so that a cluster that does not answer is noticed at once.
pub(crate) async fn version(client: &Client) -> Answer<String> {
    match timeout(TIMEOUT, client.apiserver_version()).await {
        Ok(Ok(version)) => Ok(version.git_version),
        Ok(Err(error)) => {
            Err(Unreadable::Failed(format!("the API server does not answer: {}", output::chain(&error))))
        }
        Err(_) => {
            Err(Unreadable::Failed(format!("the API server does not answer within {} s", TIMEOUT.as_secs())))
        }
    }
}

/// All objects of the operator's kinds. Kinds that the cluster does not serve have none.
pub(crate) async fn objects(client: &Client, namespace: Option<&str>) -> Answer<Vec<(Key, DynamicObject)>> {
    let all = kinds();
    let lists = all.iter().map(async |kind| match list(client, *kind, namespace, "").await {
        Ok(found) => Ok(Some(found)),
        Err(Unreadable::NotServed(_)) => Ok(None),
        Err(reason) => Err(reason),
    });
    let lists = try_join_all(lists).await?;
    if lists.iter().all(Option::is_none) {
        let reason =
            "the operator is not installed: openstack-operator manifests prints the objects to apply";
        return Err(Unreadable::NotServed(reason.to_owned()));
    }
    let key = |kind: Kind, object: &Value| Key {
        kind,
        namespace: text(object, "/metadata/namespace").to_owned(),
        name: text(object, "/metadata/name").to_owned(),
    };
    let objects = all.iter().zip(lists).flat_map(|(kind, found)| {
        let found = found.unwrap_or_default().into_iter();
        found.filter_map(|object| Some((key(*kind, &object), serde_json::from_value(object).ok()?)))
    });
    Ok(objects.collect())
}

async fn permissions(client: &Client, required: &Requirements, installed: bool) -> Vec<Permission> {
    let mut wanted: Vec<(&str, Kind, Option<String>)> = required
        .namespaces
        .keys()
        .map(|namespace| ("create", control_plane::KIND, Some(namespace.clone())))
        .collect();
    if !installed {
        let kinds = [NAMESPACE, DEFINITION, CLUSTER_ROLE, CLUSTER_ROLE_BINDING];
        wanted.extend(kinds.map(|kind| ("create", kind, None)));
        wanted.push(("create", DEPLOYMENT, Some(installation::NAME.to_owned())));
    }
    let reviews = wanted.into_iter().map(async |(verb, kind, namespace)| {
        let allowed = is_allowed(client, verb, kind, namespace.as_deref()).await;
        Permission { verb, kind, namespace, allowed }
    });
    join_all(reviews).await
}

async fn is_allowed(client: &Client, verb: &str, kind: Kind, namespace: Option<&str>) -> Answer<bool> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some(kind.group.to_owned()),
                resource: Some(kind.plural.to_owned()),
                verb: Some(verb.to_owned()),
                namespace: namespace.map(str::to_owned),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    match timeout(TIMEOUT, api.create(&PostParams::default(), &review)).await {
        Ok(Ok(answer)) => Ok(answer.status.is_some_and(|status| status.allowed)),
        Ok(Err(error)) => Err(Unreadable::Failed(output::chain(&error))),
        Err(_) => Err(Unreadable::Failed(format!("no answer within {} s", TIMEOUT.as_secs()))),
    }
}

async fn namespaces(client: &Client, required: &Requirements) -> BTreeMap<String, Answer<Option<Value>>> {
    let reads = required.namespaces.keys().map(async |name| {
        let found = get(client, NAMESPACE, None, name).await;
        (name.clone(), found)
    });
    join_all(reads).await.into_iter().collect()
}

async fn secrets(
    client: &Client,
    required: &[SecretRequirement],
) -> BTreeMap<(String, String), Answer<Option<LiveSecret>>> {
    let places: BTreeSet<(String, String)> =
        required.iter().map(|secret| (secret.namespace.clone(), secret.name.clone())).collect();
    let reads = places.into_iter().map(async |(namespace, name)| {
        // Metadata names the keys, and never holds a value.
        let api = api(client, SECRET, Some(&namespace));
        let found = match timeout(TIMEOUT, api.get_metadata_opt(&name)).await {
            Ok(Ok(found)) => Ok(found.map(|secret| live::secret(&secret.metadata))),
            Ok(Err(Error::Api(status))) if status.code == 403 => Err(Unreadable::Forbidden(format!(
                "forbidden: cannot read Secret {name} in namespace {namespace}"
            ))),
            Ok(Err(error)) => Err(Unreadable::Failed(output::chain(&error))),
            Err(_) => Err(Unreadable::Failed(format!("no answer within {} s", TIMEOUT.as_secs()))),
        };
        ((namespace, name), found)
    });
    join_all(reads).await.into_iter().collect()
}

async fn gateways(client: &Client, routes: &[Value]) -> Vec<NamedGateway> {
    let mut places = BTreeSet::new();
    for route in routes {
        let own = text(route, "/metadata/namespace");
        places.extend(items(route, "/spec/parentRefs").map(|gateway| {
            let namespace = gateway["namespace"].as_str().unwrap_or(own);
            (namespace.to_owned(), text(gateway, "/name").to_owned())
        }));
    }
    let reads = places.into_iter().map(async |(namespace, name)| {
        let found = get(client, GATEWAY, Some(&namespace), &name).await;
        ((namespace, name), found)
    });
    join_all(reads).await
}

/// The address of the first Gateway that has one.
fn gateway_address(gateways: &[NamedGateway]) -> Option<IpAddr> {
    let found = gateways.iter().filter_map(|(_, gateway)| gateway.as_ref().ok()?.as_ref());
    let mut addresses = found.flat_map(|gateway| items(gateway, "/status/addresses"));
    addresses.find_map(|address| text(address, "/value").parse().ok())
}

/// Facts about the operator. A caller who cannot list all namespaces may still read the operator's usual one.
pub(crate) async fn operator(client: &Client) -> OperatorFacts {
    let label = format!("app.kubernetes.io/name={}", installation::NAME);
    let mut deployments = list(client, DEPLOYMENT, None, &label).await;
    if let Err(Unreadable::Forbidden(_)) = deployments {
        let usual = list(client, DEPLOYMENT, Some(installation::NAME), &label).await;
        if usual.is_ok() {
            deployments = usual;
        }
    }
    if let Ok(found) = &mut deployments {
        // The oldest one is active.
        found.sort_by_key(|found| text(found, "/metadata/creationTimestamp").to_owned());
    }
    let first = deployments.as_ref().ok().and_then(|found| found.first());
    let namespace = first.map(|found| text(found, "/metadata/namespace").to_owned());
    let Some(namespace) = namespace else {
        return OperatorFacts { deployments, versions: Ok(Vec::new()), lease: Ok(None) };
    };
    let (versions, lease) = futures::join!(
        versions(client, &namespace, &label),
        get(client, LEASE, Some(&namespace), leadership::LEASE)
    );
    OperatorFacts { deployments, versions, lease }
}

async fn versions(client: &Client, namespace: &str, label: &str) -> Answer<Vec<String>> {
    let pods = list(client, POD, Some(namespace), label).await?;
    let running = pods.iter().filter(|pod| text(pod, "/status/phase") == "Running");
    let reads = running.map(|pod| running_version(client, namespace, text(pod, "/metadata/name")));
    Ok(try_join_all(reads).await?.into_iter().flatten().collect())
}

/// The version that a pod of the operator reports in its metrics.
async fn running_version(client: &Client, namespace: &str, pod: &str) -> Answer<Option<String>> {
    let port = installation::ADMIN_PORT;
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy/metrics");
    let failed =
        |reason: String| Unreadable::Failed(format!("cannot read the metrics of pod {pod}: {reason}"));
    let request = Request::get(path).body(Vec::new()).map_err(|error| failed(error.to_string()))?;
    match timeout(TIMEOUT, client.request_text(request)).await {
        Ok(Ok(metrics)) => Ok(parse_version(&metrics)),
        Ok(Err(Error::Api(status))) if status.code == 403 => {
            Err(Unreadable::Forbidden(status.message.clone()))
        }
        Ok(Err(error)) => Err(failed(output::chain(&error))),
        Err(_) => Err(failed(format!("no answer within {} s", TIMEOUT.as_secs()))),
    }
}

fn parse_version(metrics: &str) -> Option<String> {
    let line = metrics.lines().find(|line| line.starts_with("openstack_operator_build_info{"))?;
    let (_, rest) = line.split_once("version=\"")?;
    rest.split_once('"').map(|(version, _)| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_the_operator_is_in_its_metrics() {
        let metrics = "# HELP openstack_operator_build The version.\nopenstack_operator_build_info{version=\"0.1.0\"} 1\n";
        assert_eq!(parse_version(metrics).as_deref(), Some("0.1.0"));
        assert_eq!(parse_version("up 1\n"), None);
    }
}
