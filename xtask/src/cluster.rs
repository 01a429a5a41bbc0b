//! The local Kubernetes cluster: creation, status, power of its nodes, removal.

mod addons;
pub(crate) mod cgroup;
mod control;
pub(crate) mod existing;
mod network;
mod node;
pub(crate) mod node_init;
mod pki;
pub(crate) mod power;
mod preflight;
pub(crate) mod settings;
mod status;
pub(crate) mod volume;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use nix::sys::signal::Signal;

use crate::command::Log;
use crate::directories::Directories;
use crate::golang::Program;
use crate::graph::{Graph, Weight};
use crate::images::{self, Builder, buildah::Buildah};
use crate::kubectl::Kubectl;
use crate::progress::{self, Progress};
use crate::{process, registry};
use settings::{Addresses, MOST_NODES, Node, Settings};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Create the cluster, or complete it. Safe to repeat.
    Up(Up),
    /// Show the nodes, the processes and their memory.
    Status,
    /// Print the path of the kubeconfig: export KUBECONFIG=$(cargo xtask cluster kubeconfig).
    Kubeconfig,
    /// Cut the power of a node.
    PowerOff { node: String },
    /// Restore the power of a node.
    PowerOn { node: String },
    /// Remove the cluster with its state; builds and images stay for the next one.
    Down,
}

#[derive(Args, Clone)]
pub(crate) struct Up {
    /// Number of nodes [default: the current number, or 1].
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=i64::from(MOST_NODES)))]
    nodes: Option<u8>,
    #[command(flatten)]
    addresses: Addresses,
}

impl Up {
    /// Whether any option is given.
    pub(crate) fn is_given(&self) -> bool {
        self.nodes.is_some() || self.addresses != Addresses::usual()
    }

    /// The options of the existing cluster, or the defaults, with at least this number of nodes.
    pub(crate) fn at_least(directories: &Directories, nodes: u8) -> Result<Self> {
        let existing = Settings::load(directories)?;
        let nodes = existing.as_ref().map_or(nodes, |settings| settings.nodes.max(nodes));
        let addresses = existing.map_or_else(Addresses::usual, |settings| settings.addresses);
        Ok(Self { nodes: Some(nodes), addresses })
    }
}

pub(crate) fn run(directories: &Directories, command: Command) -> Result<()> {
    match command {
        Command::Up(arguments) => up(directories, &arguments),
        Command::Down => down(directories),
        Command::Status => status::show(directories),
        Command::Kubeconfig => {
            Settings::require(directories)?;
            progress::print(&pki::admin_kubeconfig(directories).display().to_string());
            Ok(())
        }
        Command::PowerOff { node } => power::off(directories, &node),
        Command::PowerOn { node } => power::on(directories, &node),
    }
}

fn up(directories: &Directories, arguments: &Up) -> Result<()> {
    let _lock = directories.lock()?;
    process::end_leftovers(directories)?;
    let settings = prepare(directories, arguments)?;
    let builder = Builder::new(directories);
    let mut graph = Graph::default();
    add_steps(&mut graph, directories, &settings, &builder)?;
    graph.run(directories, &Progress::new())?;
    progress::notify(&format!(
        "\n{} ready. To use the cluster:\n  export KUBECONFIG=$(cargo xtask cluster kubeconfig)\n  \
         alias kubectl='{}'",
        if settings.nodes == 1 { "1 node is".to_owned() } else { format!("{} nodes are", settings.nodes) },
        Kubectl::local(directories)?.display()
    ));
    Ok(())
}

/// Checks the machine and saves the settings of the cluster before anything is created.
pub(crate) fn prepare(directories: &Directories, arguments: &Up) -> Result<Settings> {
    let existing = Settings::load(directories)?;
    let settings = match &existing {
        None => Settings {
            nodes: arguments.nodes.unwrap_or(1),
            addresses: arguments.addresses.clone(),
            host_before: network::host_before()?,
        },
        Some(existing) => {
            if arguments.addresses != existing.addresses && arguments.addresses != Addresses::usual() {
                bail!(
                    "the cluster exists with other addresses: run cargo xtask cluster down first, or omit the \
                     address options"
                );
            }
            let nodes = arguments.nodes.unwrap_or(existing.nodes);
            if nodes < existing.nodes {
                bail!(
                    "the cluster has {} nodes and --nodes {nodes} would remove some: run cargo xtask cluster \
                     down first, or omit --nodes",
                    existing.nodes
                );
            }
            Settings { nodes, ..existing.clone() }
        }
    };
    preflight::check(directories, &settings.addresses, existing.is_none())?;
    settings.save(directories)?;
    Ok(settings)
}

/// The last steps of a cluster: when they are done, it is ready for all pods.
pub(crate) const READY: [&str; 3] = ["cluster DNS", "storage", "Gateway"];

