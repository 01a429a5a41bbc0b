//! Ceph: pools, users and their keys on a Ceph cluster.

use std::collections::BTreeMap;

use openstack_operator_model::common::{ADOPT_ANNOTATION, DeletionPolicy};
use openstack_operator_model::image::{Image, ImageNames};
use openstack_operator_model::kind::Kind;
use openstack_operator_model::name;
use openstack_operator_model::need::Needs;
use openstack_operator_model::plan::{
    Container, Cron, Encoding, Entry, File, Mount, Piece, Plan, Schedule, SecretKey, SecretPlan, Task,
    TaskInput, TaskStage, Variable,
};
use openstack_operator_model::service::{Context, Invalid};
use openstack_operator_model::status::{Provides, Stage, StorageCluster, StorageUser};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cloud::Part;
use crate::control_plane::{OpenStackControlPlaneSpec, StorageBackend};
use crate::program::Amounts;
use crate::shared;

use layout::{Filesystem, Layout, Pool, User};
pub use spec::*;

mod layout;
mod spec;

pub const KIND: Kind = Kind::own("CephStorage", "cephstorages");
/// Images of Glance contain the libraries of Ceph clients.
const IMAGE: ImageNames = ImageNames { kolla: "glance-api", debian: "glance" };
const USER: i64 = 42415;
const AMOUNTS: Amounts = Amounts { cpu: "20m", memory: "64Mi", memory_limit: "256Mi" };
const SCRIPT: &str = "storage.py";
/// File with everything that the operator ensures in the cluster.
const WANTED: &str = "storage.json";
/// Keys of the Secret of an existing cluster.
const EXTERNAL: [&str; 4] = ["monitors", "fsid", "username", "key"];
/// Start of a key of cephx: its type, the time of its creation, and the number of random bytes.
const KEY_HEADER: [u8; 12] = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0];
const RUN_DEADLINE_SECONDS: i64 = 600;

pub struct Service;

impl Part for Service {
    type Object = CephStorage;
    type Template = CephStorageTemplate;
    const KIND: Kind = KIND;
    const NAME: &'static str = "ceph";
    const STAGE: Stage = Stage::Infrastructure;

    fn is_implied(cloud: &OpenStackControlPlaneSpec) -> bool {
        cloud.storage_backend == Some(StorageBackend::Ceph)
    }

    fn cloud_rules() -> Vec<(String, String)> {
        let block = "self.spec.ceph";
        let implied = "has(self.spec.storageBackend) && self.spec.storageBackend == 'ceph'";
        let switch = format!("has({block}) && has({block}.enabled)");
        vec![
            (
                format!("!({implied}) || !({switch}) || {block}.enabled"),
                "spec.storageBackend ceph requires Ceph: remove spec.ceph.enabled".to_owned(),
            ),
            (
                format!(
                    "!({implied} || {switch} && {block}.enabled) || has({block}) && has({block}.external)"
                ),
                MISSING.replace("spec.", "spec.ceph."),
            ),
        ]
    }

    fn smallest_block() -> Value {
        json!({ "external": { "secretRef": { "name": "ceph" } } })
    }

    fn template(object: &CephStorage) -> &CephStorageTemplate {
        &object.spec.template
    }

    fn needs(object: &CephStorage) -> Needs {
        let external = object.spec.template.external.as_ref();
        let secret = external.map(|external| external.secret_ref.name.as_str());
        Needs::default().secret("spec.external.secretRef", secret, &EXTERNAL)
    }

