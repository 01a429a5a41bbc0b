//! kubectl on one cluster.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::cluster;
use crate::command::Log;
use crate::directories::Directories;
use crate::golang::Program;

/// How long an object may take to become ready, including image pulls.
const TIMEOUT: &str = "--timeout=300s";

pub(crate) struct Kubectl {
    program: PathBuf,
    /// The program of the local cluster contains several; the first argument selects kubectl.
    first_argument: Option<&'static str>,
    kubeconfig: PathBuf,
}

impl Kubectl {
    /// kubectl of the local cluster.
    pub(crate) fn local(directories: &Directories) -> Result<Self> {
        Ok(Self {
            program: Program::Kubernetes.directory(directories)?.join("kubernetes"),
            first_argument: Some("kubectl"),
            kubeconfig: cluster::kubeconfig(directories),
        })
    }

    /// kubectl of the host, for an existing cluster.
    pub(crate) fn existing(program: PathBuf, kubeconfig: PathBuf) -> Self {
        Self { program, first_argument: None, kubeconfig }
    }

    /// The program, which is kubectl when it is called by that name.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The command as a user types it.
    pub(crate) fn display(&self) -> String {
        let words = std::iter::once(self.program.display().to_string());
        words.chain(self.first_argument.map(ToOwned::to_owned)).collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(self.first_argument).arg("--kubeconfig").arg(&self.kubeconfig);
        command
    }

    /// Like `command`, with a short timeout for queries to a cluster that may be down.
    pub(crate) fn query(&self) -> Command {
        let mut command = self.command();
        command.arg("--request-timeout=5s");
        command
    }

    /// Applies a file; the namespace is for objects that name none.
    pub(crate) fn apply(&self, namespace: Option<&str>, file: &Path, log: &Log) -> Result<()> {
        let mut command = self.command();
        command.args(namespace.map(|namespace| format!("--namespace={namespace}")));
        command.args(["apply", "--server-side", "--force-conflicts", "--field-manager=xtask", "-f"]);
        log.run(command.arg(file))
    }

    /// Waits until the rollout of a Deployment is complete.
    pub(crate) fn wait_for_rollout(&self, namespace: &str, deployment: &str, log: &Log) -> Result<()> {
        let deployment = format!("deployment/{deployment}");
        let arguments = ["--namespace", namespace, "rollout", "status", &deployment, TIMEOUT];
        log.run(self.command().args(arguments))
    }

    /// Waits until objects have a condition.
    pub(crate) fn wait_for(
        &self,
        condition: &str,
        namespace: Option<&str>,
        objects: &[&str],
        log: &Log,
    ) -> Result<()> {
        let mut command = self.command();
        command.args(namespace.map(|namespace| format!("--namespace={namespace}")));
        command.args(["wait", &format!("--for=condition={condition}"), TIMEOUT]).args(objects);
        log.run(&mut command)
    }
}
