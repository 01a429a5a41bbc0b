//! `check`: the verdict on a cloud, or with `--pre` on a cluster that is to run one.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use snafu::{Snafu, ensure};

use crate::check::answer::{Unreadable, scope};
use crate::check::requirements::Requirements;
use crate::check::{Report, cloud, cluster, gather};
use crate::cluster::{ClusterArguments, operator_environment};
use crate::input::{self, Namespace, Problems};
use crate::output::{self, ColorChoice};
use crate::plan_all::plan_all;
use crate::site::{self, SiteOverrides};

/// Check whether a cloud is healthy, or with --pre whether a cluster can run one.
///
/// Without --pre: the operator, conditions of all objects, quorum of the databases, agents of the nodes, Gateway and routes,
/// public endpoints (DNS and HTTP, from this machine) and their certificates. Ends with 0 if no check failed, with 1 if
/// one failed, and with 2 on an error. Warnings do not fail.
#[derive(Args)]
#[command(after_help = "EXAMPLES:
  openstack-operator check --pre -n openstack
  openstack-operator check --pre -f cloud.yaml
  openstack-operator check -n openstack
  openstack-operator check cloud -n openstack -o json")]
pub(crate) struct Arguments {
    /// Only objects of this name, with the objects below them.
    #[arg(conflicts_with = "pre")]
    name: Option<String>,
    /// Check the cluster before a cloud is created on it.
    #[arg(long)]
    pre: bool,
    /// File with the cloud whose needs are checked; `-` is standard input. May be given several times.
    #[arg(short = 'f', long = "filename", value_name = "FILE", requires = "pre")]
    files: Vec<PathBuf>,
    /// Namespace of the cloud [default: that of the kubeconfig's context].
    #[arg(short = 'n', long)]
    namespace: Option<String>,
    /// Clouds of all namespaces.
    #[arg(short = 'A', long, conflicts_with_all = ["namespace", "pre"])]
    all_namespaces: bool,
    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// When the output is coloured.
    #[arg(long, value_enum, default_value_t = ColorChoice::Auto)]
    color: ColorChoice,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Format {
    Text,
    Json,
}

#[derive(Debug, Snafu)]
pub(crate) enum Error {
    #[snafu(transparent)]
    Cluster { source: crate::cluster::Error },
    #[snafu(transparent)]
    Input { source: input::Error },
    #[snafu(transparent)]
    Plan { source: Problems },
    #[snafu(transparent)]
    Site { source: site::Error },
    #[snafu(transparent)]
    Print { source: output::Error },
    #[snafu(display("{reason}"))]
    Gather { reason: Unreadable },
    #[snafu(display("there is no cloud {place}"))]
    NoCloud { place: String },
}

pub(crate) async fn check(arguments: &Arguments) -> Result<ExitCode, Error> {
    let client = arguments.cluster.client().await?;
    let default = || client.default_namespace().to_owned();
    let report = if arguments.pre {
        let namespace = arguments.namespace.clone();
        let required = match arguments.files.as_slice() {
            [] => Requirements::of_defaults(&namespace.unwrap_or_else(default)),
            files => {
                let namespace = namespace.map_or_else(|| Namespace::Default(default()), Namespace::Given);
                let environment = operator_environment(&client).await.unwrap_or_default();
                let site = SiteOverrides::default().site(&environment)?;
                let documents = input::read(files, &namespace)?.documents;
                Requirements::of_plans(&plan_all(documents, &site, &crate::plan_all::Known::default())?)
            }
        };
        let facts = gather::cluster(&client, &required).await.map_err(|reason| Error::Gather { reason })?;
        Report(cluster::check(&facts, &required))
    } else {
        let namespace =
            (!arguments.all_namespaces).then(|| arguments.namespace.clone().unwrap_or_else(default));
        let facts = gather::cloud(&client, namespace.as_deref(), arguments.name.as_deref()).await;
        let facts = facts.map_err(|reason| Error::Gather { reason })?;
        let named = arguments.name.as_ref().map(|name| format!("named {name:?} ")).unwrap_or_default();
        let place = format!("{named}{}", scope(namespace.as_deref()));
        ensure!(!facts.objects.is_empty(), NoCloudSnafu { place });
        Report(cloud::check(&facts))
    };
    output::print(&match arguments.output {
        Format::Text => report.text(arguments.color.paint()),
        Format::Json => format!("{:#}\n", report.json()),
    })?;
    Ok(if report.is_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
