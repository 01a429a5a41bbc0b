//! Neutron: networks, subnets, routers and ports, made by OVN or by agents of its own.

use std::collections::BTreeMap;

use openstack_operator_model::image::ImageNames;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::need::Needs;
use openstack_operator_model::oslo::Document;
use openstack_operator_model::plan::{
    Container, Controller, Plan, Pod, Port, Task, TaskStage, Variable, Workload,
};
use openstack_operator_model::service::{self, Context, Invalid};
use openstack_operator_model::status::NetworkServer;

use crate::shared::api::{self, Uwsgi};
use crate::shared::{self, Account, Registration};
use crate::{nova, ovn};

pub use spec::*;

mod agent;
mod by_agents;
mod by_ovn;
mod spec;

pub const KIND: Kind = Kind::own("Neutron", "neutrons");
const API: Port = Port { name: "api", number: 9696 };
const USER: i64 = 42435;
const CONFIGURATION: &str = "neutron.conf";
const ML2: &str = "ml2_conf.ini";
/// Services that are spoken to, each with a section of its own.
const PEERS: [&str; 2] = ["nova", "placement"];
const FILES: [&str; 3] = [CONFIGURATION, ML2, "uwsgi.ini"];

/// What makes the networks on nodes.
enum Backend<'a> {
    Ovn(&'a NetworkServer),
    Agents(&'a OvsSettings),
}

pub struct Service;

impl service::Service for Service {
    type Object = Neutron;
    const KIND: Kind = KIND;
    const NAME: &'static str = "neutron";

    fn needs(object: &Neutron) -> Needs {
        let template = &object.spec.template;
        let mut needs = Needs::default().after(&template.common.depends_on);
        needs = shared::database_needs(needs, &template.database);
        needs = shared::messaging_needs(needs, &template.messaging);
        needs = shared::cache_needs(needs, &template.cache);
        needs = shared::identity_needs(needs, &template.keystone);
        needs = needs.object("spec.nova.clusterRef", nova::KIND, template.nova.name());
        match template.mechanism.unwrap_or_default() {
            Mechanism::Ovn => needs.object("spec.ovn.clusterRef", ovn::KIND, template.ovn.name()),
            Mechanism::Ovs => needs.nodes(&by_agents::scheduling(&by_agents::settings(template))),
        }
    }

    fn plan(context: &Context<'_, Neutron>) -> Result<Plan, Invalid> {
        let NeutronSpec { origin, template } = &context.object.spec;
        let settings = by_agents::settings(template);
        let mechanism = template.mechanism.unwrap_or_default();
        let files_of_nodes = match mechanism {
            Mechanism::Ovn => by_ovn::FILES.as_slice(),
            Mechanism::Ovs => by_agents::FILES.as_slice(),
        };
        shared::check_extra_config(&template.common, &[&FILES, files_of_nodes].concat())?;
        let backend = match mechanism {
            Mechanism::Ovn => {
                let Some(cluster) = template.ovn.name() else {
                    return Err(Invalid::new("spec.ovn.clusterRef", "is missing: name an OVNNetwork"));
                };
                Backend::Ovn(context.inputs.network(ovn::KIND, cluster, "spec.ovn.clusterRef.name")?)
            }
            Mechanism::Ovs => Backend::Agents(&settings),
        };
        let compute = |nova| context.inputs.compute(nova::KIND, nova, "spec.nova.clusterRef.name");
        let compute = template.nova.name().map(compute).transpose()?;
        let (mut plan, internal, public) = api::plan(context, origin, &template.exposure, API.number)?;
        let registration = Registration {
            service_type: "network",
            name: "neutron",
            description: "OpenStack Networking",
            public,
            internal: internal.clone(),
        };
        let bus = shared::messaging(context, &mut plan, &template.messaging, "neutron")?;
        let environment = vec![
            shared::database(context, &mut plan, &template.database, "neutron", "database")?,
            bus.clone(),
        ];
        let account = shared::register(context, &mut plan, &template.keystone, &registration)?;
        plan.files = files(context, &account, &backend)?;
        plan.tasks = tasks(context, &environment);
        let environment: Vec<_> = environment.into_iter().chain(account.passwords(&PEERS)).collect();
        plan.workloads = vec![
            api(context, environment.clone()),
            worker(context, "periodic-workers", database_port(template), environment.clone()),
        ];
        match &backend {
            Backend::Ovn(network) => by_ovn::extend(context, &mut plan, network, compute, environment),
            Backend::Agents(settings) => {
                plan.workloads.push(worker(context, "rpc-server", shared::BUS_PORT, environment));
                by_agents::extend(context, &mut plan, settings, compute, &bus);
                plan.roster = Some(by_agents::roster(context, &internal, &account));
            }
        }
        Ok(plan)
    }
}

fn files(
    context: &Context<'_, Neutron>,
    account: &Account<'_>,
    backend: &Backend<'_>,
) -> Result<BTreeMap<String, String>, Invalid> {
    let template = &context.object.spec.template;
    let mut files = BTreeMap::new();
    let mut document = Document::new()
        .section_of(
            "DEFAULT",
            [("use_stderr", "true"), ("core_plugin", "ml2"), ("state_path", "/var/lib/neutron")],
        )
        .set("DEFAULT", "dns_domain", &template.dns_domain)
        .set("oslo_middleware", "enable_proxy_headers_parsing", true);
    document = match backend {
        Backend::Ovn(_) => by_ovn::server_options(document),
        Backend::Agents(_) => by_agents::server_options(document),
    };
    document = shared::messaging_options(shared::database_options(document, "database"));
    document = account.authtoken(document, &shared::cache_servers(context, &template.cache)?);
    for peer in PEERS {
        // Neutron has a word of its own for which way it goes, and would take the one for clients outside.
        document = account.client(document, peer).set(peer, "endpoint_type", "internal");
    }
    document = api::policy(document, &mut files, &template.exposure);
    let document = document.merge(template.common.extra_config.get(CONFIGURATION));
    files.insert(CONFIGURATION.to_owned(), document.render());
    files.insert(ML2.to_owned(), ml2_configuration(context, backend));
    // A compute node that is slow to answer must not keep everybody else from being served.
    let settings = Uwsgi { processes: 2, ..Uwsgi::new("neutron.wsgi.api:application", &API) };
    files.insert("uwsgi.ini".to_owned(), api::uwsgi(&settings, &template.common));
    Ok(files)
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
    let document = Document::new()
        .set("ml2", "type_drivers", names(&ml2.type_drivers))
        .set("ml2", "tenant_network_types", names(&ml2.tenant_network_types))
        .set("ml2", "extension_drivers", ml2.extension_drivers.join(","))
        .set("ml2", "overlay_ip_version", 4)
        .set("ml2_type_geneve", "vni_ranges", "1:65536")
        .set("ml2_type_geneve", "max_header_size", 38)
        .set("ml2_type_flat", "flat_networks", networks)
        .set("ml2_type_vlan", "network_vlan_ranges", vlans)
        .set("securitygroup", "enable_security_group", true);
    let document = match backend {
        Backend::Ovn(network) => by_ovn::plugin_options(document, network, template),
        Backend::Agents(_) => by_agents::plugin_options(document),
    };
    document.merge(template.common.extra_config.get(ML2)).render()
}

fn names(types: &[NetworkType]) -> String {
    types.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(",")
}

fn container(
    context: &Context<'_, Neutron>,
    name: &'static str,
    command: Vec<String>,
    environment: Vec<Variable>,
) -> Container {
    let NeutronSpec { origin, template } = &context.object.spec;
    let names = ImageNames { kolla: "neutron-server", debian: "neutron" };
    let mut mounts = vec![
        shared::file(CONFIGURATION, "/etc/neutron/neutron.conf"),
        shared::file(ML2, "/etc/neutron/plugins/ml2/ml2_conf.ini"),
        shared::scratch("work", "/var/lib/neutron"),
        shared::scratch("tmp", "/tmp"),
    ];
    mounts.extend(api::policy_mount(&template.exposure, "neutron"));
    Container {
        name,
        image: shared::image(context, names, &template.common, origin),
        command,
        environment,
        mounts,
        resources: shared::resources(&template.common.resources, ("20m", "256Mi"), "1Gi"),
        ..Container::default()
    }
}

/// A program of Neutron with the files that it is told to read.
fn program(name: &str, more: &[&str]) -> Vec<String> {
    let files = [
        "--config-file",
        "/etc/neutron/neutron.conf",
        "--config-file",
        "/etc/neutron/plugins/ml2/ml2_conf.ini",
    ];
    [&[name], files.as_slice(), more].concat().into_iter().map(str::to_owned).collect()
}

fn tasks(context: &Context<'_, Neutron>, environment: &[Variable]) -> Vec<Task> {
    let task = |name: &'static str, stage: TaskStage, words: &[&str]| Task {
        name,
        stage,
        user: USER,
        container: container(
            context,
            "neutron-db-manage",
            program("neutron-db-manage", words),
            environment.to_vec(),
        ),
        repeat_on: Vec::new(),
    };
    vec![
        task("db-sync", TaskStage::Install, &["upgrade", "heads"]),
        task("db-expand", TaskStage::Expand, &["upgrade", "--expand"]),
        task("db-contract", TaskStage::Contract, &["upgrade", "--contract"]),
    ]
}

