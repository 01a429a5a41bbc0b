//! Keystone: identity, tokens and the catalog of all other services.

use std::collections::BTreeMap;

use openstack_operator_model::common::{DeletionPolicy, Resources};
use openstack_operator_model::image::ImageNames;
use openstack_operator_model::keyring;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::name;
use openstack_operator_model::need::Needs;
use openstack_operator_model::oslo::Document;
use openstack_operator_model::plan::{
    Catalog, CatalogEndpoint, CatalogService, Change, Container, Entry, Interface, KeyRing, Mount, Plan,
    Port, SecretContent, SecretPlan, Task, TaskStage, Variable, Workload,
};
use openstack_operator_model::service::{self, Context, Invalid};
use openstack_operator_model::status::{IdentityServer, Provides};

use crate::shared;
use crate::shared::api::{self, Uwsgi};

pub use spec::*;

mod spec;

pub const KIND: Kind = Kind::own("Keystone", "keystones");
const API: Port = Port { name: "api", number: 5000 };
const USER: i64 = 42425;
const CONFIGURATION: &str = "keystone.conf";
/// A person changes its value to have all keys rotated now.
pub const ROTATE_ANNOTATION: &str = "openstack.k8s.io/rotate-keys";

pub struct Service;

impl service::Service for Service {
    type Object = Keystone;
    const KIND: Kind = KIND;
    const NAME: &'static str = "keystone";

    fn needs(object: &Keystone) -> Needs {
        let template = &object.spec.template;
        let mut needs = Needs::default().after(&template.common.depends_on);
        needs = shared::database_needs(needs, &template.database);
        needs = shared::cache_needs(needs, &template.cache);
        if template.notifications.enabled {
            needs = shared::messaging_needs(needs, &template.messaging);
        }
        let admin = template.bootstrap.admin_password_secret_ref.as_ref();
        needs.secret(
            "spec.bootstrap.adminPasswordSecretRef",
            admin.map(|reference| reference.name.as_str()),
            &admin.map(|reference| reference.key.as_str()).into_iter().collect::<Vec<_>>(),
        )
    }

    fn plan(context: &Context<'_, Keystone>) -> Result<Plan, Invalid> {
        let KeystoneSpec { origin, template } = &context.object.spec;
        shared::check_extra_config(&template.common, &[CONFIGURATION, "uwsgi.ini"])?;
        let (mut plan, internal, public) = api::plan(context, origin, &template.exposure, API.number)?;
        let identity = identity(context, &internal, &public);
        if template.bootstrap.admin_password_secret_ref.is_none() {
            let password = BTreeMap::from([(identity.secret_key.clone(), Entry::Password { length: 32 })]);
            let content = SecretContent::Entries(password);
            plan.secrets.push(SecretPlan { name: identity.secret.clone(), content, retained: false });
        }
        let mut environment =
            vec![shared::database(context, &mut plan, &template.database, "keystone", "database")?];
        if template.notifications.enabled {
            environment.push(shared::messaging(context, &mut plan, &template.messaging, "keystone")?);
            environment.push(shared::process_name("keystone-api"));
        }
        plan.secrets.extend(key_rings(context)?);
        plan.files = files(context, &public)?;
        plan.tasks = tasks(context, &environment, &identity);
        plan.workloads = vec![workload(context, environment)];
        plan.catalog = Some(catalog(context, &identity));
        plan.provides = Provides { identity: Some(identity), ..Provides::default() };
        Ok(plan)
    }
}

fn identity(context: &Context<'_, Keystone>, internal: &str, public: &str) -> IdentityServer {
    let bootstrap = &context.object.spec.template.bootstrap;
    let (secret, secret_key) = match &bootstrap.admin_password_secret_ref {
        Some(given) => (given.name.clone(), given.key.clone()),
        None => (name::part(context.name, "admin"), "password".to_owned()),
    };
    IdentityServer {
        internal_url: format!("{internal}/v3"),
        public_url: format!("{public}/v3"),
        region: bootstrap.region.clone(),
        username: bootstrap.admin_user.clone(),
        secret,
        secret_key,
    }
}

fn fernet_secret(context: &Context<'_, Keystone>) -> String {
    name::part(context.name, "fernet")
}

