//! Servers: from an image to a shell by a floating address, what of them outlives the pods that run them, and their end.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use openstack_operator_smoke::wait::{await_deletion, eventually, is_pod_ready};
use openstack_operator_smoke::{Sandbox, notice};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::client::Client;
use crate::cloud::{Cloud, LASTING_PODS};

/// How long a server may take from the call to a shell, where its processor is emulated on a loaded machine.
const SERVER_START: Duration = Duration::from_mins(6);
/// How long it may take until a server that ended is known to have: far less than until somebody looks.
const OFF: Duration = Duration::from_mins(2);
/// A server's disk, as the server sees it.
const DISK: &str = "/dev/vda";
/// How long the cloud may take to be whole again after it lost a pod.
const RECOVERY: Duration = Duration::from_mins(6);

/// Pods of Neutron's own agents that a server must outlive, by label.
pub(crate) const AGENTS: [&str; 4] = [
    "app.kubernetes.io/component=ovs-db",
    "app.kubernetes.io/component=ovs-vswitchd",
    "app.kubernetes.io/component=openvswitch-agent",
    "app.kubernetes.io/component=network-agents",
];

/// Pods of a cloud with OVN that a server must outlive, by label.
pub(crate) const PODS: [&str; 12] = [
    "app.kubernetes.io/component=northbound",
    "app.kubernetes.io/component=southbound",
    "app.kubernetes.io/component=northd",
    "app.kubernetes.io/component=ovn-controller",
    "app.kubernetes.io/component=ovs-db",
    "app.kubernetes.io/component=ovs-vswitchd",
    "app.kubernetes.io/component=metadata-agent",
    "app.kubernetes.io/component=libvirt",
    "app.kubernetes.io/component=nova-compute",
    "openstack.k8s.io/kind=RabbitMQ",
    "openstack.k8s.io/kind=MariaDB",
    "app.kubernetes.io/name=openstack-operator",
];

/// Everything that servers of a test share.
pub(crate) struct Servers<'a> {
    sandbox: &'a Sandbox,
    cloud: &'a Cloud<'a>,
    pub(crate) client: &'a Client<'a>,
    key: TempDir,
}

/// A server with a floating address.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    address: String,
}

