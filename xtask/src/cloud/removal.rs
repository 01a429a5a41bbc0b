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
    let elsewhere = objects_elsewhere(&target.kubectl)?;
    if !elsewhere.is_empty() {
        bail!(
            "other namespaces of {context} have objects that need the operator, and that would be deleted with their kinds: \
             {}: delete them first",
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

/// Objects of the operator's kinds in other namespaces.
fn objects_elsewhere(kubectl: &Kubectl) -> Result<Vec<String>> {
    let names = "--output=jsonpath={.items[*].metadata.name}";
    let definitions = output(kubectl.query().args(["get", "crd", names]))?;
    let kinds = own_kinds(&definitions);
    if kinds.is_empty() {
        return Ok(Vec::new());
    }
    let names =
        "--output=jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{\"\\n\"}{end}";
    Ok(elsewhere(&output(kubectl.query().args(["get", &kinds.join(","), "--all-namespaces", names]))?))
}

/// The operator's kinds among the names of definitions.
fn own_kinds(definitions: &str) -> Vec<&str> {
    let group = KIND.split_once('.').map_or(KIND, |(_, group)| group);
    let is_own = |name: &&str| name.split_once('.').is_some_and(|(_, found)| found == group);
    definitions.split_whitespace().filter(is_own).collect()
}

/// Objects in other namespaces, from lines with a kind, a namespace and a name.
fn elsewhere(lines: &str) -> Vec<String> {
    let is_elsewhere = |line: &&str| {
        line.split_once(' ')
            .and_then(|(_, place)| place.split_once('/'))
            .is_some_and(|(namespace, _)| namespace != NAMESPACE)
    };
    lines.lines().filter(is_elsewhere).map(ToOwned::to_owned).collect()
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
    fn any_object_of_an_own_kind_in_another_namespace_is_found() {
        let lines = "OpenStackControlPlane openstack/cloud\nMariaDB a/db\nKeystone openstack-two/keystone\n";
        assert_eq!(elsewhere(lines), ["MariaDB a/db", "Keystone openstack-two/keystone"]);
        assert!(elsewhere("MariaDB openstack/cloud-mariadb\n").is_empty() && elsewhere("").is_empty());
    }

    #[test]
    fn own_kinds_are_those_of_the_operators_group() {
        let definitions =
            "mariadbs.openstack.k8s.io gateways.gateway.networking.k8s.io novas.nova.openstack.org";
        assert_eq!(own_kinds(definitions), ["mariadbs.openstack.k8s.io"]);
    }
}
