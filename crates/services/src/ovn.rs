//! OVN: northbound and southbound database, ovn-northd, and Open vSwitch on nodes.

use std::collections::BTreeMap;

use openstack_operator_model::common::{
    Component, ContainerSettings, DeletionPolicy, NameReference, Reference,
};
use openstack_operator_model::image::ImageNames;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::name;
use openstack_operator_model::need::Needs;
use openstack_operator_model::plan::{
    Check, Child, Claim, Container, Controller, File, FileName, Mount, NetworkService, NodeAgents, Plan, Pod,
    Port, Probes, Reach, Registry, Variable, Workload,
};
use openstack_operator_model::service::{Context, Direction, Invalid, Member};
use openstack_operator_model::status::{NetworkServer, Provides, Stage};

use crate::chassis::{self, OVNChassisSpec};
use crate::cloud::{Part, Presence, Wave};
use crate::control_plane::OpenStackControlPlaneSpec;
use crate::neutron::Mechanism;
use crate::program::Amounts;
use crate::shared;
use crate::switch::{self, Datapath};

pub use spec::*;

mod node;
mod raft;
mod spec;

pub const KIND: Kind = Kind::own("OVNNetwork", "ovnnetworks");
const USER: i64 = 42476;
const AMOUNTS: Amounts = Amounts { cpu: "20m", memory: "64Mi", memory_limit: "512Mi" };

/// Northbound or southbound database.
struct Database {
    /// Suffix of the names of its objects.
    short: &'static str,
    component: &'static str,
    schema: &'static str,
    schema_file: &'static str,
    image: ImageNames,
    client: Port,
    raft: Port,
}

const NORTHBOUND: Database = Database {
    short: "nb",
    component: "northbound",
    schema: "OVN_Northbound",
    schema_file: "/usr/share/ovn/ovn-nb.ovsschema",
    image: ImageNames { kolla: "ovn-nb-db-server", debian: "ovn" },
    client: Port::tcp("clients", 6641),
    raft: Port::tcp("group", 6643),
};

const SOUTHBOUND: Database = Database {
    short: "sb",
    component: "southbound",
    schema: "OVN_Southbound",
    schema_file: "/usr/share/ovn/ovn-sb.ovsschema",
    image: ImageNames { kolla: "ovn-sb-db-server", debian: "ovn" },
    client: Port::tcp("clients", 6642),
    raft: Port::tcp("group", 6644),
};

pub struct Service;

impl Part for Service {
    type Object = OVNNetwork;
    type Template = OVNNetworkTemplate;
    const KIND: Kind = KIND;
    const NAME: &'static str = "ovn";
    const STAGE: Stage = Stage::Infrastructure;
    const PRESENCE: Presence = Presence::ByDefault;
    const WAVE: Wave = Wave::Backends;
    const DIRECTS: bool = true;
    const NODE_CLAIM: Option<&'static str> = Some(switch::CLAIM);

    fn template(object: &OVNNetwork) -> &OVNNetworkTemplate {
        &object.spec.template
    }

    fn is_replaced(cloud: &OpenStackControlPlaneSpec) -> bool {
        cloud.network_backend == Mechanism::Ovs
    }

    fn cloud_rules() -> Vec<(String, String)> {
        vec![(
            "self.spec.networkBackend == 'ovn' || !has(self.spec.ovn) || has(self.spec.ovn.enabled) && !self.spec.ovn.enabled".to_owned(),
            "spec.ovn has no effect with networkBackend ovs: configure the switches in spec.neutron.ovs".to_owned(),
        )]
    }

    fn needs(object: &OVNNetwork) -> Needs {
        let template = &object.spec.template;
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let mut needs = Needs::default().nodes(&node::scheduling(template));
        needs.peers.push(chassis::KIND);
        for (database, settings) in databases(template) {
            needs.addresses.extend(pods(name, database, settings.replicas()));
        }
        needs.addresses.extend(connections(template).map(|service| service.name.clone()));
        needs
    }

