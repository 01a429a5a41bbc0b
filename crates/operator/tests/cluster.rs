//! The program against a small API server.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails, also in shared functions")]

#[path = "cluster/activation.rs"]
mod activation;
#[path = "cluster/annotate.rs"]
mod annotate;
#[path = "cluster/api_server.rs"]
mod api_server;
#[path = "cluster/bundle.rs"]
mod bundle;
#[path = "cluster/check.rs"]
mod check;
#[path = "cluster/fixture.rs"]
mod fixture;
#[path = "cluster/login.rs"]
mod login;
#[path = "cluster/status.rs"]
mod status;

use std::process::{Command, Output};

use api_server::ApiServer;

/// Runs the program against a server; its home is a directory of the test.
fn run(server: &ApiServer, arguments: &[&str]) -> Output {
    let directory = server.directory();
    Command::new(env!("CARGO_BIN_EXE_openstack-operator"))
        .args(arguments)
        .env_clear()
        .env("KUBECONFIG", server.kubeconfig())
        .env("HOME", &directory)
        .current_dir(&directory)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
