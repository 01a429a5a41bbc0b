//! The operator as a process: probes, leader election and an orderly end.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};

use clap::Args;
use kube::Client;
use snafu::{ResultExt, Snafu};
use tokio::signal::unix::{SignalKind, signal};

use crate::admin::{self, Admin};
use crate::leadership::{self, Leadership};

#[derive(Args)]
pub(crate) struct Arguments {
    /// Where probes and metrics are served.
    #[arg(long, env = "OPENSTACK_OPERATOR_ADMIN", value_name = "ADDRESS",
          default_value_t = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 8080)))]
    admin: SocketAddr,
    /// Namespace of the Lease [default: that of the pod, or of the kubeconfig's context].
    #[arg(long, env = "POD_NAMESPACE")]
    namespace: Option<String>,
    /// Who this process is in the election; must differ from every other's.
    #[arg(long, env = "POD_NAME")]
    identity: String,
    /// Which events are logged, e.g. `info` or `info,openstack_operator=debug`.
    #[arg(long, env = "OPENSTACK_OPERATOR_LOG", default_value = "info", value_name = "FILTER")]
    pub(crate) log: String,
}

#[derive(Debug, Snafu)]
pub(crate) enum Error {
    #[snafu(display("failed to find the cluster"))]
    FindCluster { source: kube::Error },
    #[snafu(display("the API server does not answer"))]
    AskApiServer { source: kube::Error },
    #[snafu(transparent)]
    Admin { source: admin::Error },
    #[snafu(transparent)]
    Leadership { source: leadership::Error },
    #[snafu(display("failed to listen for signals"))]
    ListenForSignals { source: std::io::Error },
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), Error> {
    // Several providers may be linked, and then none is the default by itself. Nobody else installs one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut terminate = signal(SignalKind::terminate()).context(ListenForSignalsSnafu)?;
    let mut interrupt = signal(SignalKind::interrupt()).context(ListenForSignalsSnafu)?;
    let mut stop = pin!(async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("told to stop");
    });
    let admin = Admin::new();
    let listener = Admin::listen(arguments.admin).await?;
    tokio::select! {
        served = admin.clone().serve(listener) => Ok(served?),
        led = lead(&arguments, &admin, stop.as_mut()) => led,
    }
}

/// Takes part in the election and works as the leader, until told to stop.
async fn lead(
    arguments: &Arguments,
    admin: &Admin,
    mut stop: Pin<&mut impl Future<Output = ()>>,
) -> Result<(), Error> {
    let mut leadership = tokio::select! {
        () = &mut stop => return Ok(()),
        joined = join_election(arguments) => joined?,
    };
    // One that stands by is as ready as one that leads: it is there to take over.
    admin.set_ready();
    let outcome = tokio::select! {
        () = stop => None,
        error = work(&mut leadership, admin) => Some(error),
    };
    match outcome {
        None => Ok(leadership.resign().await?),
        Some(error) => Err(error.into()),
    }
}

async fn join_election(arguments: &Arguments) -> Result<Leadership, Error> {
    let client = Client::try_default().await.context(FindClusterSnafu)?;
    let version = client.apiserver_version().await.context(AskApiServerSnafu)?;
    let namespace = arguments.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    tracing::info!(kubernetes = version.git_version, namespace, identity = arguments.identity, "connected");
    Ok(Leadership::seek(client, &namespace, &arguments.identity).await?)
}

/// Works while this process leads; returns why it no longer does.
async fn work(leadership: &mut Leadership, admin: &Admin) -> leadership::Error {
    if let Err(error) = leadership.won().await {
        return error;
    }
    admin.set_leader();
    tracing::info!("leading");
    leadership.lost().await
}