    fn plan(context: &Context<'_, CephStorage>) -> Result<Plan, Invalid> {
        let CephStorageSpec { origin, template } = &context.object.spec;
        let Some(external) = &template.external else {
            return Err(Invalid::new("spec.external", MISSING.trim_start_matches("spec.external ")));
        };
        let layout = Layout::new(template);
        let cron = Cron::new(&template.reconcile_schedule)
            .map_err(|reason| Invalid::new("spec.reconcileSchedule", reason))?;
        let administrator = administrator(context, &external.secret_ref.name);
        let container = |name: &'static str, action: &'static str| {
            container(context, name, action, &administrator.name, &layout.users)
        };
        let users = layout.users.iter();
        let secrets: Vec<SecretPlan> = users
            .map(|user| client(context, &external.secret_ref.name, user))
            .chain([administrator.clone()])
            .collect();
        let plan = Plan {
            files: [
                (SCRIPT, include_str!("ceph/storage.py").to_owned()),
                (WANTED, wanted(context, &layout)?),
            ]
            .map(|(file, text)| (file.to_owned(), File::from(text)))
            .into(),
            tasks: tasks(template.deletion_policy, &secrets, container),
            schedules: vec![Schedule {
                name: "reconcile",
                cron,
                user: USER,
                container: container("reconcile", "ensure"),
                deadline_seconds: RUN_DEADLINE_SECONDS,
            }],
            task_scheduling: template.pods.scheduling.clone(),
            provides: provides(context, &layout),
            secrets,
            pull_secrets: origin.images.pull_secrets.clone(),
            additions: template.pods.additions.clone(),
            ..Plan::default()
        };
        Ok(plan)
    }
}

/// The task that ensures the layout, and the one that removes it with the object.
fn tasks(
    policy: DeletionPolicy,
    secrets: &[SecretPlan],
    container: impl Fn(&'static str, &'static str) -> Container,
) -> Vec<Task> {
    let task = |name: &'static str, stage, action: &'static str| Task {
        name,
        stage,
        user: USER,
        container: container(name, action),
        repeat_on: Vec::new(),
        after: Vec::new(),
    };
    let files = [SCRIPT, WANTED].map(|file| TaskInput::File(file.to_owned()));
    let secrets = secrets.iter().map(|secret| TaskInput::Secret(secret.name.clone()));
    let ensure = Task {
        repeat_on: files.into_iter().chain(secrets).collect(),
        ..task("ensure", TaskStage::Bootstrap, "ensure")
    };
    let remove = (policy == DeletionPolicy::Delete).then(|| task("remove", TaskStage::Deletion, "remove"));
    [ensure].into_iter().chain(remove).collect()
}

/// What the task ensures, as a file.
#[derive(Serialize)]
struct Wanted<'a> {
    owner: String,
    /// Resources of others that the object may take over.
    adopt: Vec<&'a str>,
    pools: &'a [Pool],
    filesystems: &'a [Filesystem],
    users: &'a [User],
}

fn wanted(context: &Context<'_, CephStorage>, layout: &Layout) -> Result<String, Invalid> {
    let annotations = context.object.metadata.annotations.as_ref();
    let adopt = annotations.and_then(|all| all.get(ADOPT_ANNOTATION)).map(String::as_str).unwrap_or_default();
    let wanted = Wanted {
        owner: format!("{}/{}/{}", KIND.kind, context.namespace, context.name),
        adopt: adopt.split(',').map(str::trim).filter(|name| !name.is_empty()).collect(),
        pools: &layout.pools,
        filesystems: &layout.filesystems,
        users: &layout.users,
    };
    let text = serde_json::to_string_pretty(&wanted);
    text.map(|text| text + "\n").map_err(|error| Invalid::new("spec", format!("has no JSON form: {error}")))
}

/// A value of the Secret of the existing cluster, which must be one line.
fn external_value(secret: &str, key: &str) -> Piece {
    Piece::Option(SecretKey::new(secret, key))
}

fn text(text: &str) -> Piece {
    Piece::Text(text.to_owned())
}

/// Configuration of clients of the existing cluster.
fn configuration(external: &str) -> Entry {
    Entry::Template(vec![
        text("[global]\nfsid = "),
        external_value(external, "fsid"),
        text("\nmon_host = "),
        external_value(external, "monitors"),
        text("\n"),
    ])
}