fn api(context: &Context<'_, Neutron>, mut environment: Vec<Variable>) -> Workload {
    let template = &context.object.spec.template;
    environment.push(shared::process_name("neutron-api"));
    let mut api = container(context, "api", shared::uwsgi_command("neutron"), environment);
    api.mounts.push(shared::file("uwsgi.ini", "/etc/neutron/uwsgi.ini"));
    api.resources = shared::resources(&template.common.resources, ("50m", "512Mi"), "2Gi");
    let api = api::serving(api, API, "/healthcheck");
    api::workload(USER, template.api.replicas, &template.common, api)
}

/// Whom the workers speak to that do not speak to OVN.
fn database_port(template: &NeutronTemplate) -> u16 {
    template.database.port.unwrap_or(shared::DATABASE_PORT)
}

/// What the API leaves to others, since it only lives while it is asked. It is well while it speaks to whom it must.
fn worker(
    context: &Context<'_, Neutron>,
    component: &'static str,
    peer: u16,
    environment: Vec<Variable>,
) -> Workload {
    let template = &context.object.spec.template;
    let command = program(&format!("neutron-{component}"), &[]);
    let mut worker = container(context, component, command, environment);
    worker.probes = shared::speaking(peer, USER);
    let pod = Pod { grace_seconds: 90, ..Pod::new(USER, &template.common.scheduling, vec![worker]) };
    Workload::part(component, Controller::Deployment, 1, pod)
}
