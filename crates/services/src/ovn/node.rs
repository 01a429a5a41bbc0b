//! Pods on nodes: Open vSwitch and ovn-controller.

use std::collections::BTreeMap;
use std::fmt::Write;

use openstack_operator_model::common::Scheduling;
use openstack_operator_model::image::ImageNames;
use openstack_operator_model::need::Labels;
use openstack_operator_model::plan::{Child, Container, FileName, Privilege, Workload};
use openstack_operator_model::service::{Context, Invalid};

use super::{
    AMOUNTS, ChassisLinks, OVNNetwork, OVNNetworkSpec, OVNNetworkTemplate, SOUTHBOUND, client_hosts,
    connected_probes,
};
use crate::chassis::{self, OVNChassisSpec};
use crate::shared;
use crate::switch::{self, Pods};

pub(super) const SCRIPT: &str = "controller.sh";
const SCRIPT_PATH: &str = "/etc/openstack/controller.sh";

pub(super) fn workloads(context: &Context<'_, OVNNetwork>) -> Vec<Workload> {
    let OVNNetworkSpec { origin, template } = &context.object.spec;
    let scheduling = scheduling(template);
    let image = |names| {
        shared::component_image(context, names, &template.ovs.container.image, &template.common, origin)
    };
    let resources = &template.ovs.container.resources;
    let mut workloads = switch::workloads(&Pods {
        owner: shared::owner(context, super::KIND),
        image: &image,
        scheduling: &scheduling,
        resources,
    });
    workloads.push(controller(context, &scheduling));
    shared::with_leaving(workloads, &context.inputs.leaving_nodes())
}

/// Adds the settings of all nodes and of each node with overrides. Returns a chassis for each node that has none of
/// the user.
pub(super) fn add_settings(
    context: &Context<'_, OVNNetwork>,
    files: &mut BTreeMap<FileName, String>,
) -> Result<Vec<Child>, Invalid> {
    let template = &context.object.spec.template;
    files.insert(switch::ALL_NODES.to_owned(), settings(context, &template.links, None));
    files.insert(shared::CLAIMED_NODES.to_owned(), shared::claimed_nodes(context));
    let written = user_chassis(context)?;
    let mut children = Vec::new();
    for (name, labels) in context.inputs.nodes.iter().chain(&context.inputs.leaving) {
        if let Some(OVNChassisSpec { links, system_id, .. }) = written.get(name) {
            files.insert(switch::node_file(name), settings(context, links, system_id.as_deref()));
            continue;
        }
        let special = special_links(template, labels);
        if let Some(links) = &special {
            files.insert(switch::node_file(name), settings(context, links, None));
        }
        let links = special.unwrap_or_else(|| template.links.clone());
        children.push(super::chassis(context, name, links)?);
    }
    Ok(children)
}

/// Chassis that the user created for nodes of this network, by node. They override all other settings.
fn user_chassis(context: &Context<'_, OVNNetwork>) -> Result<BTreeMap<String, OVNChassisSpec>, Invalid> {
    let mut written = BTreeMap::new();
    for ((kind, name), spec) in &context.inputs.peers {
        if *kind != chassis::KIND.kind {
            continue;
        }
        let spec: OVNChassisSpec = serde_json::from_value(spec.clone()).map_err(|error| {
            Invalid::new(format!("OVNChassis {name}"), format!("cannot be read: {error}"))
        })?;
        if spec.ovn.cluster_ref.name == context.name {
            written.insert(spec.hostname.clone(), spec);
        }
    }
    Ok(written)
}

/// Settings of a node in the format of `switch.sh`.
fn settings(context: &Context<'_, OVNNetwork>, links: &ChassisLinks, system_id: Option<&str>) -> String {
    let template = &context.object.spec.template;
    let mut text = switch::settings(template.ovs.datapath, &links.links);
    // Writing to a String cannot fail.
    if let Some(system_id) = system_id {
        let _ = writeln!(text, "system-id {system_id}");
    }
    let _ = writeln!(text, "gateway {}", if links.gateway.enabled { "yes" } else { "no" });
    for host in client_hosts(context, &SOUTHBOUND, &template.southbound) {
        let _ = writeln!(text, "southbound {host}:{}", SOUTHBOUND.client.number);
    }
    text
}

/// Links of a node with these labels, if an override matches.
fn special_links(template: &OVNNetworkTemplate, labels: &Labels) -> Option<ChassisLinks> {
    let special = template.overrides.iter().find(|special| special.change.matches(labels))?;
    Some(ChassisLinks {
        links: special.change.apply(&template.links.links),
        gateway: special.gateway.clone().unwrap_or_else(|| template.links.gateway.clone()),
    })
}

/// Scheduling of the pods on nodes.
pub(super) fn scheduling(template: &OVNNetworkTemplate) -> Scheduling {
    shared::on_hypervisors(&template.controller.scheduling)
}

fn controller(context: &Context<'_, OVNNetwork>, scheduling: &Scheduling) -> Workload {
    let OVNNetworkSpec { origin, template } = &context.object.spec;
    let names = ImageNames { kolla: "ovn-controller", debian: "ovn" };
    let settings = &template.controller.container;
    let controller = Container {
        name: "ovn-controller",
        image: shared::component_image(context, names, &settings.image, &template.common, origin),
        command: shared::script(SCRIPT_PATH),
        environment: vec![shared::owner(context, super::KIND)],
        mounts: vec![
            shared::file(SCRIPT, SCRIPT_PATH),
            switch::run_directory(),
            shared::scratch("run-ovn", "/run/ovn"),
            shared::scratch("tmp", "/tmp"),
        ],
        probes: connected_probes(
            "[ \"$(ovn-appctl -t /run/ovn/ovn-controller.ctl connection-status)\" = connected ]",
        ),
        resources: shared::component_resources(settings, &template.common, AMOUNTS),
        privilege: Privilege::Root(&[]),
        ..Container::default()
    };
    switch::on_nodes("ovn-controller", scheduling, controller)
}