/// Adds the steps that build a cluster; each waits only for its prerequisites. Where slots are short, the step that was
/// added first starts first: the registry, which every image needs, the longest builds, then the other parts of a node,
/// then those of pods.
pub(crate) fn add_steps<'a>(
    graph: &mut Graph<'a>,
    directories: &'a Directories,
    settings: &'a Settings,
    builder: &'a Builder,
) -> Result<()> {
    let addresses = &settings.addresses;
    let programs =
        [Program::Registry, Program::Kubernetes, Program::Traefik, Program::Etcd, Program::Containerd];
    for program in programs {
        program.add_step(graph, directories);
    }
    graph.add("node file system", Weight::Packages, &[], |log| {
        Ok(node::build_file_system(directories, log)?.detail())
    });
    builder.add_steps(graph, &["base"])?;
    for program in [Program::Pause, Program::Coredns, Program::LocalPathProvisioner, Program::Traefik] {
        if !graph.contains(&program.step()) {
            program.add_step(graph, directories);
        }
        let after = [images::PUSH_STEP, &program.step()];
        graph.add(image_step(program), Weight::Packages, &after, move |log| {
            addons::build_image(builder, program, log)
        });
    }
    graph.add("network", Weight::Light, &[], |log| {
        network::ensure_host(addresses, log)?;
        Ok(addresses.host_address().to_string())
    });
    graph.add("certificates", Weight::Light, &[], |_| {
        pki::ensure(directories, addresses)?;
        Ok(String::new())
    });
    graph.add("registry", Weight::Light, &["network", "build registry"], |_| {
        registry::ensure(directories, &addresses.registry())
    });
    let needs = ["network", "certificates", "build kubernetes", "build etcd"];
    graph.add("control plane", Weight::Light, &needs, |_| control::ensure(directories, addresses));
    let needs =
        ["control plane", "node file system", "build containerd", "registry", &image_step(Program::Pause)];
    graph.add("nodes", Weight::Light, &needs, |log| turn_on(directories, settings, log));
    let needs = ["nodes", &image_step(Program::Coredns)];
    graph.add("cluster DNS", Weight::Light, &needs, |log| addons::ensure_dns(directories, settings, log));
    let needs = ["nodes", "image base", &image_step(Program::LocalPathProvisioner)];
    graph.add("storage", Weight::Light, &needs, |log| {
        let base = format!("{}/{}", addresses.registry(), builder.name("base")?);
        addons::ensure_storage(directories, settings, &base, log)
    });
    graph.add("Gateway API", Weight::Light, &["control plane"], |log| {
        addons::ensure_gateway_kinds(directories, log)
    });
    let needs = ["nodes", "Gateway API", &image_step(Program::Traefik)];
    graph.add("Gateway", Weight::Light, &needs, |log| addons::ensure_gateway(directories, settings, log));
    Ok(())
}

fn image_step(program: Program) -> String {
    format!("image {}", program.name())
}

/// Powers on every node and waits until all are Ready.
fn turn_on(directories: &Directories, settings: &Settings, log: &Log) -> Result<String> {
    let nodes = settings.node_list();
    let mut started = 0;
    for node in &nodes {
        if node::power_on(directories, settings, node, log)? {
            started += 1;
        }
    }
    network::ensure_routes(settings, &nodes, log)?;
    wait_until_ready(directories, &nodes, log)?;
    Ok(if started == 0 { "running".to_owned() } else { format!("started {started} of {}", nodes.len()) })
}

fn wait_until_ready(directories: &Directories, nodes: &[Node], log: &Log) -> Result<()> {
    for node in nodes {
        let name = format!("node/{}", node.name);
        // A new node must register first.
        for condition in ["--for=create", "--for=condition=Ready"] {
            log.run(Kubectl::local(directories)?.command().args([
                "wait",
                condition,
                &name,
                "--timeout=180s",
            ]))
            .with_context(|| {
                format!("the logs of the node are in {}", node.directory(directories).join("log").display())
            })?;
        }
    }
    Ok(())
}

/// Removes everything that `up` created, completely or partially, and nothing else.
fn down(directories: &Directories) -> Result<()> {
    let _lock = directories.lock()?;
    let settings = match Settings::load(directories) {
        Ok(Some(settings)) => settings,
        Ok(None) => {
            progress::notify("there is no cluster");
            return end_processes(directories, &Log::create(directories, "processes off")?);
        }
        Err(error) => {
            progress::error(&error);
            Settings::largest(network::host_before()?)
        }
    };
    let mut graph = Graph::default();
    let settings = &settings;
    graph.add("nodes off", Weight::Light, &[], move |log| {
        for node in settings.node_list() {
            node::power_off(directories, &node, log)?;
        }
        cgroup::remove(None)?;
        Ok(String::new())
    });
    graph.add("processes off", Weight::Light, &["nodes off"], move |log| {
        end_processes(directories, log)?;
        Ok(String::new())
    });
    graph.add("network off", Weight::Light, &["processes off"], move |log| {
        network::remove_host(settings, log)?;
        Ok(String::new())
    });
    // The settings are removed last: until then, another `down` can continue.
    graph.add("state removed", Weight::Light, &["network off"], move |_| {
        remove_state(directories)?;
        Ok(String::new())
    });
    graph.run(directories, &Progress::new())
}

/// Kills the control plane, the registries and the leftovers of killed runs. Their state is removed too, so none
/// needs a clean shutdown.
fn end_processes(directories: &Directories, log: &Log) -> Result<()> {
    for process in process::list(directories)? {
        process::stop(directories, &process.name, Signal::SIGKILL)?;
    }
    Buildah::new(directories).clean_up(log)
}

fn remove_state(directories: &Directories) -> Result<()> {
    let cluster = directories.cluster();
    for entry in std::fs::read_dir(&cluster)? {
        let path = entry?.path();
        if path.is_dir() {
            crate::store::remove(&path)?;
        } else if !path.ends_with("settings.json") {
            std::fs::remove_file(&path).with_context(|| format!("failed to remove {}", path.display()))?;
        }
    }
    crate::store::remove(&cluster)
}

/// The path of the administrator's kubeconfig.
pub(crate) fn kubeconfig(directories: &Directories) -> std::path::PathBuf {
    pki::admin_kubeconfig(directories)
}
