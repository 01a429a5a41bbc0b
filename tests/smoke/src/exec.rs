//! Commands in running containers.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::AttachParams;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

use crate::Sandbox;

/// Long enough for a script of many commands on a loaded machine.
const COMMAND_END: Duration = Duration::from_mins(10);

/// Output and exit code of a command.
#[derive(Debug, PartialEq)]
pub struct Output {
    pub stdout: String,
    pub stderr: String,
    pub code: i32,
}

impl Sandbox {
    pub async fn exec(&self, pod: &str, container: &str, command: &[&str]) -> Result<Output> {
        let failure = || format!("failed to run {command:?} in container {container} of pod {pod}");
        timeout(COMMAND_END, self.attach(pod, container, command))
            .await
            .with_context(|| format!("it did not end within {COMMAND_END:?}"))
            .flatten()
            .with_context(failure)
    }

    /// Runs a shell script that must succeed, and returns its output.
    pub async fn shell(&self, pod: &str, container: &str, script: &str) -> Result<String> {
        let Output { stdout, stderr, code } = self.exec(pod, container, &["bash", "-euc", script]).await?;
        ensure!(code == 0, "a script in pod {pod} ended with status {code}: {script}\n{stdout}{stderr}");
        Ok(stdout)
    }

    async fn attach(&self, pod: &str, container: &str, command: &[&str]) -> Result<Output> {
        let parameters = AttachParams::default().container(container);
        let mut process = self.api::<Pod>().exec(pod, command.iter().copied(), &parameters).await?;
        let status = process.take_status().context("the process has no status")?;
        // Both streams are read concurrently: a full stream would block the other one and the status.
        let (stdout, stderr, status) =
            tokio::join!(read_all(process.stdout()), read_all(process.stderr()), status);
        process.join().await?;
        let status = status.context("the connection ended before the command")?;
        Ok(Output { stdout: stdout?, stderr: stderr?, code: exit_code(&status)? })
    }
}

async fn read_all(stream: Option<impl AsyncRead + Unpin>) -> Result<String> {
    let mut text = String::new();
    stream.context("the process has no such stream")?.read_to_string(&mut text).await?;
    Ok(text)
}

/// The Status of a failed command has a cause `ExitCode` with the number as text.
fn exit_code(status: &Status) -> Result<i32> {
    if status.status.as_deref() == Some("Success") {
        return Ok(0);
    }
    let causes = status.details.iter().flat_map(|details| details.causes.iter().flatten());
    let code = causes.into_iter().find(|cause| cause.reason.as_deref() == Some("ExitCode"));
    let code = code.and_then(|cause| cause.message.as_deref()).with_context(|| format!("{status:?}"))?;
    code.parse().with_context(|| format!("{code:?} is not an exit status"))
}
