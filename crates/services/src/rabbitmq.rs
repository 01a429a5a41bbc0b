//! RabbitMQ: a message bus with quorum queues. A member without data joins one that serves.

use std::collections::BTreeMap;
use std::fmt::Write;

use kube::CustomResource;
use openstack_operator_model::common::{Common, DeletionPolicy, Origin, Storage};
use openstack_operator_model::image::{Image, ImageNames};
use openstack_operator_model::kind::Kind;
use openstack_operator_model::name;
use openstack_operator_model::plan::{
    Change, Check, Claim, Container, Controller, Entry, File, FileName, MemberProtocol, Mount,
    NetworkService, Plan, Pod, Port, Probes, Reach, SecretPlan, Variable, Workload,
};
use openstack_operator_model::quantity;
use openstack_operator_model::service::{Context, Direction, Invalid, Member};
use openstack_operator_model::status::{MessagingServer, Provides, Stage, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cloud::{Part, Presence, Wave};
use crate::control_plane::OpenStackControlPlaneSpec;
use crate::inputs::{self, Input, Inputs};
use crate::program::Amounts;
use crate::shared;

mod cluster;

pub const KIND: Kind = Kind::own("RabbitMQ", "rabbitmqs");
const AMQP: Port = Port::tcp("amqp", 5672);
const MANAGEMENT: Port = Port::tcp("management", 15672);
const METRICS: Port = Port::tcp("metrics", 15692);
const EPMD: Port = Port::tcp("epmd", 4369);
const DISTRIBUTION: Port = Port::tcp("distribution", 25672);
const PORTS: [Port; 5] = [AMQP, MANAGEMENT, METRICS, EPMD, DISTRIBUTION];
const USER: i64 = 42439;
const AMOUNTS: Amounts = Amounts { cpu: "100m", memory: "256Mi", memory_limit: "1Gi" };
const ADMINISTRATOR: &str = "administrator";
const DATA: &str = "/var/lib/rabbitmq";
/// Time that a member may take to start, which includes waiting for other members.
const START_SECONDS: i32 = 1800;
const START_PERIOD: i32 = 2;

const SCRIPTS: [(&str, &str); 4] = [
    ("member.sh", include_str!("rabbitmq/member.sh")),
    ("report.sh", include_str!("rabbitmq/report.sh")),
    ("start.sh", include_str!("rabbitmq/start.sh")),
    ("stop.sh", include_str!("rabbitmq/stop.sh")),
];

/// Time that a stopping member waits until its queues have a quorum without it.
const STOP_SECONDS: i64 = 120;
/// The rest is for the shutdown.
const GRACE_SECONDS: i64 = STOP_SECONDS + 60;

/// RabbitMQ cluster.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "openstack.k8s.io",
    version = "v1alpha1",
    kind = "RabbitMQ",
    plural = "rabbitmqs",
    namespaced,
    status = "Status",
    shortname = "rmq",
    category = "openstack"
)]
pub struct RabbitMQSpec {
    #[serde(flatten)]
    pub origin: Origin,
    #[serde(flatten)]
    pub template: RabbitMQTemplate,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RabbitMQTemplate {
    /// Number of members. It must be odd, so that a quorum exists. Defaults to 1. On scale-down, members hand over their
    /// queues and leave the cluster one by one, and their volumes are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 7), extend("x-kubernetes-validations" = [
        { "rule": "self % 2 == 1", "message": "replicas must be odd: 1, 3, 5 or 7" },
    ]))]
    pub replicas: Option<i32>,
    #[serde(flatten)]
    pub storage: Storage,
    #[serde(flatten)]
    pub common: Common,
}

impl RabbitMQTemplate {
    fn replicas(&self) -> i32 {
        self.replicas.unwrap_or(1)
    }
}

impl Inputs for RabbitMQTemplate {
    fn inputs(&mut self) -> Vec<Input<'_>> {
        inputs::quorum(&mut self.replicas, &mut self.storage, &mut self.common.pods)
    }
}

