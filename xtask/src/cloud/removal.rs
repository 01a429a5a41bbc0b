//! Removal of a cloud: with the local cluster, or from an existing cluster, the operator last.

use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use super::{KIND, NAMESPACE, OPERATOR, Target, parse_duration};
use crate::cluster;
use crate::command::{Log, output};
use crate::directories::Directories;
use crate::graph::{Graph, Weight};
use crate::kubectl::Kubectl;
use crate::process;
use crate::progress::Progress;
use crate::store;

#[derive(Args)]
pub(crate) struct DownArguments {
    /// Remove the control planes and the operator from an existing cluster: a context of the kubeconfig.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// How long the operator may take to remove a control plane from an existing cluster, e.g. 90s, 5m or 1h.
    #[arg(long, default_value = "5m", value_name = "DURATION", value_parser = parse_duration, requires = "context")]
    timeout: String,
}

/// Removes the cloud. Nothing of it outlives the local cluster, so the cluster is removed without asking the cloud:
/// a broken cloud could not answer.
pub(crate) fn down(directories: &Directories, arguments: &DownArguments) -> Result<()> {
    match &arguments.context {
        Some(context) => leave(directories, context, &arguments.timeout),
        None => cluster::run(directories, cluster::Command::Down),
    }
}

/// Removes the control planes and the operator from an existing cluster.
fn leave(directories: &Directories, context: &str, timeout: &str) -> Result<()> {
    let _lock = directories.lock()?;
    process::end_leftovers(directories)?;
    let target = Target::existing(directories, context)?;
    let has_control_planes = has_control_planes(&target.kubectl)?;
    let elsewhere = namespaces_elsewhere(&target.kubectl)?;
    if !elsewhere.is_empty() {
        bail!(
            "other namespaces of {context} have control planes that need the operator: {}: delete them first",
            elsewhere.join(", ")
        );
    }
    let mut graph = Graph::default();
    graph.add("control planes off", Weight::Light, &[], |log| {
        if has_control_planes { delete(&target.kubectl, timeout, log) } else { Ok("none".to_owned()) }
    });
    graph.add("operator off", Weight::Light, &["control planes off"], |log| {
        let manifests = target.manifests();
        let installed = manifests.exists();
        if installed {
            let mut command = target.kubectl.command();
            command.args(["delete", "--ignore-not-found", "--timeout", timeout, "-f"]);
            log.run(command.arg(&manifests))?;
        }
        store::remove(&target.directory)?;
        Ok(if installed { String::new() } else { "not installed by this tool".to_owned() })
    });
    graph.run(directories, &Progress::new())
}

pub(super) fn has_control_planes(kubectl: &Kubectl) -> Result<bool> {
    if !has_kind(kubectl)? {
        return Ok(false);
    }
    let objects = ["--namespace", NAMESPACE, "get", KIND, "--output=name"];
    Ok(!output(kubectl.query().args(objects))?.trim().is_empty())
}

fn has_kind(kubectl: &Kubectl) -> Result<bool> {
    let get = ["get", "crd", KIND, "--ignore-not-found", "--output=name"];
    Ok(!output(kubectl.query().args(get))?.trim().is_empty())
}

/// The other namespaces that have control planes.
fn namespaces_elsewhere(kubectl: &Kubectl) -> Result<Vec<String>> {
    if !has_kind(kubectl)? {
        return Ok(Vec::new());
    }
    let namespaces = "--output=jsonpath={.items[*].metadata.namespace}";
    let all = output(kubectl.query().args(["get", KIND, "--all-namespaces", namespaces]))?;
    Ok(others(&all))
}

fn others(namespaces: &str) -> Vec<String> {
    let mut others: Vec<String> = namespaces
        .split_whitespace()
        .filter(|&namespace| namespace != NAMESPACE)
        .map(ToOwned::to_owned)
        .collect();
    others.sort();
    others.dedup();
    others
}

/// Deletes the control planes and waits until the operator has removed each of them.
fn delete(kubectl: &Kubectl, timeout: &str, log: &Log) -> Result<String> {
    let started = Instant::now();
    let delete = ["--namespace", NAMESPACE, "delete", KIND, "--all", "--wait", "--timeout", timeout];
    log.run(kubectl.command().args(delete)).with_context(|| {
        format!(
            "the control planes still exist after {:.0} s; see the operator's log: {} --kubeconfig {} \
             --namespace {OPERATOR} logs deployment/{OPERATOR}",
            started.elapsed().as_secs_f64(),
            kubectl.display(),
            kubectl.kubeconfig().display()
        )
    })?;
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_namespaces_are_named_once() {
        assert_eq!(others("openstack b a b"), ["a", "b"]);
        assert!(others("openstack").is_empty() && others("").is_empty());
    }
}
