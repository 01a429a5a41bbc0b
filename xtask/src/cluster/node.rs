//! A node from the host's side: its disk, its files and its power.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;

use super::settings::{Addresses, MOST_NODES, Node, Settings};
use super::{addons, cgroup, network, pki};
use crate::command::Log;
use crate::directories::Directories;
use crate::golang::Program;
use crate::process;
use crate::store::{self, Key, Part};

/// Debian packages of the file system that all nodes share.
const PACKAGES: [&str; 14] = [
    "ca-certificates",
    "conntrack",
    "containernetworking-plugins",
    "ethtool",
    "iproute2",
    "iptables",
    "kmod",
    "mount",
    "nftables",
    "openssl",
    "procps",
    "runc",
    "socat",
    "util-linux",
];

/// Directories outside the overlay of the node, because containers mount overlays on them.
pub(crate) const REAL_DIRECTORIES: [&str; 3] = ["var/lib/containerd", "var/lib/kubelet", "var/lib/volumes"];

/// The directory of the volumes that all nodes share, on every node.
pub(crate) const SHARED_VOLUMES: &str = "var/lib/shared-volumes";

fn file_system_key() -> Key {
    PACKAGES.iter().fold(Key::default().text("trixie"), |key, package| key.text(package))
}

fn file_system(directories: &Directories) -> PathBuf {
    store::part_path(directories, "node-file-system", file_system_key())
}

/// Builds the read-only file system that the nodes share.
pub(crate) fn build_file_system(directories: &Directories, log: &Log) -> Result<Part> {
    store::ensure(directories, "node-file-system", file_system_key(), |directory| {
        log.run(
            Command::new("mmdebstrap")
                .args(["--variant=minbase", "--skip=cleanup/apt"])
                .arg(format!("--include={}", PACKAGES.join(",")))
                .arg("trixie")
                .arg(directory),
        )
    })
}

pub(crate) fn is_on(directories: &Directories, node: &Node) -> Result<bool> {
    Ok(process::find(directories, &node.name)?.is_some())
}

/// Powers the node on unless it is on, with the disk that it had.
pub(crate) fn power_on(
    directories: &Directories,
    settings: &Settings,
    node: &Node,
    log: &Log,
) -> Result<bool> {
    network::ensure_node(settings, node, log)?;
    cgroup::ensure_node(node)?;
    let files = files(directories, settings, node)?;
    let key = files
        .iter()
        .fold(Key::default(), |key, (path, text)| key.text(&path.display().to_string()).text(text));
    let node_directory = node.directory(directories);
    for directory in ["upper", "work", "root", "log"].into_iter().chain(REAL_DIRECTORIES) {
        fs::create_dir_all(node_directory.join(directory))
            .with_context(|| format!("failed to create a directory of {}", node.name))?;
    }
    let shared_volumes = directories.cluster().join("shared-volumes");
    fs::create_dir_all(&shared_volumes)
        .with_context(|| format!("failed to create {}", shared_volumes.display()))?;
    // A rebuild may have replaced the file of this program.
    let mut command = Command::new("/proc/self/exe");
    command
        .arg("node-init")
        .arg("--name")
        .arg(&node.name)
        .arg("--network-namespace")
        .arg(node.network_namespace())
        .arg("--directory")
        .arg(&node_directory)
        .arg("--file-system")
        .arg(file_system(directories))
        .arg("--shared-volumes")
        .arg(shared_volumes)
        .arg("--kubernetes")
        .arg(Program::Kubernetes.directory(directories)?)
        .arg("--containerd")
        .arg(Program::Containerd.directory(directories)?);
    let running = process::find(directories, &node.name)?;
    let started = running.as_ref().map(|process| process.key.clone());
    if started.as_deref() == Some(process::key(&command, key.clone()).as_str()) {
        return Ok(false);
    }
    if started.is_some() {
        power_off(directories, node, log)?;
        network::ensure_node(settings, node, log)?;
        cgroup::ensure_node(node)?;
    }
    write_files(&node_directory.join("files"), &files)?;
    process::ensure(directories, &node.name, &node_directory.join("log/init.log"), &mut command, key)
}

/// Cuts the power: kills all processes of the node at once.
pub(crate) fn power_off(directories: &Directories, node: &Node, log: &Log) -> Result<()> {
    process::stop(directories, &node.name, Signal::SIGKILL)?;
    network::remove_node(node, log)?;
    cgroup::remove(Some(node))
}

fn write_files(files_directory: &Path, files: &[(PathBuf, String)]) -> Result<()> {
    store::remove(files_directory)?;
    for (path, text) in files {
        let path = files_directory.join(path);
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
    }
    // Mount points must exist.
    let mounted = ["opt/kubernetes", "opt/containerd", "var/log/node", SHARED_VOLUMES];
    for directory in REAL_DIRECTORIES.into_iter().chain(mounted) {
        fs::create_dir_all(files_directory.join(directory))?;
    }
    Ok(())
}

