//! Volumes of the local cluster with a limited size: they are directories of the host's disk and have no size of their
//! own.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::settings::{Node, Settings};
use crate::command::Log;
use crate::directories::Directories;
use crate::process;

/// The source of the mounts that limit a volume.
const MARK: &str = "limited-volume";
/// The file that fills a volume.
const FILL: &str = "fill";

/// Covers the directory of a volume with an empty file system of this size, in MiB. Pods that start later use it.
pub(crate) fn cover(
    directories: &Directories,
    node: &Node,
    directory: &str,
    size: u32,
    log: &Log,
) -> Result<()> {
    let options = format!("size={size}m,mode=0777");
    let mount = ["mount", "-t", "tmpfs", "-o", &options, MARK, directory];
    log.run(inside(directories, node)?.args(mount))
}

/// Writes to a covered volume until it is full.
pub(crate) fn fill(directories: &Directories, node: &Node, directory: &str, log: &Log) -> Result<()> {
    let script = format!("! dd if=/dev/zero of={directory}/{FILL} bs=1M");
    log.run(inside(directories, node)?.args(["sh", "-c", &script]))
}

/// Makes room in all covered volumes and uncovers them. Pods use the original directory from their next start on.
pub(crate) fn uncover_all(directories: &Directories, settings: &Settings, log: &Log) -> Result<()> {
    for node in settings.node_list() {
        // A node that lost its power has lost its mounts.
        let Some(first) = process::find(directories, &node.name)? else { continue };
        let path = format!("/proc/{}/mounts", first.pid);
        let mounts = fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
        for directory in covered(&mounts) {
            log.run(inside(directories, &node)?.args(["rm", "-f", &format!("{directory}/{FILL}")]))?;
            log.run(inside(directories, &node)?.args(["umount", "--lazy", directory]))?;
        }
    }
    Ok(())
}

/// The directories of volumes that are covered. The kubelet binds the same file system into pods.
fn covered(mounts: &str) -> Vec<&str> {
    let directories = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        (words.next() == Some(MARK)).then(|| words.next()).flatten()
    });
    directories.filter(|directory| directory.starts_with("/var/lib/volumes/")).collect()
}

/// A command in the mount namespace of a node.
fn inside(directories: &Directories, node: &Node) -> Result<Command> {
    let first = process::find(directories, &node.name)?;
    let first = first.with_context(|| format!("{} is off", node.name))?;
    let mut command = Command::new("nsenter");
    command.arg(format!("--target={}", first.pid)).args(["--mount", "--"]);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_covered_volumes_are_uncovered() {
        let mounts = "node / overlay rw 0 0\n\
                      limited-volume /var/lib/volumes/a tmpfs rw 0 0\n\
                      limited-volume /var/lib/kubelet/pods/b/volumes/a tmpfs rw 0 0\n\
                      tmpfs /var/lib/volumes/c tmpfs rw 0 0\n";
        assert_eq!(covered(mounts), ["/var/lib/volumes/a"]);
    }
}
