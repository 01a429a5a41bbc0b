//! What several services say in the same way.

use std::collections::BTreeMap;

use openstack_operator_model::common::{
    CacheSettings, Common, DatabaseSettings, DeletionPolicy, Exposure, MessagingSettings, Origin, Reference,
    ResourceAmounts, Resources,
};
use openstack_operator_model::image::ImageNames;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::name;
use openstack_operator_model::need::Needs;
use openstack_operator_model::oslo::Document;
use openstack_operator_model::plan::{
    Check, Database, Entry, Messaging, Mount, Piece, Plan, Probe, Route, SecretContent, SecretKey,
    SecretPlan, Variable,
};
use openstack_operator_model::quantity;
use openstack_operator_model::service::{Context, Invalid};

use crate::{mariadb, memcached, rabbitmq};

/// Reference of the image that a component runs.
pub(crate) fn image<K>(
    context: &Context<'_, K>,
    names: ImageNames,
    common: &Common,
    origin: &Origin,
) -> String {
    context.site.images.reference(names, &origin.images, &common.image, origin.release)
}

/// Address of a Service inside the cluster.
pub(crate) fn service_host<K>(context: &Context<'_, K>, service: &str) -> String {
    format!("{service}.{}.svc", context.namespace)
}

/// Complete address of a pod of a set, for what does not search domains.
pub(crate) fn member_hosts<K>(context: &Context<'_, K>, members: &str, replicas: i32) -> Vec<String> {
    let Context { name, namespace, site, .. } = context;
    (0..replicas)
        .map(|ordinal| format!("{name}-{ordinal}.{members}.{namespace}.svc.{}", site.cluster_domain))
        .collect()
}

/// What the user gives, with our amounts where nothing is given; but never a request that is more than its limit, which
/// no pod may have.
pub(crate) fn resources(given: &Resources, requests: (&str, &str), memory_limit: &str) -> Resources {
    let request = |request: &Option<String>, limit: &Option<String>, ours: &str| {
        let fitting = limit.as_deref().map_or(ours, |limit| quantity::smaller(ours, limit)).to_owned();
        Some(request.clone().unwrap_or(fitting))
    };
    let Resources { requests: given_requests, limits } = given;
    let fitting = given_requests
        .memory
        .as_deref()
        .map_or(memory_limit, |request| quantity::larger(memory_limit, request));
    Resources {
        requests: ResourceAmounts {
            cpu: request(&given_requests.cpu, &limits.cpu, requests.0),
            memory: request(&given_requests.memory, &limits.memory, requests.1),
        },
        limits: ResourceAmounts {
            cpu: limits.cpu.clone(),
            memory: limits.memory.clone().or_else(|| Some(fitting.to_owned())),
        },
    }
}

/// Refuses settings for files that a service does not have: nobody would read them.
pub(crate) fn check_extra_config(common: &Common, files: &[&str]) -> Result<(), Invalid> {
    match common.extra_config.keys().find(|file| !files.contains(&file.as_str())) {
        None => Ok(()),
        Some(unknown) => Err(Invalid::new(
            format!("spec.extraConfig.{unknown:?}"),
            format!("names no file of this service: write {}", files.join(" or ")),
        )),
    }
}

pub(crate) fn command<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

/// A script that is a file of the plan, run so that signals reach it and its children are waited for.
pub(crate) fn script(path: &str) -> Vec<String> {
    command(["dumb-init", "--", "bash", path])
}

pub(crate) fn probe(check: Check, period_seconds: i32, timeout_seconds: i32, failures: i32) -> Probe {
    Probe { check, period_seconds, timeout_seconds, failures }
}

pub(crate) fn scratch(name: &'static str, path: &str) -> Mount {
    Mount::Scratch { name, path: path.to_owned() }
}

pub(crate) fn file(file: &str, path: &str) -> Mount {
    Mount::File { file: file.to_owned(), path: path.to_owned() }
}