/// The files of this node, by path.
fn files(directories: &Directories, settings: &Settings, node: &Node) -> Result<Vec<(PathBuf, String)>> {
    let addresses = &settings.addresses;
    let pki = pki::directory(directories);
    let on_node = Path::new("/etc/kubernetes/pki");
    let mut files = vec![
        ("etc/hostname".into(), format!("{}\n", node.name)),
        ("etc/hosts".into(), hosts(addresses)),
        ("etc/resolv.conf".into(), resolver()),
        ("etc/containerd/config.toml".into(), containerd_configuration(directories, addresses)?),
        (
            format!("etc/containerd/certs.d/{}/hosts.toml", addresses.registry()).into(),
            format!("server = \"http://{}\"\n", addresses.registry()),
        ),
        ("etc/cni/net.d/10-pods.conflist".into(), pod_network(node)),
        ("etc/kubernetes/kubelet.yaml".into(), kubelet_configuration(addresses, node)),
        ("etc/kubernetes/proxy.yaml".into(), proxy_configuration(addresses, node)),
        ("etc/kubernetes/kubelet.kubeconfig".into(), pki::kubeconfig(addresses, on_node, &node.name)),
        ("etc/kubernetes/proxy.kubeconfig".into(), pki::kubeconfig(addresses, on_node, "proxy")),
        ("etc/kubernetes/node-address".into(), format!("{}\n", node.address)),
    ];
    for file in ["ca.crt".to_owned(), "proxy.crt".to_owned(), "proxy.key".to_owned()]
        .into_iter()
        .chain([format!("{}.crt", node.name), format!("{}.key", node.name)])
    {
        let source = pki.join(&file);
        let text =
            fs::read_to_string(&source).with_context(|| format!("failed to read {}", source.display()))?;
        files.push((Path::new("etc/kubernetes/pki").join(file), text));
    }
    Ok(files)
}

/// All possible nodes, so that a new node changes no file of the others.
fn hosts(addresses: &Addresses) -> String {
    let mut text = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
    for number in 1..=MOST_NODES {
        let node = Node::numbered(addresses, number);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{} {}", node.address, node.name);
    }
    text
}

/// The name servers of the host. Nodes cannot reach a cache on the loopback address, which systemd configures in a
/// separate file.
pub(crate) fn resolver() -> String {
    for path in ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"] {
        let Ok(text) = fs::read_to_string(path) else { continue };
        let usable = usable_name_servers(&text);
        if !usable.is_empty() {
            return usable;
        }
    }
    // Names of the cluster resolve without a name server of the host.
    String::new()
}

fn usable_name_servers(text: &str) -> String {
    let usable = |line: &&str| {
        line.strip_prefix("nameserver ")
            .is_some_and(|server| !server.trim().starts_with("127.") && server.trim() != "::1")
    };
    text.lines().filter(usable).fold(String::new(), |all, line| all + line + "\n")
}

fn containerd_configuration(directories: &Directories, addresses: &Addresses) -> Result<String> {
    let registry = addresses.registry();
    let pause = addons::image(directories, &registry, Program::Pause)?;
    Ok(format!(
        r"version = 3
[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = '{pause}'
  [plugins.'io.containerd.cri.v1.images'.registry]
    config_path = '/etc/containerd/certs.d'
[plugins.'io.containerd.cri.v1.runtime']
  # Where raising a process above its parent's score is not permitted, every sandbox would fail to start.
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['/usr/lib/cni']
    conf_dir = '/etc/cni/net.d'
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = false
"
    ))
}

fn pod_network(node: &Node) -> String {
    format!(
        r#"{{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {{"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
    "ipam": {{"type": "host-local", "ranges": [[{{"subnet": "{}"}}]], "routes": [{{"dst": "0.0.0.0/0"}}]}}}},
  {{"type": "portmap", "capabilities": {{"portMappings": true}}}}]}}
"#,
        node.pod_range
    )
}

fn kubelet_configuration(addresses: &Addresses, node: &Node) -> String {
    format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {{anonymous: {{enabled: false}}, webhook: {{enabled: true}}, x509: {{clientCAFile: /etc/kubernetes/pki/ca.crt}}}}
authorization: {{mode: Webhook}}
cgroupDriver: cgroupfs
cgroupRoot: {group}
clusterDNS: [{dns}]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
enforceNodeAllocatable: []
evictionHard: {{memory.available: 200Mi, nodefs.available: \"1%\", imagefs.available: \"1%\"}}
failCgroupV1: false
failSwapOn: false
imageGCHighThresholdPercent: 100
maxOpenFiles: 20000
maxPods: 250
# Renews the lease of the node every five seconds.
nodeLeaseDurationSeconds: 20
oomScoreAdj: 0
serializeImagePulls: false
syncFrequency: 10s
tlsCertFile: /etc/kubernetes/pki/{name}.crt
tlsPrivateKeyFile: /etc/kubernetes/pki/{name}.key
",
        group = cgroup::node_group(node),
        dns = addresses.dns_service(),
        name = node.name,
    )
}

fn proxy_configuration(addresses: &Addresses, node: &Node) -> String {
    format!(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {{kubeconfig: /etc/kubernetes/proxy.kubeconfig}}
clusterCIDR: {pods}
# Zero leaves the host's own limits alone: they are not a node's to change.
conntrack: {{maxPerCore: 0, min: 0}}
hostnameOverride: {name}
mode: nftables
oomScoreAdj: 0
",
        pods = addresses.pod_range,
        name = node.name,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreachable_name_servers_are_left_out() {
        let text = "search x\nnameserver 127.0.0.53\nnameserver 192.0.2.53\nnameserver ::1\n";
        assert_eq!(usable_name_servers(text), "nameserver 192.0.2.53\n");
    }
}
