//! Processes that the tool started, identified by a mark in their environment.
//!
//! Unlike a pid file, a mark cannot get lost or name a process that the tool did not start.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::directories::Directories;
use crate::store::Key;

const MARK_CLUSTER: &str = "OPENSTACK_OPERATOR_CLUSTER";
const MARK_PROCESS: &str = "OPENSTACK_OPERATOR_PROCESS";
const MARK_KEY: &str = "OPENSTACK_OPERATOR_KEY";

/// The name in the mark of every command of a step.
const STEP: &str = "step";

/// Identifies a process of the tool.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    cluster: PathBuf,
    name: String,
    key: String,
}

impl Mark {
    /// The mark of a command of a step. Its key identifies this run.
    pub(crate) fn step(directories: &Directories) -> Self {
        let key = Run::of(current()).map_or_else(String::new, Run::key);
        Self { cluster: directories.cluster(), name: STEP.to_owned(), key }
    }

    pub(crate) fn apply<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env(MARK_CLUSTER, &self.cluster).env(MARK_PROCESS, &self.name).env(MARK_KEY, &self.key)
    }
}

/// The run that started a command: its process and start time, because the kernel reuses process numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    process: i32,
    started: u64,
}

impl Run {
    /// The process with this number, while it is alive.
    fn of(process: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The second field is the name, in parentheses, which may contain spaces; the start time is field 22.
        let (_, fields) = text.rsplit_once(')')?;
        let started = fields.split_whitespace().nth(19)?.parse().ok()?;
        is_alive(process).then_some(Self { process, started })
    }

    fn key(self) -> String {
        format!("{}-{}", self.process, self.started)
    }

    fn parse(key: &str) -> Option<Self> {
        let (process, started) = key.split_once('-')?;
        Some(Self { process: process.parse().ok()?, started: started.parse().ok()? })
    }

    fn is_alive(self) -> bool {
        Self::of(self.process) == Some(self)
    }
}

/// Ends commands whose run was killed: they would write where this run writes. Commands of a run that is alive
/// continue.
pub(crate) fn end_leftovers(directories: &Directories) -> Result<()> {
    let steps = list(directories)?.into_iter().filter(|process| process.name == STEP);
    let orphans = steps.filter(|step| !Run::parse(&step.key).is_some_and(Run::is_alive));
    end(STEP, &orphans.map(|step| step.pid).collect::<Vec<_>>(), Signal::SIGTERM)
}

/// The number of this process.
pub(crate) fn current() -> i32 {
    nix::unistd::getpid().as_raw()
}

/// This process and its ancestors.
pub(crate) fn ancestors() -> Vec<i32> {
    let mut found = Vec::new();
    let mut next = Some(current());
    while let Some(pid) = next.filter(|&pid| pid > 0) {
        found.push(pid);
        next = parent(pid);
    }
    found
}

/// The parent of a process; none for a process that has ended.
pub(crate) fn parent(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

/// A running process of the tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) name: String,
    /// The hash of its command and inputs; if that changes, the process must be restarted.
    pub(crate) key: String,
}

/// All running processes of the cluster in this directory, without this process and its ancestors: a run can be a
/// step of another run, and then carries its mark.
pub(crate) fn list(directories: &Directories) -> Result<Vec<Process>> {
    let above = ancestors();
    let cluster = directories.cluster().into_os_string();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("failed to list /proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if above.contains(&pid) {
            continue;
        }
        // The process may have ended since it was listed.
        let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { continue };
        if let Some((name, key)) = read_mark(&environment, &cluster) {
            found.push(Process { pid, name, key });
        }
    }
    Ok(found)
}

pub(crate) fn find(directories: &Directories, name: &str) -> Result<Option<Process>> {
    Ok(list(directories)?.into_iter().find(|process| process.name == name))
}

fn read_mark(environment: &[u8], cluster: &OsString) -> Option<(String, String)> {
    let value = |name: &str| {
        environment
            .split(|&byte| byte == 0)
            .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    };
    if value(MARK_CLUSTER)? != cluster.as_encoded_bytes() {
        return None;
    }
    let text = |name| String::from_utf8(value(name)?.to_vec()).ok();
    Some((text(MARK_PROCESS)?, text(MARK_KEY)?))
}

/// The hash of a command and of the files that it reads.
pub(crate) fn key(command: &Command, inputs: Key) -> String {
    inputs.text(&crate::command::show(command)).digits()
}

/// Starts the process unless it runs with the same command; replaces one that runs with another command.
/// Returns whether it was started.
pub(crate) fn ensure(
    directories: &Directories,
    name: &str,
    log: &Path,
    command: &mut Command,
    inputs: Key,
) -> Result<bool> {
    let key = key(command, inputs);
    if let Some(process) = find(directories, name)? {
        if process.key == key {
            return Ok(false);
        }
        stop(directories, name, Signal::SIGTERM)?;
    }
    start(directories, name, &key, log, command)?;
    Ok(true)
}

fn start(directories: &Directories, name: &str, key: &str, log: &Path, command: &mut Command) -> Result<()> {
    let output = open_log(log)?;
    let mark = Mark { cluster: directories.cluster(), name: name.to_owned(), key: key.to_owned() };
    let mut child = mark
        .apply(command)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        // A separate process group: an interrupt at the terminal ends the tool, not the cluster.
        .process_group(0)
        .spawn()
        .with_context(|| format!("failed to start {name}"))?;
    // The kernel shows the environment of a program a moment after the start. Until then `find` does not see it.
    let environment = format!("/proc/{}/environ", child.id());
    while fs::read(&environment).is_ok_and(|text| text.is_empty()) && child.try_wait()?.is_none() {
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn open_log(path: &Path) -> Result<File> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).with_context(|| format!("failed to create {}", directory.display()))?;
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("failed to open {}", path.display()))
}

