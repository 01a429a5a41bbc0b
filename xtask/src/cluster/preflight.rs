//! Checks the machine before a cluster is created, and reports all problems with their remedies.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use ipnet::Ipv4Net;
use serde::Deserialize;

use super::cgroup;
use super::network;
use super::settings::{Addresses, BRIDGES, overlap};
use crate::command::output;
use crate::directories::Directories;
use crate::golang::Program;
use crate::host;
use crate::process;
use crate::progress::{Progress, size};

/// Disk space to build everything, including the caches of Go and cargo.
const DISK_COLD: u64 = 20 << 30;
/// Disk space when everything is built: the disks of the nodes.
const DISK_WARM: u64 = 5 << 30;
/// The control plane and one idle node use half of it.
const MEMORY: u64 = 2 << 30;

/// Reports all findings at once. `fresh` means that no cluster exists yet, so no link may have its names.
pub(crate) fn check(directories: &Directories, addresses: &Addresses, fresh: bool) -> Result<()> {
    addresses.check()?;
    if !nix::unistd::geteuid().is_root() {
        bail!("a cluster needs root for namespaces, mounts and links: run this command as root");
    }
    // The checks use these programs.
    host::ensure_tools(directories, &Progress::new())?;
    let mut findings = Vec::new();
    findings.extend(go());
    findings.extend(disk(directories)?);
    findings.extend(memory()?);
    findings.extend(kernel(directories)?);
    findings.extend(ports(directories, addresses)?);
    if fresh {
        findings.extend(names());
    }
    findings.extend(address_ranges(addresses)?);
    if findings.is_empty() {
        return Ok(());
    }
    bail!("this machine is not ready for a cluster:\n{}", findings.join("\n"))
}

fn go() -> Option<String> {
    if host::find("go").is_some() {
        return None;
    }
    Some("- Go is missing: install Go 1.26 or newer and put it into PATH".to_owned())
}

fn disk(directories: &Directories) -> Result<Option<String>> {
    let status = nix::sys::statvfs::statvfs(directories.cache())
        .with_context(|| format!("failed to get the free space of {}", directories.cache().display()))?;
    let free = status.blocks_available() * status.fragment_size();
    let built = Program::Kubernetes.directory(directories).is_ok_and(|directory| directory.exists());
    let needed = if built { DISK_WARM } else { DISK_COLD };
    Ok((free < needed).then(|| {
        format!(
            "- {} has {} free and a cluster needs {}: free some space, or pass --cache DIRECTORY",
            directories.cache().display(),
            size(free),
            size(needed)
        )
    }))
}

fn memory() -> Result<Option<String>> {
    let text = fs::read_to_string("/proc/meminfo").context("failed to read /proc/meminfo")?;
    let available = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:")?.split_whitespace().next()?.parse::<u64>().ok())
        .context("/proc/meminfo has no MemAvailable")?
        * 1024;
    Ok((available < MEMORY).then(|| {
        format!(
            "- {} of memory is available and a cluster needs {}: stop other programs",
            size(available),
            size(MEMORY)
        )
    }))
}

/// Tries the operations of a cluster in temporary namespaces.
fn kernel(directories: &Directories) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    let attempts = [
        ("ip link add trial0 type veth peer name trial1", "virtual links (veth)", "load the module veth"),
        ("ip link add trial0 type bridge", "bridges", "load the module bridge"),
        ("nft add table ip trial", "nf_tables", "load the module nf_tables"),
    ];
    for (line, feature, remedy) in attempts {
        let mut command = Command::new("unshare");
        command.arg("--net").args(line.split(' '));
        if let Err(error) = output(&mut command) {
            findings.push(format!("- the kernel rejects {feature}: {remedy}\n    {error}"));
        }
    }
    let trial = directories.cache().join("overlay-trial");
    for part in ["lower", "upper", "work", "root"] {
        fs::create_dir_all(trial.join(part))
            .with_context(|| format!("failed to create {}", trial.display()))?;
    }
    let options = format!("lowerdir={0}/lower,upperdir={0}/upper,workdir={0}/work", trial.display());
    let mut mount = Command::new("unshare");
    mount.args(["--mount", "mount", "-t", "overlay", "trial", "-o", &options]).arg(trial.join("root"));
    if let Err(error) = output(&mut mount) {
        findings.push(format!(
            "- overlay does not work in {}: load the module overlay, or pass a --cache DIRECTORY that is \
             not itself on overlay\n    {error}",
            directories.cache().display()
        ));
    }
    crate::store::remove(&trial)?;
    if !std::path::Path::new("/dev/net/tun").exists() {
        findings.push("- /dev/net/tun is missing: load the module tun".to_owned());
    }
    if let Err(error) = cgroup::hierarchies() {
        findings.push(format!("- {error}"));
    }
    Ok(findings)
}

