//! Valkey: key-value store with which the pods of a service coordinate. Sentinels fail three members over.

use std::collections::BTreeMap;
use std::fmt::Write;

use openstack_operator_model::common::{ContainerSettings, DeletionPolicy, Resources};
use openstack_operator_model::foreign::ForeignKind;
use openstack_operator_model::image::ImageNames;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::name;
use openstack_operator_model::plan::{
    Change, Check, Claim, Container, Controller, File, FileName, Mount, NetworkService, Plan, Pod, Port,
    Probes, Reach, SecretPlan, Variable, Workload,
};
use openstack_operator_model::quantity;
use openstack_operator_model::service::{Context, Direction, Invalid, Member};
use openstack_operator_model::status::{KeyValueServer, Provides, Stage};

use crate::cloud::{Part, Presence, Wave};
use crate::control_plane::OpenStackControlPlaneSpec;
use crate::program::Amounts;
use crate::shared;

pub use spec::*;

mod cluster;
mod delegate;
mod spec;

pub const KIND: Kind = Kind::own("Valkey", "valkeys");
const CLIENTS: Port = Port::tcp("valkey", 6379);
const SENTINEL: Port = Port::tcp("sentinel", 26379);
const USER: i64 = 42494;
const SERVER_IMAGE: ImageNames = ImageNames { kolla: "valkey-server", debian: "valkey" };
const SENTINEL_IMAGE: ImageNames = ImageNames { kolla: "valkey-sentinel", debian: "valkey" };
const AMOUNTS: Amounts = Amounts { cpu: "50m", memory: "64Mi", memory_limit: "256Mi" };
const SENTINEL_AMOUNTS: Amounts = Amounts { cpu: "20m", memory: "32Mi", memory_limit: "128Mi" };
const CONFIGURATION: &str = "valkey.conf";
const DATA: &str = "/var/lib/valkey";
const PASSWORD: &str = "password";
const ADMINISTRATOR: &str = "administrator";

const SCRIPTS: [(&str, &str); 6] = [
    ("check.sh", include_str!("valkey/check.sh")),
    ("member.sh", include_str!("valkey/member.sh")),
    ("report.sh", include_str!("valkey/report.sh")),
    ("sentinel.sh", include_str!("valkey/sentinel.sh")),
    ("start.sh", include_str!("valkey/start.sh")),
    ("stop.sh", include_str!("valkey/stop.sh")),
];

/// Time that a stopping primary waits until another member takes over.
const STOP_SECONDS: i64 = 15;
/// The rest is for the shutdown, in which the server waits for its replicas.
const GRACE_SECONDS: i64 = STOP_SECONDS + 45;

pub struct Service;

impl Part for Service {
    type Object = Valkey;
    type Template = ValkeyTemplate;
    const KIND: Kind = KIND;
    const NAME: &'static str = "valkey";
    const STAGE: Stage = Stage::Infrastructure;
    const PRESENCE: Presence = Presence::IfUsed;
    const WAVE: Wave = Wave::Backends;
    const DIRECTS: bool = true;
    const FOREIGN_KINDS: &'static [ForeignKind] = &[delegate::VALKEYS];

    fn template(object: &Valkey) -> &ValkeyTemplate {
        &object.spec.template
    }

    fn is_replaced(cloud: &OpenStackControlPlaneSpec) -> bool {
        cloud.key_value.is_some()
    }

    fn cloud_rules() -> Vec<(String, String)> {
        vec![shared::exclusive_rule("keyValue", "servers", "valkey", "existing servers")]
    }

    fn plan(context: &Context<'_, Valkey>) -> Result<Plan, Invalid> {
        let ValkeySpec { origin, template } = &context.object.spec;
        if template.provider == Provider::ValkeyOperator {
            return delegate::plan(context);
        }
        shared::check_extra_config(&template.common, &[CONFIGURATION])?;
        let mut files: BTreeMap<FileName, File> =
            SCRIPTS.map(|(file, text)| (file.to_owned(), text.into())).into();
        files.insert(CONFIGURATION.to_owned(), configuration(context)?.into());
        let formed = if context.memory.contains_key(cluster::FORMED) { "yes" } else { "no" };
        let (password, administrator) = secrets(context.name);
        Ok(Plan {
            // Clients and administrators have separate passwords.
            secrets: vec![
                SecretPlan::login(&password, "default"),
                SecretPlan::login(&administrator, ADMINISTRATOR),
            ],
            files,
            live_files: BTreeMap::from([
                ("formed".to_owned(), formed.to_owned()),
                ("removals".to_owned(), cluster::removals(context.memory).to_string()),
            ]),
            workloads: vec![workload(context)],
            provides: Provides { key_value: Some(provided(context)), ..Provides::default() },
            pull_secrets: origin.images.pull_secrets.clone(),
            additions: template.common.pods.additions.clone(),
            ..Plan::default()
        })
    }