/// Ends every process of that name and waits for it; kills it after a timeout.
pub(crate) fn stop(directories: &Directories, name: &str, signal: Signal) -> Result<()> {
    let processes = list(directories)?.into_iter().filter(|process| process.name == name);
    end(name, &processes.map(|process| process.pid).collect::<Vec<_>>(), signal)
}

/// Sends a signal to every process of that name.
pub(crate) fn signal(directories: &Directories, name: &str, signal: Signal) -> Result<()> {
    let processes = list(directories)?.into_iter().filter(|process| process.name == name);
    send(&processes.map(|process| process.pid).collect::<Vec<_>>(), signal)
}

fn end(name: &str, pids: &[i32], signal: Signal) -> Result<()> {
    send(pids, signal)?;
    if wait_for_end(pids) {
        return Ok(());
    }
    send(pids, Signal::SIGKILL)?;
    if wait_for_end(pids) {
        return Ok(());
    }
    bail!("{name} (process {pids:?}) does not end even when killed")
}

/// Sends a signal to processes; one that has ended is skipped.
pub(crate) fn send(pids: &[i32], signal: Signal) -> Result<()> {
    for &pid in pids {
        match kill(Pid::from_raw(pid), signal) {
            // It has ended since it was listed.
            Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
            Err(error) => {
                return Err(error).with_context(|| format!("failed to send {signal} to process {pid}"));
            }
        }
    }
    Ok(())
}

/// Whether all processes have ended in time. Pids decide, not marks: the mark of a node's first process disappears
/// before the other processes of the node have ended.
fn wait_for_end(pids: &[i32]) -> bool {
    let started = Instant::now();
    while pids.iter().any(|&pid| is_alive(pid)) {
        if started.elapsed() > Duration::from_secs(20) {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Whether a process runs; a zombie does not.
fn is_alive(pid: i32) -> bool {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // The name, in parentheses, may contain spaces and parentheses.
    let state = text.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    !matches!(state, Some('Z' | 'X') | None)
}

/// Memory of a process in bytes, with its share of the pages that it shares with other processes.
pub(crate) fn memory(pid: i32) -> u64 {
    // A process that has ended has no memory.
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let kibibytes: u64 = text
        .lines()
        .find_map(|line| line.strip_prefix("Pss:")?.split_whitespace().next()?.parse().ok())
        .unwrap_or_default();
    kibibytes * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_mark_of_this_cluster_counts() {
        let cluster = OsString::from("/c");
        let environment = |text: &str| text.replace(' ', "\0").into_bytes();
        let ours = environment(
            "PATH=/bin OPENSTACK_OPERATOR_CLUSTER=/c OPENSTACK_OPERATOR_PROCESS=etcd OPENSTACK_OPERATOR_KEY=1",
        );
        assert_eq!(read_mark(&ours, &cluster), Some(("etcd".to_owned(), "1".to_owned())));
        let other = environment("OPENSTACK_OPERATOR_CLUSTER=/c/d OPENSTACK_OPERATOR_PROCESS=etcd");
        assert_eq!(read_mark(&other, &cluster), None);
        assert_eq!(read_mark(b"PATH=/bin", &cluster), None);
    }

    #[test]
    fn a_process_knows_its_ancestors() {
        let above = ancestors();
        assert_eq!(above.first().copied(), Some(current()));
        assert!(above.len() > 1, "a test has a parent process");
    }

    #[test]
    fn only_commands_of_a_dead_run_are_leftovers() -> Result<()> {
        let cache = std::env::temp_dir().join(format!("xtask-leftovers-{}", std::process::id()));
        let directories = Directories::find(Some(cache.clone()))?;
        let spawn = |key: String| -> Result<std::process::Child> {
            let mark = Mark { key, ..Mark::step(&directories) };
            let child = mark.apply(Command::new("sleep").arg("300")).spawn()?;
            while fs::read(format!("/proc/{}/environ", child.id()))?.is_empty() {
                thread::sleep(Duration::from_millis(1));
            }
            Ok(child)
        };
        let live = Run::of(current()).context("this process is alive")?;
        let dead = Run { started: live.started + 1, ..live };
        let (mut of_live_run, mut orphan) = (spawn(live.key())?, spawn(dead.key())?);
        end_leftovers(&directories)?;
        let survived = of_live_run.try_wait()?.is_none();
        of_live_run.kill()?;
        of_live_run.wait()?;
        assert!(survived, "a command of a live run was ended");
        assert!(!orphan.wait()?.success());
        fs::remove_dir_all(cache)?;
        Ok(())
    }

    #[test]
    fn a_process_is_started_once_replaced_and_ended() -> Result<()> {
        let cache = std::env::temp_dir().join(format!("xtask-process-{}", std::process::id()));
        let directories = Directories::find(Some(cache.clone()))?;
        let log = cache.join("sleeper.log");
        let start = |seconds: &str| {
            ensure(&directories, "sleeper", &log, Command::new("sleep").arg(seconds), Key::default())
        };
        assert!(start("300")?);
        assert!(!start("300")?);
        assert!(start("301")?);
        assert_eq!(list(&directories)?.len(), 1);
        stop(&directories, "sleeper", Signal::SIGTERM)?;
        assert!(list(&directories)?.is_empty());
        fs::remove_dir_all(cache)?;
        Ok(())
    }
}
