//! Neutron: networks, subnets, routers and ports, with OVN or with its own agents.

use std::borrow::Cow;

use openstack_operator_model::common::Component;
use openstack_operator_model::image::ImageNames;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::need::Needs;
use openstack_operator_model::oslo::Document;
use openstack_operator_model::plan::{Controller, Plan, Port, TaskStage};
use openstack_operator_model::release::{Families, Release, Releases, Varying};
use openstack_operator_model::service::{Context, Invalid};
use openstack_operator_model::status::{NetworkServer, Stage};

use crate::cloud::{Cloud, Part, Presence, Wave};
use crate::program::{Amounts, Api, Program, Project, Settings, Worker};
use crate::shared::api::Uwsgi;
use crate::shared::{self, DatabaseClaim};
use crate::{nova, switch};

pub use spec::*;

mod agent;
mod by_agents;
mod by_ovn;
mod spec;

pub const KIND: Kind = Kind::own("Neutron", "neutrons");
const API: Port = Port::tcp("api", 9696);
const MODULE: Varying<&str> = Varying::same("neutron.wsgi.api:application");
/// Option with the types of networks that users can create.
const NETWORK_TYPES: Varying<&str> = Varying {
    usual: "project_network_types",
    exceptions: &[(Releases::until(Release::Epoxy), Families::All, "tenant_network_types")],
};
const PROJECT: Project = Project {
    name: "neutron",
    user: 42435,
    configuration: "neutron.conf",
    manage: "neutron-db-manage",
    image: ImageNames { kolla: "neutron-server", debian: "neutron" },
    scratch: &[("work", "/var/lib/neutron")],
    amounts: Amounts { cpu: "20m", memory: "256Mi", memory_limit: "1Gi" },
};
const API_AMOUNTS: Amounts = Amounts { cpu: "50m", memory: "512Mi", memory_limit: "2Gi" };
const ML2: &str = "ml2_conf.ini";
/// Services that Neutron calls, each with its own configuration section.
const PEERS: [&str; 2] = ["nova", "placement"];