    fn direct(object: &Valkey, members: &[Member], memory: &BTreeMap<String, String>) -> Direction {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        cluster::direct(name, object.spec.template.replicas(), members, memory)
    }
}

/// Names of the Secrets with the logins of clients and of the administrator.
fn secrets(name: &str) -> (String, String) {
    (name::part(name, PASSWORD), name::part(name, ADMINISTRATOR))
}

/// Number of pods: more than desired until all members are ready to be fewer.
fn size(context: &Context<'_, Valkey>) -> i32 {
    cluster::size(context.object.spec.template.replicas(), context.memory)
}

/// Where clients connect: to the only server, or to the Sentinels.
fn provided(context: &Context<'_, Valkey>) -> KeyValueServer {
    let host =
        |service: &str, port: &Port| format!("{}:{}", shared::service_host(context, service), port.number);
    let size = size(context);
    let has_sentinels = size > 1;
    let servers = if has_sentinels {
        pods(context.name, size).iter().map(|pod| host(pod, &SENTINEL)).collect()
    } else {
        vec![host(context.name, &CLIENTS)]
    };
    KeyValueServer {
        servers,
        sentinel: has_sentinels.then(|| context.name.to_owned()),
        database: 0,
        secret: Some(secrets(context.name).0),
        // Everyone may ask which server is the primary. Other commands need the administrator.
        sentinel_secret: None,
    }
}

/// The first pods. Each has a Service of the same name.
fn pods(name: &str, number: i32) -> Vec<String> {
    (0..number).map(|ordinal| format!("{name}-{ordinal}")).collect()
}

fn resources(context: &Context<'_, Valkey>) -> Resources {
    shared::resources(&context.object.spec.template.common.pods.container.resources, AMOUNTS)
}

fn configuration(context: &Context<'_, Valkey>) -> Result<String, Invalid> {
    let limit = resources(context).limits.memory.unwrap_or_default();
    let memory = quantity::bytes(&limit, "spec.resources.limits.memory")?;
    let mut options = BTreeMap::from([
        ("appendonly", "yes".to_owned()),
        ("dir", DATA.to_owned()),
        // It adds replicas under addresses that no Service has.
        ("dual-channel-replication-enabled", "no".to_owned()),
        // The copy that rewrites the log needs as much again.
        ("maxmemory", (memory / 2).to_string()),
        // Locks and messages must not vanish.
        ("maxmemory-policy", "noeviction".to_owned()),
        ("protected-mode", "no".to_owned()),
        // The log of all writes replaces snapshots.
        ("save", "\"\"".to_owned()),
    ]);
    if size(context) > 1 {
        // A primary that the others cannot reach must not accept writes, because they elect another one.
        options
            .extend([("min-replicas-max-lag", "10".to_owned()), ("min-replicas-to-write", "1".to_owned())]);
    }
    let extra = context.object.spec.template.common.extra_config.get(CONFIGURATION);
    let given = extra.into_iter().flatten().flat_map(|(_, options)| options);
    options.extend(given.map(|(option, value)| (option.as_str(), value.clone())));
    Ok(options.iter().fold(String::new(), |mut text, (option, value)| {
        let _ = writeln!(text, "{option} {value}");
        text
    }))
}

fn environment(context: &Context<'_, Valkey>) -> Vec<Variable> {
    let Context { namespace, site, .. } = context;
    let size = size(context);
    let host = |pod: String| format!("{pod}.{namespace}.svc.{}", site.cluster_domain);
    let members: Vec<String> = pods(context.name, size).into_iter().map(host).collect();
    vec![
        Variable::field("POD_NAME", "metadata.name"),
        Variable::field("POD_NAMESPACE", "metadata.namespace"),
        Variable::field("POD_UID", "metadata.uid"),
        Variable::text("MODE", if size > 1 { "sentinel" } else { "single" }),
        Variable::text("MEMBERS", members.join(" ")),
        Variable::text("PRIMARY", context.name),
    ]
}

/// A container of a member, with what all of them see.
fn container(
    context: &Context<'_, Valkey>,
    name: &'static str,
    script: &str,
    image: ImageNames,
    settings: &ContainerSettings,
) -> Container {
    let ValkeySpec { origin, template } = &context.object.spec;
    let path = shared::script_path(script);
    Container {
        name,
        image: shared::component_image(context, image, &settings.image, &template.common.pods, origin),
        command: shared::script(&path),
        environment: environment(context),
        mounts: vec![
            shared::file("member.sh", "/etc/openstack/member.sh"),
            shared::file(script, &path),
            Mount::LiveFiles { path: "/etc/openstack/live".to_owned() },
            Mount::Claim { name: "data", path: DATA.to_owned() },
        ],
        resources: resources(context),
        ..Container::default()
    }
}