/// Settings of uWSGI that fit every image family: one process a pod, since pods are what is scaled.
pub(crate) fn uwsgi(module: &str, port: u16, common: &Common) -> String {
    let document = Document::new()
        .section_of(
            "uwsgi",
            [
                ("module", module),
                ("master", "true"),
                ("processes", "1"),
                ("threads", "1"),
                ("lazy-apps", "true"),
                ("enable-threads", "true"),
                ("need-app", "true"),
                ("die-on-term", "true"),
                ("thunder-lock", "true"),
                ("buffer-size", "65535"),
                ("add-header", "Connection: close"),
                ("start-time", "%t"),
                ("harakiri", "60"),
                ("worker-reload-mercy", "60"),
            ],
        )
        .set("uwsgi", "http-socket", format!("0.0.0.0:{port}"))
        .merge(common.extra_config.get("uwsgi.ini"));
    // Debian's uWSGI knows no Python before this line, so it must come first.
    document.render().replacen("[uwsgi]\n", "[uwsgi]\nplugins = python3\n", 1)
}

/// Routes for an API that is exposed.
pub(crate) fn routes(exposure: &Exposure, port: u16) -> Result<Vec<Route>, Invalid> {
    match (&exposure.gateway_ref, &exposure.public_hostname) {
        (None, _) => Ok(Vec::new()),
        (Some(gateway), Some(hostname)) => {
            Ok(vec![Route { hostname: hostname.clone(), gateway: gateway.clone(), port }])
        }
        (Some(_), None) => Err(Invalid::new(
            "spec.publicHostname",
            "is missing: a gatewayRef needs the name under which the API is reached",
        )),
    }
}

/// Address of an API for clients outside, or none where it is not exposed.
pub(crate) fn public_url(exposure: &Exposure) -> Option<String> {
    exposure.gateway_ref.as_ref()?;
    let hostname = exposure.public_hostname.as_ref()?;
    Some(format!("{}://{hostname}", exposure.public_scheme.unwrap_or_default().name()))
}

pub(crate) fn database_needs(needs: Needs, settings: &DatabaseSettings) -> Needs {
    let cluster = settings.cluster_ref.as_ref().map(|reference| reference.name.as_str());
    let secret = settings.secret_ref.as_ref().map(|reference| reference.name.as_str());
    needs.object("spec.database.clusterRef", mariadb::KIND, cluster).secret(
        "spec.database.secretRef",
        secret,
        &["username", "password"],
    )
}

/// Adds a service's database to its plan and returns the variable with its connection.
pub(crate) fn database<K>(
    context: &Context<'_, K>,
    plan: &mut Plan,
    settings: &DatabaseSettings,
    default_name: &str,
) -> Result<Variable, Invalid> {
    let secret = name::part(context.name, "database");
    let database = settings.database.clone().unwrap_or_else(|| default_name.to_owned());
    let mut entries = BTreeMap::new();
    let credentials = settings.secret_ref.as_ref().map_or(&secret, |given| &given.name).clone();
    if settings.secret_ref.is_none() {
        entries.insert("username".to_owned(), Entry::Text(database.clone()));
        entries.insert("password".to_owned(), Entry::Password { length: 32 });
    }
    let (host, port) = match (&settings.cluster_ref, &settings.host) {
        (Some(cluster), None) => {
            let server =
                context.inputs.database(mariadb::KIND, &cluster.name, "spec.database.clusterRef.name")?;
            plan.databases.push(Database {
                provider: reference(mariadb::KIND, &cluster.name),
                server: server.clone(),
                database: database.clone(),
                secret: credentials.clone(),
                retained: settings.deletion_policy == DeletionPolicy::Retain,
            });
            (server.host.clone(), server.port)
        }
        (None, Some(host)) if settings.secret_ref.is_some() => (host.clone(), settings.port.unwrap_or(3306)),
        (None, Some(_)) => {
            return Err(Invalid::new(
                "spec.database.secretRef",
                "is missing: a host needs a Secret with its user",
            ));
        }
        (Some(_), Some(_)) | (None, None) => {
            return Err(Invalid::new(
                "spec.database",
                "needs either a clusterRef or a host with a secretRef",
            ));
        }
    };
    // Without time limits a connection to a host that lost its power hangs for a quarter of an hour.
    let options = "charset=utf8&connect_timeout=5&read_timeout=120&write_timeout=120";
    let connection = vec![
        Piece::Text("mysql+pymysql://".to_owned()),
        Piece::Escaped(SecretKey::new(&credentials, "username")),
        Piece::Text(":".to_owned()),
        Piece::Escaped(SecretKey::new(&credentials, "password")),
        Piece::Text(format!("@{host}:{port}/{database}?{options}")),
    ];
    entries.insert("connection".to_owned(), Entry::Template(connection));
    plan.secrets.push(SecretPlan {
        name: secret.clone(),
        content: SecretContent::Entries(entries),
        retained: false,
    });
    Ok(Variable::secret("OS_DATABASE__CONNECTION", secret, "connection"))
}