fn credential_secret(context: &Context<'_, Keystone>) -> String {
    name::part(context.name, "credential")
}

fn key_rings(context: &Context<'_, Keystone>) -> Result<[SecretPlan; 2], Invalid> {
    let template = &context.object.spec.template;
    let request =
        context.object.metadata.annotations.as_ref().and_then(|all| all.get(ROTATE_ANNOTATION)).cloned();
    let ring = |rotation: &KeyRotation, field: &str, condition, lifetime_seconds| {
        keyring::check_schedule(&rotation.rotation_schedule)
            .map_err(|reason| Invalid::new(format!("spec.{field}.rotationSchedule"), reason))?;
        Ok(SecretContent::KeyRing(KeyRing {
            condition,
            max_active_keys: rotation.max_active_keys,
            lifetime_seconds,
            schedule: rotation.rotation_schedule.clone(),
            request: request.clone(),
        }))
    };
    let tokens =
        token_option(context, "expiration", 3600)? + token_option(context, "allow_expired_window", 172_800)?;
    Ok([
        SecretPlan {
            name: fernet_secret(context),
            content: ring(&template.fernet, "fernet", "FernetKeysReady", tokens)?,
            retained: false,
        },
        SecretPlan {
            name: credential_secret(context),
            // Stored credentials are encrypted anew within minutes of a rotation.
            content: ring(&template.credential_keys, "credentialKeys", "CredentialKeysReady", 86400)?,
            // Credentials in a database that stays can be read with these keys only.
            retained: template.database.deletion_policy == DeletionPolicy::Retain,
        },
    ])
}

/// A number of seconds of section `token`, which decides how long keys must be kept.
fn token_option(context: &Context<'_, Keystone>, option: &str, default: i64) -> Result<i64, Invalid> {
    let extra = &context.object.spec.template.common.extra_config;
    let given =
        extra.get(CONFIGURATION).and_then(|file| file.get("token")).and_then(|token| token.get(option));
    given.map_or(Ok(default), |value| {
        value.parse().map_err(|_| {
            let path = format!("spec.extraConfig.{CONFIGURATION:?}.token.{option}");
            Invalid::new(path, format!("{value:?} is not a number of seconds"))
        })
    })
}

fn files(context: &Context<'_, Keystone>, public: &str) -> Result<BTreeMap<String, String>, Invalid> {
    let template = &context.object.spec.template;
    let servers = shared::cache_servers(context, &template.cache)?;
    let mut document = Document::new()
        .set("DEFAULT", "use_stderr", true)
        .set("DEFAULT", "public_endpoint", public)
        .set("token", "provider", "fernet")
        .set("fernet_tokens", "max_active_keys", template.fernet.max_active_keys)
        .set("oslo_middleware", "enable_proxy_headers_parsing", true);
    document = shared::database_options(document, "database");
    document = shared::cache_options(document, &template.cache, &servers);
    if template.notifications.enabled {
        // A bus that is down must not keep users from getting a token.
        document = shared::messaging_options(document)
            .set("oslo_messaging_notifications", "driver", "messagingv2")
            .set("oslo_messaging_notifications", "retry", 1);
    }
    if template.federation.enabled {
        let federation = &template.federation;
        document = document
            .set("auth", "methods", "password,token,application_credential,openid,mapped")
            .set("openid", "remote_id_attribute", &federation.remote_id_attribute);
        if !federation.trusted_dashboards.is_empty() {
            let dashboards = BTreeMap::from([(
                "federation".to_owned(),
                BTreeMap::from([("trusted_dashboard".to_owned(), federation.trusted_dashboards.join("\n"))]),
            )]);
            document = document.merge(Some(&dashboards));
        }
    }
    let mut files = BTreeMap::new();
    document = api::policy(document, &mut files, &template.exposure);
    let document = document.merge(template.common.extra_config.get(CONFIGURATION));
    files.insert(CONFIGURATION.to_owned(), document.render());
    files.insert(
        "uwsgi.ini".to_owned(),
        api::uwsgi(&Uwsgi::new("keystone.wsgi.api:application", &API), &template.common),
    );
    Ok(files)
}

fn resources(context: &Context<'_, Keystone>) -> Resources {
    shared::resources(&context.object.spec.template.common.resources, ("50m", "256Mi"), "1Gi")
}

