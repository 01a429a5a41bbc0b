//! The first process of a node: mounts its file system, starts its services and reaps orphans.
//!
//! Killing it kills all processes of the node, like a power failure.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, pivot_root, sethostname};

use super::node::{REAL_DIRECTORIES, SHARED_VOLUMES};

#[derive(Args)]
pub(crate) struct Arguments {
    #[arg(long)]
    name: String,
    #[arg(long)]
    network_namespace: String,
    /// The directory of the node: its disk, its files, its logs.
    #[arg(long)]
    directory: PathBuf,
    /// The read-only file system that all nodes share.
    #[arg(long)]
    file_system: PathBuf,
    /// The directory of the volumes that all nodes share.
    #[arg(long)]
    shared_volumes: PathBuf,
    #[arg(long)]
    kubernetes: PathBuf,
    #[arg(long)]
    containerd: PathBuf,
    /// Set by the first stage for the first process of the new namespaces.
    #[arg(long, hide = true)]
    inside: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.inside { be_first_process(arguments) } else { enter_namespaces(arguments) }
}

/// Starts the program again: only children of a process that creates a pid namespace are inside it.
fn enter_namespaces(arguments: &Arguments) -> Result<()> {
    let path = Path::new("/run/netns").join(&arguments.network_namespace);
    let namespace = File::open(&path).with_context(|| format!("failed to open {}", path.display()))?;
    setns(&namespace, CloneFlags::CLONE_NEWNET).context("failed to enter the network namespace")?;
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWPID)
        .context("failed to create the namespaces of the node")?;
    Command::new("/proc/self/exe")
        .args(std::env::args_os().skip(1))
        .arg("--inside")
        .process_group(0)
        .spawn()
        .context("failed to start the first process")?;
    Ok(())
}

fn be_first_process(arguments: &Arguments) -> Result<()> {
    mount_file_system(arguments)?;
    sethostname(&arguments.name).context("failed to set the host name")?;
    supervise(arguments)
}

fn mount_file_system(arguments: &Arguments) -> Result<()> {
    let node_directory = &arguments.directory;
    let root = node_directory.join("root");
    change("/", MsFlags::MS_REC | MsFlags::MS_PRIVATE)?;
    let options = format!(
        "lowerdir={0}/files:{1},upperdir={0}/upper,workdir={0}/work",
        node_directory.display(),
        arguments.file_system.display()
    );
    mount(Some("node"), &root, Some("overlay"), MsFlags::empty(), Some(options.as_str()))
        .with_context(|| format!("failed to mount the overlay {options}"))?;
    bind(&arguments.kubernetes, &root.join("opt/kubernetes"))?;
    bind(&arguments.containerd, &root.join("opt/containerd"))?;
    bind(&node_directory.join("log"), &root.join("var/log/node"))?;
    for directory in REAL_DIRECTORIES {
        bind(&node_directory.join(directory), &root.join(directory))?;
    }
    bind(&arguments.shared_volumes, &root.join(SHARED_VOLUMES))?;
    for directory in ["run", "tmp"] {
        fresh(&root.join(directory), "tmpfs")?;
    }
    fresh(&root.join("proc"), "proc")?;
    // A new sysfs shows the interfaces of the node's network namespace.
    fresh(&root.join("sys"), "sysfs")?;
    bind(Path::new("/dev"), &root.join("dev"))?;
    bind(Path::new("/sys/fs/cgroup"), &root.join("sys/fs/cgroup"))?;
    std::env::set_current_dir(&root).context("failed to enter the node's file system")?;
    let old = root.join("mnt");
    pivot_root(".", &old).context("failed to change the root to the file system of the node")?;
    umount2("/mnt", MntFlags::MNT_DETACH).context("failed to leave the host's file system")?;
    std::env::set_current_dir("/").context("failed to enter the root")?;
    // Mounts of a pod propagate to other pods.
    change("/", MsFlags::MS_REC | MsFlags::MS_SHARED)
}

fn change(path: &str, flags: MsFlags) -> Result<()> {
    mount(None::<&str>, path, None::<&str>, flags, None::<&str>)
        .with_context(|| format!("failed to change the propagation of {path}"))
}

fn bind(source: &Path, target: &Path) -> Result<()> {
    mount(Some(source), target, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)
        .with_context(|| format!("failed to bind {} to {}", source.display(), target.display()))
}

fn fresh(target: &Path, kind: &str) -> Result<()> {
    mount(Some(kind), target, Some(kind), MsFlags::empty(), None::<&str>)
        .with_context(|| format!("failed to mount {kind} on {}", target.display()))
}

/// The services of a node, in start order.
const SERVICES: [&str; 3] = ["containerd", "kube-proxy", "kubelet"];

fn service(name: &str, arguments: &Arguments) -> Result<Command> {
    let mut command = match name {
        "containerd" => Command::new("/opt/containerd/containerd"),
        component => {
            let mut command = Command::new("/opt/kubernetes/kubernetes");
            command.arg(component);
            command
        }
    };
    match name {
        "kube-proxy" => {
            command.args(["--config", "/etc/kubernetes/proxy.yaml"]);
        }
        "kubelet" => {
            let address = fs::read_to_string("/etc/kubernetes/node-address")?;
            command.args([
                "--config",
                "/etc/kubernetes/kubelet.yaml",
                "--kubeconfig",
                "/etc/kubernetes/kubelet.kubeconfig",
                "--hostname-override",
                &arguments.name,
                "--node-ip",
                address.trim(),
            ]);
        }
        _ => {}
    }
    let log = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(format!("/var/log/node/{name}.log"))
        .with_context(|| format!("failed to open the log of {name}"))?;
    command
        .env("PATH", "/opt/containerd:/opt/kubernetes:/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    Ok(command)
}

/// Starts the services, restarts those that end, and reaps orphans. Returns only with an error.
fn supervise(arguments: &Arguments) -> Result<()> {
    let mut running = BTreeMap::new();
    for name in SERVICES {
        let pid = service(name, arguments)?.spawn().with_context(|| format!("failed to start {name}"))?.id();
        running.insert(pid, name);
        if name == "containerd" {
            wait_for_socket(Path::new("/run/containerd/containerd.sock"))?;
        }
    }
    loop {
        let status = waitpid(None::<Pid>, None).context("failed to wait for processes")?;
        let Some(pid) = status.pid().and_then(|pid| u32::try_from(pid.as_raw()).ok()) else { continue };
        if let Some(name) = running.remove(&pid) {
            crate::progress::notify(&format!("{name} has ended ({status:?}): restarting it"));
            // A service that cannot start must not occupy a core.
            thread::sleep(Duration::from_secs(1));
            let again = service(name, arguments)?.spawn();
            running.insert(again.with_context(|| format!("failed to start {name}"))?.id(), name);
        }
    }
}

fn wait_for_socket(path: &Path) -> Result<()> {
    let started = Instant::now();
    while !path.exists() {
        if started.elapsed() > Duration::from_mins(1) {
            bail!("timed out after 60 s waiting for {}", path.display());
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
