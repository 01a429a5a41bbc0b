//! The operator as a local process.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use openstack_operator_smoke::wait::eventually;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::OperatorArguments;
use crate::metrics::Metrics;

/// The Lease of a killed process expires after 15 seconds.
const START: Duration = Duration::from_mins(1);
const END: Duration = Duration::from_secs(30);
const ANSWER: Duration = Duration::from_secs(10);

pub(crate) struct Process {
    child: Child,
    http: reqwest::Client,
    metrics: String,
    log: PathBuf,
}

impl Process {
    /// Starts the operator and waits until it leads.
    pub(crate) async fn start(arguments: &OperatorArguments, namespace: &str, log: &Path) -> Result<Self> {
        // If another process takes the port meanwhile, the operator reports that and exits.
        let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr())?;
        let output = File::create(log).with_context(|| format!("failed to create {}", log.display()))?;
        let child = Command::new(&arguments.operator)
            .args(["run", "--identity", "bench", "--namespace", namespace, "--log", "warn"])
            .args(["--admin", &address.to_string()])
            .args(arguments.flags())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("failed to start {}", arguments.operator.display()))?;
        // A proxy from the environment does not apply to local addresses.
        let http = reqwest::Client::builder().no_proxy().timeout(ANSWER).build()?;
        let metrics = format!("http://{address}/metrics");
        let mut process = Self { child, http, metrics, log: log.to_owned() };
        eventually("the operator to lead", START, async || {
            ensure!(process.metrics().await?.leads(), "it is not the leader");
            Ok(())
        })
        .await?;
        Ok(process)
    }

    pub(crate) async fn metrics(&mut self) -> Result<Metrics> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the operator has ended: {status}; see {}", self.log.display());
        }
        let answer = self.http.get(&self.metrics).send().await?.error_for_status()?;
        Ok(Metrics::new(answer.text().await?))
    }

    /// Stops the operator gracefully, so that it releases its Lease.
    pub(crate) async fn stop(mut self) -> Result<()> {
        let pid = self.child.id().context("the operator has exited")?;
        kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGTERM).context("failed to stop the operator")?;
        let status = timeout(END, self.child.wait()).await.context("the operator does not stop")??;
        ensure!(status.success(), "the operator ended with {status}; see {}", self.log.display());
        Ok(())
    }
}
