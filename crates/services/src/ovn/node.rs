//! What OVN runs on nodes: the switch, its database, and what sets it up.

use openstack_operator_model::common::{NameReference, Resources, Scheduling};
use openstack_operator_model::image::ImageNames;
use openstack_operator_model::need::Labels;
use openstack_operator_model::plan::{
    Check, Container, Host, HostPath, Mount, Pod, Privilege, Probes, Variable, Workload,
};
use openstack_operator_model::service::Context;

use super::{
    BridgeMapping, Encapsulation, Gateway, NodeOverride, OVNNetwork, OVNNetworkSpec, OVNNetworkTemplate,
    USER, connected_probes, container,
};
use crate::chassis::{self, OVNChassisSpec};
use crate::shared;

pub(super) fn workloads(context: &Context<'_, OVNNetwork>) -> Vec<Workload> {
    let workloads = vec![switch_database(context), switch(context), controller(context)];
    shared::with_leaving(workloads, &context.inputs.leaving_nodes())
}

/// Settings of a node: those of the first override that its labels fit, and those of all where it says nothing.
pub(super) struct Node<'a> {
    pub(super) bridge_mappings: &'a [BridgeMapping],
    pub(super) encapsulation: &'a Encapsulation,
    pub(super) gateway: &'a Gateway,
}

impl<'a> Node<'a> {
    /// A node that is nothing special.
    pub(super) fn plain(template: &'a OVNNetworkTemplate) -> Self {
        Self {
            bridge_mappings: &template.bridge_mappings,
            encapsulation: &template.encapsulation,
            gateway: &template.gateway,
        }
    }

    /// A node with these labels; none where it is nothing special.
    pub(super) fn special(template: &'a OVNNetworkTemplate, labels: &Labels) -> Option<Self> {
        let fits = |change: &&NodeOverride| {
            change.node_selector.iter().all(|(label, value)| labels.get(label) == Some(value))
        };
        let change = template.overrides.iter().find(fits)?;
        let plain = Self::plain(template);
        Some(Self {
            bridge_mappings: change.bridge_mappings.as_deref().unwrap_or(plain.bridge_mappings),
            encapsulation: change.encapsulation.as_ref().unwrap_or(plain.encapsulation),
            gateway: change.gateway.as_ref().unwrap_or(plain.gateway),
        })
    }

    /// The object that stands for it.
    pub(super) fn chassis(&self, network: &str, hostname: &str) -> OVNChassisSpec {
        OVNChassisSpec {
            hostname: hostname.to_owned(),
            ovn: chassis::Network { cluster_ref: NameReference { name: network.to_owned() } },
            bridge_mappings: self.bridge_mappings.to_vec(),
            encapsulation: self.encapsulation.clone(),
            gateway: self.gateway.clone(),
        }
    }
}

/// Where the pods of nodes run.
pub(super) fn scheduling(template: &OVNNetworkTemplate) -> Scheduling {
    shared::on_hypervisors(&template.controller.scheduling)
}

fn run_directory() -> Mount {
    shared::host_directory("run-openvswitch", "/run/openvswitch")
}

fn node_workload(context: &Context<'_, OVNNetwork>, name: &'static str, container: Container) -> Workload {
    let scheduling = scheduling(&context.object.spec.template);
    let pod = Pod::new(USER, &scheduling, vec![container]);
    Workload::on_nodes(name, Pod { host: Host::Network, grace_seconds: 10, ..pod })
}

fn switch_resources(context: &Context<'_, OVNNetwork>) -> Resources {
    shared::resources(&context.object.spec.template.ovs.resources, ("50m", "128Mi"), "1Gi")
}

fn switch_database(context: &Context<'_, OVNNetwork>) -> Workload {
    let names = ImageNames { kolla: "openvswitch-db-server", debian: "ovn" };
    let mut server =
        container(context, "ovsdb-server", names, "switch-database.sh", switch_resources(context));
    server.mounts.extend([
        run_directory(),
        shared::host_directory("lib-openvswitch", "/var/lib/openvswitch"),
        shared::scratch("tmp", "/tmp"),
    ]);
    server.privilege = Privilege::Root(&[]);
    let answers = || Check::Command(shared::command(["ovs-vsctl", "--timeout=2", "--no-wait", "show"]));
    server.probes = Probes {
        startup: Some(shared::probe(answers(), 2, 5, 150)),
        readiness: Some(shared::probe(answers(), 15, 5, 3)),
        liveness: None,
    };
    node_workload(context, "ovs-db", server)
}

fn switch(context: &Context<'_, OVNNetwork>) -> Workload {
    let names = ImageNames { kolla: "openvswitch-vswitchd", debian: "ovn" };
    let mut switch = container(context, "ovs-vswitchd", names, "switch.sh", switch_resources(context));
    switch.environment =
        vec![Variable::field("NODE_NAME", "spec.nodeName"), Variable::field("HOST_IP", "status.hostIP")];
    switch.mounts.extend([
        Mount::LiveFiles { path: "/etc/openstack/live".to_owned() },
        run_directory(),
        shared::host("tun", "/dev/net/tun", HostPath::Device),
        shared::scratch("tmp", "/tmp"),
    ]);
    switch.privilege = Privilege::Root(&["NET_ADMIN", "NET_RAW"]);
    let control = "/run/openvswitch/ovs-vswitchd.ctl";
    let answers = || Check::Command(shared::command(["ovs-appctl", "-t", control, "version"]));
    switch.probes = Probes {
        startup: Some(shared::probe(answers(), 2, 5, 150)),
        readiness: Some(shared::probe(answers(), 15, 5, 3)),
        liveness: None,
    };
    node_workload(context, "ovs-vswitchd", switch)
}

fn controller(context: &Context<'_, OVNNetwork>) -> Workload {
    let OVNNetworkSpec { origin, template } = &context.object.spec;
    let names = ImageNames { kolla: "ovn-controller", debian: "ovn" };
    let controller = Container {
        name: "ovn-controller",
        image: shared::image(context, names, &template.common, origin),
        command: shared::command([
            "ovn-controller",
            "unix:/run/openvswitch/db.sock",
            "--unixctl=/run/ovn/ovn-controller.ctl",
            "--pidfile=/run/ovn/ovn-controller.pid",
            "-vconsole:info",
            "-vsyslog:off",
            "-vfile:off",
        ]),
        mounts: vec![run_directory(), shared::scratch("run-ovn", "/run/ovn")],
        probes: connected_probes(
            "[ \"$(ovn-appctl -t /run/ovn/ovn-controller.ctl connection-status)\" = connected ]",
        ),
        resources: shared::resources(&template.controller.resources, ("20m", "64Mi"), "512Mi"),
        privilege: Privilege::Root(&[]),
        ..Container::default()
    };
    node_workload(context, "ovn-controller", controller)
}
