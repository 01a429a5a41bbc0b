//! The operator's one process and command line.

mod admin;
mod command;
mod desired;
mod input;
mod leadership;
mod output;
mod plan_all;
mod run;
mod schema;
mod site;
mod telemetry;
mod yaml;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    command::execute().await
}
