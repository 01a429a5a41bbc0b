//! Leader election: one of several processes leads, and ends as soon as it may have lost its Lease.

use kube::Client;
use kube_lease_manager::{LeaseManager, LeaseManagerBuilder, LeaseManagerError};
use snafu::{ResultExt, Snafu};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};

pub(crate) const LEASE: &str = "openstack-operator";
/// How long a Lease is valid, in seconds: a lost leader is replaced within this time.
const DURATION: u64 = 15;
/// How long before its end a leader renews the Lease, in seconds; clocks may differ by less than this.
const GRACE: u64 = 5;

#[derive(Debug, Snafu)]
pub(crate) enum Error {
    #[snafu(display("failed to take part in the election for the Lease {LEASE} in namespace {namespace}"))]
    JoinElection { namespace: String, source: LeaseManagerError },
    #[snafu(display("another process took over the Lease {LEASE}"))]
    LoseLease,
    #[snafu(display("failed to hold the Lease {LEASE}"))]
    HoldLease { source: LeaseManagerError },
    #[snafu(display("the engine ended unexpectedly"))]
    EndWork,
    #[snafu(display("the task that holds the Lease {LEASE} ended"))]
    EndTask { source: JoinError },
}

/// A candidate in the election.
pub(crate) struct Leadership {
    state: watch::Receiver<bool>,
    task: JoinHandle<Result<LeaseManager, LeaseManagerError>>,
}

impl Leadership {
    pub(crate) async fn seek(client: Client, namespace: &str, identity: &str) -> Result<Self, Error> {
        let manager = LeaseManagerBuilder::new(client, LEASE)
            .with_namespace(namespace)
            .with_identity(identity)
            .with_field_manager("openstack-operator-election")
            .with_duration(DURATION)
            .with_grace(GRACE)
            .build()
            .await
            .context(JoinElectionSnafu { namespace })?;
        let (state, task) = manager.watch().await;
        Ok(Self { state, task })
    }

    /// Waits until this process is the leader.
    pub(crate) async fn won(&mut self) -> Result<(), Error> {
        self.wait(true).await
    }

    /// Waits until this process is no longer the leader. It must end then: another process may lead.
    pub(crate) async fn lost(&mut self) -> Error {
        match self.wait(false).await {
            Ok(()) => Error::LoseLease,
            Err(error) => error,
        }
    }

    /// Releases the Lease, so that another process can take over before it expires.
    pub(crate) async fn resign(self) -> Result<(), Error> {
        drop(self.state);
        self.task.await.context(EndTaskSnafu)?.context(HoldLeaseSnafu)?;
        Ok(())
    }

    async fn wait(&mut self, wanted: bool) -> Result<(), Error> {
        if self.state.wait_for(|&leads| leads == wanted).await.is_ok() {
            return Ok(());
        }
        // The channel closes only when the task ends; its result has the reason.
        let task = &mut self.task;
        match task.await.context(EndTaskSnafu)? {
            Ok(_) => LoseLeaseSnafu.fail(),
            Err(source) => Err(Error::HoldLease { source }),
        }
    }
}
