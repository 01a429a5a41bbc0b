//! The end of a cloud: its control planes first, so that the operator can finish them, then what carried it.

use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use super::{KIND, NAMESPACE, OPERATOR, Target, parse_duration};
use crate::cluster::{self, settings::Settings};
use crate::command::{Log, output};
use crate::directories::Directories;
use crate::graph::{Graph, Weight};
use crate::kubectl::Kubectl;
use crate::process;
use crate::progress::{self, Progress};
use crate::store;

#[derive(Args)]
pub(crate) struct DownArguments {
    /// Remove the control planes and the operator from an existing cluster: a context of the kubeconfig.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// How long the operator may take to remove a control plane, e.g. 90s, 5m or 1h.
    #[arg(long, default_value = "5m", value_name = "DURATION", value_parser = parse_duration)]
    timeout: String,
}

pub(crate) fn down(directories: &Directories, arguments: &DownArguments) -> Result<()> {
    if let Some(context) = &arguments.context {
        return leave(directories, context, &arguments.timeout);
    }
    delete_from_local(directories, &arguments.timeout)?;
    cluster::run(directories, cluster::Command::Down)
}

/// What there is to delete, as far as the cluster says.
#[derive(Debug, PartialEq, Eq)]
enum Finding {
    /// Control planes, and an operator that will finish them.
    ControlPlanes,
    /// Control planes that nobody would finish.
    Orphans,
    Nothing,
}

/// On the local cluster nothing is worth waiting for in vain: it goes anyway.
fn delete_from_local(directories: &Directories, timeout: &str) -> Result<()> {
    let _lock = directories.lock()?;
    // Settings that cannot be read are told of when the cluster goes.
    if !matches!(Settings::load(directories), Ok(Some(_))) {
        return Ok(());
    }
    process::end_leftovers(directories)?;
    let target = match Target::local(directories).and_then(|target| Ok((look(&target.kubectl)?, target))) {
        Ok((Finding::ControlPlanes, target)) => target,
        Ok((Finding::Nothing, _)) => {
            progress::say("there is no control plane to delete");
            return Ok(());
        }
        Ok((Finding::Orphans, _)) => {
            progress::say("the operator does not run: the control planes go with the cluster");
            return Ok(());
        }
        Err(error) => {
            progress::say(&format!(
                "the cluster does not answer: its control planes go with it ({})",
                error.root_cause()
            ));
            return Ok(());
        }
    };
    let mut graph = Graph::default();
    graph.add("control planes off", Weight::Light, &[], |log| delete(&target.kubectl, timeout, log));
    graph.run(directories, &Progress::new()).context(
        "the cloud is still there: cargo xtask cluster down removes it without waiting for its operator",
    )
}

/// Removes the control planes and the operator from a cluster that stays.
fn leave(directories: &Directories, context: &str, timeout: &str) -> Result<()> {
    let _lock = directories.lock()?;
    process::end_leftovers(directories)?;
    let target = Target::existing(directories, context)?;
    let finding = look(&target.kubectl)?;
    let elsewhere = namespaces_elsewhere(&target.kubectl)?;
    if !elsewhere.is_empty() {
        bail!(
            "there are control planes in other namespaces of {context}, which cannot be without the \
             operator: {}: delete them first",
            elsewhere.join(", ")
        );
    }
    let mut graph = Graph::default();
    graph.add("control planes off", Weight::Light, &[], |log| match finding {
        Finding::Nothing => Ok("there is none".to_owned()),
        Finding::ControlPlanes | Finding::Orphans => delete(&target.kubectl, timeout, log),
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
        Ok(if installed { String::new() } else { "none was installed from here".to_owned() })
    });
    graph.run(directories, &Progress::new())
}

fn look(kubectl: &Kubectl) -> Result<Finding> {
    if !has_kind(kubectl)? {
        return Ok(Finding::Nothing);
    }
    let objects = ["--namespace", NAMESPACE, "get", KIND, "--output=name"];
    if output(kubectl.question().args(objects))?.trim().is_empty() {
        return Ok(Finding::Nothing);
    }
    let available = "--output=jsonpath={.status.availableReplicas}";
    let operator = ["--namespace", OPERATOR, "get", "deployment", OPERATOR, "--ignore-not-found", available];
    let available = output(kubectl.question().args(operator))?;
    Ok(if matches!(available.trim(), "" | "0") { Finding::Orphans } else { Finding::ControlPlanes })
}

fn has_kind(kubectl: &Kubectl) -> Result<bool> {
    let get = ["get", "crd", KIND, "--ignore-not-found", "--output=name"];
    Ok(!output(kubectl.question().args(get))?.trim().is_empty())
}

/// Namespaces other than the cloud's that have control planes.
fn namespaces_elsewhere(kubectl: &Kubectl) -> Result<Vec<String>> {
    if !has_kind(kubectl)? {
        return Ok(Vec::new());
    }
    let namespaces = "--output=jsonpath={.items[*].metadata.namespace}";
    let all = output(kubectl.question().args(["get", KIND, "--all-namespaces", namespaces]))?;
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

/// Deletes the control planes and waits until the operator has finished each of them.
fn delete(kubectl: &Kubectl, timeout: &str, log: &Log) -> Result<String> {
    let started = Instant::now();
    let delete = ["--namespace", NAMESPACE, "delete", KIND, "--all", "--wait", "--timeout", timeout];
    log.run(kubectl.command().args(delete)).with_context(|| {
        format!(
            "the control planes are not gone after {:.0} s: what the operator says is in {} --kubeconfig {} \
             --namespace {OPERATOR} logs deployment/{OPERATOR}",
            started.elapsed().as_secs_f64(),
            kubectl.shown(),
            kubectl.kubeconfig().display()
        )
    })?;
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_planes_of_others_are_named_once() {
        assert_eq!(others("openstack b a b"), ["a", "b"]);
        assert!(others("openstack").is_empty() && others("").is_empty());
    }
}
