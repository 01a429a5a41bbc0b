//! A cloud with one command: a cluster, the images, the operator and a control plane; and its removal.

pub(crate) mod client;
pub(crate) mod launch;
mod next_steps;
mod removal;
mod services;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::slice;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::cluster::existing::{self, Existing};
use crate::cluster::{self, settings::Settings};
use crate::command::{Log, output, show};
use crate::directories::Directories;
use crate::graph::{Graph, Weight};
use crate::images::{Builder, origin::Origin};
use crate::kubectl::Kubectl;
use crate::process;
use crate::progress::{self, Progress};
pub(crate) use removal::{DownArguments, down};
pub(crate) use services::{images, samples};

/// The family of images that the table describes.
const FAMILY: &str = "debian";
/// The namespace and the Deployment of the operator.
pub(crate) const OPERATOR: &str = "openstack-operator";
/// The namespace of the cloud and of the local cluster's Gateway.
pub(crate) const NAMESPACE: &str = "openstack";
/// The kind of a control plane.
pub(crate) const KIND: &str = "openstackcontrolplanes.openstack.k8s.io";

#[derive(Args)]
pub(crate) struct UpArguments {
    #[command(flatten)]
    cluster: cluster::Up,
    #[command(flatten)]
    existing: Existing,
    /// Manifest of the control plane [default: samples/minimal.yaml of the project].
    #[arg(long, value_name = "FILE")]
    sample: Option<PathBuf>,
    /// How long the cloud may take to become ready, e.g. 90s, 15m or 1h.
    #[arg(long, default_value = "15m", value_name = "DURATION", value_parser = parse_duration)]
    timeout: String,
}

impl UpArguments {
    /// The cloud of a manifest on the local cluster, with at least this number of nodes.
    pub(crate) fn local(
        directories: &Directories,
        nodes: u8,
        sample: PathBuf,
        timeout: &str,
    ) -> Result<Self> {
        let cluster = cluster::Up::at_least(directories, nodes)?;
        let timeout = timeout.to_owned();
        Ok(Self { cluster, existing: Existing::default(), sample: Some(sample), timeout })
    }
}

/// kubectl and the operator both read these units.
fn parse_duration(text: &str) -> Result<String, String> {
    let number = text.strip_suffix(['s', 'm', 'h']).and_then(|number| number.parse::<u32>().ok());
    match number {
        Some(1..) => Ok(text.to_owned()),
        _ => Err("give a number of seconds, minutes or hours: 90s, 15m, 1h".to_owned()),
    }
}

/// The cluster of a cloud.
struct Target {
    kubectl: Kubectl,
    /// The directory of the operator's manifests and the clouds.yaml.
    directory: PathBuf,
}

impl Target {
    fn local(directories: &Directories) -> Result<Self> {
        Ok(Self { kubectl: Kubectl::local(directories)?, directory: directories.cluster() })
    }

    fn existing(directories: &Directories, context: &str) -> Result<Self> {
        let directory = existing::directory(directories, context);
        Ok(Self { kubectl: existing::kubectl(directories, context)?, directory })
    }

    fn manifests(&self) -> PathBuf {
        self.directory.join("operator.yaml")
    }

    fn clouds(&self) -> PathBuf {
        self.directory.join("clouds.yaml")
    }

    /// The operator's command line on this cluster.
    fn operator(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).env("KUBECONFIG", self.kubectl.kubeconfig());
        command
    }
}

/// Whether the local cluster has a control plane.
pub(crate) fn exists(directories: &Directories) -> Result<bool> {
    removal::has_control_planes(&Kubectl::local(directories)?)
}

pub(crate) fn up(directories: &Directories, arguments: &UpArguments) -> Result<()> {
    let started = Instant::now();
    let existing = arguments.existing.get();
    if existing.is_some() && arguments.cluster.is_given() {
        bail!("--context selects an existing cluster: omit --nodes and the address options");
    }
    let sample = find_sample(directories, arguments.sample.as_deref())?;
    let builder = Builder::new(directories);
    let lock = directories.lock()?;
    process::end_leftovers(directories)?;
    let (target, origin) = if let Some((context, registry)) = existing {
        let target = Target::existing(directories, context)?;
        require_no_other_operator(&target.kubectl, context)?;
        build_program(directories, &builder)?;
        (target, Origin::Prefix(registry))
    } else {
        let settings = cluster::prepare(directories, &arguments.cluster)?;
        let mut graph = Graph::default();
        add_cluster(&mut graph, directories, &settings, &builder, slice::from_ref(&sample))?;
        graph.run(directories, &Progress::new())?;
        (Target::local(directories)?, Origin::local(&builder, &settings))
    };
    let program = builder.program("operator")?;
    let applied = install(directories, &target, &program, &origin, &sample)?;
    // This run only watches from here on: another may power nodes off and on, or remove the cluster.
    drop(lock);
    watch(&target, &program, &arguments.timeout)?;
    let to_ready = applied.elapsed();
    let kubeconfig = target.kubectl.kubeconfig();
    let steps = if let Some((context, _)) = existing {
        log_in(&target, &program)?;
        next_steps::on_existing_cluster(context, kubeconfig, &target.clouds())
    } else {
        next_steps::on_local_cluster(kubeconfig, &target.kubectl.display())
    };
    progress::notify(&format!("\n{} To use it:\n\n{steps}", times(to_ready, started.elapsed())));
    Ok(())
}

