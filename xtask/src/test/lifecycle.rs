//! Tests of `cluster up` and `down`: a killed `up` can be completed, and `down` restores the host.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::cluster::cgroup;
use crate::command::{Log, output};
use crate::directories::Directories;
use crate::process;

/// The steps after which the tool is killed: with only a network, with a control plane, and with nodes without pods.
pub(super) const MOMENTS: [&str; 3] = ["network", "control plane", "nodes"];

/// The state of the host that a cluster could change.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Host(BTreeMap<&'static str, Vec<String>>);

impl Host {
    pub(super) fn inspect(directories: &Directories) -> Result<Self> {
        let names = |path: &str| -> Vec<String> {
            // A missing directory differs from an empty one.
            match fs::read_dir(path) {
                Ok(entries) => {
                    let names = entries.flatten().map(|entry| entry.file_name());
                    names.map(|name| name.to_string_lossy().into_owned()).collect()
                }
                Err(error) => vec![error.to_string()],
            }
        };
        let lines = |text: String| text.lines().map(ToOwned::to_owned).collect::<Vec<_>>();
        let mut seen = BTreeMap::new();
        seen.insert("links", names("/sys/class/net"));
        seen.insert("network namespaces", names("/run/netns"));
        seen.insert("mounts", lines(fs::read_to_string("/proc/self/mounts")?));
        seen.insert("routes", lines(output(Command::new("ip").args(["route", "show", "table", "all"]))?));
        seen.insert("nftables tables", lines(output(Command::new("nft").args(["list", "tables"]))?));
        seen.insert("forwarding", lines(fs::read_to_string("/proc/sys/net/ipv4/ip_forward")?));
        let processes = process::list(directories)?.into_iter();
        seen.insert("processes", processes.map(|process| process.name).collect());
        seen.insert("control groups", cgroup::existing()?);
        for list in seen.values_mut() {
            list.sort();
        }
        Ok(Self(seen))
    }

    /// Fails with every difference to the host now.
    pub(super) fn must_equal(&self, now: &Self) -> Result<()> {
        let mut differences = Vec::new();
        let nothing = Vec::new();
        for &aspect in self.0.keys().chain(now.0.keys()) {
            let before = self.0.get(aspect).unwrap_or(&nothing);
            let after = now.0.get(aspect).unwrap_or(&nothing);
            differences.extend(
                after.iter().filter(|line| !before.contains(line)).map(|line| format!("{aspect}: + {line}")),
            );
            differences.extend(
                before.iter().filter(|line| !after.contains(line)).map(|line| format!("{aspect}: - {line}")),
            );
        }
        differences.dedup();
        if differences.is_empty() {
            return Ok(());
        }
        bail!("the host has changed:\n  {}", differences.join("\n  "))
    }
}

/// Kills `up` after a step, completes it with another run, removes the cluster, and compares the host.
pub(super) fn kill_and_resume(
    directories: &Directories,
    xtask: &Path,
    moment: &str,
    log: &Log,
) -> Result<()> {
    let cluster = |arguments: &[&str]| {
        let mut command = Command::new(xtask);
        command.arg("--cache").arg(directories.cache()).arg("cluster").args(arguments);
        command
    };
    let before = Host::inspect(directories)?;
    kill_after(&mut cluster(&["up", "--nodes", "2"]), moment)?;
    log.run(&mut cluster(&["up"])).context("up does not complete the cluster")?;
    log.run(&mut cluster(&["down"])).context("down fails")?;
    before.must_equal(&Host::inspect(directories)?)
}

fn kill_after(up: &mut Command, moment: &str) -> Result<()> {
    let mut child = up
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("failed to start the tool")?;
    let lines = BufReader::new(child.stderr.take().context("the tool has no output")?).lines();
    let mut seen = Vec::new();
    for line in lines {
        let line = line.context("failed to read the output of the tool")?;
        let reached =
            line.trim_start().strip_prefix('✓').is_some_and(|rest| rest.trim_start().starts_with(moment));
        seen.push(line);
        if reached {
            child.kill().context("failed to kill the tool")?;
            child.wait().context("failed to wait for the tool")?;
            return Ok(());
        }
    }
    bail!("{moment} was never reached:\n{}", seen.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_is_reported() {
        let host = |links: &[&str]| Host([("links", links.iter().map(ToString::to_string).collect())].into());
        assert!(host(&["lo"]).must_equal(&host(&["lo"])).is_ok());
        let error = host(&["lo", "eth0"]).must_equal(&host(&["lo", "osop-nodes"]));
        let text = error.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(text.contains("links: + osop-nodes") && text.contains("links: - eth0"), "{text}");
    }
}