/// Ports on which other programs listen; running processes of the cluster do not count.
fn ports(directories: &Directories, addresses: &Addresses) -> Result<Vec<String>> {
    let running = process::list(directories)?;
    let occupied = addresses
        .ports()
        .into_iter()
        .filter(|(_, _, owner)| !running.iter().any(|process| process.name == *owner))
        .filter(|&(_, port, _)| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_err());
    Ok(occupied
        .map(|(option, port, _)| {
            format!("- another program listens on port {port}: stop it, or choose another port with {option}")
        })
        .collect())
}

/// Links with the names of the cluster's bridges although no cluster exists.
fn names() -> Vec<String> {
    let links = BRIDGES.into_iter().filter(|bridge| network::link_exists(bridge));
    links
        .map(|link| format!("- link {link} exists without a cluster: remove it with ip link delete {link}"))
        .collect()
}

#[derive(Deserialize)]
struct Route {
    dst: String,
    #[serde(default)]
    dev: String,
}

/// Ranges that overlap a route or a name server of the host.
fn address_ranges(addresses: &Addresses) -> Result<Vec<String>> {
    let routes = output(Command::new("ip").args(["-json", "-4", "route", "show", "table", "all"]))?;
    // A minimal host may have no resolv.conf.
    let resolver = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    conflicts(addresses, &routes, &resolver)
}

fn conflicts(addresses: &Addresses, routes: &str, resolver: &str) -> Result<Vec<String>> {
    let routes: Vec<Route> = serde_json::from_str(routes).context("failed to read the routes of ip")?;
    let mut used: Vec<(Ipv4Net, String)> = Vec::new();
    // Loopback and broadcast entries repeat the routes of a link.
    for route in routes.iter().filter(|route| !route.dev.starts_with("osop-") && route.dev != "lo") {
        if let Some(range) = parse_range(&route.dst) {
            used.push((range, format!("the route {} through {}", route.dst, route.dev)));
        }
    }
    for word in resolver.lines().filter_map(|line| line.trim().strip_prefix("nameserver ")) {
        if let Some(range) = parse_range(word.trim()) {
            used.push((range, format!("the name server {}", word.trim())));
        }
    }
    let mut findings = Vec::new();
    for (option, range) in addresses.ranges() {
        if let Some((_, user)) = used.iter().find(|(other, _)| overlap(range, *other)) {
            findings.push(format!("- {option} {range} overlaps {user}: choose another range with {option}"));
        }
    }
    Ok(findings)
}

/// `default` does not count: every range overlaps it.
fn parse_range(text: &str) -> Option<Ipv4Net> {
    text.parse().ok().or_else(|| text.parse::<Ipv4Addr>().ok().map(Ipv4Net::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ranges_of_other_programs_conflict() -> Result<()> {
        let addresses = Addresses::usual();
        let routes = r#"[
            {"dst": "default", "dev": "eth0"},
            {"dst": "10.96.0.0/12", "dev": "tun0"},
            {"dst": "10.100.0.0/24", "dev": "osop-nodes"},
            {"dst": "192.168.1.0/24", "dev": "eth0"}]"#;
        let findings = conflicts(&addresses, routes, "search x\nnameserver 10.101.0.53\n")?;
        assert_eq!(
            findings,
            [
                "- --node-range 10.100.0.0/24 overlaps the route 10.96.0.0/12 through tun0: choose another \
                 range with --node-range",
                "- --tunnel-range 10.101.0.0/24 overlaps the route 10.96.0.0/12 through tun0: choose \
                 another range with --tunnel-range",
                "- --service-range 10.96.0.0/16 overlaps the route 10.96.0.0/12 through tun0: choose \
                 another range with --service-range",
            ]
        );
        let findings = conflicts(&addresses, "[]", "nameserver 10.101.0.53")?;
        assert!(findings.len() == 1 && findings[0].contains("the name server 10.101.0.53"), "{findings:?}");
        Ok(())
    }
}
