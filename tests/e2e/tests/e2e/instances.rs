//! Instances: from an image to a shell at a floating IP, through failures around them, to their deletion.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams};
use openstack_operator_smoke::wait::{await_deletion, eventually};
use openstack_operator_smoke::{Sandbox, notice};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::client::Client;
use crate::cloud::{Cloud, RECOVERY, is_serving};
use crate::operator;

/// How long an instance on an emulated processor may take to serve ssh on a loaded machine.
const BOOT: Duration = Duration::from_mins(6);
/// How long Nova may take to notice that an instance has stopped: far less than its periodic check.
const STOP: Duration = Duration::from_mins(2);
/// The instance's own disk.
const DISK: &str = "/dev/vda";
const PREPARE: &str = include_str!("prepare.py");
const BOOT_PROGRAM: &str = include_str!("boot.py");

/// Pods of Neutron's own agents, by label. They use each other, so they are deleted one after the other.
pub(crate) const AGENTS: [&[&str]; 4] = [
    &["app.kubernetes.io/component=ovs-db"],
    &["app.kubernetes.io/component=ovs-vswitchd"],
    &["app.kubernetes.io/component=openvswitch-agent"],
    &["app.kubernetes.io/component=network-agents"],
];

/// Pods of a cloud with OVN, by label, in groups that are deleted together. Pods of one group do not use each other, so
/// each is replaced while the programs that it works with run.
pub(crate) const PODS: [&[&str]; 4] = [
    &[
        "app.kubernetes.io/component=northbound",
        "app.kubernetes.io/component=ovs-db",
        "app.kubernetes.io/component=libvirt",
    ],
    &[
        "app.kubernetes.io/component=southbound",
        "app.kubernetes.io/component=ovs-vswitchd",
        "app.kubernetes.io/component=nova-compute",
    ],
    &[
        "app.kubernetes.io/component=northd",
        "app.kubernetes.io/component=ovn-controller",
        "app.kubernetes.io/component=metadata-agent",
        "app.kubernetes.io/name=openstack-operator",
    ],
    &["openstack.k8s.io/kind=RabbitMQ", "openstack.k8s.io/kind=MariaDB"],
];

/// The instances of a suite.
pub(crate) struct Instances {
    sandbox: Arc<Sandbox>,
    cloud: Cloud,
    pub(crate) client: Client,
    /// Directory of the ssh key.
    key: TempDir,
    /// Floating IPs by the name of the instance.
    addresses: Mutex<BTreeMap<String, String>>,
}

impl Instances {
    pub(crate) fn new(cloud: &Cloud, client: &Client) -> Result<Self> {
        Ok(Self {
            sandbox: Arc::clone(&cloud.sandbox),
            cloud: cloud.clone(),
            client: client.clone(),
            key: tempfile::tempdir()?,
            addresses: Mutex::default(),
        })
    }