    fn plan(context: &Context<'_, OVNNetwork>) -> Result<Plan, Invalid> {
        let OVNNetworkSpec { origin, template } = &context.object.spec;
        let mut live_files = BTreeMap::new();
        let children = node::add_settings(context, &mut live_files)?;
        let network = network(context);
        let node_agents = |network: &NetworkServer| {
            node_agents(context.name, &network.southbound, context.inputs.chosen_nodes())
        };
        let mut workloads = Vec::new();
        for (database, settings) in databases(template) {
            let set = name::part(context.name, database.short);
            let hosts = shared::member_hosts(context, &set, &set, size(context, database, settings));
            live_files.insert(format!("{}-members", database.short), hosts.join(" ") + "\n");
            workloads.push(database_workload(context, database, settings));
        }
        workloads.push(northd(context));
        workloads.extend(node::workloads(context));
        Ok(Plan {
            files: files(),
            live_files,
            workloads,
            children,
            remarks: missing_connections(context),
            agents: network.as_ref().map(node_agents),
            provides: Provides { network, ..Provides::default() },
            pull_secrets: origin.images.pull_secrets.clone(),
            additions: template.common.additions.clone(),
            ..Plan::default()
        })
    }

    fn direct(object: &OVNNetwork, members: &[Member], memory: &BTreeMap<String, String>) -> Direction {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let mut direction = Direction { memory: memory.clone(), ..Direction::default() };
        for (database, settings) in databases(&object.spec.template) {
            let size = raft::size(database.component, settings.replicas(), memory);
            let pods = pods(name, database, size);
            let wanted = usize::try_from(settings.replicas()).unwrap_or_default();
            raft::direct(database.component, &pods, wanted, members, &mut direction);
        }
        direction
    }
}

fn files() -> BTreeMap<FileName, File> {
    let scripts = [
        ("report.sh", include_str!("ovn/report.sh")),
        ("database.sh", include_str!("ovn/database.sh")),
        ("check.sh", include_str!("ovn/check.sh")),
        ("northd.sh", include_str!("ovn/northd.sh")),
        (node::SCRIPT, include_str!("ovn/controller.sh")),
    ];
    let mut files = switch::files();
    files.extend(scripts.map(|(file, text)| (file.to_owned(), text.into())));
    files
}

/// Registry of the chassis.
pub(crate) fn node_agents(network: &str, southbound: &[String], nodes: Vec<String>) -> NodeAgents {
    NodeAgents {
        provider: Reference::new(KIND, network),
        registry: Registry::Chassis { southbound: southbound.to_vec(), database: SOUTHBOUND.schema },
        nodes,
    }
}

fn chassis(context: &Context<'_, OVNNetwork>, hostname: &str, links: ChassisLinks) -> Result<Child, Invalid> {
    let ovn = chassis::Network { cluster_ref: NameReference::new(context.name) };
    let hostname_text = hostname.to_owned();
    let spec = serde_json::to_value(OVNChassisSpec { hostname: hostname_text, system_id: None, ovn, links })
        .map_err(|error| Invalid::new("spec", format!("has no JSON form: {error}")))?;
    Ok(Child {
        kind: chassis::KIND,
        name: name::part(context.name, &name::node_part(hostname)),
        stage: None,
        spec,
    })
}