/// Backend of virtual networks.
enum Backend<'a> {
    Ovn(Cow<'a, NetworkServer>),
    Agents(&'a OvsSettings),
}

pub struct Service;

impl Part for Service {
    type Object = Neutron;
    type Template = NeutronTemplate;
    const KIND: Kind = KIND;
    const NAME: &'static str = "neutron";
    const STAGE: Stage = Stage::CoreServices;
    const PRESENCE: Presence = Presence::ByDefault;
    const WAVE: Wave = Wave::Resources;
    /// Only with its own agents; otherwise it selects no nodes.
    const NODE_CLAIM: Option<&'static str> = Some(switch::CLAIM);

    fn template(object: &Neutron) -> &NeutronTemplate {
        &object.spec.template
    }

    fn cloud_rules() -> Vec<(String, String)> {
        let rule = |rule: &str, message: &str| (rule.to_owned(), message.to_owned());
        vec![
            rule(
                "!has(self.spec.neutron) || !has(self.spec.neutron.mechanism) || self.spec.neutron.mechanism == self.spec.networkBackend",
                "spec.neutron.mechanism must equal spec.networkBackend: remove it",
            ),
            rule(
                "self.spec.networkBackend == 'ovs' || !has(self.spec.neutron) || !has(self.spec.neutron.ovs)",
                "spec.neutron.ovs has no effect without networkBackend ovs: configure the switches of OVN in spec.ovn",
            ),
        ]
    }

    fn settle(template: &mut NeutronTemplate, cloud: &Cloud<'_>) {
        if cloud.spec.network_backend == Mechanism::Ovs {
            template.mechanism = Some(Mechanism::Ovs);
        }
    }

    fn needs(object: &Neutron) -> Needs {
        let template = &object.spec.template;
        match template.mechanism.unwrap_or_default() {
            Mechanism::Ovn => Needs { addresses: by_ovn::hosts(template), ..Needs::default() },
            Mechanism::Ovs => Needs::default().nodes(&by_agents::scheduling(&by_agents::settings(template))),
        }
    }

    fn plan(context: &Context<'_, Neutron>) -> Result<Plan, Invalid> {
        let NeutronSpec { origin, template } = &context.object.spec;
        let NeutronTemplate { common, replicas, exposure, .. } = template;
        let agents = by_agents::settings(template);
        let (backend, files) = match template.mechanism.unwrap_or_default() {
            Mechanism::Ovn => (Backend::Ovn(by_ovn::network(context)?), by_ovn::FILES.as_slice()),
            Mechanism::Ovs => (Backend::Agents(&agents), by_agents::FILES.as_slice()),
        };
        let compute = |nova| context.inputs.compute(nova::KIND, nova, "spec.nova.clusterRef.name");
        let compute = template.nova.name().map(compute).transpose()?;
        let settings = Settings { origin, common, replicas: *replicas, exposure };
        let mut neutron = Program::new(context, &PROJECT, settings, &API, &[&[ML2], files].concat())?;
        neutron.database(&DatabaseClaim::new(&template.database, "neutron", "database"))?;
        let bus = neutron.messaging(&template.messaging)?;
        neutron.mounts.push(shared::file(ML2, "/etc/neutron/plugins/ml2/ml2_conf.ini"));
        add_tasks(&mut neutron);
        let cache = shared::cache_servers(context, &template.cache)?;
        let registration = neutron.registration("network", "OpenStack Networking", "");
        let account = neutron.register(&template.keystone, &[registration], &PEERS, &cache)?;
        configure(&mut neutron, &backend);
        for peer in PEERS {
            // Neutron has its own option for the interface, which defaults to public.
            neutron.change(|document| account.client(document, peer).set(peer, "endpoint_type", "internal"));
        }
        add_api(&mut neutron);
        let port = template.database.port.unwrap_or(shared::DATABASE_PORT);
        add_worker(&mut neutron, "periodic-workers", &template.periodic_workers, port);
        match &backend {
            Backend::Ovn(network) => by_ovn::extend(&mut neutron, network, compute),
            Backend::Agents(settings) => {
                add_worker(&mut neutron, "rpc-server", &template.rpc_server, bus.port);
                by_agents::extend(&mut neutron, settings, compute, &bus);
                neutron.plan.agents = by_agents::node_agents(context, &neutron.internal_url, &account);
            }
        }
        neutron.finish()
    }
}

fn configure(neutron: &mut Program<'_, Neutron>, backend: &Backend<'_>) {
    let template = &neutron.context.object.spec.template;
    neutron.set("DEFAULT", "core_plugin", "ml2");
    neutron.set("DEFAULT", "state_path", "/var/lib/neutron");
    neutron.set("DEFAULT", "dns_domain", &template.dns_domain);
    neutron.change(|document| match backend {
        Backend::Ovn(_) => by_ovn::server_options(document),
        Backend::Agents(_) => by_agents::server_options(document),
    });
    let ml2 = ml2_configuration(neutron.context, backend);
    neutron.plan.files.insert(ML2.to_owned(), ml2.into());
}

fn ml2_configuration(context: &Context<'_, Neutron>, backend: &Backend<'_>) -> String {
    let template = &context.object.spec.template;
    let ml2 = &template.ml2;
    let networks = match backend {
        Backend::Ovn(network) => network.physical_networks.join(","),
        Backend::Agents(settings) => by_agents::physical_networks(settings).join(","),
    };
    let vlans =
        if ml2.network_vlan_ranges.is_empty() { networks.clone() } else { ml2.network_vlan_ranges.join(",") };
    let drivers = match backend {
        _ if !ml2.mechanism_drivers.is_empty() => ml2.mechanism_drivers.join(","),
        Backend::Ovn(_) => by_ovn::DRIVERS.to_owned(),
        Backend::Agents(_) => by_agents::DRIVERS.to_owned(),
    };
    let document = Document::new()
        .set("ml2", "type_drivers", names(&ml2.type_drivers))
        .set("ml2", NETWORK_TYPES.of(context.runtime), names(&ml2.tenant_network_types))
        .set("ml2", "extension_drivers", ml2.extension_drivers.join(","))
        .set("ml2", "mechanism_drivers", drivers)
        .set("ml2", "overlay_ip_version", 4)
        .set("ml2_type_geneve", "vni_ranges", "1:65536")
        .set("ml2_type_geneve", "max_header_size", 38)
        .set("ml2_type_flat", "flat_networks", networks)
        .set("ml2_type_vlan", "network_vlan_ranges", vlans)
        .set("securitygroup", "enable_security_group", true);
    let document = match backend {
        Backend::Ovn(network) => by_ovn::plugin_options(document, network, context),
        Backend::Agents(_) => document.set("ml2_type_vxlan", "vni_ranges", "1:65536"),
    };
    document.merge(template.common.extra_config.get(ML2)).render()
}

fn names(types: &[NetworkType]) -> String {
    types.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(",")
}

/// Command of a Neutron program with its configuration files.
fn command(name: &str, more: &[&str]) -> Vec<String> {
    let files = [
        "--config-file",
        "/etc/neutron/neutron.conf",
        "--config-file",
        "/etc/neutron/plugins/ml2/ml2_conf.ini",
    ];
    [&[name], files.as_slice(), more].concat().into_iter().map(str::to_owned).collect()
}

fn add_tasks(neutron: &mut Program<'_, Neutron>) {
    let manage = |arguments: &[&str]| command("neutron-db-manage", arguments);
    neutron.task("db-sync", TaskStage::Install, manage(&["upgrade", "heads"]));
    neutron.task("db-expand", TaskStage::Expand, manage(&["upgrade", "--expand"]));
    neutron.task("db-contract", TaskStage::Contract, manage(&["upgrade", "--contract"]));
}

fn add_api(neutron: &mut Program<'_, Neutron>) {
    let workload = neutron.api(Api {
        component: "api",
        image: PROJECT.image,
        settings: &neutron.context.object.spec.template.api,
        amounts: API_AMOUNTS,
        port: API,
        health: "/healthcheck",
        // A slow compute node must not block all other requests.
        uwsgi: Uwsgi { processes: 2, ..Uwsgi::new(MODULE) },
    });
    for container in &mut workload.pod.containers {
        container.environment.push(shared::process_name("neutron-api"));
    }
}

/// Adds a worker for background work, which the API under uWSGI cannot do. It is ready while it has a connection to
/// this port.
fn add_worker(neutron: &mut Program<'_, Neutron>, component: &'static str, settings: &Component, port: u16) {
    neutron.worker(Worker {
        component,
        image: PROJECT.image,
        settings,
        command: command(&format!("neutron-{component}"), &[]),
        controller: Controller::Deployment,
        probes: shared::connected_to(port, PROJECT.user),
    });
}
