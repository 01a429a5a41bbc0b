//! Keystone: identity, tokens and the service catalog.

use openstack_operator_model::common::{DeletionPolicy, Reference};
use openstack_operator_model::image::ImageNames;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::name;
use openstack_operator_model::need::Needs;
use openstack_operator_model::plan::{
    Catalog, CatalogEndpoint, CatalogService, Change, Entry, Interface, Mount, Plan, Port, SecretPlan,
    TaskInput, TaskStage, Variable,
};
use openstack_operator_model::release::Varying;
use openstack_operator_model::service::{Context, Invalid};
use openstack_operator_model::status::{IdentityServer, Stage};

use crate::cloud::{Part, Presence, Wave};
use crate::control_plane::OpenStackControlPlaneSpec;
use crate::program::{Amounts, Program, Project, Settings};
use crate::shared::api::{self, Uwsgi};
use crate::shared::keys::{self, RingClaim};
use crate::shared::{self, DatabaseClaim};

pub use crate::shared::keys::ROTATE_ANNOTATION;
pub use spec::*;

mod spec;

pub const KIND: Kind = Kind::own("Keystone", "keystones");
const API: Port = Port::tcp("api", 5000);
const MODULE: Varying<&str> = Varying::same("keystone.wsgi.api:application");
const PROJECT: Project = Project {
    name: "keystone",
    user: 42425,
    configuration: "keystone.conf",
    manage: "keystone-manage",
    image: ImageNames::same("keystone"),
    scratch: &[],
    // All services wait for it to start, so it gets more CPU than they when all start at once.
    amounts: Amounts { cpu: "200m", memory: "256Mi", memory_limit: "1Gi" },
};

pub struct Service;

impl Part for Service {
    type Object = Keystone;
    type Template = KeystoneTemplate;
    const KIND: Kind = KIND;
    const NAME: &'static str = "keystone";
    const STAGE: Stage = Stage::Identity;
    const PRESENCE: Presence = Presence::ByDefault;
    const WAVE: Wave = Wave::Identity;

    fn template(object: &Keystone) -> &KeystoneTemplate {
        &object.spec.template
    }

    fn is_replaced(cloud: &OpenStackControlPlaneSpec) -> bool {
        cloud.identity.is_some()
    }

    fn cloud_rules() -> Vec<(String, String)> {
        vec![shared::exclusive_rule("identity", "authUrl", "keystone", "an existing Keystone")]
    }

    fn endpoint(template: &KeystoneTemplate) -> Option<String> {
        api::public_url(&template.exposure)
    }

    fn needs(object: &Keystone) -> Needs {
        let administrator = object.spec.template.bootstrap.admin_password_secret_ref.as_ref();
        let key = administrator.map(|reference| reference.key.as_str());
        Needs::default().secret(
            "spec.bootstrap.adminPasswordSecretRef",
            administrator.map(|reference| reference.name.as_str()),
            &key.into_iter().collect::<Vec<_>>(),
        )
    }

    fn plan(context: &Context<'_, Keystone>) -> Result<Plan, Invalid> {
        let KeystoneSpec { origin, template } = &context.object.spec;
        let KeystoneTemplate { common, replicas, exposure, .. } = template;
        let settings = Settings { origin, common, replicas: *replicas, exposure };
        let mut keystone = Program::new(context, &PROJECT, settings, &API, &[])?;
        let administrator = administrator_secret(context);
        let identity = identity(context, &keystone, &administrator);
        if template.bootstrap.admin_password_secret_ref.is_none() {
            let password = [(administrator.1.as_str(), Entry::Password { length: 32 })];
            keystone.plan.secrets.push(SecretPlan::with_entries(&administrator.0, password));
        }
        keystone.database(&DatabaseClaim::new(&template.database, "keystone", "database"))?;
        if !template.notifications.all_topics().is_empty() {
            let bus = keystone.messaging(&template.messaging)?;
            keystone.environment.push(shared::process_name("keystone-api"));
            keystone.notify(&template.notifications, &bus);
            // A failed message bus must not prevent tokens.
            keystone.set("oslo_messaging_notifications", "retry", 1);
        }
        keystone.plan.secrets.extend(key_rings(context)?);
        keystone.mounts = key_mounts(context);
        let cache = shared::cache_servers(context, &template.cache.servers)?;
        keystone.change(|document| shared::cache_options(document, &template.cache, &cache));
        configure(&mut keystone);
        add_tasks(&mut keystone, &identity, &administrator);
        keystone.only_api(API, "/healthcheck", Uwsgi::new(MODULE));
        keystone.plan.catalog = Some(catalog(context, &identity));
        keystone.plan.provides.identity = Some(identity);
        keystone.finish()
    }
}

/// Secret of the administrator, and its key with the password.
fn administrator_secret(context: &Context<'_, Keystone>) -> (String, String) {
    match &context.object.spec.template.bootstrap.admin_password_secret_ref {
        Some(given) => (given.name.clone(), given.key.clone()),
        None => (name::part(context.name, "admin"), "password".to_owned()),
    }
}

