//! The operator's one process and command line.

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
mod refusal;
mod rights;
mod run;
mod schema;
mod services;
mod site;
mod telemetry;
mod tree;
mod yaml;

use std::process::ExitCode;

// What it does is waiting: more threads would only cost memory on machines with many cores.
#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    command::execute().await
}
