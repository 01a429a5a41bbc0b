//! What OVN runs on nodes: the switch, its database, and what sets it up.

use openstack_operator_model::common::{Resources, Scheduling};
use openstack_operator_model::image::ImageNames;
use openstack_operator_model::need::{Labels, selects};
use openstack_operator_model::plan::{
    Check, Container, Host, HostPath, Mount, Pod, Privilege, Probes, Variable, Workload,
};
use openstack_operator_model::service::Context;

use super::{
    Links, NodeOverride, OVNNetwork, OVNNetworkSpec, OVNNetworkTemplate, USER, connected_probes, container,
};
use crate::shared;

pub(super) fn workloads(context: &Context<'_, OVNNetwork>) -> Vec<Workload> {
    let workloads = vec![switch_database(context), switch(context), controller(context)];
    shared::with_leaving(workloads, &context.inputs.leaving_nodes())
}

/// Where the switch of a node with these labels leads, if not where the others do.
pub(super) fn special_links(template: &OVNNetworkTemplate, labels: &Labels) -> Option<Links> {
    let fits = |change: &&NodeOverride| selects(&change.node_selector, labels);
    let change = template.overrides.iter().find(fits)?.clone();
    let plain = template.links.clone();
    Some(Links {
        bridge_mappings: change.bridge_mappings.unwrap_or(plain.bridge_mappings),
        encapsulation: change.encapsulation.unwrap_or(plain.encapsulation),
        gateway: change.gateway.unwrap_or(plain.gateway),
    })
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
