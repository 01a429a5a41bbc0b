//! kubectl on one cluster, and what is asked of it again and again.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::cluster;
use crate::command::Log;
use crate::directories::Directories;
use crate::golang::Program;

/// How long a part may take to become ready, images to pull included.
const PATIENCE: &str = "--timeout=300s";

pub(crate) struct Kubectl {
    program: PathBuf,
    /// The local cluster's program is many in one: the first argument says which.
    first_argument: Option<&'static str>,
    kubeconfig: PathBuf,
}

impl Kubectl {
    /// The local cluster's own.
    pub(crate) fn local(directories: &Directories) -> Result<Self> {
        Ok(Self {
            program: Program::Kubernetes.place(directories)?.join("kubernetes"),
            first_argument: Some("kubectl"),
            kubeconfig: cluster::kubeconfig(directories),
        })
    }

    /// The host's, for a cluster that this tool did not make.
    pub(crate) fn of_host(program: PathBuf, kubeconfig: PathBuf) -> Self {
        Self { program, first_argument: None, kubeconfig }
    }

    /// A program that is kubectl where it is called by that name.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// What a person types to call it.
    pub(crate) fn shown(&self) -> String {
        let words = std::iter::once(self.program.display().to_string());
        words.chain(self.first_argument.map(ToOwned::to_owned)).collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(self.first_argument).arg("--kubeconfig").arg(&self.kubeconfig);
        command
    }

    /// Like `command`, for questions that a cluster which is not there must not hold up.
    pub(crate) fn question(&self) -> Command {
        let mut command = self.command();
        command.arg("--request-timeout=5s");
        command
    }

    /// Applies a file; with a namespace, its objects may leave theirs out.
    pub(crate) fn apply(&self, namespace: Option<&str>, file: &Path, log: &Log) -> Result<()> {
        let mut command = self.command();
        command.args(namespace.map(|namespace| format!("--namespace={namespace}")));
        command.args(["apply", "--server-side", "--force-conflicts", "--field-manager=xtask", "-f"]);
        log.run(command.arg(file))
    }

    /// Waits until a Deployment is what its manifest says.
    pub(crate) fn wait_for_rollout(&self, namespace: &str, deployment: &str, log: &Log) -> Result<()> {
        let deployment = format!("deployment/{deployment}");
        let arguments = ["--namespace", namespace, "rollout", "status", &deployment, PATIENCE];
        log.run(self.command().args(arguments))
    }

    /// Waits until objects of a namespace, or without one, have a condition.
    pub(crate) fn wait_for(
        &self,
        condition: &str,
        namespace: Option<&str>,
        objects: &[&str],
        log: &Log,
    ) -> Result<()> {
        let mut command = self.command();
        command.args(namespace.map(|namespace| format!("--namespace={namespace}")));
        command.args(["wait", &format!("--for=condition={condition}"), PATIENCE]).args(objects);
        log.run(&mut command)
    }
}