impl<'a> Servers<'a> {
    /// Makes an image, a flavor, networks, a router, rules and a key.
    pub(crate) async fn prepare(
        sandbox: &'a Sandbox,
        cloud: &'a Cloud<'a>,
        client: &'a Client<'a>,
        provider_range: &str,
    ) -> Result<Self> {
        let key = tempfile::tempdir()?;
        let file = key.path().join("key");
        let mut generate = Command::new("ssh-keygen");
        generate.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&file);
        ensure!(generate.status().await?.success(), "ssh-keygen failed");
        let public = std::fs::read_to_string(file.with_extension("pub"))?;
        let (network, _) = provider_range.split_once('/').context("the provider network is no range")?;
        let (prefix, _) = network.rsplit_once('.').context("the provider network is no range")?;
        let script = format!(
            "set -e; cd /tmp; cat >key.pub <<'END'\n{public}END\n\
             openstack image create --file /guest/guest.qcow2 --disk-format qcow2 --property os_shutdown_timeout=5 guest\n\
             openstack flavor create --ram 256 --disk 1 --vcpus 1 small\n\
             openstack network create --external --provider-network-type flat \
               --provider-physical-network physnet1 public\n\
             openstack subnet create --network public --subnet-range {provider_range} --gateway {prefix}.1 \
               --allocation-pool start={prefix}.100,end={prefix}.200 --no-dhcp public\n\
             openstack network create private\n\
             openstack subnet create --network private --subnet-range 10.0.0.0/24 private\n\
             openstack router create router\n\
             openstack router set --external-gateway public router\n\
             openstack router add subnet router private\n\
             group=$(openstack security group create servers -f value -c id)\n\
             openstack security group rule create --proto icmp $group\n\
             openstack security group rule create --proto tcp --dst-port 22 $group\n\
             openstack keypair create --public-key key.pub key\n"
        );
        client.shell(&script).await.context("failed to prepare for servers")?;
        Ok(Self { sandbox, cloud, client, key })
    }

    /// Makes a server on a node, and waits until it can be used by its floating address. Services that have just lost
    /// their database or bus may fail a server once; they must take another one in time.
    pub(crate) async fn create(&self, name: &'static str, node: &str) -> Result<Server> {
        self.create_from("guest", name, node).await
    }

    /// The same from any image.
    pub(crate) async fn create_from(&self, image: &str, name: &'static str, node: &str) -> Result<Server> {
        let script = format!(
            "set -e; if openstack server show {name} >/dev/null 2>&1; then openstack server delete --wait {name}; fi\n\
             timeout 180 openstack --os-compute-api-version 2.74 server create --image {image} --flavor small \
               --network private --key-name key --security-group servers --host {node} --wait {name} >&2"
        );
        let create =
            async || self.client.shell(&script).await.with_context(|| format!("failed to make {name}"));
        eventually("a server that is active", RECOVERY, create).await?;
        let script = format!(
            "set -e; address=$(openstack floating ip create public -f value -c floating_ip_address)\n\
             openstack server add floating ip {name} $address; echo $address"
        );
        let answer = self.client.shell(&script).await.with_context(|| format!("no address for {name}"))?;
        let address = answer.trim().lines().last().unwrap_or_default().to_owned();
        let server = Server { name, address };
        self.answers(&server, SERVER_START).await?;
        Ok(server)
    }

    /// A server reaches another by the network that they share.
    pub(crate) async fn reaches(&self, from: &Server, to: &Server) -> Result<()> {
        let name = to.name;
        let shown = self.client.openstack(&format!("server show {name} -c addresses")).await?;
        let address = shown["addresses"]["private"][0].as_str().context("the server has no address")?;
        eventually("the other server to answer", RECOVERY, async || {
            self.run(from, &format!("ping -c 3 -W 5 {address}")).await
        })
        .await
        .map(drop)
    }

    /// Moving a server while it runs needs a way between the nodes' hypervisors, which there is not yet: the attempt must fail,
    /// be known to have failed, and leave the server as it is.
    pub(crate) async fn outlives_a_move(&self, server: &Server, node: &str) -> Result<()> {
        let name = server.name;
        let script = format!(
            "openstack --os-compute-api-version 2.30 server migrate --live-migration --host {node} {name} >&2"
        );
        self.client.shell(&script).await.context("the attempt was not taken")?;
        let question = format!(
            "openstack server migration list --server {name} -f value -c Status; \
             openstack server show {name} -f value -c status"
        );
        eventually("the attempt to be over", RECOVERY, async || {
            let answer = self.client.shell(&question).await?;
            let over = ["error\nACTIVE\n", "failed\nACTIVE\n"];
            ensure!(over.contains(&answer.as_str()), "{answer}");
            Ok(())
        })
        .await?;
        self.answers(server, RECOVERY).await
    }

    /// A server that ends by itself is soon known to have ended, and can be started again.
    pub(crate) async fn ends_by_itself(&self, server: &Server) -> Result<()> {
        let name = server.name;
        // The shell ends with the server, so its answer is not looked at.
        drop(self.run(server, "poweroff").await);
        eventually("the server to be off", OFF, async || {
            let status =
                self.client.shell(&format!("openstack server show {name} -f value -c status")).await?;
            ensure!(status.trim() == "SHUTOFF", "{name} is {status}");
            Ok(())
        })
        .await?;
        self.client.shell(&format!("openstack server start {name}")).await?;
        self.answers(server, SERVER_START).await
    }

    /// Writes to a server's disk, past what its image holds.
    pub(crate) async fn keeps(&self, server: &Server, word: &str) -> Result<()> {
        let command = format!("printf {word} | dd of={DISK} bs=1M seek=900 conv=fsync 2>/dev/null");
        self.run(server, &command).await.map(drop)
    }

    /// Starts a server that its node's loss of power has stopped, and finds what was written to its disk.
    pub(crate) async fn starts_again(&self, server: &Server, word: &str) -> Result<()> {
        let name = server.name;
        let script = format!(
            "set -e; [ \"$(openstack server show {name} -f value -c status)\" = ACTIVE ] || \
             openstack server start {name}"
        );
        eventually("a shell on the server", RECOVERY, async || {
            if let Err(silent) = self.uptime(server).await {
                self.client.shell(&script).await?;
                return Err(silent);
            }
            Ok(())
        })
        .await?;
        self.holds(server, word).await
    }

    /// Finds on a server's disk what was written to it.
    pub(crate) async fn holds(&self, server: &Server, word: &str) -> Result<()> {
        let name = server.name;
        let length = word.len();
        let command = format!("dd if={DISK} bs=1M skip=900 count=1 2>/dev/null | head -c {length}");
        let found = self.run(server, &command).await?;
        ensure!(found == word, "the disk of {name} holds {found:?} and not {word:?}");
        Ok(())
    }

    /// Waits until every pod of the cloud is ready, wherever it runs.
    pub(crate) async fn pods_are_ready(&self) -> Result<()> {
        let pods = self.sandbox.api::<Pod>();
        eventually("every pod to be ready", RECOVERY, async || {
            let pods = pods.list(&ListParams::default().labels(LASTING_PODS)).await?.items;
            let waiting: Vec<String> =
                pods.iter().filter(|pod| !is_ready(pod)).map(ResourceExt::name_any).collect();
            ensure!(waiting.is_empty(), "not ready: {}", waiting.join(", "));
            Ok(())
        })
        .await
    }

    pub(crate) async fn answers(&self, server: &Server, limit: Duration) -> Result<()> {
        eventually("the server to answer", limit, async || self.uptime(server).await).await.map(drop)
    }

    /// Asks a server for how long it has been up.
    async fn uptime(&self, server: &Server) -> Result<f64> {
        let text = self.run(server, "cat /proc/uptime").await?;
        text.split_whitespace().next().and_then(|word| word.parse().ok()).context("no uptime")
    }

    /// Runs a command on a server, by ssh from outside of the cluster.
    async fn run(&self, server: &Server, command: &str) -> Result<String> {
        let mut ssh = Command::new("ssh");
        ssh.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "StrictHostKeyChecking=no"]);
        ssh.args(["-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-i"]);
        ssh.arg(self.key.path().join("key")).arg(format!("root@{}", server.address)).arg(command);
        let output = ssh.kill_on_drop(true).output().await?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{command} on {}: {errors}", server.address);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The console says that the server got its metadata and is ready.
    pub(crate) async fn has_booted(&self, server: &Server) -> Result<()> {
        let name = server.name;
        eventually("the console to say that the server is ready", SERVER_START, async || {
            let log = self.client.shell(&format!("openstack console log show {name}")).await?;
            for word in ["METADATA-OK", "GUEST-READY"] {
                ensure!(log.contains(word), "the console does not say {word}");
            }
            Ok(())
        })
        .await
    }

    /// It has booted; its screen has an address; and ping answers.
    pub(crate) async fn is_whole(&self, server: &Server) -> Result<()> {
        self.has_booted(server).await?;
        let name = server.name;
        let mut ping = Command::new("ping");
        ping.args(["-c", "3", "-W", "5", &server.address]);
        ensure!(ping.output().await?.status.success(), "{} does not answer ping", server.address);
        let screen = self.client.openstack(&format!("console url show {name}")).await?;
        let url = screen["url"].as_str().context("the screen has no address")?;
        let page = self.client.fetch(url).await?;
        ensure!(page.contains("noVNC"), "{url} answered {page}");
        Ok(())
    }

    /// Takes away the pods of one kind after the other. The server runs on, and the cloud becomes whole again.
    pub(crate) async fn outlives_pods(&self, server: &Server, pods: &[&str]) -> Result<()> {
        let mut before = self.uptime(server).await?;
        for selector in pods {
            let namespace = if selector.ends_with("openstack-operator") {
                "openstack-operator"
            } else {
                &self.sandbox.namespace
            };
            let pods = Api::<Pod>::namespaced(self.sandbox.client.clone(), namespace);
            let victims = pods.list(&ListParams::default().labels(selector)).await?.items;
            ensure!(!victims.is_empty(), "there is no pod with {selector}");
            for victim in victims {
                let name = victim.metadata.name.context("a pod without a name")?;
                pods.delete(&name, &DeleteParams::default().grace_period(5)).await?;
                await_deletion(&pods, &name, victim.metadata.uid.as_deref(), RECOVERY).await?;
            }
            eventually("the pods to be back", RECOVERY, async || {
                let back = pods.list(&ListParams::default().labels(selector)).await?.items;
                ensure!(!back.is_empty() && back.iter().all(is_ready), "{selector} is not ready");
                Ok(())
            })
            .await?;
            let now =
                eventually("the server to answer", RECOVERY, async || self.uptime(server).await).await?;
            if now < before {
                bail!("the server was started anew when pods with {selector} went");
            }
            before = now;
            notice(&format!("the server outlived pods with {selector}"));
        }
        self.cloud.ready(RECOVERY).await
    }

    pub(crate) async fn delete(&self, server: Server) -> Result<()> {
        let Server { name, address } = server;
        let script =
            format!("openstack server delete --wait {name} && openstack floating ip delete {address}");
        self.client.shell(&script).await.map(drop)
    }

    /// Servers that were deleted leave nothing behind.
    pub(crate) async fn left_nothing(&self) -> Result<()> {
        eventually("nothing of the server to be left", RECOVERY, async || {
            let ports = self.client.openstack("port list --device-owner compute:nova").await?;
            ensure!(ports == Value::Array(Vec::new()), "ports are left: {ports}");
            for provider in
                self.client.openstack("resource provider list").await?.as_array().into_iter().flatten()
            {
                let uuid = provider["uuid"].as_str().context("a provider without a number")?;
                let usage = self.client.openstack(&format!("resource provider usage show {uuid}")).await?;
                let used = usage.as_array().into_iter().flatten().any(|row| row["usage"] != 0);
                ensure!(!used, "allocations are left: {usage}");
            }
            self.on_every_node("libvirt", "libvirtd", "virsh -c qemu:///system list --all --name").await
        })
        .await
    }

    /// Nor is a device left on a switch of OVN. Neutron's own agents have devices of the same name for themselves.
    pub(crate) async fn left_no_device(&self) -> Result<()> {
        eventually("no device of the server to be left", RECOVERY, async || {
            let command = "ovs-vsctl list-ports br-int | grep ^tap || :";
            self.on_every_node("ovs-vswitchd", "ovs-vswitchd", command).await
        })
        .await
    }

    /// A command that must say nothing on any node.
    async fn on_every_node(&self, component: &str, container: &str, command: &str) -> Result<()> {
        let selector = format!("app.kubernetes.io/component={component}");
        for pod in self.sandbox.api::<Pod>().list(&ListParams::default().labels(&selector)).await?.items {
            let name = pod.metadata.name.context("a pod without a name")?;
            let left = self.sandbox.shell(&name, container, command).await?;
            ensure!(left.trim().is_empty(), "{name} has left: {left}");
        }
        Ok(())
    }
}

fn is_ready(pod: &Pod) -> bool {
    is_pod_ready(pod) && pod.metadata.deletion_timestamp.is_none()
}
