//! Ends whatever fault the cluster has: at the end of a drill, and when a drill is interrupted or killed.

use std::io::{Read as _, Write as _, stdin};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};

use super::secret;
use crate::cluster::{power, settings::Settings, volume};
use crate::command::{Log, output, wait_until};
use crate::directories::Directories;
use crate::kubectl::Kubectl;
use crate::progress;

/// What the drill writes to its guard before it ends.
const DONE: &[u8] = b"done";

/// Ends every fault that lasts: the API server continues, nodes have power and network and accept pods, Secrets that
/// cannot be generated again are back. Changes nothing on a cluster without a fault.
pub(super) fn repair(directories: &Directories) -> Result<()> {
    let Some(settings) = Settings::load(directories)? else { return Ok(()) };
    let log = Log::create(directories, "drill repair")?;
    power::resume_api_server(directories)?;
    power::restore(directories, &settings, &log)?;
    volume::uncover_all(directories, &settings, &log)?;
    let kubectl = Kubectl::local(directories)?;
    wait_until("the API server answers", || output(kubectl.query().args(["get", "--raw=/readyz"])).is_ok())?;
    uncordon(&kubectl, &settings, &log)?;
    secret::restore_all(directories, &kubectl, &log)
}

/// Allows pods on all nodes.
pub(super) fn uncordon(kubectl: &Kubectl, settings: &Settings, log: &Log) -> Result<()> {
    let nodes = settings.node_list();
    log.run(kubectl.command().arg("uncordon").args(nodes.iter().map(|node| &node.name)))
}

/// A process that repairs the cluster if the drill ends without a word. An interrupt at the terminal and even a kill end
/// the drill at once, and a node must not stay without power because of that.
pub(super) struct Guard {
    process: Child,
}

impl Guard {
    pub(super) fn start(directories: &Directories) -> Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg("--cache").arg(directories.cache()).arg("drill-guard");
        // A separate process group: an interrupt at the terminal ends the drill, not its guard.
        let process = command.stdin(Stdio::piped()).process_group(0).spawn();
        Ok(Self { process: process.context("failed to start the guard of the drill")? })
    }

    /// Repairs the cluster and dismisses the guard.
    pub(super) fn end(mut self, directories: &Directories) -> Result<()> {
        let repaired = repair(directories);
        let mut input = self.process.stdin.take().context("the guard has no standard input")?;
        input.write_all(DONE).context("failed to dismiss the guard of the drill")?;
        drop(input);
        self.process.wait().context("failed to wait for the guard of the drill")?;
        repaired
    }
}

/// The guard: waits until its standard input ends, which the kernel closes with the drill.
pub(super) fn guard(directories: &Directories) -> Result<()> {
    let mut text = Vec::new();
    stdin().read_to_end(&mut text).context("failed to wait for the drill")?;
    if text == DONE {
        return Ok(());
    }
    // The kernel may release the lock of the drill a moment later.
    let mut lock = None;
    wait_until("no other cargo xtask runs", || {
        lock = directories.lock().ok();
        lock.is_some()
    })?;
    progress::notify("the drill has ended early: restoring the power and the network of the nodes");
    repair(directories)?;
    progress::notify("the nodes are in order; cargo xtask down removes the cloud");
    Ok(())
}
