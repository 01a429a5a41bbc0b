//! MariaDB: a Galera cluster even with one member, so that more members can join.

use std::collections::BTreeMap;

use kube::CustomResource;
use openstack_operator_model::common::{Common, DeletionPolicy, Origin, Resources, Storage};
use openstack_operator_model::image::{Image, ImageNames};
use openstack_operator_model::kind::Kind;
use openstack_operator_model::name;
use openstack_operator_model::oslo::Document;
use openstack_operator_model::plan::{
    Check, Claim, Container, Controller, File, FileName, MemberProtocol, Mount, NetworkService, Plan, Pod,
    Port, Probes, Reach, SecretPlan, Variable, Workload,
};
use openstack_operator_model::quantity;
use openstack_operator_model::service::{Context, Direction, Invalid, Member};
use openstack_operator_model::status::{DatabaseServer, Provides, Stage, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cloud::{Part, Presence, Wave};
use crate::control_plane::OpenStackControlPlaneSpec;
use crate::inputs::{self, Input, Inputs};
use crate::program::Amounts;
use crate::shared;

mod galera;

pub const KIND: Kind = Kind::own("MariaDB", "mariadbs");
const SQL: Port = Port::tcp("sql", 3306);
/// Accepts the operator when clients use all connections.
const ADMIN: Port = Port::tcp("admin", 3307);
const GALERA: Port = Port::tcp("group", 4567);
const INCREMENTAL: Port = Port::tcp("incremental", 4568);
const TRANSFER: Port = Port::tcp("transfer", 4444);
const USER: i64 = 42434;
const DATA: &str = "/var/lib/mysql";
const AMOUNTS: Amounts = Amounts { cpu: "100m", memory: "512Mi", memory_limit: "1Gi" };

const SCRIPTS: [(&str, &str); 4] = [
    ("report.sh", include_str!("mariadb/report.sh")),
    ("prepare.sh", include_str!("mariadb/prepare.sh")),
    ("start.sh", include_str!("mariadb/start.sh")),
    ("check.sh", include_str!("mariadb/check.sh")),
];

/// MariaDB server or Galera cluster.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "openstack.k8s.io",
    version = "v1alpha1",
    kind = "MariaDB",
    plural = "mariadbs",
    namespaced,
    status = "Status",
    shortname = "maria",
    category = "openstack"
)]
pub struct MariaDBSpec {
    #[serde(flatten)]
    pub origin: Origin,
    #[serde(flatten)]
    pub template: MariaDBTemplate,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MariaDBTemplate {
    /// Number of members. It must be odd, so that a quorum exists. Defaults to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 7), extend("x-kubernetes-validations" = [
        { "rule": "self % 2 == 1", "message": "replicas must be odd: 1, 3, 5 or 7" },
    ]))]
    pub replicas: Option<i32>,
    /// Maximum number of client connections.
    #[serde(default = "connections")]
    #[schemars(range(min = 64, max = 100_000))]
    pub max_connections: u32,
    /// Decisions of the user after the loss of members.
    #[serde(default, skip_serializing_if = "Recovery::is_empty")]
    pub recovery: Recovery,
    #[serde(flatten)]
    pub storage: Storage,
    #[serde(flatten)]
    pub common: Common,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Recovery {
    /// Pods whose data is given up. A recovery does not wait for them, so transactions that only they contain are lost.
    /// If all pods are listed, the cluster starts with an empty database. Remove them once the cluster serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7), inner(length(min = 1, max = 63)))]
    pub lost_members: Vec<String>,
}

impl Recovery {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn connections() -> u32 {
    1024
}

impl MariaDBTemplate {
    fn replicas(&self) -> i32 {
        self.replicas.unwrap_or(1)
    }

    /// Number of pods, including those that have not left yet.
    fn size(&self, memory: &BTreeMap<String, String>) -> i32 {
        galera::size(self.replicas(), memory)
    }
}

impl Inputs for MariaDBTemplate {
    fn inputs(&mut self) -> Vec<Input<'_>> {
        inputs::quorum(&mut self.replicas, &mut self.storage, &mut self.common.pods)
    }
}

pub struct Service;

impl Part for Service {
    type Object = MariaDB;
    type Template = MariaDBTemplate;
    const KIND: Kind = KIND;
    const NAME: &'static str = "mariadb";
    const STAGE: Stage = Stage::Infrastructure;
    const PRESENCE: Presence = Presence::ByDefault;
    const WAVE: Wave = Wave::Backends;
    const DIRECTS: bool = true;

    fn template(object: &MariaDB) -> &MariaDBTemplate {
        &object.spec.template
    }

    fn is_replaced(cloud: &OpenStackControlPlaneSpec) -> bool {
        cloud.database.is_some()
    }