fn databases(template: &OVNNetworkTemplate) -> [(&'static Database, &RaftSettings); 2] {
    [(&NORTHBOUND, &template.northbound), (&SOUTHBOUND, &template.southbound)]
}

/// The first pods of a database. Each has a Service of the same name.
fn pods(name: &str, database: &Database, number: i32) -> Vec<String> {
    let set = name::part(name, database.short);
    (0..number).map(|ordinal| format!("{set}-{ordinal}")).collect()
}

/// Current number of pods of a database: more than desired while members are leaving.
fn size(context: &Context<'_, OVNNetwork>, database: &Database, settings: &RaftSettings) -> i32 {
    raft::size(database.component, settings.replicas(), context.memory)
}

/// Fully qualified names of the Services of the remaining members, for clients on nodes.
fn client_hosts(
    context: &Context<'_, OVNNetwork>,
    database: &Database,
    settings: &RaftSettings,
) -> Vec<String> {
    let domain = format!("{}.svc.{}", context.namespace, context.site.cluster_domain);
    let pods = pods(context.name, database, settings.replicas());
    pods.iter().map(|pod| format!("{pod}.{domain}")).collect()
}

/// Services that Neutron uses instead of the members.
fn connections(template: &OVNNetworkTemplate) -> impl Iterator<Item = &ConnectionService> {
    let NeutronIntegration { nb_connection, sb_connection } = &template.neutron_integration;
    nb_connection.iter().chain(sb_connection).map(|connection| &connection.service)
}

/// Connection details, once all Services have cluster IPs.
fn network(context: &Context<'_, OVNNetwork>) -> Option<NetworkServer> {
    let template = &context.object.spec.template;
    let address = |name: &str, port: u16| Some(format!("tcp:{}:{port}", context.inputs.addresses.get(name)?));
    let addresses = |database: &Database, settings: &RaftSettings, connection: &Option<Connection>| {
        if let Some(Connection { service }) = connection {
            return Some(vec![address(&service.name, service.port)?]);
        }
        let pods = pods(context.name, database, settings.replicas());
        pods.iter().map(|name| address(name, database.client.number)).collect::<Option<Vec<_>>>()
    };
    let NeutronIntegration { nb_connection, sb_connection } = &template.neutron_integration;
    Some(NetworkServer {
        northbound: addresses(&NORTHBOUND, &template.northbound, nb_connection)?,
        southbound: addresses(&SOUTHBOUND, &template.southbound, sb_connection)?,
        userspace: template.ovs.datapath == Datapath::Netdev,
        physical_networks: switch::physical_networks(
            &template.links.links,
            template.overrides.iter().map(|special| &special.change),
        ),
        node_selector: node::scheduling(template).node_selector,
        leaving: context.inputs.leaving_nodes(),
    })
}

/// Remarks on missing Services. Nothing waits for them, because they may depend on the databases.
fn missing_connections(context: &Context<'_, OVNNetwork>) -> Vec<String> {
    let missing = connections(&context.object.spec.template)
        .filter(|service| !context.inputs.addresses.contains_key(&service.name));
    let remark = |service: &ConnectionService| {
        format!(
            "Neutron waits for Service {}, which neutronIntegration names: it has no cluster address",
            service.name
        )
    };
    missing.map(remark).collect()
}

fn container(
    context: &Context<'_, OVNNetwork>,
    name: &'static str,
    image: ImageNames,
    script: &str,
    settings: &ContainerSettings,
) -> Container {
    let OVNNetworkSpec { origin, template } = &context.object.spec;
    let path = shared::script_path(script);
    Container {
        name,
        image: shared::component_image(context, image, &settings.image, &template.common, origin),
        command: shared::script(&path),
        mounts: vec![shared::file(script, &path)],
        resources: shared::component_resources(settings, &template.common, AMOUNTS),
        ..Container::default()
    }
}

fn database_workload(
    context: &Context<'_, OVNNetwork>,
    database: &Database,
    settings: &RaftSettings,
) -> Workload {
    let environment = || {
        vec![
            Variable::field("POD_NAME", "metadata.name"),
            Variable::field("POD_UID", "metadata.uid"),
            Variable::text("DATABASE", database.short),
            Variable::text("SCHEMA", database.schema),
            Variable::text("SCHEMA_FILE", database.schema_file),
            Variable::text("CLIENT_PORT", database.client.number.to_string()),
            Variable::text("GROUP_PORT", database.raft.number.to_string()),
        ]
    };
    let data = || Mount::Claim { name: "data", path: "/var/lib/ovn".to_owned() };
    let mut report = container(context, "report", database.image, "report.sh", &settings.container);
    report.environment = environment();
    report.mounts.extend([data(), shared::scratch("tmp", "/tmp")]);
    let mut server = container(context, "server", database.image, "database.sh", &settings.container);
    server.environment = environment();
    server.mounts.extend([
        shared::file("check.sh", "/etc/openstack/check.sh"),
        data(),
        Mount::LiveFiles { path: "/etc/openstack/live".to_owned() },
        Mount::Annotations { path: "/etc/podinfo".to_owned() },
        shared::scratch("run", "/run/ovn"),
        shared::scratch("tmp", "/tmp"),
    ]);
    server.ports = vec![database.client.clone(), database.raft.clone()];
    let check = || Check::Command(shared::command(["bash", "/etc/openstack/check.sh"]));
    server.probes = Probes {
        // A joining member may have to wait for the others.
        startup: Some(shared::probe(check(), 2, 5, 43200)),
        readiness: Some(shared::probe(check(), 15, 5, 2)),
        liveness: Some(shared::probe(Check::Connect { port: database.client.number }, 20, 10, 6)),
    };
    let scheduling = &context.object.spec.template.common.scheduling;
    Workload {
        component: database.component.into(),
        suffix: Some(database.short.into()),
        controller: Controller::StatefulSet {
            claims: vec![Claim {
                name: "data",
                size: settings.storage.size.clone(),
                class: settings.storage.storage_class.clone(),
            }],
            volumes_deleted: settings.storage.deletion_policy == DeletionPolicy::Delete,
        },
        replicas: size(context, database, settings),
        pod: Pod { setup: vec![report], grace_seconds: 300, ..Pod::new(USER, scheduling, vec![server]) },
        services: database_services(context, database, settings),
        after: Vec::new(),
    }
}

/// A headless Service of all members, and a Service for each member.
fn database_services(
    context: &Context<'_, OVNNetwork>,
    database: &Database,
    settings: &RaftSettings,
) -> Vec<NetworkService> {
    let members = NetworkService {
        suffix: Some(database.short.into()),
        ports: vec![database.client.clone(), database.raft.clone()],
        reach: Reach::EachPod,
    };
    let pods = pods(context.name, database, size(context, database, settings));
    let each = pods.into_iter().enumerate().map(|(ordinal, pod)| NetworkService {
        suffix: Some(format!("{}-{ordinal}", database.short).into()),
        ports: vec![database.client.clone()],
        reach: Reach::OnePod(pod),
    });
    [members].into_iter().chain(each).collect()
}

fn northd(context: &Context<'_, OVNNetwork>) -> Workload {
    let template = &context.object.spec.template;
    let names = ImageNames { kolla: "ovn-northd", debian: "ovn" };
    let Component { replicas, container: settings } = &template.northd;
    let mut container = container(context, "northd", names, "northd.sh", settings);
    container.environment = vec![
        Variable::text("NORTHBOUND", client_hosts(context, &NORTHBOUND, &template.northbound).join(" ")),
        Variable::text("SOUTHBOUND", client_hosts(context, &SOUTHBOUND, &template.southbound).join(" ")),
    ];
    container.mounts.extend([shared::scratch("run", "/run/ovn"), shared::scratch("tmp", "/tmp")]);
    let status =
        |database: &str| format!("ovn-appctl -t /run/ovn/ovn-northd.ctl {database}-connection-status");
    let connected =
        format!("[ \"$({})\" = connected ] && [ \"$({})\" = connected ]", status("nb"), status("sb"));
    container.probes = connected_probes(&connected);
    let pod = Pod::new(USER, &template.common.scheduling, vec![container]);
    Workload::part("northd", Controller::Deployment, replicas.unwrap_or(1), pod)
}

/// Ready while connected. No liveness probe: a program without a connection keeps trying.
fn connected_probes(script: &str) -> Probes {
    let connected = Check::Command(shared::command(["bash", "-c", script]));
    Probes { readiness: Some(shared::probe(connected, 10, 5, 3)), ..Probes::default() }
}
