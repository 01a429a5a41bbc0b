//! `render`: the Kubernetes objects that the operator would create, without a cluster.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use snafu::Snafu;

use crate::command::files::FileArguments;
use crate::desired::desired;
use crate::input::{self, Input, Namespace, Problems};
use crate::live::Live;
use crate::plan_all::{Known, Planned, plan_all};
use crate::rejection::ensure_accepted;
use crate::site::SiteArguments;
use crate::{output, yaml};

/// Print every Kubernetes object that the operator would create, without a cluster.
///
/// The operator generates values of Secrets in the cluster: here they are <generated>, and <secret/key> if one contains
/// another.
#[derive(Args)]
#[command(after_help = "EXAMPLES:
  openstack-operator render -f cloud.yaml
  openstack-operator render -f cloud.yaml --images-family debian | less
  kubectl get openstackcontrolplane cloud -o yaml | openstack-operator render -f - -o json")]
pub(crate) struct Arguments {
    #[command(flatten)]
    files: FileArguments,
    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t = Format::Yaml)]
    output: Format,
    #[command(flatten)]
    site: SiteArguments,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Format {
    Yaml,
    Json,
}

#[derive(Debug, Snafu)]
pub(crate) enum Error {
    #[snafu(transparent)]
    Input { source: input::Error },
    #[snafu(transparent)]
    Plan { source: Problems },
    #[snafu(transparent)]
    Print { source: output::Error },
}

pub(crate) fn render(arguments: &Arguments) -> Result<ExitCode, Error> {
    let namespace = match &arguments.files.namespace {
        Some(given) => Namespace::Given(given.clone()),
        None => Namespace::Default("default".to_owned()),
    };
    let Input { documents, skipped } = input::read(&arguments.files.files, &namespace)?;
    let planned = plan_all(documents, &arguments.site.site(), &Known::default())?;
    ensure_accepted(&planned, &Live::default())?;
    for remark in remarks(&planned, &skipped) {
        output::remark(&remark);
    }
    let bodies: Vec<Value> = desired(&planned).into_iter().map(|desired| desired.body).collect();
    let text = match arguments.output {
        Format::Yaml => {
            format!("# The operator creates these objects. Do not apply them.\n{}", yaml::documents(&bodies))
        }
        Format::Json => format!("{:#}\n", json!({ "apiVersion": "v1", "kind": "List", "items": bodies })),
    };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Notes about objects that are not rendered.
pub(crate) fn remarks(planned: &[Planned], skipped: &[String]) -> Vec<String> {
    let foreign =
        skipped.iter().map(|title| format!("note: {title} is not of the operator's kinds: skipped"));
    let left_out = planned.iter().flat_map(|planned| {
        planned.plan.skipped.iter().map(|skip| {
            format!("note: {} has no {} {}: {}", planned.key, skip.kind.kind, skip.name, skip.reason)
        })
    });
    foreign.chain(left_out).collect()
}
