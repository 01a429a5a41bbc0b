//! The operator's one process and command line.

mod admin;
mod leadership;
mod run;
mod site;
mod telemetry;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "openstack-operator",
    about = "Turns one custom resource into a running OpenStack cloud",
    version
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run as the operator of a cluster, until the process is told to stop or loses its leadership.
    Run(run::Arguments),
}

#[tokio::main]
async fn main() -> ExitCode {
    let Command::Run(arguments) = Arguments::parse().command;
    telemetry::start(&arguments.log);
    match run::run(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "the operator ends");
            ExitCode::FAILURE
        }
    }
}