    /// Creates the image, flavor, networks, router, security group and key of all instances.
    pub(crate) async fn prepare(&self, provider_range: &str) -> Result<()> {
        let file = self.key.path().join("key");
        let mut generate = Command::new("ssh-keygen");
        generate.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&file);
        ensure!(generate.status().await?.success(), "ssh-keygen failed");
        let public = std::fs::read_to_string(file.with_extension("pub"))?;
        let arguments = [provider_range, &format!("'{}'", public.trim())];
        self.client.python(PREPARE, &arguments).await.context("failed to prepare for instances").map(drop)
    }

    /// Boots an instance on a node, and waits until it serves ssh at its floating IP.
    pub(crate) async fn boot(&self, name: &str, node: &str) -> Result<()> {
        self.boot_from("guest", name, node).await
    }

    /// Services that have just lost their database or message bus may fail a request once, so it is repeated.
    pub(crate) async fn boot_from(&self, image: &str, name: &str, node: &str) -> Result<()> {
        let output = eventually("an active instance", RECOVERY, async || {
            let arguments = [name, image, node];
            self.client
                .python(BOOT_PROGRAM, &arguments)
                .await
                .with_context(|| format!("failed to boot {name}"))
        })
        .await?;
        let address = output.trim().lines().last().unwrap_or_default().to_owned();
        ensure!(!address.is_empty(), "{name} has no floating IP");
        self.addresses().insert(name.to_owned(), address);
        self.answers(name, BOOT).await
    }

    fn addresses(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn address(&self, name: &str) -> Result<String> {
        self.addresses().get(name).cloned().with_context(|| format!("there is no instance {name}"))
    }

    /// Pings an instance from another one by their private network.
    pub(crate) async fn reaches(&self, from: &str, to: &str) -> Result<()> {
        let shown = self.client.openstack(&format!("server show {to} -c addresses")).await?;
        let address = shown["addresses"]["private"][0].as_str().context("the instance has no address")?;
        eventually("the other instance to answer", RECOVERY, async || {
            self.run(from, &format!("ping -c 3 -W 5 {address}")).await
        })
        .await
        .map(drop)
    }

    /// Live migration needs a connection between hypervisors, which the operator does not configure: Nova must report the
    /// failure and leave the instance as it is.
    pub(crate) async fn survives_a_failed_live_migration(&self, name: &str, node: &str) -> Result<()> {
        let script = format!(
            "openstack --os-compute-api-version 2.30 server migrate --live-migration --host {node} {name} >&2"
        );
        self.client.shell(&script).await.context("Nova rejected the live migration")?;
        let states = format!(
            "openstack server migration list --server {name} -f value -c Status; \
             openstack server show {name} -f value -c status"
        );
        eventually("the live migration to fail", RECOVERY, async || {
            let answer = self.client.shell(&states).await?;
            ensure!(["error\nACTIVE\n", "failed\nACTIVE\n"].contains(&answer.as_str()), "{answer}");
            Ok(())
        })
        .await?;
        self.answers(name, RECOVERY).await
    }

    /// An instance that powers itself off is soon reported as stopped, and starts again.
    pub(crate) async fn powers_off_and_starts(&self, name: &str) -> Result<()> {
        // The connection ends with the instance, so its result has no meaning.
        drop(self.run(name, "poweroff").await);
        eventually("the instance to be SHUTOFF", STOP, async || {
            let status =
                self.client.shell(&format!("openstack server show {name} -f value -c status")).await?;
            ensure!(status.trim() == "SHUTOFF", "{name} is {status}");
            Ok(())
        })
        .await?;
        self.client.shell(&format!("openstack server start {name}")).await?;
        self.answers(name, BOOT).await
    }

    /// Writes a text to the disk of an instance, behind the data of its image.
    pub(crate) async fn write(&self, name: &str, text: &str) -> Result<()> {
        let command = format!("printf {text} | dd of={DISK} bs=1M seek=900 conv=fsync 2>/dev/null");
        self.run(name, &command).await.map(drop)
    }

    /// The disk of an instance holds the text that was written to it.
    pub(crate) async fn holds(&self, name: &str, text: &str) -> Result<()> {
        let length = text.len();
        let command = format!("dd if={DISK} bs=1M skip=900 count=1 2>/dev/null | head -c {length}");
        let found = self.run(name, &command).await?;
        ensure!(found == text, "the disk of {name} holds {found:?}, not {text:?}");
        Ok(())
    }

    /// Starts an instance that a power cut has stopped, and checks its disk.
    pub(crate) async fn starts_after_a_power_cut(&self, name: &str, text: &str) -> Result<()> {
        let script = format!(
            "set -e; [ \"$(openstack server show {name} -f value -c status)\" = ACTIVE ] || \
             openstack server start {name}"
        );
        eventually("the instance to answer", RECOVERY, async || {
            if let Err(silent) = self.uptime(name).await {
                self.client.shell(&script).await?;
                return Err(silent);
            }
            Ok(())
        })
        .await?;
        self.holds(name, text).await
    }

    pub(crate) async fn answers(&self, name: &str, limit: Duration) -> Result<()> {
        eventually("the instance to answer", limit, async || self.uptime(name).await).await.map(drop)
    }

    /// Seconds since the boot of an instance.
    async fn uptime(&self, name: &str) -> Result<f64> {
        let text = self.run(name, "cat /proc/uptime").await?;
        text.split_whitespace().next().and_then(|seconds| seconds.parse().ok()).context("there is no uptime")
    }

    /// Runs a command on an instance, by ssh from outside of the cluster.
    async fn run(&self, name: &str, command: &str) -> Result<String> {
        let address = self.address(name)?;
        let mut ssh = Command::new("ssh");
        ssh.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "StrictHostKeyChecking=no"]);
        ssh.args(["-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-i"]);
        ssh.arg(self.key.path().join("key")).arg(format!("root@{address}")).arg(command);
        let output = ssh.kill_on_drop(true).output().await?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{command} on {name} at {address}: {errors}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The console shows that the instance has its metadata and has booted.
    pub(crate) async fn has_booted(&self, name: &str) -> Result<()> {
        eventually("the instance to have booted", BOOT, async || {
            let log = self.client.shell(&format!("openstack console log show {name}")).await?;
            for mark in ["METADATA-OK", "GUEST-READY"] {
                ensure!(log.contains(mark), "the console does not show {mark}");
            }
            Ok(())
        })
        .await
    }

    /// The instance has booted, answers ping, and has a noVNC console.
    pub(crate) async fn is_usable(&self, name: &str) -> Result<()> {
        self.has_booted(name).await?;
        let address = self.address(name)?;
        let mut ping = Command::new("ping");
        ping.args(["-c", "3", "-W", "5", &address]);
        ensure!(ping.output().await?.status.success(), "{name} does not answer ping at {address}");
        let console = self.client.openstack(&format!("console url show {name}")).await?;
        let url = console["url"].as_str().context("the console has no URL")?;
        let page = self.client.fetch(url).await?;
        ensure!(page.contains("noVNC"), "{url} returned {page}");
        Ok(())
    }

    /// Deletes pods group by group. The instance keeps running, and the cloud becomes Ready again.
    pub(crate) async fn outlives(&self, name: &str, groups: &[&[&str]]) -> Result<()> {
        let mut before = self.uptime(name).await?;
        for group in groups {
            try_join_all(group.iter().map(|selector| self.replace_pods(selector))).await?;
            let now =
                eventually("the instance to answer", RECOVERY, async || self.uptime(name).await).await?;
            ensure!(now >= before, "the instance restarted when these pods were deleted: {group:?}");
            before = now;
            notice(&format!("the instance outlived the pods with {}", group.join(" and ")));
        }
        self.cloud.ready(RECOVERY).await
    }

    /// Deletes all pods with a label and waits until others are ready.
    async fn replace_pods(&self, selector: &str) -> Result<()> {
        let is_operator = selector.ends_with(operator::NAME);
        let namespace = if is_operator { operator::NAME } else { &self.sandbox.namespace };
        let pods = Api::<Pod>::namespaced(self.sandbox.client.clone(), namespace);
        let labels = ListParams::default().labels(selector);
        let victims = pods.list(&labels).await?.items;
        ensure!(!victims.is_empty(), "no pod has the label {selector}");
        for victim in &victims {
            let pod = victim.metadata.name.as_deref().context("a pod has no name")?;
            pods.delete(pod, &DeleteParams::default().grace_period(5)).await?;
        }
        for victim in victims {
            let pod = victim.metadata.name.unwrap_or_default();
            await_deletion(&pods, &pod, victim.metadata.uid.as_deref(), RECOVERY).await?;
        }
        eventually("the pods to return", RECOVERY, async || {
            let returned = pods.list(&labels).await?.items;
            ensure!(!returned.is_empty() && returned.iter().all(is_serving), "{selector} is not ready");
            Ok(())
        })
        .await
    }

    pub(crate) async fn delete(&self, name: &str) -> Result<()> {
        let address = self.address(name)?;
        let script =
            format!("openstack server delete --wait {name} && openstack floating ip delete {address}");
        self.client.shell(&script).await?;
        self.addresses().remove(name);
        Ok(())
    }

    /// Deleted instances leave no ports, allocations or domains.
    pub(crate) async fn left_nothing(&self) -> Result<()> {
        eventually("nothing of the instances to be left", RECOVERY, async || {
            let ports = self.client.openstack("port list --device-owner compute:nova").await?;
            ensure!(ports == Value::Array(Vec::new()), "ports are left: {ports}");
            for provider in
                self.client.openstack("resource provider list").await?.as_array().into_iter().flatten()
            {
                let uuid = provider["uuid"].as_str().context("a resource provider has no UUID")?;
                let usage = self.client.openstack(&format!("resource provider usage show {uuid}")).await?;
                let used = usage.as_array().into_iter().flatten().any(|class| class["usage"] != 0);
                ensure!(!used, "allocations are left: {usage}");
            }
            self.prints_nothing("libvirt", "libvirtd", "virsh -c qemu:///system list --all --name").await
        })
        .await
    }

    /// Deleted instances leave no devices on OVN's switches. Neutron's own agents use the same names for theirs.
    pub(crate) async fn left_no_device(&self) -> Result<()> {
        eventually("no device of the instances to be left", RECOVERY, async || {
            let command = "ovs-vsctl list-ports br-int | grep ^tap || :";
            self.prints_nothing("ovs-vswitchd", "ovs-vswitchd", command).await
        })
        .await
    }

    /// A command prints nothing in any pod of a component.
    async fn prints_nothing(&self, component: &str, container: &str, command: &str) -> Result<()> {
        let selector = format!("app.kubernetes.io/component={component}");
        for pod in self.sandbox.api::<Pod>().list(&ListParams::default().labels(&selector)).await?.items {
            let name = pod.metadata.name.context("a pod has no name")?;
            let left = self.sandbox.shell(&name, container, command).await?;
            ensure!(left.trim().is_empty(), "{name} has left: {left}");
        }
        Ok(())
    }
}
