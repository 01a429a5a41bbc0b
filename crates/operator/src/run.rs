//! The operator as a process: probes, leader election, the engine, and an orderly shutdown.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use kube::Client;
use openstack_operator_adapters::agents::NodeAgents;
use openstack_operator_adapters::bus::ManagementBus;
use openstack_operator_adapters::environment::SystemEnvironment;
use openstack_operator_adapters::identity::IdentityV3;
use openstack_operator_adapters::kube::KubeCluster;
use openstack_operator_adapters::sql::MariaSql;
use openstack_operator_engine::engine::Engine;
use openstack_operator_engine::index::ChildIndex;
use openstack_operator_engine::ports::{PortError, Ports};
use openstack_operator_engine::recent::RecentObjects;
use openstack_operator_engine::run::Runner;
use openstack_operator_services::ALL;
use snafu::{ResultExt, Snafu};
use tokio::signal::unix::{SignalKind, signal};

use crate::activation;
use crate::admin::{self, Admin};
use crate::leadership::{self, Leadership};
use crate::site::SiteArguments;

/// Run as the operator of a cluster, until the process is stopped or loses its leadership.
#[derive(Args)]
#[command(after_help = "EXAMPLES:
  openstack-operator run --identity $HOSTNAME --namespace openstack-operator")]
pub(crate) struct Arguments {
    /// Address of probes and metrics.
    #[arg(long, env = "OPENSTACK_OPERATOR_ADMIN", value_name = "ADDRESS",
          default_value_t = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 8080)))]
    admin: SocketAddr,
    /// Namespace of the Lease [default: that of the pod, or of the kubeconfig's context].
    #[arg(long, env = "POD_NAMESPACE")]
    namespace: Option<String>,
    /// Identity in the leader election; unique among all replicas.
    #[arg(long, env = "POD_NAME")]
    identity: String,
    /// Interval in seconds at which state outside Kubernetes is compared: catalogs, databases, message buses.
    #[arg(long, env = "OPENSTACK_OPERATOR_DRIFT_SECONDS", default_value_t = 120, value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(1..=86400))]
    drift_seconds: u64,
    #[command(flatten)]
    site: SiteArguments,
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
    #[snafu(display("failed to look for other installations of the operator"))]
    FindInstallations { source: kube::Error },
    #[snafu(display("failed to prepare the clients of other servers"))]
    PrepareClients { source: PortError },
    #[snafu(transparent)]
    Admin { source: admin::Error },
    #[snafu(transparent)]
    Leadership { source: leadership::Error },
    #[snafu(display("failed to listen for signals"))]
    ListenForSignals { source: std::io::Error },
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), Error> {
    // With several providers linked none is the default; this is the only place that installs one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut terminate = signal(SignalKind::terminate()).context(ListenForSignalsSnafu)?;
    let mut interrupt = signal(SignalKind::interrupt()).context(ListenForSignalsSnafu)?;
    let mut stop = pin!(async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
    });
    let admin = Admin::new();
    let listener = Admin::listen(arguments.admin).await?;
    tokio::select! {
        served = admin.clone().serve(listener) => Ok(served?),
        led = lead(&arguments, &admin, stop.as_mut()) => led,
    }
}

/// Takes part in the election and runs the engine as the leader, until stopped.
async fn lead(
    arguments: &Arguments,
    admin: &Admin,
    mut stop: Pin<&mut impl Future<Output = ()>>,
) -> Result<(), Error> {
    let client = Client::try_default().await.context(FindClusterSnafu)?;
    let mut leadership = tokio::select! {
        () = &mut stop => return Ok(()),
        joined = join_election(arguments, admin, client.clone()) => joined?,
    };
    let runner = runner(arguments, admin, client.clone()).context(PrepareClientsSnafu)?;
    // A replica on standby is ready: it can take over.
    admin.set_ready();
    let outcome = tokio::select! {
        () = stop => None,
        error = work(&mut leadership, admin, runner, client) => Some(error),
    };
    match outcome {
        None => Ok(leadership.resign().await?),
        Some(error) => Err(error.into()),
    }
}

/// Takes part in the election of its installation, once that is the active one.
async fn join_election(arguments: &Arguments, admin: &Admin, client: Client) -> Result<Leadership, Error> {
    let version = client.apiserver_version().await.context(AskApiServerSnafu)?;
    let namespace = arguments.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    tracing::info!(kubernetes = version.git_version, namespace, identity = arguments.identity, "connected");
    activation::wait(&client, &namespace, &arguments.identity, admin)
        .await
        .context(FindInstallationsSnafu)?;
    Ok(Leadership::seek(client, &namespace, &arguments.identity).await?)
}

fn runner(arguments: &Arguments, admin: &Admin, client: Client) -> Result<Runner, PortError> {
    let children = Arc::new(ChildIndex::default());
    let metrics = admin.metrics();
    let counted = metrics.clone();
    let recent = Arc::new(RecentObjects::new(ALL.iter().map(|service| service.kind()).collect()));
    let cluster = KubeCluster::watched(client, children.clone(), recent.clone())
        .with_on_write(Arc::new(move |verb| counted.record_write(verb)));
    let ports = Ports {
        cluster: Arc::new(cluster),
        sql: Arc::new(MariaSql),
        bus: Arc::new(ManagementBus::new()?),
        identity: Arc::new(IdentityV3::new()?),
        agents: Arc::new(NodeAgents::new()?),
        environment: Arc::new(SystemEnvironment),
    };
    Ok(Runner {
        engine: Arc::new(Engine::new(&ALL, arguments.site.site(), ports)),
        children,
        recent,
        metrics,
        drift_interval: Duration::from_secs(arguments.drift_seconds),
    })
}

/// Runs the engine while this process leads; returns why it no longer does. The next leader repeats interrupted work:
/// every step is idempotent.
async fn work(
    leadership: &mut Leadership,
    admin: &Admin,
    runner: Runner,
    client: Client,
) -> leadership::Error {
    if let Err(error) = leadership.won().await {
        return error;
    }
    admin.set_leader();
    tracing::info!("leading");
    tokio::select! {
        error = leadership.lost() => error,
        () = runner.run(client) => leadership::Error::EndWork,
    }
}