pub(crate) fn messaging_needs(needs: Needs, settings: &MessagingSettings) -> Needs {
    let cluster = settings.cluster_ref.as_ref().map(|reference| reference.name.as_str());
    needs.object("spec.messaging.clusterRef", rabbitmq::KIND, cluster)
}

/// Adds a service's virtual host to its plan and returns the variable with its address.
pub(crate) fn messaging<K>(
    context: &Context<'_, K>,
    plan: &mut Plan,
    settings: &MessagingSettings,
    virtual_host: &str,
) -> Result<Variable, Invalid> {
    let Some(cluster) = &settings.cluster_ref else {
        return Err(Invalid::new("spec.messaging.clusterRef", "is missing: name a RabbitMQ"));
    };
    let server = context.inputs.messaging(rabbitmq::KIND, &cluster.name, "spec.messaging.clusterRef.name")?;
    let secret = name::part(context.name, "messaging");
    plan.messaging.push(Messaging {
        provider: reference(rabbitmq::KIND, &cluster.name),
        server: server.clone(),
        virtual_host: virtual_host.to_owned(),
        secret: secret.clone(),
    });
    let mut address = vec![Piece::Text("rabbit://".to_owned())];
    for (index, host) in server.hosts.iter().enumerate() {
        if index > 0 {
            address.push(Piece::Text(",".to_owned()));
        }
        address.push(Piece::Escaped(SecretKey::new(&secret, "username")));
        address.push(Piece::Text(":".to_owned()));
        address.push(Piece::Escaped(SecretKey::new(&secret, "password")));
        address.push(Piece::Text(format!("@{host}:{}", server.port)));
    }
    address.push(Piece::Text(format!("/{virtual_host}")));
    let entries = BTreeMap::from([
        ("username".to_owned(), Entry::Text(virtual_host.to_owned())),
        ("password".to_owned(), Entry::Password { length: 32 }),
        ("transport_url".to_owned(), Entry::Template(address)),
    ]);
    plan.secrets.push(SecretPlan {
        name: secret.clone(),
        content: SecretContent::Entries(entries),
        retained: false,
    });
    Ok(Variable::secret("OS_DEFAULT__TRANSPORT_URL", secret, "transport_url"))
}

/// How oslo.messaging must treat RabbitMQ 4: quorum queues from the first day, for their type cannot change later.
pub(crate) fn messaging_options(document: Document, process_name: &str) -> Document {
    document
        .section_of(
            "oslo_messaging_rabbit",
            [
                ("rabbit_quorum_queue", "true"),
                ("rabbit_transient_quorum_queue", "true"),
                ("use_queue_manager", "true"),
                ("rabbit_ha_queues", "false"),
                ("heartbeat_in_pthread", "false"),
                ("heartbeat_timeout_threshold", "30"),
                ("heartbeat_rate", "3"),
                ("kombu_reconnect_delay", "0.5"),
                ("kombu_reconnect_splay", "2"),
                ("kombu_failover_strategy", "shuffle"),
                ("rabbit_interval_max", "10"),
            ],
        )
        .set("oslo_messaging_rabbit", "processname", process_name)
        .set("oslo_concurrency", "lock_path", "/tmp")
}

pub(crate) fn cache_needs(needs: Needs, settings: &CacheSettings) -> Needs {
    let cluster = settings.cluster_ref.as_ref().map(|reference| reference.name.as_str());
    needs.object("spec.cache.clusterRef", memcached::KIND, cluster)
}

/// Servers of a service's cache; none where it has no cache.
pub(crate) fn cache_servers<K>(
    context: &Context<'_, K>,
    settings: &CacheSettings,
) -> Result<Vec<String>, Invalid> {
    match &settings.cluster_ref {
        Some(cluster) if settings.servers.is_empty() => {
            let cache = context.inputs.cache(memcached::KIND, &cluster.name, "spec.cache.clusterRef.name")?;
            Ok(cache.servers.clone())
        }
        _ => Ok(settings.servers.clone()),
    }
}

pub(crate) fn reference(kind: Kind, name: &str) -> Reference {
    Reference { kind: kind.kind.to_owned(), name: name.to_owned() }
}