/// What every container of Keystone has in common.
fn container(
    context: &Context<'_, Keystone>,
    name: &'static str,
    command: Vec<String>,
    environment: Vec<Variable>,
) -> Container {
    let KeystoneSpec { origin, template } = &context.object.spec;
    let keys =
        |secret: String, path: &str| Mount::Secret { secret, path: path.to_owned(), change: Change::Refresh };
    let mut mounts = vec![
        shared::file(CONFIGURATION, "/etc/keystone/keystone.conf"),
        keys(fernet_secret(context), "/etc/keystone/fernet-keys"),
        keys(credential_secret(context), "/etc/keystone/credential-keys"),
        shared::scratch("tmp", "/tmp"),
    ];
    mounts.extend(api::policy_mount(&template.exposure, "keystone"));
    Container {
        name,
        image: shared::image(context, ImageNames::same("keystone"), &template.common, origin),
        command,
        environment,
        mounts,
        resources: resources(context),
        ..Container::default()
    }
}

fn tasks(context: &Context<'_, Keystone>, environment: &[Variable], identity: &IdentityServer) -> Vec<Task> {
    let task = |name: &'static str, stage: TaskStage, words: &[&str]| {
        let command = [&["keystone-manage"], words].concat().into_iter().map(str::to_owned).collect();
        let container = container(context, "keystone-manage", command, environment.to_vec());
        Task { name, stage, user: USER, container, repeat_on: Vec::new() }
    };
    let public = identity.public_url.as_str();
    let internal = identity.internal_url.as_str();
    // In one word each: a value may begin with a dash.
    let options = [
        ("username", identity.username.as_str()),
        ("project-name", "admin"),
        ("role-name", "admin"),
        ("service-name", "keystone"),
        ("region-id", &identity.region),
        ("public-url", public),
        ("internal-url", internal),
        ("admin-url", internal),
    ];
    let mut bootstrap = task("bootstrap", TaskStage::Bootstrap, &["bootstrap"]);
    let words = options.map(|(option, value)| format!("--bootstrap-{option}={value}"));
    bootstrap.container.command.extend(words);
    let password = Variable::secret("OS_BOOTSTRAP_PASSWORD", &identity.secret, &identity.secret_key);
    bootstrap.container.environment.push(password);
    // A new password must be told to Keystone, which only this command can do without the old one.
    bootstrap.repeat_on.push(identity.secret.clone());
    let rotated = TaskStage::Rotate { ring: credential_secret(context) };
    vec![
        task("db-sync", TaskStage::Install, &["db_sync"]),
        task("db-expand", TaskStage::Expand, &["db_sync", "--expand"]),
        task("db-migrate", TaskStage::Migrate, &["db_sync", "--migrate"]),
        bootstrap,
        task("db-contract", TaskStage::Contract, &["db_sync", "--contract"]),
        task("credential-migrate", rotated, &["credential_migrate"]),
    ]
}

fn workload(context: &Context<'_, Keystone>, environment: Vec<Variable>) -> Workload {
    let template = &context.object.spec.template;
    let mut api = container(context, "api", shared::uwsgi_command("keystone"), environment);
    api.mounts.push(shared::file("uwsgi.ini", "/etc/keystone/uwsgi.ini"));
    api::workload(USER, template.replicas, &template.common, api::serving(api, API, "/healthcheck"))
}

fn catalog(context: &Context<'_, Keystone>, identity: &IdentityServer) -> Catalog {
    let endpoint = |interface, url: &String| CatalogEndpoint { interface, url: url.clone() };
    Catalog {
        provider: shared::reference(KIND, context.name),
        server: identity.clone(),
        projects: vec!["service".to_owned()],
        roles: ["admin", "manager", "member", "reader", "service"].map(str::to_owned).to_vec(),
        services: vec![CatalogService {
            service_type: "identity".to_owned(),
            name: "keystone".to_owned(),
            description: "OpenStack Identity".to_owned(),
            region: identity.region.clone(),
            endpoints: vec![
                endpoint(Interface::Public, &identity.public_url),
                endpoint(Interface::Internal, &identity.internal_url),
                endpoint(Interface::Admin, &identity.internal_url),
            ],
        }],
        users: Vec::new(),
    }
}
