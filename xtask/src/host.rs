//! Programs of the host that the tool calls, and their Debian packages.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::command::Log;
use crate::directories::Directories;
use crate::progress::Progress;

/// Programs and their packages.
const TOOLS: [(&str, &str); 11] = [
    ("buildah", "buildah"),
    ("ip", "iproute2"),
    ("mmdebstrap", "mmdebstrap"),
    ("mount", "mount"),
    ("nft", "nftables"),
    ("nsenter", "util-linux"),
    ("ping", "iputils-ping"),
    ("python3", "python3"),
    ("ssh", "openssh-client"),
    ("sysctl", "procps"),
    ("unshare", "util-linux"),
];

/// Files and their packages: image builds need both.
const LIBRARIES: [(&str, &str); 2] = [
    ("/usr/share/keyrings/debian-archive-keyring.gpg", "debian-archive-keyring"),
    ("/etc/ssl/certs/ca-certificates.crt", "ca-certificates"),
];

/// Installs missing packages as a visible step; without apt, fails with their names.
pub(crate) fn ensure_tools(directories: &Directories, progress: &Progress) -> Result<()> {
    let missing = missing_packages();
    if missing.is_empty() {
        return Ok(());
    }
    if find("apt-get").is_none() {
        bail!("these programs are missing and there is no apt-get to install them: {}", missing.join(", "));
    }
    let log = Log::create(directories, "host tools")?;
    let step = progress.step("host tools");
    let installed = install(&missing, &log);
    match &installed {
        Ok(()) => step.finish('✓', &format!("installed {}", missing.join(" "))),
        Err(_) => step.finish('✗', "failed"),
    }
    installed
}

fn install(packages: &[&str], log: &Log) -> Result<()> {
    let apt = || {
        let mut command = Command::new("apt-get");
        command.args(["-qq", "-o", "DPkg::Lock::Timeout=300"]).env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    log.run(apt().arg("update"))?;
    log.run(apt().args(["install", "--yes", "--no-install-recommends"]).args(packages))
}

fn missing_packages() -> Vec<&'static str> {
    let tools = TOOLS.iter().filter(|(program, _)| find(program).is_none());
    let libraries = LIBRARIES.iter().filter(|(file, _)| !Path::new(file).exists());
    tools.chain(libraries).map(|&(_, package)| package).collect()
}

/// The path of a program in PATH.
pub(crate) fn find(program: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|file| file.is_file())
}
