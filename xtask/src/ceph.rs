//! A Ceph cluster in pods of the local cluster, in place of a user's existing one.

mod daemons;
mod health;
mod keys;
mod layout;
mod manifests;

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;

use crate::cloud;
use crate::cluster::settings::Settings;
use crate::command::{Log, output};
use crate::directories::Directories;
use crate::golang::Program;
use crate::graph::{Graph, Weight};
use crate::host;
use crate::images::Builder;
use crate::kubectl::Kubectl;
use crate::process;
use crate::progress::{self, Progress};
pub(crate) use daemons::Ceph;
use keys::CLOUD_SECRET;
pub(crate) use layout::Request;

/// The image of all daemons.
pub(crate) const IMAGE: &str = "ceph";
const NAMESPACE: &str = "ceph";
/// The pod in which commands of the administrator run.
const MONITOR_POD: &str = "ceph-mon-a-0";
/// The kind of the objects that use a Ceph cluster.
const USER_KIND: &str = "cephstorages.openstack.k8s.io";

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Create a Ceph cluster, or complete it, and wait until it is healthy. Safe to repeat.
    Up(Request),
    /// Show the health, the daemons and the usage.
    Status,
    /// Remove the Ceph cluster with all its data.
    Down,
}

pub(crate) fn run(directories: &Directories, command: &Command) -> Result<()> {
    match command {
        Command::Up(request) => up(directories, request),
        Command::Status => status(directories),
        Command::Down => down(directories),
    }
}

fn up(directories: &Directories, request: &Request) -> Result<()> {
    let settings = Settings::require(directories)?;
    let _lock = directories.lock()?;
    process::end_leftovers(directories)?;
    let builder = Builder::new(directories);
    let ceph = Ceph::plan(directories, &settings, &builder, request)?;
    let progress = Progress::new();
    host::ensure_tools(directories, &progress)?;
    let mut graph = Graph::default();
    Program::Registry.add_step(&mut graph, directories);
    builder.add_steps(&mut graph, &[IMAGE])?;
    graph.run(directories, &progress)?;
    let mut graph = Graph::default();
    ceph.add_steps(&mut graph);
    graph.run(directories, &progress)?;
    progress::notify(&format!(
        "\nCeph is healthy. Secret {CLOUD_SECRET} in namespace {} is for a cloud with `storageBackend: ceph`.\n\
         To use Ceph as its administrator:\n  {} --kubeconfig {} --namespace {NAMESPACE} exec {MONITOR_POD} -- ceph status",
        cloud::NAMESPACE,
        ceph.kubectl.display(),
        ceph.kubectl.kubeconfig().display(),
    ));
    Ok(())
}

fn status(directories: &Directories) -> Result<()> {
    Settings::require(directories)?;
    let kubectl = Kubectl::local(directories)?;
    if !exists(&kubectl)? {
        progress::notify("there is no Ceph: create it with cargo xtask ceph up");
        return Ok(());
    }
    for arguments in [["status"], ["df"]] {
        let answer = output(administrator(&kubectl).args(arguments)).with_context(|| {
            format!(
                "the monitor does not answer; see {} --kubeconfig {} --namespace {NAMESPACE} get pods",
                kubectl.display(),
                kubectl.kubeconfig().display()
            )
        })?;
        progress::print(answer.trim_end());
    }
    Ok(())
}

fn down(directories: &Directories) -> Result<()> {
    Settings::require(directories)?;
    let _lock = directories.lock()?;
    process::end_leftovers(directories)?;
    let kubectl = Kubectl::local(directories)?;
    let users = users(&kubectl)?;
    if !users.is_empty() {
        bail!(
            "{} would lose their data: delete the cloud first, or cargo xtask down everything",
            users.join(", ")
        );
    }
    let mut graph = Graph::default();
    graph.add("Ceph off", Weight::Light, &[], |log| remove(&kubectl, log));
    graph.run(directories, &Progress::new())
}

/// Removes the Secret of the cloud, the daemons and their volumes.
fn remove(kubectl: &Kubectl, log: &Log) -> Result<String> {
    let existed = exists(kubectl)?;
    let secret = ["--namespace", cloud::NAMESPACE, "delete", "secret", CLOUD_SECRET, "--ignore-not-found"];
    log.run(kubectl.command().args(secret))?;
    let namespace = ["delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait", "--timeout=300s"];
    log.run(kubectl.command().args(namespace))?;
    Ok(if existed { String::new() } else { "there was none".to_owned() })
}

/// Objects that use a Ceph cluster. They may use another one, but only the user knows.
fn users(kubectl: &Kubectl) -> Result<Vec<String>> {
    let kind = ["get", "crd", USER_KIND, "--ignore-not-found", "--output=name"];
    if output(kubectl.query().args(kind))?.trim().is_empty() {
        return Ok(Vec::new());
    }
    let names =
        "--output=jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{\"\\n\"}{end}";
    let found = output(kubectl.query().args(["get", USER_KIND, "--all-namespaces", names]))?;
    Ok(found.lines().map(ToOwned::to_owned).collect())
}

fn exists(kubectl: &Kubectl) -> Result<bool> {
    let get = ["get", "namespace", NAMESPACE, "--ignore-not-found", "--output=name"];
    Ok(!output(kubectl.query().args(get))?.trim().is_empty())
}

/// A command of Ceph's administrator; its arguments are still to be added.
fn administrator(kubectl: &Kubectl) -> std::process::Command {
    let mut command = kubectl.command();
    command.args(["--namespace", NAMESPACE, "exec", "--quiet", MONITOR_POD, "--container=mon", "--"]);
    // A monitor that is starting answers soon.
    command.args(["ceph", "--connect-timeout=60"]);
    command
}