pub struct Service;

impl Part for Service {
    type Object = RabbitMQ;
    type Template = RabbitMQTemplate;
    const KIND: Kind = KIND;
    const NAME: &'static str = "rabbitmq";
    const STAGE: Stage = Stage::Infrastructure;
    const PRESENCE: Presence = Presence::ByDefault;
    const WAVE: Wave = Wave::Backends;
    const DIRECTS: bool = true;

    fn template(object: &RabbitMQ) -> &RabbitMQTemplate {
        &object.spec.template
    }

    fn is_replaced(cloud: &OpenStackControlPlaneSpec) -> bool {
        cloud.messaging.is_some()
    }

    fn cloud_rules() -> Vec<(String, String)> {
        let mut rules = shared::volume_rules("rabbitmq", "messaging");
        rules.push(shared::exclusive_rule("messaging", "hosts", "rabbitmq", "existing servers"));
        rules
    }

    fn plan(context: &Context<'_, RabbitMQ>) -> Result<Plan, Invalid> {
        let RabbitMQSpec { origin, template } = &context.object.spec;
        shared::check_extra_config(&template.common, &["rabbitmq.conf"])?;
        let size = cluster::size(template.replicas(), context.memory);
        let members_service = name::part(context.name, "members");
        let members = shared::member_hosts(context, context.name, &members_service, size);
        let secrets = Secrets::new(context.name);
        let host = shared::service_host(context, context.name);
        let mode = if context.memory.contains_key(cluster::FORMED) { "formed" } else { "new" };
        let mut files: BTreeMap<FileName, File> =
            SCRIPTS.map(|(file, text)| (file.to_owned(), text.into())).into();
        files.insert("rabbitmq.conf".to_owned(), configuration(context)?.into());
        files.insert("enabled_plugins".to_owned(), "[rabbitmq_management,rabbitmq_prometheus].\n".into());
        let staying = shared::member_hosts(context, context.name, &members_service, template.replicas());
        let protocol = MemberProtocol::Bus {
            scheme: shared::INTERNAL_SCHEME,
            port: MANAGEMENT.number,
            secret: secrets.administrator.clone(),
        };
        Ok(Plan {
            secrets: secrets.plans(template.storage.deletion_policy),
            files,
            live_files: BTreeMap::from([
                ("members.conf".to_owned(), member_list(&members)),
                ("storage.conf".to_owned(), storage_limit(context)?),
                ("mode".to_owned(), mode.to_owned()),
            ]),
            workloads: vec![workload(context, &members_service, &secrets, size)],
            member_protocol: (size > 1).then_some(protocol),
            provides: Provides {
                messaging: Some(MessagingServer {
                    hosts: staying,
                    port: AMQP.number,
                    management_url: shared::internal_endpoint(&host, &MANAGEMENT).url(),
                    secret: secrets.administrator,
                }),
                ..Provides::default()
            },
            pull_secrets: origin.images.pull_secrets.clone(),
            additions: template.common.pods.additions.clone(),
            ..Plan::default()
        })
    }

    fn direct(object: &RabbitMQ, members: &[Member], memory: &BTreeMap<String, String>) -> Direction {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        cluster::direct(name, object.spec.template.replicas(), members, memory)
    }
}

/// Names of the Secrets.
struct Secrets {
    administrator: String,
    cookie: String,
}

impl Secrets {
    fn new(name: &str) -> Self {
        Self { administrator: name::part(name, "administrator"), cookie: name::part(name, "cookie") }
    }

    fn plans(&self, volumes: DeletionPolicy) -> Vec<SecretPlan> {
        // Members authenticate with the cookie. It must not change during the life of the cluster, and members with
        // retained volumes still use it.
        let cookie = [("cookie", Entry::Password { length: 40 })];
        let retained = volumes == DeletionPolicy::Retain;
        vec![
            SecretPlan::login(&self.administrator, ADMINISTRATOR),
            SecretPlan { retained, irreplaceable: true, ..SecretPlan::with_entries(&self.cookie, cookie) },
        ]
    }
}

