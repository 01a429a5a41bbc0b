//! The output of `cluster status`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use anyhow::Result;

use super::settings::Settings;
use super::{control, node};
use crate::command::output;
use crate::directories::Directories;
use crate::kubectl::Kubectl;
use crate::process;
use crate::progress::{notify, print, size};

pub(crate) fn show(directories: &Directories) -> Result<()> {
    let Some(settings) = Settings::load(directories)? else {
        notify("there is no cluster: create one with cargo xtask cluster up");
        return Ok(());
    };
    let mut text = String::new();
    let memory = memory_by_part(directories)?;
    let used = |part: &str| memory.get(part).map_or_else(|| "off".to_owned(), |&bytes| size(bytes));
    for node in settings.node_list() {
        let power = if node::is_on(directories, &node)? { "on" } else { "off" };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:<20} {:<4} {:<14} {}", node.name, power, node.address, used(&node.name));
    }
    for part in control::PROCESSES.into_iter().chain([crate::registry::PULL]) {
        let _ = writeln!(text, "{:<20} {}", part, used(part));
    }
    let _ = writeln!(text, "{:<20} {}", "total", size(memory.values().sum()));
    print(text.trim_end());
    match Kubectl::local(directories)
        .and_then(|kubectl| output(kubectl.query().args(["get", "nodes", "-o", "wide"])))
    {
        Ok(nodes) => print(&format!("\n{}", nodes.trim_end())),
        Err(error) => notify(&format!("\nthe API server does not answer: {error}")),
    }
    Ok(())
}

/// Memory by part of the cluster; that of a node includes every process in its pid namespace.
fn memory_by_part(directories: &Directories) -> Result<BTreeMap<String, u64>> {
    let mut parts = BTreeMap::new();
    let mut namespaces = BTreeMap::new();
    let own = fs::read_link("/proc/self/ns/pid")?;
    for found in process::list(directories)? {
        // It may have ended since it was listed.
        let Ok(namespace) = fs::read_link(format!("/proc/{}/ns/pid", found.pid)) else { continue };
        if namespace == own {
            *parts.entry(found.name).or_default() += process::memory(found.pid);
        } else {
            namespaces.insert(namespace, found.name);
        }
    }
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(namespace) = fs::read_link(format!("/proc/{pid}/ns/pid")) else { continue };
        // Containers have nested pid namespaces.
        let name = namespaces.get(&namespace).or_else(|| ancestor(pid, &namespaces));
        if let Some(name) = name {
            *parts.entry(name.clone()).or_default() += process::memory(pid);
        }
    }
    Ok(parts)
}

/// The node of the closest ancestor in a node's pid namespace.
fn ancestor(pid: i32, namespaces: &BTreeMap<std::path::PathBuf, String>) -> Option<&String> {
    let parent = process::parent(pid).filter(|&parent| parent > 0)?;
    let namespace = fs::read_link(format!("/proc/{parent}/ns/pid")).ok()?;
    namespaces.get(&namespace).or_else(|| ancestor(parent, namespaces))
}
