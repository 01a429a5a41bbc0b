//! Control groups of the nodes, on version 1, hybrid and version 2 hosts.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::settings::Node;

/// The parent of all groups of the cluster.
const PARENT: &str = "openstack-operator";

/// One mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    root: PathBuf,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The hierarchies of this host.
pub(crate) fn hierarchies() -> Result<Vec<Hierarchy>> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("failed to read /proc/self/mounts")?;
    let found = parse(&mounts);
    if found.is_empty() {
        bail!("no control groups are mounted below /sys/fs/cgroup: mount them");
    }
    Ok(found)
}

/// A hybrid host mounts version 2 without controllers beside version 1; both get a group.
fn parse(mounts: &str) -> Vec<Hierarchy> {
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let root = PathBuf::from(words.next()?);
            let version = match words.next()? {
                "cgroup" => Version::One,
                "cgroup2" => Version::Two,
                _ => return None,
            };
            root.starts_with("/sys/fs/cgroup").then_some(Hierarchy { root, version })
        })
        .collect()
}

/// The parent of all pods of the node, as the kubelet names it.
pub(crate) fn node_group(node: &Node) -> String {
    format!("/{PARENT}/{}", node.name)
}

/// Creates the group of the node in every hierarchy. Safe to repeat.
pub(crate) fn ensure_node(node: &Node) -> Result<()> {
    for hierarchy in hierarchies()? {
        let parent = hierarchy.root.join(PARENT);
        let group = parent.join(&node.name);
        fs::create_dir_all(&group).with_context(|| format!("failed to create {}", group.display()))?;
        match hierarchy.version {
            // A new cpuset group has no processors and no memory.
            Version::One if hierarchy.root.join("cpuset.cpus").exists() => {
                for file in ["cpuset.cpus", "cpuset.mems"] {
                    let value = fs::read_to_string(hierarchy.root.join(file))?;
                    for directory in [&parent, &group] {
                        write(&directory.join(file), value.trim())?;
                    }
                }
            }
            Version::One => {}
            Version::Two => {
                let controllers = fs::read_to_string(hierarchy.root.join("cgroup.controllers"))?;
                for directory in [&hierarchy.root, &parent] {
                    for controller in controllers.split_whitespace() {
                        write(&directory.join("cgroup.subtree_control"), &format!("+{controller}"))?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// The existing groups of the cluster, by path.
pub(crate) fn existing() -> Result<Vec<String>> {
    let parents = hierarchies()?.into_iter().map(|hierarchy| hierarchy.root.join(PARENT));
    Ok(parents.filter(|parent| parent.exists()).map(|parent| parent.display().to_string()).collect())
}

/// Removes the groups of a node that is off, or of all nodes.
pub(crate) fn remove(node: Option<&Node>) -> Result<()> {
    for hierarchy in hierarchies()? {
        let parent = hierarchy.root.join(PARENT);
        remove_tree(&node.map_or_else(|| parent.clone(), |node| parent.join(&node.name)))?;
    }
    Ok(())
}

/// Removes the directories, the innermost first; the kernel removes their files.
fn remove_tree(group: &Path) -> Result<()> {
    if !group.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(group).with_context(|| format!("failed to list {}", group.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(group).with_context(|| format!("failed to remove the control group {}", group.display()))
}

fn write(path: &Path, value: &str) -> Result<()> {
    fs::write(path, value).with_context(|| format!("failed to write {value:?} to {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots(mounts: &str) -> Vec<(String, Version)> {
        parse(mounts).into_iter().map(|found| (found.root.display().to_string(), found.version)).collect()
    }

    #[test]
    fn version_one_hybrid_and_version_two_are_distinguished() {
        let one = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n";
        assert_eq!(roots(one), [("/sys/fs/cgroup/cpu".to_owned(), Version::One)]);
        let hybrid = format!("{one}cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n");
        assert_eq!(
            roots(&hybrid),
            [
                ("/sys/fs/cgroup/cpu".to_owned(), Version::One),
                ("/sys/fs/cgroup/unified".to_owned(), Version::Two)
            ]
        );
        let two = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        assert_eq!(roots(two), [("/sys/fs/cgroup".to_owned(), Version::Two)]);
        assert!(roots("cgroup /somewhere/else cgroup rw 0 0").is_empty());
    }
}
