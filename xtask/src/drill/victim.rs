//! Processes of pods, as the host sees them: the nodes are namespaces of this machine.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;

use crate::process;

/// Kills the processes of a pod that run this program, and returns how many there were.
pub(super) fn kill(pod_uid: &str, program: &str) -> Result<usize> {
    let pids = find(pod_uid, program)?;
    process::send(&pids, Signal::SIGKILL)?;
    Ok(pids.len())
}

fn find(pod_uid: &str, program: &str) -> Result<Vec<i32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("failed to list /proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // The process may have ended since it was listed.
        let Ok(groups) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else { continue };
        let Ok(file) = fs::read_link(format!("/proc/{pid}/exe")) else { continue };
        if is_in_pod(&groups, pod_uid) && runs(&file, program) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// Whether the control groups of a process are those of the pod. The kubelet names a group after the pod's uid.
fn is_in_pod(groups: &str, pod_uid: &str) -> bool {
    let group = format!("pod{pod_uid}");
    groups.lines().any(|line| line.split('/').any(|part| part == group))
}

fn runs(file: &Path, program: &str) -> bool {
    file.file_name().is_some_and(|name| name == program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_belongs_to_the_pod_of_its_control_group() {
        let groups = "12:cpu:/openstack-operator/node1/burstable/podaaa-1/c0\n0::/\n";
        assert!(is_in_pod(groups, "aaa-1"));
        assert!(!is_in_pod(groups, "aaa"));
        assert!(!is_in_pod("0::/init\n", "aaa-1"));
    }

    #[test]
    fn a_program_is_identified_by_the_name_of_its_file() {
        assert!(runs(Path::new("/usr/sbin/mariadbd"), "mariadbd"));
        assert!(!runs(Path::new("/usr/bin/mariadb"), "mariadbd"));
    }

    #[test]
    fn a_pod_without_processes_loses_none() -> Result<()> {
        assert_eq!(kill("00000000-0000-4000-8000-000000000000", "mariadbd")?, 0);
        Ok(())
    }
}
