//! Neutron: networks, subnets, routers and ports, made by OVN.

use std::collections::BTreeMap;

use openstack_operator_model::common::Scheduling;
use openstack_operator_model::image::ImageNames;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::need::Needs;
use openstack_operator_model::oslo::Document;
use openstack_operator_model::plan::{
    Check, Container, Controller, Host, HostPath, Plan, Pod, Port, Privilege, Probes, Task, TaskStage,
    Variable, Workload,
};
use openstack_operator_model::service::{self, Context, Invalid};
use openstack_operator_model::status::{ComputeServer, NetworkServer};

use crate::shared::api::{self, Uwsgi};
use crate::shared::{self, Account, Registration};
use crate::{nova, ovn};

pub use spec::*;

mod spec;

pub const KIND: Kind = Kind::own("Neutron", "neutrons");
const API: Port = Port { name: "api", number: 9696 };
/// Where the northbound database is spoken to.
const NORTHBOUND: u16 = 6641;
const USER: i64 = 42435;
const CONFIGURATION: &str = "neutron.conf";
const ML2: &str = "ml2_conf.ini";
const METADATA: &str = "neutron_ovn_metadata_agent.ini";
/// Services that are spoken to, each with a section of its own.
const PEERS: [&str; 2] = ["nova", "placement"];
const FILES: [&str; 4] = [CONFIGURATION, ML2, METADATA, "uwsgi.ini"];

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
        needs.object("spec.ovn.clusterRef", ovn::KIND, template.ovn.name()).object(
            "spec.nova.clusterRef",
            nova::KIND,
            template.nova.name(),
        )
    }

    fn plan(context: &Context<'_, Neutron>) -> Result<Plan, Invalid> {
        let NeutronSpec { origin, template } = &context.object.spec;
        shared::check_extra_config(&template.common, &FILES)?;
        let Some(cluster) = template.ovn.name() else {
            return Err(Invalid::new("spec.ovn.clusterRef", "is missing: name an OVNNetwork"));
        };
        let network = context.inputs.network(ovn::KIND, cluster, "spec.ovn.clusterRef.name")?;
        let compute = |nova| context.inputs.compute(nova::KIND, nova, "spec.nova.clusterRef.name");
        let compute = template.nova.name().map(compute).transpose()?;
        let (mut plan, internal, public) = api::plan(context, origin, &template.exposure, API.number)?;
        let registration = Registration {
            service_type: "network",
            name: "neutron",
            description: "OpenStack Networking",
            public,
            internal,
        };
        let environment = vec![
            shared::database(context, &mut plan, &template.database, "neutron", "database")?,
            shared::messaging(context, &mut plan, &template.messaging, "neutron")?,
        ];
        let account = shared::register(context, &mut plan, &template.keystone, &registration)?;
        plan.files = files(context, &account, network)?;
        plan.tasks = tasks(context, &environment);
        let environment: Vec<_> = environment.into_iter().chain(account.passwords(&PEERS)).collect();
        plan.workloads = vec![
            api(context, environment.clone()),
            worker(context, "periodic-workers", database_port(template), environment.clone()),
            worker(context, "ovn-maintenance-worker", NORTHBOUND, environment),
        ];
        if let Some(compute) = compute {
            plan.files.insert("agent.conf".to_owned(), agent_configuration());
            plan.files.insert(METADATA.to_owned(), metadata_configuration(context, network, compute));
            plan.files.insert("wait.sh".to_owned(), include_str!("neutron/wait.sh").to_owned());
            plan.workloads.extend(metadata_agent(context, network, compute));
        }
        Ok(plan)
    }
}

fn files(
    context: &Context<'_, Neutron>,
    account: &Account<'_>,
    network: &NetworkServer,
) -> Result<BTreeMap<String, String>, Invalid> {
    let template = &context.object.spec.template;
    let mut files = BTreeMap::new();
    let mut document = Document::new()
        .section_of(
            "DEFAULT",
            [
                ("use_stderr", "true"),
                ("core_plugin", "ml2"),
                ("service_plugins", "ovn-router,qos,trunk,port_forwarding"),
                ("state_path", "/var/lib/neutron"),
                // Nobody asks by RPC: nodes learn of networks from the southbound database.
                ("rpc_workers", "0"),
                ("rpc_state_report_workers", "0"),
            ],
        )
        .set("DEFAULT", "dns_domain", &template.dns_domain)
        .set("oslo_middleware", "enable_proxy_headers_parsing", true);
    document = shared::messaging_options(shared::database_options(document, "database"));
    document = account.authtoken(document, &shared::cache_servers(context, &template.cache)?);
    for peer in PEERS {
        document = account.client(document, peer);
    }
    document = api::policy(document, &mut files, &template.exposure);
    let document = document.merge(template.common.extra_config.get(CONFIGURATION));
    files.insert(CONFIGURATION.to_owned(), document.render());
    files.insert(ML2.to_owned(), ml2_configuration(context, network));
    // A compute node that is slow to answer must not keep everybody else from being served.
    let settings = Uwsgi { processes: 2, ..Uwsgi::new("neutron.wsgi.api:application", &API) };
    files.insert("uwsgi.ini".to_owned(), api::uwsgi(&settings, &template.common));
    Ok(files)
}

