//! Commands of the project: the local cloud and its cluster, the images and the tests.

mod bench;
mod cloud;
mod cluster;
mod command;
mod conformance;
mod directories;
mod document;
mod drill;
mod golang;
mod graph;
mod host;
mod images;
mod kubectl;
mod process;
mod progress;
mod registry;
mod store;
mod test;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "Local cloud, images and tests of openstack-operator",
    version
)]
struct Arguments {
    /// Directory of builds, images and the state of the cluster [default: the user's cache directory].
    #[arg(long, global = true, env = "OPENSTACK_OPERATOR_CACHE", value_name = "DIRECTORY")]
    cache: Option<std::path::PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create a cloud: a local cluster, the images, the operator and a control plane. Safe to repeat.
    Up(cloud::UpArguments),
    /// Boot a VM in the local cloud and print the ssh command for it. Safe to repeat.
    Launch(cloud::launch::Arguments),
    /// Run the OpenStack client as the administrator of the local cloud, e.g. openstack server list.
    Openstack(cloud::client::Arguments),
    /// Remove the cloud, and the local cluster with it.
    Down(cloud::DownArguments),
    /// Create, inspect and remove the local Kubernetes cluster.
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Build the container images and the guest disk.
    #[command(subcommand)]
    Images(images::Command),
    /// Run every layer of tests, and print the results and the time of each.
    Test(test::Arguments),
    /// Run Tempest against the local cloud, and print tables of the results.
    Conformance(conformance::Arguments),
    /// Inject faults into a highly available cloud under load, and measure what each of them costs.
    Drill(drill::Arguments),
    /// Measure the cost of the operator, and print tables of the figures.
    Bench(bench::Arguments),
    /// The first process of a node: `cluster up` starts it.
    #[command(hide = true)]
    NodeInit(cluster::node_init::Arguments),
    /// Repairs the cluster if a drill ends early: `drill` starts it.
    #[command(hide = true)]
    DrillGuard,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // Other users of a node read its files.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    match run(arguments) {
        Ok(code) => code,
        Err(error) => {
            progress::error(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<ExitCode> {
    if let Command::NodeInit(node) = arguments.command {
        cluster::node_init::run(&node)?;
        return Ok(ExitCode::SUCCESS);
    }
    let directories = directories::Directories::find(arguments.cache)?;
    match arguments.command {
        Command::Up(arguments) => cloud::up(&directories, &arguments).map(|()| ExitCode::SUCCESS),
        Command::Launch(arguments) => {
            cloud::launch::run(&directories, &arguments).map(|()| ExitCode::SUCCESS)
        }
        Command::Openstack(arguments) => {
            cloud::client::run(&directories, &arguments).map(|()| ExitCode::SUCCESS)
        }
        Command::Down(arguments) => cloud::down(&directories, &arguments).map(|()| ExitCode::SUCCESS),
        Command::Cluster(command) => cluster::run(&directories, command).map(|()| ExitCode::SUCCESS),
        Command::Images(command) => images::run(&directories, command).map(|()| ExitCode::SUCCESS),
        Command::Test(arguments) => test::run(&directories, &arguments),
        Command::Bench(arguments) => bench::run(&directories, &arguments).map(|()| ExitCode::SUCCESS),
        Command::Conformance(arguments) => conformance::run(&directories, &arguments),
        Command::Drill(arguments) => drill::run(&directories, &arguments),
        Command::DrillGuard => drill::guard(&directories).map(|()| ExitCode::SUCCESS),
        Command::NodeInit(_) => Ok(ExitCode::SUCCESS),
    }
}
