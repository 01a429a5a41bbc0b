//! Measures the operator part by part, and prints Markdown tables.

mod bare;
mod claims;
mod cloud;
mod cluster;
mod crd;
mod fleet;
mod installed;
mod metrics;
mod plan;
mod planned;
mod process;
mod secret;
mod table;

use std::collections::BTreeMap;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use openstack_operator_model::image::{Family, ImageDefaults};
use openstack_operator_model::release::Release;
use openstack_operator_model::service::Site;

#[derive(Parser)]
#[command(about = "Measures the operator; run it through cargo xtask bench")]
struct Arguments {
    #[command(subcommand)]
    part: Part,
}

#[derive(Subcommand)]
enum Part {
    /// The time of planning and lowering a whole cloud.
    Plan,
    /// The sizes of the CRDs.
    Crd,
    /// One cloud, with and without the operator.
    Cloud(cloud::Arguments),
    /// Many control planes whose pods never run.
    Fleet(fleet::Arguments),
}

/// The operator to measure.
#[derive(Args)]
struct OperatorArguments {
    /// The operator's program.
    #[arg(long, value_name = "FILE")]
    operator: std::path::PathBuf,
    /// Registry and path before an image's name.
    #[arg(long, value_name = "PREFIX")]
    images_registry: String,
}

impl OperatorArguments {
    /// Defaults for fields that an object leaves out.
    fn site(&self) -> Site {
        site(&self.images_registry)
    }

    /// Reference of one of the images.
    fn image(&self, name: &str) -> String {
        format!("{}/{name}:{}", self.images_registry, Release::default().number())
    }

    /// The same as flags of the operator.
    fn flags(&self) -> [&str; 4] {
        ["--images-family", "debian", "--images-registry", &self.images_registry]
    }
}

fn site(registry: &str) -> Site {
    let images =
        ImageDefaults { family: Family::Debian, registry: Some(registry.to_owned()), tags: BTreeMap::new() };
    Site { images, cluster_domain: "cluster.local".to_owned() }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let report = match Arguments::parse().part {
        Part::Plan => plan::measure()?,
        Part::Crd => crd::measure()?,
        Part::Cloud(arguments) => cloud::measure(&arguments).await?,
        Part::Fleet(arguments) => fleet::measure(&arguments).await?,
    };
    print(&report);
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the report is the result")]
fn print(report: &str) {
    println!("{report}");
}
