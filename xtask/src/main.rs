//! The project's own commands: the local cluster, the images and the tests.

mod bench;
mod cloud;
mod cluster;
mod command;
mod conformance;
mod directories;
mod document;
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
#[command(name = "cargo xtask", about = "Local cluster, images and tests of openstack-operator", version)]
struct Arguments {
    /// Where built parts, images and the cluster's state are kept [default: the user's cache directory].
    #[arg(long, global = true, env = "OPENSTACK_OPERATOR_CACHE", value_name = "DIRECTORY")]
    cache: Option<std::path::PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Bring up a whole cloud: a cluster, the images, the operator and a control plane. Safe to repeat.
    Up(cloud::UpArguments),
    /// Remove the cloud, and the local cluster with it.
    Down(cloud::DownArguments),
    /// Make, inspect and remove a real Kubernetes on this machine.
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Build the container images and the guest disk.
    #[command(subcommand)]
    Images(images::Command),
    /// Run every layer of tests; the last line says how many passed and failed.
    Test(test::Arguments),
    /// Measure what the operator costs, and print tables of it.
    Bench(bench::Arguments),
    /// Run Tempest's tests on the cloud that `up` made, and print tables of the results.
    Conformance(conformance::Arguments),
    /// The first process of a node: started by `cluster up`, never by a person.
    #[command(hide = true)]
    NodeInit(cluster::node_init::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // Other users of a node read its files, whatever the person's own habit is.
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
        Command::Down(arguments) => cloud::down(&directories, &arguments).map(|()| ExitCode::SUCCESS),
        Command::Cluster(command) => cluster::run(&directories, command).map(|()| ExitCode::SUCCESS),
        Command::Images(command) => images::run(&directories, command).map(|()| ExitCode::SUCCESS),
        Command::Test(arguments) => test::run(&directories, &arguments),
        Command::Bench(arguments) => bench::run(&directories, &arguments).map(|()| ExitCode::SUCCESS),
        Command::Conformance(arguments) => conformance::run(&directories, &arguments),
        Command::NodeInit(_) => Ok(ExitCode::SUCCESS),
    }
}
