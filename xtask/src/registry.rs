//! The local registry: one process from which nodes pull, and one to which builds push, with one storage.

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

/// The registry from which nodes pull, while the cluster is up.
pub(crate) const PULL: &str = "registry";
/// The registry to which builds push, while the tool runs. It needs no cluster, so that images can be built before
/// the cluster or without one.
const PUSH: &str = "push-registry";

/// Whether the storage contains an image `name:tag`.
pub(crate) fn has(directories: &Directories, image: &str) -> bool {
    tag_directory(directories, image).is_some_and(|directory| directory.join("current/link").exists())
}

/// Adds a tag to an image of the storage, or moves the tag to it, as a push of the same content would.
pub(crate) fn tag(directories: &Directories, image: &str, tag: &str) -> Result<()> {
    let source = tag_directory(directories, image).with_context(|| format!("{image} has no tag"))?;
    let digest = fs::read_to_string(source.join("current/link"))
        .with_context(|| format!("the registry has no image {image}"))?;
    let target = source.with_file_name(tag);
    // The current link last: it refers to the other.
    for file in [format!("index/{}/link", digest.trim().replace(':', "/")), "current/link".to_owned()] {
        let path = target.join(file);
        if fs::read_to_string(&path).is_ok_and(|present| present == digest) {
            continue;
        }
        let unfinished = path.with_extension("unfinished");
        path.parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&unfinished, &digest))
            .and_then(|()| fs::rename(&unfinished, &path))
            .with_context(|| format!("failed to write {}", path.display()))?;
    }
    Ok(())
}

/// The directory of a tag: a file with the digest of the current image, and one for each earlier image.
fn tag_directory(directories: &Directories, image: &str) -> Option<PathBuf> {
    let (name, tag) = image.rsplit_once(':')?;
    let repositories = directories.registry().join("docker/registry/v2/repositories");
    Some(repositories.join(name).join("_manifests/tags").join(tag))
}

/// Starts the registry for the nodes unless it runs, and returns its address and state.
pub(crate) fn ensure(directories: &Directories, address: &str) -> Result<String> {
    let started = start(directories, PULL, address)?;
    Ok(if started { address.to_owned() } else { format!("{address}, running") })
}

/// A registry on a free port of the loopback address that stops when the value is dropped.
pub(crate) struct PushRegistry {
    directories: Directories,
    pub(crate) address: String,
}

impl PushRegistry {
    pub(crate) fn start(directories: &Directories) -> Result<Self> {
        // A killed run may have left one.
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
    let mut command = Command::new(Program::Registry.directory(directories)?.join("registry"));
    // Tracing is on by default and reports a missing collector.
    command.arg("serve").arg(&configuration).env("OTEL_TRACES_EXPORTER", "none");
    let log: PathBuf = directories.logs().join(format!("{name}.log"));
    let started = process::ensure(directories, name, &log, &mut command, Key::default().text(&text))?;
    wait_until(&format!("the registry at {address} answers"), || TcpStream::connect(address).is_ok())?;
    Ok(started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_tag_follows_the_content() -> Result<()> {
        let cache = std::env::temp_dir().join(format!("xtask-registry-{}", std::process::id()));
        let directories = Directories::find(Some(cache.clone()))?;
        let tags = directories.registry().join("docker/registry/v2/repositories/openstack/a/_manifests/tags");
        for (content, digest) in [("one", "sha256:1"), ("two", "sha256:2")] {
            fs::create_dir_all(tags.join(content).join("current"))?;
            fs::write(tags.join(content).join("current/link"), digest)?;
        }
        for (content, digest) in [("one", "sha256:1"), ("two", "sha256:2"), ("one", "sha256:1")] {
            tag(&directories, &format!("openstack/a:{content}"), "2025.1")?;
            assert!(has(&directories, "openstack/a:2025.1"));
            assert_eq!(fs::read_to_string(tags.join("2025.1/current/link"))?, digest);
        }
        assert_eq!(fs::read_to_string(tags.join("2025.1/index/sha256/2/link"))?, "sha256:2");
        assert!(tag(&directories, "openstack/a:three", "2025.1").is_err());
        fs::remove_dir_all(cache)?;
        Ok(())
    }
}