    fn cloud_rules() -> Vec<(String, String)> {
        let mut rules = shared::volume_rules("mariadb", "database");
        rules.push(shared::exclusive_rule("database", "host", "mariadb", "an existing server"));
        rules
    }

    fn plan(context: &Context<'_, MariaDB>) -> Result<Plan, Invalid> {
        let MariaDBSpec { origin, template } = &context.object.spec;
        shared::check_extra_config(&template.common, &["mariadb.cnf"])?;
        let secret = name::part(context.name, "root");
        let size = template.size(context.memory);
        let members = shared::member_hosts(context, context.name, &name::part(context.name, "members"), size);
        let mode = if size == 1 { "single" } else { "cluster" };
        let formed = if context.memory.contains_key(galera::FORMED) { "yes" } else { "no" };
        let protocol = MemberProtocol::Sql { port: ADMIN.number, secret: secret.clone() };
        let mut files: BTreeMap<FileName, File> =
            SCRIPTS.map(|(file, text)| (file.to_owned(), text.into())).into();
        files.insert("mariadb.cnf".to_owned(), configuration(context)?.into());
        Ok(Plan {
            secrets: vec![SecretPlan::login(&secret, "root")],
            files,
            live_files: BTreeMap::from([
                ("members".to_owned(), members.join(" ") + "\n"),
                ("mode".to_owned(), mode.to_owned()),
                ("formed".to_owned(), formed.to_owned()),
            ]),
            workloads: vec![workload(context, &secret)],
            member_protocol: (size > 1).then_some(protocol),
            provides: Provides {
                database: Some(DatabaseServer {
                    host: shared::service_host(context, context.name),
                    port: SQL.number,
                    admin_port: ADMIN.number,
                    secret,
                }),
                ..Provides::default()
            },
            pull_secrets: origin.images.pull_secrets.clone(),
            additions: template.common.pods.additions.clone(),
            ..Plan::default()
        })
    }

    fn direct(object: &MariaDB, members: &[Member], memory: &BTreeMap<String, String>) -> Direction {
        let template = &object.spec.template;
        let wanted = galera::Wanted {
            name: object.metadata.name.as_deref().unwrap_or_default(),
            replicas: template.replicas(),
            lost: &template.recovery.lost_members,
        };
        galera::direct(&wanted, members, memory)
    }
}

fn resources(context: &Context<'_, MariaDB>) -> Resources {
    shared::resources(&context.object.spec.template.common.pods.container.resources, AMOUNTS)
}

fn configuration(context: &Context<'_, MariaDB>) -> Result<String, Invalid> {
    let template = &context.object.spec.template;
    let limit = resources(context).limits.memory.unwrap_or_default();
    let buffer_pool = quantity::bytes(&limit, "spec.resources.limits.memory")? / 2;
    let provider_options = [
        "gcache.size=128M",
        "gcache.recover=yes",
        "gcs.fc_limit=64",
        "gcs.fc_single_primary=yes",
        "pc.recovery=no",
        // A member that joined survivors without a quorum stops soon, and reports its position.
        "pc.wait_prim_timeout=PT10S",
        "gmcast.listen_addr=tcp://0.0.0.0:4567",
    ];
    let document = Document::new()
        .section_of("client", [("socket", "/run/mysqld/mysqld.sock"), ("user", "mysql")])
        .section_of(
            "mysqld",
            [
                ("datadir", DATA),
                ("socket", "/run/mysqld/mysqld.sock"),
                ("pid_file", "/run/mysqld/mysqld.pid"),
                ("tmpdir", "/tmp"),
                ("bind_address", "*"),
                ("skip_name_resolve", "ON"),
                ("extra_port", "3307"),
                ("extra_max_connections", "10"),
                ("default_storage_engine", "InnoDB"),
                ("innodb_autoinc_lock_mode", "2"),
                ("innodb_flush_log_at_trx_commit", "1"),
                ("innodb_log_file_size", "256M"),
                ("binlog_format", "ROW"),
                ("character_set_server", "utf8mb3"),
                ("collation_server", "utf8mb3_general_ci"),
                // From 11.5 on, a table with a character set and no collation gets another default collation.
                ("loose_character_set_collations", ""),
                // ON by default from 11.6 on, which causes errors that OpenStack does not retry.
                ("loose_innodb_snapshot_isolation", "OFF"),
                ("max_allowed_packet", "64M"),
                ("wait_timeout", "28800"),
                ("wsrep_on", "ON"),
                ("wsrep_provider", "/usr/lib/galera/libgalera_smm.so"),
                ("wsrep_slave_threads", "4"),
                ("wsrep_retry_autocommit", "3"),
                // A member that cannot apply a change of a schema leaves the cluster. By default it continues without.
                ("wsrep_ignore_apply_errors", "0"),
                ("wsrep_sst_method", "mariabackup"),
                ("wsrep_sst_auth", "mysql:"),
                // Without this mode a donor applies changes of schemas while its files are copied (MDEV-33211): the copy
                // contains a part of them, and its position does not say which.
                ("wsrep_mode", "BF_ABORT_MARIABACKUP"),
            ],
        )
        .set("mysqld", "wsrep_provider_options", provider_options.join("; "))
        .set("mysqld", "wsrep_cluster_name", cluster_name(context.namespace, context.name))
        .set("mysqld", "innodb_buffer_pool_size", buffer_pool)
        .set("mysqld", "max_connections", template.max_connections)
        .merge(template.common.extra_config.get("mariadb.cnf"));
    Ok(document.render())
}

