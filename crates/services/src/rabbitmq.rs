//! RabbitMQ: a message bus with quorum queues. Members discover each other from a static list.

use std::collections::BTreeMap;
use std::fmt::Write;

use kube::CustomResource;
use openstack_operator_model::common::{Common, DeletionPolicy, Origin, Storage};
use openstack_operator_model::image::{Image, ImageNames};
use openstack_operator_model::kind::Kind;
use openstack_operator_model::name;
use openstack_operator_model::plan::{
    Check, Claim, Container, Controller, Entry, Mount, NetworkService, Plan, Pod, Port, Probes,
    SecretContent, SecretPlan, Variable, Workload,
};
use openstack_operator_model::quantity;
use openstack_operator_model::service::{Context, Invalid};
use openstack_operator_model::status::{MessagingServer, Provides, Stage, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cloud::{Part, Presence};
use crate::control_plane::OpenStackControlPlaneSpec;
use crate::inputs::{self, Input, Inputs};
use crate::program::Amounts;
use crate::shared;

pub const KIND: Kind = Kind::own("RabbitMQ", "rabbitmqs");
const AMQP: Port = Port { name: "amqp", number: 5672 };
const MANAGEMENT: Port = Port { name: "management", number: 15672 };
const METRICS: Port = Port { name: "metrics", number: 15692 };
const EPMD: Port = Port { name: "epmd", number: 4369 };
const DISTRIBUTION: Port = Port { name: "distribution", number: 25672 };
const PORTS: [Port; 5] = [AMQP, MANAGEMENT, METRICS, EPMD, DISTRIBUTION];
const USER: i64 = 42439;
const AMOUNTS: Amounts = Amounts { cpu: "100m", memory: "256Mi", memory_limit: "1Gi" };
const ADMINISTRATOR: &str = "administrator";
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
    category = "openstack",
    validation = Rule::new("(has(self.spec.replicas) ? self.spec.replicas : 1) >= (has(oldSelf.spec.replicas) ? oldSelf.spec.replicas : 1)")
        .message("spec.replicas: a RabbitMQ cluster cannot be scaled down yet")
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
    /// Number of members. It must be odd, so that a quorum exists. Defaults to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 7), extend("x-kubernetes-validations" = [
        { "rule": "self % 2 == 1", "message": "replicas must be odd: 1, 3, 5 or 7" },
        { "rule": "self >= oldSelf", "message": "a RabbitMQ cluster cannot be scaled down yet" },
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

    fn template(object: &RabbitMQ) -> &RabbitMQTemplate {
        &object.spec.template
    }

    fn is_replaced(cloud: &OpenStackControlPlaneSpec) -> bool {
        cloud.messaging.is_some()
    }

    fn cloud_rules() -> Vec<(String, String)> {
        let mut rules = shared::quorum_rules("rabbitmq", "messaging");
        rules.push(shared::exclusive_rule("messaging", "hosts", "rabbitmq", "existing servers"));
        rules
    }

    fn plan(context: &Context<'_, RabbitMQ>) -> Result<Plan, Invalid> {
        let RabbitMQSpec { origin, template } = &context.object.spec;
        shared::check_extra_config(&template.common, &["rabbitmq.conf"])?;
        let members_service = name::part(context.name, "members");
        let members = shared::member_hosts(context, context.name, &members_service, template.replicas());
        let secret = name::part(context.name, "administrator");
        let host = shared::service_host(context, context.name);
        Ok(Plan {
            secrets: vec![SecretPlan {
                name: secret.clone(),
                content: SecretContent::Entries(credentials()),
                retained: false,
                irreplaceable: false,
            }],
            files: BTreeMap::from([
                ("rabbitmq.conf".to_owned(), configuration(context)?),
                ("enabled_plugins".to_owned(), "[rabbitmq_management,rabbitmq_prometheus].\n".to_owned()),
                ("start.sh".to_owned(), include_str!("rabbitmq/start.sh").to_owned()),
                ("stop.sh".to_owned(), include_str!("rabbitmq/stop.sh").to_owned()),
            ]),
            live_files: BTreeMap::from([("members.conf".to_owned(), member_list(&members))]),
            workloads: vec![workload(context, &members_service, &secret)],
            provides: Provides {
                messaging: Some(MessagingServer {
                    hosts: members,
                    port: AMQP.number,
                    management_url: format!("http://{host}:{}", MANAGEMENT.number),
                    secret,
                }),
                ..Provides::default()
            },
            pull_secrets: origin.images.pull_secrets.clone(),
            additions: template.common.pods.additions.clone(),
            ..Plan::default()
        })
    }
}

