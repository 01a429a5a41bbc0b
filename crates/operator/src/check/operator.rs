//! Findings about the operator in a cluster: installed, running, leading, and of this program's version.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::answer::{Answer, Unreadable};
use super::{Findings, text};

/// The version of this program.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Clocks of the caller and of the cluster may differ by this much.
const CLOCK_DIFFERENCE: SignedDuration = SignedDuration::from_secs(15);
const INSTALL: &str = "openstack-operator manifests --image IMAGE | kubectl apply --server-side -f -";

/// Facts about the operator in a cluster.
#[derive(Clone, Debug)]
pub(crate) struct OperatorFacts {
    pub(crate) deployments: Answer<Vec<Value>>,
    /// Versions that the running pods report.
    pub(crate) versions: Answer<Vec<String>>,
    pub(crate) lease: Answer<Option<Value>>,
}

impl OperatorFacts {
    pub(crate) fn is_installed(&self) -> bool {
        self.deployments.as_ref().is_ok_and(|found| !found.is_empty())
    }
}

/// Whether the operator runs, leads and has this program's version.
pub(super) fn check(facts: &OperatorFacts, now: Timestamp, findings: &mut Findings) {
    let deployments = match &facts.deployments {
        Ok(deployments) => deployments,
        Err(reason) => {
            findings.warn(reason.to_string(), "ask an administrator of the cluster to run this check");
            return;
        }
    };
    let Some(deployment) = deployments.first() else {
        findings.fail("the operator is not installed", INSTALL);
        return;
    };
    let (namespace, name) = (text(deployment, "/metadata/namespace"), text(deployment, "/metadata/name"));
    if deployments.len() > 1 {
        findings.warn(
            format!(
                "{} operators are installed: only the oldest one, {namespace}/{name}, is active",
                deployments.len()
            ),
            "uninstall all but one",
        );
    }
    let available = deployment.pointer("/status/availableReplicas").and_then(Value::as_i64).unwrap_or(0);
    if available > 0 {
        findings.pass(format!("Deployment {namespace}/{name} is available"));
    } else {
        findings.fail(
            format!("Deployment {namespace}/{name} has no available replica"),
            format!("kubectl --namespace {namespace} describe pods; kubectl --namespace {namespace} logs deployment/{name}"),
        );
    }
    leader(&facts.lease, now, namespace, name, findings);
    version(facts, deployment, findings);
}

fn leader(
    lease: &Answer<Option<Value>>,
    now: Timestamp,
    namespace: &str,
    name: &str,
    findings: &mut Findings,
) {
    let hint = format!("kubectl --namespace {namespace} logs deployment/{name}");
    let lease = match lease {
        Ok(Some(lease)) => lease,
        Ok(None) => return findings.fail("no replica of the operator has become the leader", hint),
        Err(reason) => return findings.warn(reason.to_string(), "the leader is not checked"),
    };
    let holder = text(lease, "/spec/holderIdentity");
    let duration = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64).unwrap_or(0);
    let renewed = text(lease, "/spec/renewTime").parse::<Timestamp>().ok();
    let age = renewed.map(|renewed| now.duration_since(renewed));
    match age {
        Some(age) if !holder.is_empty() && age <= SignedDuration::from_secs(duration) + CLOCK_DIFFERENCE => {
            findings.pass(format!("{holder} is the leader"));
        }
        Some(age) if !holder.is_empty() => findings
            .fail(format!("the leader {holder} has not renewed its Lease for {} s", age.as_secs()), hint),
        _ => findings.fail("no replica of the operator is the leader", hint),
    }
}

fn version(facts: &OperatorFacts, deployment: &Value, findings: &mut Findings) {
    let image = text(deployment, "/spec/template/spec/containers/0/image");
    match &facts.versions {
        Ok(versions) if versions.is_empty() => {
            findings.warn(
                format!("the version of the operator is unknown (image {image})"),
                "wait until its pod is Ready",
            );
        }
        Ok(versions) => match versions.iter().find(|version| *version != VERSION) {
            None => findings.pass(format!("the operator and this program have version {VERSION}")),
            Some(other) => findings.warn(
                format!("the operator has version {other}, this program {VERSION}"),
                "use the program of the operator's version, or upgrade the operator",
            ),
        },
        Err(_) if image.ends_with(&format!(":{VERSION}")) => {
            findings.pass(format!("the operator's image has tag {VERSION}, the version of this program"));
        }
        Err(Unreadable::Forbidden(_)) => findings.warn(
            format!("the version of the operator is unknown (image {image})"),
            "reading it requires get on pods/proxy in the operator's namespace",
        ),
        Err(reason) => findings
            .warn(format!("the version of the operator is unknown (image {image})"), reason.to_string()),
    }
}