fn ml2_configuration(context: &Context<'_, Neutron>, network: &NetworkServer) -> String {
    let template = &context.object.spec.template;
    let ml2 = &template.ml2;
    let names = |types: &[NetworkType]| types.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(",");
    let vlans = if ml2.network_vlan_ranges.is_empty() {
        network.physical_networks.join(",")
    } else {
        ml2.network_vlan_ranges.join(",")
    };
    Document::new()
        .set("ml2", "type_drivers", names(&ml2.type_drivers))
        .set("ml2", "tenant_network_types", names(&ml2.tenant_network_types))
        .set("ml2", "mechanism_drivers", "ovn")
        .set("ml2", "extension_drivers", ml2.extension_drivers.join(","))
        .set("ml2", "overlay_ip_version", 4)
        .set("ml2_type_geneve", "vni_ranges", "1:65536")
        .set("ml2_type_geneve", "max_header_size", 38)
        .set("ml2_type_flat", "flat_networks", network.physical_networks.join(","))
        .set("ml2_type_vlan", "network_vlan_ranges", vlans)
        .set("securitygroup", "enable_security_group", true)
        .set("ovn", "ovn_nb_connection", network.northbound.join(","))
        .set("ovn", "ovn_sb_connection", network.southbound.join(","))
        .set("ovn", "ovsdb_connection_timeout", 180)
        .set("ovn", "ovsdb_probe_interval", 60000)
        .set("ovn", "ovn_metadata_enabled", template.nova.cluster_ref.is_some())
        .set("ovn", "enable_distributed_floating_ip", false)
        // The userspace switch would take packets that are to be cut later for packets that are too long.
        .set("ovn", "ovn_emit_need_to_frag", !network.userspace)
        .merge(template.common.extra_config.get(ML2))
        .render()
}

fn agent_configuration() -> String {
    Document::new()
        .set("DEFAULT", "use_stderr", true)
        .set("DEFAULT", "state_path", "/var/lib/neutron")
        .set("oslo_concurrency", "lock_path", "/tmp")
        .set("agent", "root_helper", "sudo neutron-rootwrap /etc/neutron/rootwrap.conf")
        .set("privsep", "helper_command", "sudo neutron-rootwrap /etc/neutron/rootwrap.conf privsep-helper")
        .render()
}

fn metadata_configuration(
    context: &Context<'_, Neutron>,
    network: &NetworkServer,
    compute: &ComputeServer,
) -> String {
    Document::new()
        .set("DEFAULT", "nova_metadata_host", &compute.metadata_host)
        .set("DEFAULT", "nova_metadata_port", compute.metadata_port)
        .set("DEFAULT", "metadata_workers", 1)
        .set("ovs", "ovsdb_connection", "tcp:127.0.0.1:6640")
        .set("ovn", "ovn_sb_connection", network.southbound.join(","))
        .set("ovn", "ovsdb_probe_interval", 60000)
        .merge(context.object.spec.template.common.extra_config.get(METADATA))
        .render()
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

/// Answers servers who ask for their metadata, on every node that may have servers.
fn metadata_agent(
    context: &Context<'_, Neutron>,
    network: &NetworkServer,
    compute: &ComputeServer,
) -> Vec<Workload> {
    let NeutronSpec { origin, template } = &context.object.spec;
    let names = ImageNames { kolla: "neutron-metadata-agent", debian: "neutron" };
    let image = shared::image(context, names, &template.common, origin);
    let resources = shared::resources(&template.common.resources, ("20m", "256Mi"), "1Gi");
    // It would hang for ever where it finds no switch when it starts.
    let wait = Container {
        name: "wait",
        image: image.clone(),
        command: shared::script("/etc/openstack/wait.sh"),
        environment: vec![Variable::text("SOUTHBOUND", network.southbound.join(" "))],
        mounts: vec![shared::file("wait.sh", "/etc/openstack/wait.sh"), shared::scratch("tmp", "/tmp")],
        resources: resources.clone(),
        ..Container::default()
    };
    let socket = Check::Command(shared::command(["test", "-S", "/var/lib/neutron/metadata_proxy"]));
    let agent = Container {
        name: "metadata-agent",
        image,
        command: shared::command([
            "dumb-init",
            "--",
            "neutron-ovn-metadata-agent",
            "--config-file",
            "/etc/neutron/neutron.conf",
            "--config-file",
            "/etc/neutron/neutron_ovn_metadata_agent.ini",
        ]),
        environment: vec![
            Variable::field("NODE_NAME", "spec.nodeName"),
            Variable::text("OS_DEFAULT__HOST", "$(NODE_NAME)"),
            Variable::secret(
                "OS_DEFAULT__METADATA_PROXY_SHARED_SECRET",
                &compute.metadata_secret,
                nova::METADATA_KEY,
            ),
        ],
        mounts: vec![
            shared::file("agent.conf", "/etc/neutron/neutron.conf"),
            shared::file(METADATA, "/etc/neutron/neutron_ovn_metadata_agent.ini"),
            shared::scratch("work", "/var/lib/neutron"),
            shared::scratch("tmp", "/tmp"),
            shared::host_directory("run-openvswitch", "/run/openvswitch"),
            shared::host("run-netns", "/run/netns", HostPath::Shared),
        ],
        probes: Probes { readiness: Some(shared::probe(socket, 15, 5, 3)), ..Probes::default() },
        resources,
        privilege: Privilege::Node,
        ..Container::default()
    };
    let scheduling =
        Scheduling { node_selector: network.node_selector.clone(), ..template.common.scheduling.clone() };
    let pod = Pod { setup: vec![wait], host: Host::Network, ..Pod::new(USER, &scheduling, vec![agent]) };
    shared::with_leaving(vec![Workload::on_nodes("metadata-agent", pod)], &network.leaving)
}
