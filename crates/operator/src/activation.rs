//! Activation: of all installations of the operator in a cluster, only the oldest one works.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams};
use kube::{Client, Resource as _, ResourceExt as _};
use openstack_operator_model::lower::INSTANCE_LABEL;

use crate::admin::Admin;
use crate::installation;

/// How often an installation on standby looks for the active one.
const INTERVAL: Duration = Duration::from_secs(10);

/// Identifies an installation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    namespace: String,
    instance: String,
}

impl Name {
    fn new(metadata: &ObjectMeta) -> Self {
        let instance = metadata.labels.as_ref().and_then(|labels| labels.get(INSTANCE_LABEL));
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            instance: instance.cloned().unwrap_or_default(),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} in namespace {}", self.instance, self.namespace)
    }
}

/// Objects of an installation.
#[derive(Clone, Debug, Default, PartialEq)]
struct Installation {
    /// Creation of its Deployment; none if that is deleted or never existed.
    created: Option<Timestamp>,
    /// Whether it has pods, or its Deployment wants some.
    runs: bool,
}

/// Waits until no other installation is active. **Invariant:** until then the process writes nothing.
///
/// The Deployment decides and not a lock that its pods hold: an update of the active installation stops its pods for a
/// moment, and another installation must not take over then.
pub(crate) async fn wait(client: &Client, namespace: &str, pod: &str, admin: &Admin) -> kube::Result<()> {
    let mut known = String::new();
    loop {
        let active = match active(client, namespace, pod).await {
            Ok(Some(active)) => active,
            Ok(None) => return Ok(()),
            // Without the right to read Deployments it cannot write any either.
            Err(kube::Error::Api(status)) if status.code == 403 => {
                tracing::warn!(
                    reason = status.message,
                    "cannot look for other installations of the operator"
                );
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let message = format!(
            "installation {active} of the operator is active, and a cluster has one at a time: uninstall it, or this one"
        );
        if message != known {
            tracing::warn!("{message}");
            admin.set_waiting(&message);
            known = message;
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// The installation that must be removed before the one with this pod may work.
async fn active(client: &Client, namespace: &str, pod: &str) -> kube::Result<Option<Name>> {
    let pod = Api::<Pod>::namespaced(client.clone(), namespace).get_opt(pod).await?;
    let own = pod.map(|pod| Name::new(pod.meta()));
    let found = find(client).await?;
    Ok(active_before(own.as_ref(), &found).cloned())
}

/// All installations in the cluster.
async fn find(client: &Client) -> kube::Result<BTreeMap<Name, Installation>> {
    let ours = ListParams::default().labels(&format!("app.kubernetes.io/name={}", installation::NAME));
    let deployments = Api::<Deployment>::all(client.clone()).list(&ours).await?;
    let pods = Api::<Pod>::all(client.clone()).list(&ours).await?;
    let mut found: BTreeMap<Name, Installation> = BTreeMap::new();
    for deployment in &deployments {
        let known = found.entry(Name::new(deployment.meta())).or_default();
        let created = deployment.creation_timestamp().map(|time| time.0);
        known.created = [known.created, created].into_iter().flatten().min();
        known.runs |= deployment.spec.as_ref().and_then(|spec| spec.replicas) != Some(0);
    }
    for pod in &pods {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let known = found.entry(Name::new(pod.meta())).or_default();
        known.runs |= !matches!(phase, Some("Succeeded" | "Failed"));
    }
    Ok(found)
}

/// The first installation that must be removed before this process may work. A process without a Deployment, e.g. one that
/// a developer starts, yields to every installation that runs.
fn active_before<'a>(own: Option<&Name>, found: &'a BTreeMap<Name, Installation>) -> Option<&'a Name> {
    let created = own.and_then(|own| found.get(own)?.created);
    let precedes = |name: &Name, other: &Installation| match (created, other.created) {
        (Some(created), Some(before)) => Some((before, name)) < own.map(|own| (created, own)),
        // Its pods are about to stop.
        (Some(_), None) | (None, _) => other.runs,
    };
    found
        .iter()
        .filter(|(name, _)| Some(*name) != own)
        .find(|(name, other)| precedes(name, other))
        .map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(namespace: &str) -> Name {
        Name { namespace: namespace.to_owned(), instance: "o".to_owned() }
    }

    fn installation(second: Option<i64>, runs: bool) -> Installation {
        Installation { created: second.and_then(|second| Timestamp::from_second(second).ok()), runs }
    }

    /// The namespace of the installation that the one in namespace `own` waits for.
    fn waits_for(found: [(&str, Installation); 2]) -> Option<String> {
        let found = found.map(|(namespace, installation)| (name(namespace), installation)).into();
        active_before(Some(&name("own")), &found).map(|active| active.namespace.clone())
    }

    #[test]
    fn the_oldest_deployment_is_active_and_the_namespace_decides_between_equally_old_ones() {
        let own = || ("own", installation(Some(5), true));
        assert_eq!(waits_for([own(), ("other", installation(Some(4), true))]).as_deref(), Some("other"));
        assert_eq!(waits_for([own(), ("other", installation(Some(6), true))]), None);
        assert_eq!(waits_for([own(), ("other", installation(Some(5), true))]).as_deref(), Some("other"));
        assert_eq!(waits_for([own(), ("z", installation(Some(5), true))]), None);
    }

    #[test]
    fn an_active_installation_stays_active_without_pods_and_an_uninstalled_one_until_its_pods_are_gone() {
        let own = || ("own", installation(Some(5), true));
        assert_eq!(waits_for([own(), ("other", installation(Some(4), false))]).as_deref(), Some("other"));
        assert_eq!(waits_for([own(), ("other", installation(None, true))]).as_deref(), Some("other"));
        assert_eq!(waits_for([own(), ("other", installation(None, false))]), None);
    }

    #[test]
    fn a_process_outside_the_cluster_yields_to_every_installation_that_runs() {
        let found = |runs: bool| BTreeMap::from([(name("other"), installation(Some(4), runs))]);
        assert_eq!(active_before(None, &found(true)), Some(&name("other")));
        assert_eq!(active_before(None, &found(false)), None);
        assert_eq!(active_before(None, &BTreeMap::new()), None);
    }
}
