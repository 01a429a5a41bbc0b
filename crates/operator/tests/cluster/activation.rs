//! `run` beside another installation of the operator.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api_server::ApiServer;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/NAMESPACE/deployments";
const PODS: &str = "/api/v1/namespaces/NAMESPACE/pods";
/// Longer than the interval at which the operator looks for other installations.
const PATIENCE: Duration = Duration::from_mins(1);

/// The operator, stopped at the end of the test.
struct Operator {
    process: Child,
    admin: SocketAddr,
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Operator {
    fn start(server: &ApiServer) -> Self {
        let admin = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_openstack-operator"))
            .args(["run", "--identity", "pod", "--namespace", "second", "--admin", &admin.to_string()])
            .env_clear()
            .env("KUBECONFIG", server.kubeconfig())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { process, admin }
    }

    /// Answer of the readiness probe; none if the process does not listen yet.
    fn readiness(&self) -> Option<String> {
        let mut stream = TcpStream::connect(self.admin).ok()?;
        stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    fn await_readiness(&self, wanted: &str) {
        let started = Instant::now();
        loop {
            let answer = self.readiness().unwrap_or_default();
            if answer.contains(wanted) {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "{wanted} is not in {answer}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn installed(kind: &str, name: &str, namespace: &str, created: &str) -> Value {
    json!({
        "apiVersion": if kind == "Pod" { "v1" } else { "apps/v1" }, "kind": kind,
        "metadata": {
            "name": name, "namespace": namespace, "creationTimestamp": created,
            "labels": { "app.kubernetes.io/name": "openstack-operator", "app.kubernetes.io/instance": namespace },
        },
    })
}

fn install(server: &ApiServer, namespace: &str, created: &str) {
    for (path, kind, name) in [(DEPLOYMENTS, "Deployment", "operator"), (PODS, "Pod", "pod")] {
        let object = installed(kind, name, namespace, created);
        server.add(&path.replace("NAMESPACE", namespace), [object]);
    }
}

/// Waits until the operator takes part in the election of its own installation.
fn await_election(server: &ApiServer) {
    let started = Instant::now();
    loop {
        let contents = server.contents.lock().unwrap();
        let mut written = contents.patches.iter().map(|(path, _)| path).chain(&contents.creations);
        if written.any(|path| path.contains("/namespaces/second/leases")) {
            return;
        }
        drop(written);
        drop(contents);
        assert!(started.elapsed() < PATIENCE, "it does not take part in the election");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_second_installation_writes_nothing_says_why_and_takes_over_when_the_first_one_is_uninstalled() {
    let server = ApiServer::start();
    install(&server, "first", "2026-01-01T00:00:00Z");
    install(&server, "second", "2026-01-02T00:00:00Z");
    let operator = Operator::start(&server);
    operator.await_readiness("installation \"first\" in namespace first of the operator is active");
    assert!(operator.readiness().unwrap().starts_with("HTTP/1.0 503"));
    {
        let contents = server.contents.lock().unwrap();
        assert!(contents.patches.is_empty() && contents.creations.is_empty());
    }
    for path in [DEPLOYMENTS, PODS] {
        server.clear(&path.replace("NAMESPACE", "first"));
    }
    await_election(&server);
}

#[test]
fn the_oldest_installation_works_beside_a_younger_one() {
    let server = ApiServer::start();
    install(&server, "first", "2026-01-03T00:00:00Z");
    install(&server, "second", "2026-01-02T00:00:00Z");
    let _operator = Operator::start(&server);
    await_election(&server);
}
