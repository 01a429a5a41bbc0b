//! Open vSwitch with the userspace datapath forwards packets in a privileged pod, and leaves no devices.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, HostPathVolumeSource, PodSpec, SecurityContext, Volume, VolumeMount,
};
use openstack_operator_smoke::pod::{container, unconfined};
use openstack_operator_smoke::wait::eventually;
use openstack_operator_smoke::{PodSecurity, Sandbox, with_namespace};

const SWITCH_START: Duration = Duration::from_mins(1);

const RUN_DATABASE: &str = "
cd /run/openvswitch
[ -e conf.db ] || ovsdb-tool create conf.db /usr/share/openvswitch/vswitch.ovsschema
exec ovsdb-server conf.db --remote=punix:/run/openvswitch/db.sock \
  --unixctl=/run/openvswitch/ovsdb-server.ctl --pidfile=/run/openvswitch/ovsdb-server.pid
";

/// The default name of a control socket contains the process id, which is 1 in every container.
const RUN_SWITCH: &str = "
until ovs-vsctl --no-wait --timeout=5 init; do sleep 1; done
exec ovs-vswitchd unix:/run/openvswitch/db.sock \
  --unixctl=/run/openvswitch/ovs-vswitchd.ctl --pidfile=/run/openvswitch/ovs-vswitchd.pid
";

const MAKE_BRIDGE: &str = "
ovs-vsctl --timeout=30 \
  add-br br-smoke -- set bridge br-smoke datapath_type=netdev -- \
  add-port br-smoke peer0 -- set interface peer0 type=internal
";

/// The peer's port is in another network namespace: within one, the kernel would bypass the bridge.
const CONNECT: &str = "
ip address add 198.51.100.1/24 dev br-smoke
ip link set br-smoke up
ip netns add peer
ip link set peer0 netns peer
ip -n peer address add 198.51.100.2/24 dev peer0
ip -n peer link set peer0 up
";

#[tokio::test]
async fn the_userspace_datapath_forwards_packets() -> Result<()> {
    with_namespace("switch", PodSecurity::Privileged, async |sandbox| {
        sandbox.start("switch", switch(sandbox.image("ovn")?)).await?;
        eventually("the switch to answer", SWITCH_START, async || {
            let control = "ovs-appctl --timeout=5 --target=/run/openvswitch/ovs-vswitchd.ctl version";
            shell(sandbox, control).await
        })
        .await?;
        shell(sandbox, MAKE_BRIDGE).await?;
        let datapath = shell(sandbox, "ovs-vsctl --timeout=30 get bridge br-smoke datapath_type").await?;
        ensure!(datapath.trim() == "netdev", "the bridge's datapath is {datapath:?}");
        let table = shell(sandbox, "ovs-vsctl --timeout=30 show").await?;
        ensure!(table.contains("peer0") && !table.contains("error:"), "{table}");
        let ports = shell(sandbox, "ovs-ofctl --timeout=30 show br-smoke").await?;
        ensure!(ports.contains("(peer0)") && ports.contains("LOCAL(br-smoke)"), "{ports}");

        shell(sandbox, CONNECT).await?;
        // The kernel learns the peer's link address only if ARP passes the datapath both ways.
        eventually("a packet and its answer through the bridge", SWITCH_START, async || {
            let ask = "echo > /dev/udp/198.51.100.2/9; ip neighbour show dev br-smoke";
            let neighbours = shell(sandbox, ask).await?;
            ensure!(neighbours.contains("198.51.100.2 lladdr"), "the neighbours are {neighbours:?}");
            Ok(())
        })
        .await?;

        shell(sandbox, "ovs-vsctl --timeout=30 del-br br-smoke; ip netns delete peer").await?;
        let links = shell(sandbox, "ip -o link").await?;
        ensure!(!links.contains("br-smoke") && !links.contains("peer0"), "devices are left:\n{links}");
        Ok(())
    })
    .await
}

async fn shell(sandbox: &Sandbox, script: &str) -> Result<String> {
    sandbox.shell("switch", "switch", script).await
}

/// The bridge is in the pod's network, so it cannot disconnect the node.
fn switch(image: String) -> PodSpec {
    let device =
        HostPathVolumeSource { path: "/dev/net/tun".to_owned(), type_: Some("CharDevice".to_owned()) };
    PodSpec {
        volumes: Some(vec![
            Volume {
                name: "run".to_owned(),
                empty_dir: Some(EmptyDirVolumeSource::default()),
                ..Volume::default()
            },
            Volume { name: "tun".to_owned(), host_path: Some(device), ..Volume::default() },
        ]),
        ..unconfined(vec![
            daemon("database", image.clone(), RUN_DATABASE),
            daemon("switch", image, RUN_SWITCH),
        ])
    }
}

fn daemon(name: &str, image: String, script: &str) -> Container {
    let mount = |name: &str, path: &str| VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        ..VolumeMount::default()
    };
    Container {
        security_context: Some(SecurityContext {
            privileged: Some(true),
            run_as_user: Some(0),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(vec![mount("run", "/run/openvswitch"), mount("tun", "/dev/net/tun")]),
        ..container(name, image, &["sh", "-euc", script])
    }
}