fn find_sample(directories: &Directories, given: Option<&Path>) -> Result<PathBuf> {
    let path = given.map_or_else(|| directories.checkout.join("samples/minimal.yaml"), Path::to_owned);
    if !path.is_file() {
        bail!("{} is not a file: pass the manifest of a control plane with --sample FILE", path.display());
    }
    Ok(path)
}

/// Adds the steps that build a cluster with the images for the clouds of these manifests.
pub(crate) fn add_cluster<'a>(
    graph: &mut Graph<'a>,
    directories: &'a Directories,
    settings: &'a Settings,
    builder: &'a Builder,
    samples: &[PathBuf],
) -> Result<()> {
    // First of all: it is one of the longest builds, it occupies only one core towards its end, and it is where a
    // developer's mistake shows.
    builder.add_program(graph, "operator")?;
    cluster::add_steps(graph, directories, settings, builder)?;
    let images = images(directories, samples)?;
    let images: Vec<&str> = images.iter().map(String::as_str).collect();
    builder.add_steps(graph, &images)
}

fn build_program(directories: &Directories, builder: &Builder) -> Result<()> {
    let mut graph = Graph::default();
    builder.add_program(&mut graph, "operator")?;
    graph.run(directories, &Progress::new())
}

/// Installs the operator, applies the control plane, and returns the time of the latter.
fn install(
    directories: &Directories,
    target: &Target,
    program: &Path,
    origin: &Origin<'_>,
    sample: &Path,
) -> Result<Instant> {
    let applied = OnceLock::new();
    let mut graph = Graph::default();
    graph.add("operator", Weight::Light, &[], |log| {
        install_operator(target, program, &origin.reference("operator")?, &origin.prefix(), log)
    });
    graph.add("cloud", Weight::Light, &["operator"], |log| {
        ensure_namespace(target, log)?;
        applied.get_or_init(Instant::now);
        target.kubectl.apply(Some(NAMESPACE), sample, log)?;
        Ok(sample.display().to_string())
    });
    graph.run(directories, &Progress::new())?;
    applied.into_inner().context("no control plane was applied")
}

fn install_operator(
    target: &Target,
    program: &Path,
    image: &str,
    registry: &str,
    log: &Log,
) -> Result<String> {
    let nodes = output(target.kubectl.query().args(["get", "nodes", "--output=name"]))?.lines().count();
    let manifests = output(&mut target.operator(program, &manifests_arguments(image, registry, nodes)))?;
    // `down` removes these objects from an existing cluster.
    let path = target.manifests();
    fs::write(&path, manifests).with_context(|| format!("failed to write {}", path.display()))?;
    target.kubectl.apply(None, &path, log)?;
    target.kubectl.wait_for("Established", None, &[&format!("crd/{KIND}")], log)?;
    target.kubectl.wait_for_rollout(OPERATOR, OPERATOR, log).with_context(|| {
        format!("the operator does not start; see kubectl --namespace {OPERATOR} describe pods")
    })?;
    Ok(image.to_owned())
}

/// Fails if an existing cluster has an operator that this project's tools did not install: `up` would replace it, or the
/// two would compete.
fn require_no_other_operator(kubectl: &Kubectl, context: &str) -> Result<()> {
    let fields = "{.metadata.namespace}/{.metadata.name} {.metadata.managedFields[*].manager}";
    let list = format!("--output=jsonpath={{range .items[*]}}{fields}{{\"\\n\"}}{{end}}");
    let label = format!("--selector=app.kubernetes.io/name={OPERATOR}");
    let found = output(kubectl.query().args(["get", "deployments", "--all-namespaces", &label, &list]))?;
    let others = other_operators(&found);
    if !others.is_empty() {
        bail!("{context} has an operator already: {}: uninstall it first", others.join(", "));
    }
    Ok(())
}

/// Deployments that this project's tools did not apply, from lines with a name and its field managers.
fn other_operators(lines: &str) -> Vec<&str> {
    let is_ours = |name: &str, managers: &str| {
        name == format!("{OPERATOR}/{OPERATOR}")
            && managers.split(' ').any(|manager| matches!(manager, "xtask" | "openstack-operator-e2e"))
    };
    let parts = lines.lines().filter_map(|line| line.split_once(' '));
    parts.filter(|(name, managers)| !is_ours(name, managers)).map(|(name, _)| name).collect()
}

