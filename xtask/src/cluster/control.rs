//! The control plane, as processes on the host: etcd, API server, controller manager and scheduler.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::pki;
use super::settings::Addresses;
use crate::command::{last_lines, output, wait_until};
use crate::directories::Directories;
use crate::golang::Program;
use crate::kubectl::Kubectl;
use crate::process;
use crate::store::Key;

pub(crate) const PROCESSES: [&str; 4] = ["etcd", "apiserver", "controller-manager", "scheduler"];

fn log(directories: &Directories, name: &str) -> PathBuf {
    directories.cluster().join("logs").join(format!("{name}.log"))
}

/// Starts the control plane. Controller manager and scheduler exit within seconds without an API server, so they
/// start when it is ready.
pub(crate) fn ensure(directories: &Directories, addresses: &Addresses) -> Result<String> {
    let mut started = Vec::new();
    for (name, mut command) in commands(directories, addresses)? {
        if process::ensure(directories, name, &log(directories, name), &mut command, Key::default())? {
            started.push(name);
        }
        if name == "apiserver" {
            wait_for_api_server(directories)?;
        }
    }
    Ok(if started.is_empty() { "running".to_owned() } else { format!("started {}", started.join(", ")) })
}

fn wait_for_api_server(directories: &Directories) -> Result<()> {
    let mut answer = Ok(());
    let ask = || -> Result<()> {
        output(Kubectl::local(directories)?.query().args(["get", "--raw=/readyz"])).map(|_| ())
    };
    let waited = wait_until("the API server is ready", || {
        answer = ask();
        answer.is_ok() || !matches!(process::find(directories, "apiserver"), Ok(Some(_)))
    });
    waited.and(answer).with_context(|| {
        let path = log(directories, "apiserver");
        let text = fs::read_to_string(&path).unwrap_or_default();
        format!("the API server does not start\n{}\nfull log: {}", last_lines(&text), path.display())
    })
}

fn commands(directories: &Directories, addresses: &Addresses) -> Result<[(&'static str, Command); 4]> {
    let kubernetes = Program::Kubernetes.directory(directories)?.join("kubernetes");
    let pki = pki::directory(directories).display().to_string();
    let component = |name: &str, arguments: String| {
        let mut command = Command::new(&kubernetes);
        command.arg(name).args(arguments.split_whitespace());
        command
    };
    let host = addresses.host_address();
    let etcd_url = format!("https://127.0.0.1:{}", addresses.etcd_port);
    let peer_url = format!("http://127.0.0.1:{}", addresses.etcd_port.saturating_add(1));
    let mut etcd = Command::new(Program::Etcd.directory(directories)?.join("etcd"));
    etcd.arg("--data-dir").arg(directories.cluster().join("etcd")).args(
        // Without fsync a power failure of the machine may cost the last writes, which is acceptable here.
        format!(
            "--listen-client-urls {etcd_url} --advertise-client-urls {etcd_url} \
             --listen-peer-urls {peer_url} --initial-advertise-peer-urls {peer_url} \
             --initial-cluster default={peer_url} --client-cert-auth --trusted-ca-file {pki}/ca.crt \
             --cert-file {pki}/etcd.crt --key-file {pki}/etcd.key --unsafe-no-fsync --log-level warn"
        )
        .split_whitespace(),
    );
    let apiserver = component(
        "kube-apiserver",
        format!(
            "--etcd-servers {etcd_url} --etcd-cafile {pki}/ca.crt --etcd-certfile {pki}/etcd.crt \
             --etcd-keyfile {pki}/etcd.key --secure-port {port} --bind-address {host} \
             --advertise-address {host} --client-ca-file {pki}/ca.crt --tls-cert-file {pki}/apiserver.crt \
             --tls-private-key-file {pki}/apiserver.key \
             --service-account-key-file {pki}/service-account.pub \
             --service-account-signing-key-file {pki}/service-account.key \
             --service-account-issuer https://kubernetes.default.svc \
             --kubelet-client-certificate {pki}/apiserver-kubelet-client.crt \
             --kubelet-client-key {pki}/apiserver-kubelet-client.key \
             --kubelet-certificate-authority {pki}/ca.crt --kubelet-preferred-address-types InternalIP \
             --service-cluster-ip-range {services} --authorization-mode Node,RBAC \
             --enable-admission-plugins NodeRestriction --allow-privileged=true",
            port = addresses.api_port,
            services = addresses.service_range,
        ),
    );
    // Services send requests to the pods of a lost node for as long as it counts as ready: 50 s by default. docs/install.md
    // recommends the same.
    let controller_manager = component(
        "kube-controller-manager",
        format!(
            "--kubeconfig {pki}/controller-manager.kubeconfig --bind-address {host} \
             --service-account-private-key-file {pki}/service-account.key --root-ca-file {pki}/ca.crt \
             --cluster-signing-cert-file {pki}/ca.crt --cluster-signing-key-file {pki}/ca.key \
             --use-service-account-credentials --leader-elect=false \
             --node-monitor-grace-period=20s --node-monitor-period=2s"
        ),
    );
    let scheduler = component(
        "kube-scheduler",
        format!("--kubeconfig {pki}/scheduler.kubeconfig --bind-address {host} --leader-elect=false"),
    );
    Ok([
        ("etcd", etcd),
        ("apiserver", apiserver),
        ("controller-manager", controller_manager),
        ("scheduler", scheduler),
    ])
}
