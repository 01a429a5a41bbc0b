//! What OVN runs on nodes: the switch, and what sets it up.

use openstack_operator_model::common::Scheduling;
use openstack_operator_model::image::ImageNames;
use openstack_operator_model::need::Labels;
use openstack_operator_model::plan::{Container, Privilege, Workload};
use openstack_operator_model::service::Context;

use super::{ChassisLinks, OVNNetwork, OVNNetworkSpec, OVNNetworkTemplate, connected_probes};
use crate::shared;
use crate::switch::{self, Pods};

pub(super) const SCRIPT: &str = "controller.sh";
const SCRIPT_PATH: &str = "/etc/openstack/controller.sh";

pub(super) fn workloads(context: &Context<'_, OVNNetwork>) -> Vec<Workload> {
    let OVNNetworkSpec { origin, template } = &context.object.spec;
    let image = |names| shared::image(context, names, &template.common, origin);
    let scheduling = scheduling(template);
    let pods = Pods { image: &image, scheduling: &scheduling, resources: &template.ovs.resources };
    let mut workloads = switch::workloads(&pods);
    workloads.push(controller(template, &pods));
    shared::with_leaving(workloads, &context.inputs.leaving_nodes())
}

/// Where the switch of a node with these labels leads, if not where the others do.
pub(super) fn special_links(template: &OVNNetworkTemplate, labels: &Labels) -> Option<ChassisLinks> {
    let special = template.overrides.iter().find(|special| special.change.fits(labels))?;
    Some(ChassisLinks {
        links: special.change.apply(&template.links.links),
        gateway: special.gateway.clone().unwrap_or_else(|| template.links.gateway.clone()),
    })
}

/// Where the pods of nodes run.
pub(super) fn scheduling(template: &OVNNetworkTemplate) -> Scheduling {
    shared::on_hypervisors(&template.controller.scheduling)
}

fn controller(template: &OVNNetworkTemplate, pods: &Pods<'_>) -> Workload {
    let names = ImageNames { kolla: "ovn-controller", debian: "ovn" };
    let controller = Container {
        name: "ovn-controller",
        image: (pods.image)(names),
        command: shared::script(SCRIPT_PATH),
        mounts: vec![
            shared::file(SCRIPT, SCRIPT_PATH),
            switch::run_directory(),
            shared::scratch("run-ovn", "/run/ovn"),
            shared::scratch("tmp", "/tmp"),
        ],
        probes: connected_probes(
            "[ \"$(ovn-appctl -t /run/ovn/ovn-controller.ctl connection-status)\" = connected ]",
        ),
        resources: shared::resources(&template.controller.resources, ("20m", "64Mi"), "512Mi"),
        privilege: Privilege::Root(&[]),
        ..Container::default()
    };
    switch::on_nodes("ovn-controller", pods.scheduling, controller)
}
