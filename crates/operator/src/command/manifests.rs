//! `manifests`, `crds` and `rbac`: objects that install the operator.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use crate::installation::{self, Installation};
use crate::output;
use crate::site::SiteArguments;
use crate::yaml::documents;

/// Print the definitions of the operator's kinds.
#[derive(Args)]
#[command(after_help = "EXAMPLES:
  openstack-operator crds | kubectl apply --server-side -f -

Use server-side apply: client-side apply copies each object into an annotation, and these are too large for it.")]
pub(crate) struct CrdsArguments {}

/// Print the service account of the operator and its permissions.
#[derive(Args)]
#[command(after_help = "EXAMPLES:
  openstack-operator rbac --namespace openstack-operator | kubectl apply --server-side -f -")]
pub(crate) struct RbacArguments {
    /// Namespace of the operator.
    #[arg(short = 'n', long, default_value = installation::NAME)]
    namespace: String,
}

/// Print all objects that install the operator: namespace, definitions, permissions and Deployment.
#[derive(Args)]
#[command(after_help = "EXAMPLES:
  openstack-operator manifests --image registry.example.com/openstack-operator:1 | kubectl apply --server-side -f -
  openstack-operator manifests --image registry.example.com/openstack-operator:1 --replicas 2 --images-family debian \\
      --images-registry registry.example.com/openstack")]
pub(crate) struct Arguments {
    /// Namespace of the operator.
    #[arg(short = 'n', long, default_value = installation::NAME)]
    namespace: String,
    /// The operator's image. No registry has the default: push it to yours and name it here.
    #[arg(long, value_name = "REFERENCE", default_value_t = installation::default_image())]
    image: String,
    /// How many replicas; one leads, the others are on standby.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=9))]
    replicas: u32,
    #[command(flatten)]
    site: SiteArguments,
}

pub(crate) fn crds() -> Result<ExitCode, output::Error> {
    print(&installation::crds())
}

pub(crate) fn rbac(arguments: &RbacArguments) -> Result<ExitCode, output::Error> {
    let installation = installation(&arguments.namespace, &installation::default_image(), 1, Vec::new());
    print(&installation.rbac())
}

pub(crate) fn manifests(arguments: &Arguments) -> Result<ExitCode, output::Error> {
    let environment = arguments.site.environment();
    let installation = installation(&arguments.namespace, &arguments.image, arguments.replicas, environment);
    let mut objects = vec![installation.namespace()];
    objects.extend(installation::crds());
    objects.extend(installation.rbac());
    objects.extend(installation.workload());
    print(&objects)
}

fn installation(
    namespace: &str,
    image: &str,
    replicas: u32,
    environment: Vec<(&'static str, String)>,
) -> Installation {
    Installation {
        name: installation::NAME.to_owned(),
        namespace: namespace.to_owned(),
        image: image.to_owned(),
        replicas: json!(replicas),
        environment,
        resources: installation::default_resources(),
        pull_secrets: None,
    }
}

fn print(objects: &[Value]) -> Result<ExitCode, output::Error> {
    output::print(&documents(objects))?;
    Ok(ExitCode::SUCCESS)
}