/// A Secret whose new values reach running members.
fn secret(secret: String, directory: &str) -> Mount {
    Mount::Secret { secret, path: format!("/etc/openstack/{directory}"), change: Change::Refresh }
}

fn server(context: &Context<'_, Valkey>) -> Container {
    let script = |script: &str| Check::Command(shared::command(["bash", &shared::script_path(script)]));
    let mut server = container(context, "server", "start.sh", SERVER_IMAGE, &ContainerSettings::default());
    let (password, administrator) = secrets(context.name);
    server.mounts.extend([
        shared::file("stop.sh", "/etc/openstack/stop.sh"),
        shared::file("check.sh", "/etc/openstack/check.sh"),
        shared::file(CONFIGURATION, "/etc/openstack/valkey.conf"),
        secret(password, PASSWORD),
        secret(administrator, ADMINISTRATOR),
        Mount::Annotations { path: "/etc/podinfo".to_owned() },
        shared::scratch("run", "/run/valkey"),
        shared::scratch("tmp", "/tmp"),
    ]);
    server.ports = vec![CLIENTS];
    server.probes = Probes {
        // A member without data may have to wait for the others.
        startup: Some(shared::probe(script("check.sh"), 2, 5, 43200)),
        readiness: Some(shared::probe(script("check.sh"), 5, 5, 3)),
        liveness: Some(shared::probe(Check::Connect { port: CLIENTS.number }, 10, 5, 6)),
    };
    server.before_stop = Some(shared::command(["bash", "/etc/openstack/stop.sh", &STOP_SECONDS.to_string()]));
    server
}

fn sentinel(context: &Context<'_, Valkey>) -> Container {
    let ValkeyTemplate { sentinel: settings, common, .. } = &context.object.spec.template;
    let connect = || Check::Connect { port: SENTINEL.number };
    let mut sentinel = container(context, "sentinel", "sentinel.sh", SENTINEL_IMAGE, settings);
    sentinel.resources = shared::component_resources(settings, &common.pods, SENTINEL_AMOUNTS);
    sentinel.mounts.extend([
        secret(secrets(context.name).1, ADMINISTRATOR),
        shared::scratch("run", "/run/valkey"),
        shared::scratch("tmp", "/tmp"),
    ]);
    sentinel.ports = vec![SENTINEL];
    sentinel.probes = Probes {
        startup: Some(shared::probe(connect(), 2, 5, 43200)),
        readiness: Some(shared::probe(connect(), 5, 5, 3)),
        liveness: Some(shared::probe(connect(), 10, 5, 6)),
    };
    sentinel
}

fn workload(context: &Context<'_, Valkey>) -> Workload {
    let ValkeyTemplate { storage, common, .. } = &context.object.spec.template;
    let size = size(context);
    let mut containers = vec![server(context)];
    containers.extend((size > 1).then(|| sentinel(context)));
    let report = container(context, "report", "report.sh", SERVER_IMAGE, &ContainerSettings::default());
    let pod = Pod::new(USER, &common.pods.scheduling, containers);
    Workload {
        component: "server".into(),
        suffix: None,
        controller: Controller::StatefulSet {
            claims: vec![Claim {
                name: "data",
                size: storage_size(context),
                class: storage.storage_class.clone(),
            }],
            volumes_deleted: storage.deletion_policy == DeletionPolicy::Delete,
        },
        replicas: size,
        pod: Pod { setup: vec![report], grace_seconds: GRACE_SECONDS, ..pod },
        after: Vec::new(),
        services: services(context, size),
    }
}

fn storage_size(context: &Context<'_, Valkey>) -> String {
    context.object.spec.template.storage.storage_size.clone().unwrap_or_else(|| "2Gi".to_owned())
}

/// A Service for clients, one for the names of all pods, and one for each member: its address stays when the pod changes.
fn services(context: &Context<'_, Valkey>, size: i32) -> Vec<NetworkService> {
    let ports = if size > 1 { vec![CLIENTS, SENTINEL] } else { vec![CLIENTS] };
    // Only one of several servers accepts writes, and Sentinels know which.
    let main = if size > 1 { vec![SENTINEL] } else { vec![CLIENTS] };
    let each = pods(context.name, if size > 1 { size } else { 0 }).into_iter().enumerate();
    let each = each.map(|(ordinal, pod)| NetworkService {
        suffix: Some(ordinal.to_string().into()),
        ports: ports.clone(),
        reach: Reach::OneMember(pod),
    });
    let clients = NetworkService { suffix: None, ports: main, reach: Reach::Cluster };
    let members =
        NetworkService { suffix: Some("members".into()), ports: ports.clone(), reach: Reach::EachPod };
    [clients, members].into_iter().chain(each).collect()
}