fn member_list(hosts: &[String]) -> String {
    hosts.iter().zip(1..).fold(String::new(), |mut text, (host, number)| {
        let _ = writeln!(text, "cluster_formation.classic_config.nodes.{number} = rabbit@{host}");
        text
    })
}

fn resources(context: &Context<'_, RabbitMQ>) -> openstack_operator_model::common::Resources {
    shared::resources(&context.object.spec.template.common.pods.container.resources, AMOUNTS)
}

fn storage_size(context: &Context<'_, RabbitMQ>) -> String {
    context.object.spec.template.storage.storage_size.clone().unwrap_or_else(|| "5Gi".to_owned())
}

/// A fixed limit would block publishers forever on a small volume. It is a live file, because a volume can grow without
/// a restart.
fn storage_limit(context: &Context<'_, RabbitMQ>) -> Result<String, Invalid> {
    let storage = quantity::bytes(&storage_size(context), "spec.storageSize")?;
    Ok(format!("disk_free_limit.absolute = {}\n", (storage / 5).min(2_000_000_000)))
}

fn configuration(context: &Context<'_, RabbitMQ>) -> Result<String, Invalid> {
    let limit = resources(context).limits.memory.unwrap_or_default();
    let memory = quantity::bytes(&limit, "spec.resources.limits.memory")?;
    let mut options = BTreeMap::from([
        ("auth_mechanisms.1", "PLAIN".to_owned()),
        ("auth_mechanisms.2", "AMQPLAIN".to_owned()),
        ("cluster_formation.peer_discovery_backend", "classic_config".to_owned()),
        // A member that gives up forms a second cluster. Its startup probe fails before that.
        ("cluster_formation.discovery_retry_limit", (2 * START_SECONDS).to_string()),
        ("cluster_formation.discovery_retry_interval", "1000".to_owned()),
        ("cluster_name", format!("{}-{}", context.namespace, context.name)),
        ("cluster_partition_handling", "pause_minority".to_owned()),
        ("collect_statistics_interval", "30000".to_owned()),
        ("default_queue_type", "quorum".to_owned()),
        ("log.console", "true".to_owned()),
        ("log.console.level", "info".to_owned()),
        ("queue_leader_locator", "balanced".to_owned()),
        ("quorum_queue.continuous_membership_reconciliation.enabled", "true".to_owned()),
        ("vm_memory_high_watermark.absolute", (memory / 10 * 6).to_string()),
    ]);
    let extra = context.object.spec.template.common.extra_config.get("rabbitmq.conf");
    let given = extra.into_iter().flatten().flat_map(|(_, options)| options);
    options.extend(given.map(|(option, value)| (option.as_str(), value.clone())));
    Ok(options.iter().fold(String::new(), |mut text, (option, value)| {
        let _ = writeln!(text, "{option} = {value}");
        text
    }))
}

