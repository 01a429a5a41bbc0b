//! The operator and its command line.

mod activation;
mod admin;
mod bundle;
mod changes;
mod chart;
mod check;
mod clouds;
mod cluster;
mod command;
mod deploy;
mod desired;
mod difference;
mod foreign;
mod input;
mod installation;
mod leadership;
mod live;
mod output;
mod plan_all;
mod reference;
mod rejection;
mod rights;
mod run;
mod schema;
mod services;
mod site;
mod telemetry;
mod tree;
mod yaml;

use std::process::ExitCode;

// The process mostly waits: more threads would only cost memory.
#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    command::execute().await
}