/// Members with a longer name fail to read each other's messages, and none joins.
const LONGEST_CLUSTER_NAME: usize = 32;

fn cluster_name(namespace: &str, name: &str) -> String {
    name::shorten(&format!("{namespace}-{name}"), LONGEST_CLUSTER_NAME)
}

/// A container of a member, with what all of them see.
fn container(context: &Context<'_, MariaDB>, name: &'static str, script: &str) -> Container {
    let MariaDBSpec { origin, template } = &context.object.spec;
    let names = ImageNames { kolla: "mariadb-server", debian: "mariadb" };
    let path = shared::script_path(script);
    Container {
        name,
        image: shared::component_image(context, names, &Image::default(), &template.common.pods, origin),
        command: shared::script(&path),
        mounts: vec![
            shared::file("mariadb.cnf", "/etc/openstack/mariadb.cnf"),
            shared::file("report.sh", "/etc/openstack/report.sh"),
            shared::file(script, &path),
            Mount::Claim { name: "data", path: DATA.to_owned() },
            shared::scratch("run", "/run/mysqld"),
            shared::scratch("tmp", "/tmp"),
        ],
        resources: resources(context),
        ..Container::default()
    }
}

fn server(context: &Context<'_, MariaDB>, secret: &str) -> Container {
    let check = |state: &str| Check::Command(shared::command(["bash", "/etc/openstack/check.sh", state]));
    let mut server = container(context, "mariadb", "start.sh");
    server.environment = vec![
        Variable::field("POD_NAME", "metadata.name"),
        Variable::field("POD_IP", "status.podIP"),
        Variable::text("SERVICE", shared::service_host(context, context.name)),
        Variable::text("MEMBERS", shared::service_host(context, &name::part(context.name, "members"))),
        Variable::secret("ROOT_PASSWORD", secret, "password"),
    ];
    server.mounts.extend([
        shared::file("check.sh", "/etc/openstack/check.sh"),
        Mount::LiveFiles { path: "/etc/openstack/live".to_owned() },
        Mount::Annotations { path: "/etc/podinfo".to_owned() },
    ]);
    server.ports = vec![SQL, ADMIN, GALERA, INCREMENTAL, TRANSFER];
    server.probes = Probes {
        // A state transfer of a large database may take hours and must not be interrupted.
        startup: Some(shared::probe(check("alive"), 2, 5, 43200)),
        readiness: Some(shared::probe(check("ready"), 4, 5, 2)),
        liveness: Some(shared::probe(check("alive"), 15, 10, 12)),
    };
    server
}

fn workload(context: &Context<'_, MariaDB>, secret: &str) -> Workload {
    let template = &context.object.spec.template;
    let prepare = container(context, "prepare", "prepare.sh");
    let pod = Pod::new(USER, &template.common.pods.scheduling, vec![server(context, secret)]);
    let writer = context.memory.get(galera::WRITER).cloned().unwrap_or_else(|| format!("{}-0", context.name));
    Workload {
        component: "server".into(),
        suffix: None,
        controller: Controller::StatefulSet {
            claims: vec![Claim {
                name: "data",
                size: template.storage.storage_size.clone().unwrap_or_else(|| "10Gi".to_owned()),
                class: template.storage.storage_class.clone(),
            }],
            volumes_deleted: template.storage.deletion_policy == DeletionPolicy::Delete,
        },
        replicas: template.size(context.memory),
        // A clean shutdown matters more than a fast one.
        pod: Pod { setup: vec![prepare], grace_seconds: 600, ..pod },
        after: Vec::new(),
        services: vec![
            NetworkService { suffix: None, ports: vec![SQL, ADMIN], reach: Reach::OnePod(writer) },
            NetworkService {
                suffix: Some("members".into()),
                ports: vec![SQL, GALERA, INCREMENTAL, TRANSFER],
                reach: Reach::EachPod,
            },
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_galera_cluster_name_has_at_most_32_characters() {
        assert_eq!(cluster_name("openstack", "cloud-mariadb"), "openstack-cloud-mariadb");
        let (one, other) = (cluster_name(&"n".repeat(63), "one"), cluster_name(&"n".repeat(63), "other"));
        assert_eq!(one.len(), LONGEST_CLUSTER_NAME);
        assert_ne!(one, other);
    }
}
