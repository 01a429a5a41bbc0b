//! Says at once, in plain words, what this machine lacks for a cluster and what to do about it.

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

/// A start that builds everything needs about this much, caches of Go and cargo included.
const DISK_COLD: u64 = 20 << 30;
/// With everything built, only the disks of the nodes take room.
const DISK_WARM: u64 = 5 << 30;
/// The control plane and one idle node hold half of this.
const MEMORY: u64 = 2 << 30;

/// Checks all that can be checked before anything is made, and reports every finding at once.
/// `fresh` says that no cluster exists yet, so nothing with its names may exist either.
pub(crate) fn check(directories: &Directories, addresses: &Addresses, fresh: bool) -> Result<()> {
    addresses.check()?;
    if !nix::unistd::geteuid().is_root() {
        bail!("a cluster needs root, for namespaces, mounts and links: run this as root");
    }
    // What follows asks the kernel through these programs.
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
        .with_context(|| format!("failed to ask for the free space of {}", directories.cache().display()))?;
    let free = status.blocks_available() * status.fragment_size();
    let built = Program::Kubernetes.place(directories).is_ok_and(|place| place.exists());
    let needed = if built { DISK_WARM } else { DISK_COLD };
    Ok((free < needed).then(|| {
        format!(
            "- {} has {} free, and a cluster needs {}: free some space, or pass --cache DIRECTORY",
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
        .context("/proc/meminfo does not say how much memory is available")?
        * 1024;
    Ok((available < MEMORY).then(|| {
        format!(
            "- {} of memory are available, and a cluster needs {}: end other programs",
            size(available),
            size(MEMORY)
        )
    }))
}

/// Tries what the cluster will do, in namespaces that vanish with the attempt.
fn kernel(directories: &Directories) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    let attempts = [
        ("ip link add trial0 type veth peer name trial1", "virtual links (veth)", "load the module veth"),
        ("ip link add trial0 type bridge", "bridges", "load the module bridge"),
        ("nft add table ip trial", "nf_tables", "load the module nf_tables"),
    ];
    for (line, what, remedy) in attempts {
        let mut command = Command::new("unshare");
        command.arg("--net").args(line.split(' '));
        if let Err(error) = output(&mut command) {
            findings.push(format!("- the kernel refuses {what}: {remedy}\n    {error}"));
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

/// Ports that something else listens on. A part of ours that runs already holds its own.
fn ports(directories: &Directories, addresses: &Addresses) -> Result<Vec<String>> {
    let running = process::list(directories)?;
    let taken = addresses
        .ports()
        .into_iter()
        .filter(|(_, _, owner)| !running.iter().any(|process| process.name == *owner))
        .filter(|&(_, port, _)| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_err());
    Ok(taken
        .map(|(option, port, _)| {
            format!("- port {port} is taken by another program: end it, or choose another with {option}")
        })
        .collect())
}

/// Links and namespaces that have our names although no cluster of ours exists.
fn names() -> Vec<String> {
    let links = BRIDGES.into_iter().filter(|bridge| network::link_exists(bridge));
    links
        .map(|link| {
            format!("- a link {link} exists that no cluster here made: remove it with ip link delete {link}")
        })
        .collect()
}

#[derive(Deserialize)]
struct Route {
    dst: String,
    #[serde(default)]
    dev: String,
}

/// Ranges that hide something that the host reaches today: a route or a name server.
fn address_ranges(addresses: &Addresses) -> Result<Vec<String>> {
    let routes = output(Command::new("ip").args(["-json", "-4", "route", "show", "table", "all"]))?;
    // A minimal host may have no resolv.conf: then there is no name server to hide.
    let resolver = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    conflicts(addresses, &routes, &resolver)
}

fn conflicts(addresses: &Addresses, routes: &str, resolver: &str) -> Result<Vec<String>> {
    let routes: Vec<Route> = serde_json::from_str(routes).context("failed to read the routes of ip")?;
    let mut used: Vec<(Ipv4Net, String)> = Vec::new();
    // The host's own loopback and broadcast entries repeat what the routes of a link say.
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
        if let Some((_, what)) = used.iter().find(|(other, _)| overlap(range, *other)) {
            findings.push(format!("- {option} {range} overlaps {what}: choose another range with {option}"));
        }
    }
    Ok(findings)
}

/// `default` is no range: everything would overlap it.
fn parse_range(text: &str) -> Option<Ipv4Net> {
    text.parse().ok().or_else(|| text.parse::<Ipv4Addr>().ok().map(Ipv4Net::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_in_use_are_found_and_our_own_are_not() -> Result<()> {
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
