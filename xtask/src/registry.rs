//! The local registry: one for the nodes to pull from, and one for builds to push to, over one storage.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;

use crate::command::wait_until;
use crate::directories::Directories;
use crate::golang::Program;
use crate::process;
use crate::store::Key;

/// The registry that nodes pull from, for as long as the cluster is up.
pub(crate) const PULL: &str = "registry";
/// The registry that builds push to, for as long as the tool runs. It needs no cluster, so that images can
/// be built while the cluster's other parts are, or without any.
const PUSH: &str = "push-registry";

/// Whether the storage holds an image `name:tag`. The registry keeps a file for each tag.
pub(crate) fn has(directories: &Directories, image: &str) -> bool {
    let Some((name, tag)) = image.rsplit_once(':') else { return false };
    let repositories = directories.registry().join("docker/registry/v2/repositories");
    repositories.join(name).join("_manifests/tags").join(tag).join("current/link").exists()
}

/// Starts the registry for the nodes, unless it runs. Returns a word on it.
pub(crate) fn ensure(directories: &Directories, address: &str) -> Result<String> {
    let started = start(directories, PULL, address)?;
    Ok(if started { address.to_owned() } else { format!("{address}, running") })
}

/// A registry on a free port of the loopback address that ends with this value.
pub(crate) struct PushRegistry {
    directories: Directories,
    pub(crate) address: String,
}

impl PushRegistry {
    pub(crate) fn start(directories: &Directories) -> Result<Self> {
        // One that a killed run left behind would only be in the way.
        process::stop(directories, PUSH, Signal::SIGTERM)?;
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let address = free.context("failed to find a free port on the loopback address")?.to_string();
        start(directories, PUSH, &address)?;
        Ok(Self { directories: directories.clone(), address })
    }
}

impl Drop for PushRegistry {
    fn drop(&mut self) {
        if let Err(error) = process::stop(&self.directories, PUSH, Signal::SIGTERM) {
            crate::progress::error(&error);
        }
    }
}

fn start(directories: &Directories, name: &str, address: &str) -> Result<bool> {
    let storage = directories.registry();
    fs::create_dir_all(&storage).with_context(|| format!("failed to create {}", storage.display()))?;
    let configuration = storage.join(format!("{name}.yaml"));
    let text = format!(
        "version: 0.1\nlog: {{level: warn, accesslog: {{disabled: true}}}}\n\
         storage: {{filesystem: {{rootdirectory: {}}}, delete: {{enabled: true}}}}\n\
         http: {{addr: \"{address}\"}}\n",
        storage.display(),
    );
    fs::write(&configuration, &text)
        .with_context(|| format!("failed to write {}", configuration.display()))?;
    let mut command = Command::new(Program::Registry.place(directories)?.join("registry"));
    // Tracing is on by default and complains of the collector that is not there.
    command.arg("serve").arg(&configuration).env("OTEL_TRACES_EXPORTER", "none");
    let log: PathBuf = directories.logs().join(format!("{name}.log"));
    let started = process::ensure(directories, name, &log, &mut command, Key::default().text(&text))?;
    wait_until(&format!("the registry at {address} answers"), || TcpStream::connect(address).is_ok())?;
    Ok(started)
}