/// On several nodes a second operator is on standby, so that the loss of a node does not stop recovery.
fn manifests_arguments<'a>(image: &'a str, registry: &'a str, nodes: usize) -> [&'a str; 11] {
    [
        "manifests",
        "--namespace",
        OPERATOR,
        "--image",
        image,
        "--images-family",
        FAMILY,
        "--images-registry",
        registry,
        "--replicas",
        if nodes > 1 { "2" } else { "1" },
    ]
}

fn ensure_namespace(target: &Target, log: &Log) -> Result<()> {
    let get = ["get", "namespace", NAMESPACE, "--ignore-not-found", "--output=name"];
    if output(target.kubectl.query().args(get))?.trim().is_empty() {
        log.run(target.kubectl.command().args(["create", "namespace", NAMESPACE]))?;
    }
    Ok(())
}

/// Shows the progress of the cloud until it is ready.
fn watch(target: &Target, program: &Path, timeout: &str) -> Result<()> {
    let arguments = ["status", "--namespace", NAMESPACE, "--watch", "--timeout", timeout];
    let mut command = target.operator(program, &arguments);
    let status = command.status().with_context(|| format!("failed to start {}", show(&command)))?;
    if !status.success() {
        bail!(
            "the cloud is not ready: {}: {status}\n\
             The status above names the reason. The operator's log:\n  \
             {} --kubeconfig {} --namespace {OPERATOR} logs deployment/{OPERATOR}\n\
             cargo xtask up continues from here; --timeout extends the wait.",
            show(&command),
            target.kubectl.display(),
            target.kubectl.kubeconfig().display()
        );
    }
    Ok(())
}

/// Writes the clouds.yaml of the cloud's administrator.
fn log_in(target: &Target, program: &Path) -> Result<()> {
    let login = ["login", "--namespace", NAMESPACE, "--cloud", next_steps::CLOUD, "--output"];
    output(target.operator(program, &login).arg(target.clouds())).map(|_| ())
}

fn times(to_ready: Duration, total: Duration) -> String {
    let [to_ready, total] = [to_ready, total].map(|time| time.as_secs_f64());
    format!("The cloud is ready: {to_ready:.0} s since it was applied, {total:.0} s in total.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::settings::HostBefore;

    #[test]
    fn the_manifests_have_the_image_and_the_registry() {
        let arguments =
            manifests_arguments("10.100.0.1:5000/openstack/operator:1", "10.100.0.1:5000/openstack", 3);
        assert_eq!(
            arguments.join(" "),
            "manifests --namespace openstack-operator --image 10.100.0.1:5000/openstack/operator:1 \
             --images-family debian --images-registry 10.100.0.1:5000/openstack --replicas 2"
        );
    }

    #[test]
    fn an_operator_of_another_installation_is_found() {
        let own = "openstack-operator/openstack-operator kube-controller-manager xtask\n";
        assert!(other_operators(own).is_empty() && other_operators("").is_empty());
        let helm = "openstack-operator/openstack-operator helm kube-controller-manager\n";
        assert_eq!(other_operators(helm), ["openstack-operator/openstack-operator"]);
        assert_eq!(other_operators(&format!("{own}a/operator xtask\n")), ["a/operator"]);
    }

    #[test]
    fn the_operators_build_starts_first() -> Result<()> {
        let cache = std::env::temp_dir().join(format!("xtask-cloud-{}", std::process::id()));
        let directories = Directories::find(Some(cache.clone()))?;
        let (settings, builder) = (Settings::largest(HostBefore::default()), Builder::new(&directories));
        let mut graph = Graph::default();
        let sample = directories.checkout.join("samples/minimal.yaml");
        add_cluster(&mut graph, &directories, &settings, &builder, &[sample])?;
        let first = graph.runnable();
        assert_eq!(first[..3], ["build openstack-operator", "build registry", "build kubernetes"]);
        assert_eq!(graph.prerequisites("image operator").last(), Some(&"build openstack-operator"));
        fs::remove_dir_all(cache)?;
        Ok(())
    }

    #[test]
    fn a_duration_has_a_unit() {
        for good in ["1s", "90s", "15m", "2h"] {
            assert_eq!(parse_duration(good).as_deref(), Ok(good));
        }
        for bad in ["", "m", "0m", "15", "-1m", "soon", "1.5h", "15 m"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn both_times_are_shown() {
        let text = times(Duration::from_millis(91_600), Duration::from_secs(131));
        assert_eq!(text, "The cloud is ready: 92 s since it was applied, 131 s in total.");
    }
}