fn environment(context: &Context<'_, RabbitMQ>, members_service: &str) -> Vec<Variable> {
    let Context { namespace, site, .. } = context;
    let node = format!("rabbit@$(POD_NAME).{members_service}.{namespace}.svc.{}", site.cluster_domain);
    vec![
        Variable::field("POD_NAME", "metadata.name"),
        Variable::field("POD_UID", "metadata.uid"),
        Variable::text("HOME", DATA),
        Variable::text("LANG", "C.UTF-8"),
        Variable::text("RABBITMQ_USE_LONGNAME", "true"),
        Variable::text("RABBITMQ_NODENAME", node),
        Variable::text("RABBITMQ_LOGS", "-"),
        Variable::text("RABBITMQ_MNESIA_BASE", format!("{DATA}/mnesia")),
        Variable::text("RABBITMQ_ENABLED_PLUGINS_FILE", "/etc/openstack/enabled_plugins"),
        Variable::text("RABBITMQ_CONFIG_FILES", "/run/rabbitmq/conf.d"),
        // Waiting threads must not spin, which would use a core.
        Variable::text("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "+sbwt none +sbwtdcpu none +sbwtdio none"),
    ]
}

/// A container of a member, with what all of them see.
fn container(
    context: &Context<'_, RabbitMQ>,
    name: &'static str,
    script: &str,
    members_service: &str,
) -> Container {
    let RabbitMQSpec { origin, template } = &context.object.spec;
    let names = ImageNames::same("rabbitmq");
    let path = shared::script_path(script);
    Container {
        name,
        image: shared::component_image(context, names, &Image::default(), &template.common.pods, origin),
        command: shared::script(&path),
        environment: environment(context, members_service),
        mounts: vec![
            shared::file("member.sh", "/etc/openstack/member.sh"),
            shared::file(script, &path),
            Mount::Claim { name: "data", path: DATA.to_owned() },
        ],
        resources: resources(context),
        ..Container::default()
    }
}

fn server(context: &Context<'_, RabbitMQ>, members_service: &str, secrets: &Secrets) -> Container {
    let connect = || Check::Connect { port: AMQP.number };
    let mut server = container(context, "rabbitmq", "start.sh", members_service);
    // Neither a new password nor a new cookie restarts a member.
    let secret = |secret: &str, path: &str| Mount::Secret {
        secret: secret.to_owned(),
        path: path.to_owned(),
        change: Change::Refresh,
    };
    server.mounts.extend([
        shared::file("stop.sh", "/etc/openstack/stop.sh"),
        shared::file("rabbitmq.conf", "/etc/openstack/rabbitmq.conf"),
        shared::file("enabled_plugins", "/etc/openstack/enabled_plugins"),
        secret(&secrets.administrator, "/etc/openstack/administrator"),
        secret(&secrets.cookie, "/etc/openstack/cookie"),
        Mount::LiveFiles { path: "/etc/openstack/live".to_owned() },
        Mount::Annotations { path: "/etc/podinfo".to_owned() },
        shared::scratch("run", "/run/rabbitmq"),
        shared::scratch("tmp", "/tmp"),
    ]);
    server.ports = PORTS.to_vec();
    server.probes = Probes {
        startup: Some(shared::probe(connect(), START_PERIOD, 5, START_SECONDS / START_PERIOD)),
        readiness: Some(shared::probe(connect(), 10, 5, 3)),
        // A broker that waits for other members must not be killed.
        liveness: None,
    };
    server.before_stop = Some(shared::command(["bash", "/etc/openstack/stop.sh", &STOP_SECONDS.to_string()]));
    server
}

fn workload(
    context: &Context<'_, RabbitMQ>,
    members_service: &str,
    secrets: &Secrets,
    size: i32,
) -> Workload {
    let template = &context.object.spec.template;
    let server = server(context, members_service, secrets);
    let report = container(context, "report", "report.sh", members_service);
    let pod = Pod::new(USER, &template.common.pods.scheduling, vec![server]);
    let service = |suffix: Option<&'static str>, ports: &[Port], reach| NetworkService {
        suffix: suffix.map(Into::into),
        ports: ports.to_vec(),
        reach,
    };
    Workload {
        component: "server".into(),
        suffix: None,
        controller: Controller::StatefulSet {
            claims: vec![Claim {
                name: "data",
                size: storage_size(context),
                class: template.storage.storage_class.clone(),
            }],
            volumes_deleted: template.storage.deletion_policy == DeletionPolicy::Delete,
        },
        replicas: size,
        pod: Pod { setup: vec![report], grace_seconds: GRACE_SECONDS, ..pod },
        after: Vec::new(),
        services: vec![
            service(None, &[AMQP, MANAGEMENT, METRICS], Reach::Cluster),
            service(Some("members"), &PORTS, Reach::EachPod),
        ],
    }
}