/// Files of the administrator.
fn administrator(context: &Context<'_, CephStorage>, external: &str) -> SecretPlan {
    let keyring = Entry::Template(vec![
        text("[client."),
        external_value(external, "username"),
        text("]\n\tkey = "),
        external_value(external, "key"),
        text("\n"),
    ]);
    let username = Entry::Template(vec![external_value(external, "username")]);
    let entries =
        [(shared::CEPH_CONF, configuration(external)), ("keyring", keyring), ("username", username)];
    SecretPlan::with_entries(&name::part(context.name, "administrator"), entries)
}

fn client_secret(context: &Context<'_, CephStorage>, user: &User) -> String {
    name::part(context.name, &format!("client-{}", user.service))
}

/// Files and key of a user.
fn client(context: &Context<'_, CephStorage>, external: &str, user: &User) -> SecretPlan {
    let secret = client_secret(context, user);
    let key = SecretKey::new(&secret, shared::CEPH_KEY);
    let header = text(&format!("[client.{}]\n\tkey = ", user.name));
    let keyring = Entry::Template(vec![header, Piece::Value(key), text("\n")]);
    let generated = Entry::Bytes { prefix: &KEY_HEADER, length: 16, encoding: Encoding::Base64 };
    let entries = [
        (shared::CEPH_CONF, configuration(external)),
        (shared::CEPH_KEY, generated),
        (&shared::keyring(&user.name), keyring),
    ];
    SecretPlan {
        // The user stays in the cluster, too.
        retained: context.object.spec.template.deletion_policy == DeletionPolicy::Retain,
        // Running instances use the key, and would lose their disks with a new one.
        irreplaceable: true,
        ..SecretPlan::with_entries(&secret, entries)
    }
}

/// A container that ensures or removes the layout.
fn container(
    context: &Context<'_, CephStorage>,
    name: &'static str,
    action: &str,
    administrator: &str,
    users: &[User],
) -> Container {
    let CephStorageSpec { origin, template } = &context.object.spec;
    let file = |secret: &str, key: &str, path: String| Mount::SecretFile {
        secret: secret.to_owned(),
        key: key.to_owned(),
        path,
    };
    let mut mounts = vec![
        shared::file(SCRIPT, &shared::script_path(SCRIPT)),
        shared::file(WANTED, &shared::script_path(WANTED)),
        shared::scratch("tmp", "/tmp"),
    ];
    mounts.extend(
        [shared::CEPH_CONF, "keyring"].map(|key| file(administrator, key, format!("/etc/ceph/{key}"))),
    );
    mounts.extend(users.iter().map(|user| {
        let path = shared::script_path(&format!("keys/{}", user.name));
        file(&client_secret(context, user), shared::CEPH_KEY, path)
    }));
    Container {
        name,
        image: shared::component_image(context, IMAGE, &Image::default(), &template.pods, origin),
        // The interpreter of the system has the libraries of Ceph, which are not on PyPI.
        command: shared::command(["/usr/bin/python3", &shared::script_path(SCRIPT), action]),
        environment: vec![Variable::secret("CEPH_USER", administrator, "username")],
        mounts,
        resources: shared::resources(&template.pods.container.resources, AMOUNTS),
        ..Container::default()
    }
}

fn provides(context: &Context<'_, CephStorage>, layout: &Layout) -> Provides {
    let users: BTreeMap<String, StorageUser> = layout
        .users
        .iter()
        .map(|user| {
            let identity = format!("{}/{}/{}", context.namespace, context.name, user.name);
            let (name, secret, uuid) =
                (user.name.clone(), client_secret(context, user), name::uuid(identity));
            (user.service.to_owned(), StorageUser { name, secret, uuid })
        })
        .collect();
    let filesystem = layout.filesystems.first().map(|filesystem| filesystem.name.clone());
    let storage = StorageCluster { pools: layout.names.clone(), users, filesystem };
    Provides { storage: Some(storage), ..Provides::default() }
}