fn identity(
    context: &Context<'_, Keystone>,
    keystone: &Program<'_, Keystone>,
    (secret, secret_key): &(String, String),
) -> IdentityServer {
    let bootstrap = &context.object.spec.template.bootstrap;
    IdentityServer {
        internal_url: format!("{}/v3", keystone.internal_url),
        public_url: format!("{}/v3", keystone.public_url),
        region: bootstrap.region.clone().unwrap_or_else(|| "RegionOne".to_owned()),
        username: Some(bootstrap.admin_user.clone()),
        secret: Some(secret.clone()),
        secret_key: secret_key.clone(),
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
    let ring = |rotation: &KeyRotation, field, condition, lifetime_seconds| {
        let KeyRotation { rotation_schedule: schedule, max_active_keys } = rotation;
        let max_active_keys = *max_active_keys;
        keys::ring(context, RingClaim { field, condition, schedule, max_active_keys, lifetime_seconds })
    };
    let tokens =
        token_option(context, "expiration", 3600)? + token_option(context, "allow_expired_window", 172_800)?;
    Ok([
        SecretPlan {
            name: fernet_secret(context),
            content: ring(&template.fernet, "fernet", "FernetKeysReady", tokens)?,
            retained: false,
            // New keys only invalidate tokens.
            irreplaceable: false,
        },
        SecretPlan {
            name: credential_secret(context),
            // Pods that start with older keys still read credentials for this time.
            content: ring(&template.credential_keys, "credentialKeys", "CredentialKeysReady", 86400)?,
            // Credentials in a retained database can only be decrypted with these keys.
            retained: template.database.deletion_policy == DeletionPolicy::Retain,
            irreplaceable: true,
        },
    ])
}

/// A duration in section `token`, which determines how long keys must be kept.
fn token_option(context: &Context<'_, Keystone>, option: &str, default: i64) -> Result<i64, Invalid> {
    let extra = &context.object.spec.template.common.extra_config;
    let given = extra
        .get(PROJECT.configuration)
        .and_then(|file| file.get("token"))
        .and_then(|token| token.get(option));
    given.map_or(Ok(default), |value| {
        value.parse().map_err(|_| {
            let path = format!("spec.extraConfig.{:?}.token.{option}", PROJECT.configuration);
            Invalid::new(path, format!("{value:?} is not a number of seconds"))
        })
    })
}

fn configure(keystone: &mut Program<'_, Keystone>) {
    let template = &keystone.context.object.spec.template;
    let public_url = keystone.public_url.clone();
    keystone.set("DEFAULT", "public_endpoint", public_url);
    keystone.set("token", "provider", "fernet");
    keystone.set("fernet_tokens", "max_active_keys", template.fernet.max_active_keys);
    let federation = &template.federation;
    if !federation.enabled {
        return;
    }
    keystone.set("auth", "methods", "password,token,application_credential,openid,mapped");
    keystone.set("openid", "remote_id_attribute", &federation.remote_id_attribute);
    keystone.change(|document| {
        document.set_all("federation", "trusted_dashboard", &federation.trusted_dashboards)
    });
}

fn add_tasks(
    keystone: &mut Program<'_, Keystone>,
    identity: &IdentityServer,
    (secret, secret_key): &(String, String),
) {
    let command = |arguments: &[&str]| -> Vec<String> {
        [&["keystone-manage"], arguments].concat().into_iter().map(str::to_owned).collect()
    };
    // As `--option=value`, because a value may start with a dash.
    let options = [
        ("username", identity.username.as_deref().unwrap_or_default()),
        ("project-name", "admin"),
        ("role-name", "admin"),
        ("service-name", "keystone"),
        ("region-id", &identity.region),
        ("public-url", &identity.public_url),
        ("internal-url", &identity.internal_url),
        ("admin-url", &identity.internal_url),
    ];
    let mut bootstrap = command(&["bootstrap"]);
    bootstrap.extend(options.map(|(option, value)| format!("--bootstrap-{option}={value}")));
    keystone.task("db-sync", TaskStage::Install, command(&["db_sync"]));
    keystone.task("db-expand", TaskStage::Expand, command(&["db_sync", "--expand"]));
    keystone.task("db-migrate", TaskStage::Migrate, command(&["db_sync", "--migrate"]));
    let bootstrap = keystone.task("bootstrap", TaskStage::Bootstrap, bootstrap);
    let password = Variable::secret("OS_BOOTSTRAP_PASSWORD", secret, secret_key);
    bootstrap.container.environment.push(password);
    // Only bootstrap can change the password without the old one.
    bootstrap.repeat_on.push(TaskInput::Secret(secret.clone()));
    keystone.task("db-contract", TaskStage::Contract, command(&["db_sync", "--contract"]));
    let rotated = TaskStage::Rotate { ring: credential_secret(keystone.context) };
    keystone.task("credential-migrate", rotated, command(&["credential_migrate"]));
}

/// Mounts of the keys, which change in running containers.
fn key_mounts(context: &Context<'_, Keystone>) -> Vec<Mount> {
    let keys =
        |secret: String, path: &str| Mount::Secret { secret, path: path.to_owned(), change: Change::Refresh };
    vec![
        keys(fernet_secret(context), "/etc/keystone/fernet-keys"),
        keys(credential_secret(context), "/etc/keystone/credential-keys"),
    ]
}

fn catalog(context: &Context<'_, Keystone>, identity: &IdentityServer) -> Catalog {
    let endpoint = |interface, url: &String| CatalogEndpoint { interface, url: url.clone() };
    Catalog {
        provider: Reference::new(KIND, context.name),
        server: identity.clone(),
        domains: Vec::new(),
        projects: vec!["service".to_owned()],
        roles: ["admin", "manager", "member", "reader", "service"].map(str::to_owned).to_vec(),
        service_roles: Vec::new(),
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
