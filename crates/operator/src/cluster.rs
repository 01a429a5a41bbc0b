//! Access to a cluster with the user's kubeconfig.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::DynamicObject;
use kube::{Client, Config, ResourceExt};
use openstack_operator_model::kind::Kind;
use snafu::{ResultExt, Snafu};

use crate::installation;

/// Selects a cluster.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClusterArguments {
    /// Context of the kubeconfig [default: its current one].
    #[arg(long)]
    pub(crate) context: Option<String>,
    /// The kubeconfig [default: $KUBECONFIG, or ~/.kube/config].
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
pub(crate) enum Error {
    #[snafu(display("failed to read the kubeconfig"))]
    ReadKubeconfig { source: KubeconfigError },
    #[snafu(display("failed to find a cluster: set KUBECONFIG or give --kubeconfig"))]
    FindCluster { source: kube::config::InferConfigError },
    #[snafu(display("failed to prepare a connection to the cluster"))]
    Connect {
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
    #[snafu(display("failed to list {resource}"))]
    List {
        resource: &'static str,
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
    #[snafu(display("failed to read {object}"))]
    Get {
        object: String,
        #[snafu(source(from(kube::Error, Box::new)))]
        source: Box<kube::Error>,
    },
}

impl ClusterArguments {
    pub(crate) async fn client(&self) -> Result<Client, Error> {
        // With several providers linked none is the default; this is the only place that installs one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = if self.context.is_none() && self.kubeconfig.is_none() {
            Config::infer().await.context(FindClusterSnafu)?
        } else {
            let kubeconfig = match &self.kubeconfig {
                Some(path) => Kubeconfig::read_from(path),
                None => Kubeconfig::read(),
            };
            let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
            let kubeconfig = kubeconfig.context(ReadKubeconfigSnafu)?;
            Config::from_custom_kubeconfig(kubeconfig, &options).await.context(ReadKubeconfigSnafu)?
        };
        Client::try_from(config).context(ConnectSnafu)
    }
}

/// The result of listing a kind.
pub(crate) enum Listing<T> {
    Found(Vec<T>),
    /// The cluster does not serve the kind.
    NotServed,
    Forbidden,
}

impl<T> Listing<T> {
    pub(crate) fn new(
        resource: &'static str,
        listed: kube::Result<kube::core::ObjectList<T>>,
    ) -> Result<Self, Error>
    where
        T: Clone,
    {
        match listed {
            Ok(list) => Ok(Self::Found(list.items)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Self::NotServed),
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(Self::Forbidden),
            Err(error) => Err(error).context(ListSnafu { resource }),
        }
    }
}

/// Objects of a kind in one namespace, or in all.
pub(crate) fn api(client: &Client, kind: Kind, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind.resource()),
        None => Api::all_with(client.clone(), &kind.resource()),
    }
}

/// Environment variables of the operator in the cluster; none if it is not found or not readable.
pub(crate) async fn operator_environment(client: &Client) -> Option<BTreeMap<String, String>> {
    let api: Api<Deployment> = Api::all(client.clone());
    let label = format!("app.kubernetes.io/name={}", installation::NAME);
    let found = api.list(&ListParams::default().labels(&label)).await.ok()?;
    // The oldest one is active.
    let active = found
        .items
        .into_iter()
        .min_by_key(|deployment| deployment.creation_timestamp().map(|time| time.0))?;
    let pod = active.spec?.template.spec?;
    let container = pod.containers.into_iter().find(|container| container.name == installation::CONTAINER)?;
    let variables = container.env.unwrap_or_default().into_iter();
    Some(variables.filter_map(|variable| Some((variable.name, variable.value?))).collect())
}