/// Members authenticate with the cookie. It must not change during the life of the cluster.
fn credentials() -> BTreeMap<String, Entry> {
    BTreeMap::from([
        ("username".to_owned(), Entry::Text(ADMINISTRATOR.to_owned())),
        ("password".to_owned(), Entry::Password { length: 32 }),
        ("cookie".to_owned(), Entry::Password { length: 40 }),
    ])
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

fn configuration(context: &Context<'_, RabbitMQ>) -> Result<String, Invalid> {
    let limit = resources(context).limits.memory.unwrap_or_default();
    let memory = quantity::bytes(&limit, "spec.resources.limits.memory")?;
    let storage = quantity::bytes(&storage_size(context), "spec.storageSize")?;
    // A fixed limit would block publishers forever on a small volume.
    let disk_free = (storage / 5).min(2_000_000_000);
    let mut options = BTreeMap::from([
        ("auth_mechanisms.1", "PLAIN".to_owned()),
        ("auth_mechanisms.2", "AMQPLAIN".to_owned()),
        ("cluster_formation.peer_discovery_backend", "classic_config".to_owned()),
        // A member that gives up early would bootstrap a second cluster.
        ("cluster_formation.discovery_retry_limit", "600".to_owned()),
        ("cluster_formation.discovery_retry_interval", "1000".to_owned()),
        ("cluster_name", format!("{}-{}", context.namespace, context.name)),
        ("cluster_partition_handling", "pause_minority".to_owned()),
        ("collect_statistics_interval", "30000".to_owned()),
        ("default_queue_type", "quorum".to_owned()),
        ("disk_free_limit.absolute", disk_free.to_string()),
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

fn environment(context: &Context<'_, RabbitMQ>, members_service: &str, secret: &str) -> Vec<Variable> {
    let Context { namespace, site, .. } = context;
    let node = format!("rabbit@$(POD_NAME).{members_service}.{namespace}.svc.{}", site.cluster_domain);
    vec![
        Variable::field("POD_NAME", "metadata.name"),
        Variable::secret("ADMINISTRATOR_NAME", secret, "username"),
        Variable::secret("ADMINISTRATOR_PASSWORD", secret, "password"),
        Variable::secret("CLUSTER_COOKIE", secret, "cookie"),
        Variable::text("HOME", "/var/lib/rabbitmq"),
        Variable::text("LANG", "C.UTF-8"),
        Variable::text("RABBITMQ_USE_LONGNAME", "true"),
        Variable::text("RABBITMQ_NODENAME", node),
        Variable::text("RABBITMQ_LOGS", "-"),
        Variable::text("RABBITMQ_MNESIA_BASE", "/var/lib/rabbitmq/mnesia"),
        Variable::text("RABBITMQ_ENABLED_PLUGINS_FILE", "/etc/openstack/enabled_plugins"),
        Variable::text("RABBITMQ_CONFIG_FILES", "/run/rabbitmq/conf.d"),
        // Waiting threads must not spin, which would use a core.
        Variable::text("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "+sbwt none +sbwtdcpu none +sbwtdio none"),
    ]
}

fn server(context: &Context<'_, RabbitMQ>, members_service: &str, secret: &str) -> Container {
    let RabbitMQSpec { origin, template } = &context.object.spec;
    let names = ImageNames::same("rabbitmq");
    let connect = || Check::Connect { port: AMQP.number };
    Container {
        name: "rabbitmq",
        image: shared::component_image(context, names, &Image::default(), &template.common.pods, origin),
        command: shared::script("/etc/openstack/start.sh"),
        environment: environment(context, members_service, secret),
        mounts: vec![
            shared::file("start.sh", "/etc/openstack/start.sh"),
            shared::file("stop.sh", "/etc/openstack/stop.sh"),
            shared::file("rabbitmq.conf", "/etc/openstack/rabbitmq.conf"),
            shared::file("enabled_plugins", "/etc/openstack/enabled_plugins"),
            Mount::LiveFiles { path: "/etc/openstack/live".to_owned() },
            Mount::Claim { name: "data", path: "/var/lib/rabbitmq".to_owned() },
            shared::scratch("run", "/run/rabbitmq"),
            shared::scratch("tmp", "/tmp"),
        ],
        ports: PORTS.to_vec(),
        probes: Probes {
            startup: Some(shared::probe(connect(), 2, 5, 900)),
            readiness: Some(shared::probe(connect(), 10, 5, 3)),
            // A broker that waits for other members must not be killed.
            liveness: None,
        },
        resources: resources(context),
        before_stop: Some(shared::command(["bash", "/etc/openstack/stop.sh", &STOP_SECONDS.to_string()])),
        ..Container::default()
    }
}

fn workload(context: &Context<'_, RabbitMQ>, members_service: &str, secret: &str) -> Workload {
    let template = &context.object.spec.template;
    let server = server(context, members_service, secret);
    let pod = Pod::new(USER, &template.common.pods.scheduling, vec![server]);
    let service = |suffix: Option<&'static str>, ports: &[Port], headless| NetworkService {
        suffix: suffix.map(Into::into),
        ports: ports.to_vec(),
        headless,
        pod: None,
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
        replicas: template.replicas(),
        pod: Pod { grace_seconds: GRACE_SECONDS, ..pod },
        after: Vec::new(),
        services: vec![
            service(None, &[AMQP, MANAGEMENT, METRICS], false),
            service(Some("members"), &PORTS, true),
        ],
    }
}
