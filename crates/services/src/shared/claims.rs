//! Databases, virtual hosts and caches of services.

use std::collections::BTreeMap;

use openstack_operator_model::common::{DeletionPolicy, NameReference, Reference};
use openstack_operator_model::kind::{Kind, SECRET};
use openstack_operator_model::name;
use openstack_operator_model::oslo::Document;
use openstack_operator_model::plan::{
    Charset, Database, Entry, Messaging, Piece, Plan, SecretContent, SecretKey, SecretPlan, Variable,
    VariableValue,
};
use openstack_operator_model::service::{Context, Invalid};
use openstack_operator_model::status::DatabaseServer;

use crate::concern::{CacheSettings, DatabaseSettings, MessagingSettings, ServiceCacheSettings};
use crate::{mariadb, memcached, rabbitmq};

/// Default port of databases.
pub(crate) const DATABASE_PORT: u16 = 3306;
/// Default port of message buses.
pub(crate) const BUS_PORT: u16 = 5672;

/// Key of a Secret with the connection of services to a database.
const CONNECTION: &str = "connection";
/// Key with the connection of tasks.
const TASK_CONNECTION: &str = "task_connection";
/// Options of every connection, after its character set.
const OPTIONS: &str = "connect_timeout=5";
/// A connection to a host without power would hang for 15 minutes, and with it the requests of users. No query of a
/// service takes longer. A migration may, and the server completes it although its client has given up, so that the
/// retry fails: tasks have no timeouts, and TCP keepalive ends their lost connections.
const SERVICE_TIMEOUTS: &str = "&read_timeout=15&write_timeout=15";

/// A database of a service.
pub(crate) struct DatabaseClaim<'a> {
    pub(crate) settings: &'a DatabaseSettings,
    pub(crate) database: &'a str,
    /// Suffix of the name of the Secret with its connection.
    pub(crate) suffix: &'a str,
    /// Configuration section of its connection.
    pub(crate) section: &'a str,
    pub(crate) charset: Charset,
}

impl<'a> DatabaseClaim<'a> {
    /// The only database of a service, with its default name.
    pub(crate) fn new(settings: &'a DatabaseSettings, default_name: &'a str, section: &'a str) -> Self {
        let database = settings.database.as_deref().unwrap_or(default_name);
        Self { settings, database, suffix: "database", section, charset: Charset::default() }
    }
}

/// Secret with the login of the database user.
pub(crate) fn database_credentials<K>(context: &Context<'_, K>, claim: &DatabaseClaim<'_>) -> String {
    let given = claim.settings.secret_ref.as_ref().map(|given| given.name.clone());
    given.unwrap_or_else(|| name::part(context.name, claim.suffix))
}

/// Adds a database to a plan and returns the variable with its connection.
pub(crate) fn database<K>(
    context: &Context<'_, K>,
    plan: &mut Plan,
    claim: &DatabaseClaim<'_>,
) -> Result<Variable, Invalid> {
    let DatabaseClaim { settings, database, suffix, section, charset } = claim;
    let secret = name::part(context.name, suffix);
    let credentials = database_credentials(context, claim);
    let mut entries = BTreeMap::new();
    if settings.secret_ref.is_none() {
        entries.insert("username".to_owned(), Entry::Text((*database).to_owned()));
        entries.insert("password".to_owned(), Entry::Password { length: 32 });
    }
    let target = DatabaseTarget { database, credentials: &credentials, charset: *charset };
    let (host, port) = claim_database(context, plan, settings, &target)?;
    let client_charset = match charset {
        Charset::Utf8mb3 => "utf8",
        Charset::Utf8mb4 => "utf8mb4",
    };
    let connection = |options: &str| {
        let login = [
            Piece::Text("mysql+pymysql://".to_owned()),
            Piece::Escaped(SecretKey::new(&credentials, "username")),
            Piece::Text(":".to_owned()),
            Piece::Escaped(SecretKey::new(&credentials, "password")),
        ];
        let rest = format!(":{port}/{database}?charset={client_charset}&{OPTIONS}{options}");
        let address = match &host {
            Some(host) => vec![Piece::Text(format!("@{host}{rest}"))],
            None => vec![
                Piece::Text("@".to_owned()),
                Piece::Value(SecretKey::new(&credentials, "host")),
                Piece::Text(rest),
            ],
        };
        Entry::Template(login.into_iter().chain(address).collect())
    };
    entries.insert(CONNECTION.to_owned(), connection(SERVICE_TIMEOUTS));
    entries.insert(TASK_CONNECTION.to_owned(), connection(""));
    let content = SecretContent::Entries(entries);
    plan.secrets.push(SecretPlan { name: secret.clone(), content, retained: false, irreplaceable: false });
    Ok(Variable::secret(format!("OS_{}__CONNECTION", section.to_uppercase()), secret, CONNECTION))
}

/// The same variable for a task, which connects without the timeouts of services.
pub(crate) fn for_task(mut variable: Variable) -> Variable {
    if let VariableValue::Secret(key) = &mut variable.value
        && key.key == CONNECTION
    {
        TASK_CONNECTION.clone_into(&mut key.key);
    }
    variable
}

/// A database on a server, and the Secret with the login of its user.
pub(crate) struct DatabaseTarget<'a> {
    pub(crate) database: &'a str,
    pub(crate) credentials: &'a str,
    pub(crate) charset: Charset,
}

/// Adds a database to the plan if the operator creates it. Returns host and port of the server; without a host, the
/// Secret contains it.
pub(crate) fn claim_database<K>(
    context: &Context<'_, K>,
    plan: &mut Plan,
    settings: &DatabaseSettings,
    target: &DatabaseTarget<'_>,
) -> Result<(Option<String>, u16), Invalid> {
    let mut claim = |provider: Reference, server: DatabaseServer| {
        plan.databases.push(Database {
            provider,
            server,
            database: target.database.to_owned(),
            charset: target.charset,
            secret: target.credentials.to_owned(),
            retained: settings.deletion_policy == DeletionPolicy::Retain,
        });
    };
    let port = settings.port.unwrap_or(DATABASE_PORT);
    if let Some(cluster) = &settings.cluster_ref {
        let field = "spec.database.clusterRef.name";
        let server = context.inputs.database(mariadb::KIND, &cluster.name, field)?.clone();
        let (host, port) = (server.host.clone(), server.port);
        claim(Reference::new(mariadb::KIND, &cluster.name), server);
        return Ok((Some(host), port));
    }
    if let (Some(host), Some(administrator)) = (&settings.host, &settings.admin_secret_ref) {
        let secret = administrator.name.clone();
        let server = DatabaseServer { host: host.clone(), port, admin_port: port, secret: secret.clone() };
        claim(Reference::new(SECRET, secret), server);
        return Ok((Some(host.clone()), port));
    }
    if settings.secret_ref.is_some() {
        return Ok((settings.host.clone(), port));
    }
    let reason = "is incomplete: name a MariaDB in clusterRef, an existing server in host, or a Secret with the host \
                  in secretRef";
    Err(Invalid::new("spec.database", reason))
}

/// Port of the server of a database.
pub(crate) fn database_port<K>(context: &Context<'_, K>, settings: &DatabaseSettings) -> u16 {
    let cluster = settings.cluster_ref.as_ref();
    let server = cluster.and_then(|cluster| {
        context.inputs.database(mariadb::KIND, &cluster.name, "spec.database.clusterRef.name").ok()
    });
    server.map(|server| server.port).or(settings.port).unwrap_or(DATABASE_PORT)
}

/// Key of a Secret with the URL of a virtual host.
const TRANSPORT_URL: &str = "transport_url";

/// A variable of this name with the URL of the message bus that carries the notifications of another service, and the port of
/// the bus. The service has its own virtual host, so that its consumers connect there.
pub(crate) fn notifications<K>(
    context: &Context<'_, K>,
    (kind, producer): (Kind, &NameReference),
    field: &str,
    variable: &str,
) -> Result<(Variable, u16), Invalid> {
    let server = context.inputs.notifications(kind, &producer.name, field)?;
    Ok((Variable::secret(variable, &server.secret, TRANSPORT_URL), server.port))
}

/// A virtual host of a service.
pub(crate) struct MessagingClaim<'a> {
    pub(crate) settings: &'a MessagingSettings,
    pub(crate) virtual_host: &'a str,
    /// Suffix of the name of the Secret with its URL.
    pub(crate) suffix: &'a str,
}

/// Message bus of a service.
#[derive(Clone)]
pub(crate) struct MessageBus {
    /// Variable with its URL.
    pub(crate) variable: Variable,
    /// Secret with its URL.
    pub(crate) secret: String,
    pub(crate) hosts: usize,
    pub(crate) port: u16,
}

/// Adds a virtual host to a plan.
pub(crate) fn messaging<K>(
    context: &Context<'_, K>,
    plan: &mut Plan,
    claim: &MessagingClaim<'_>,
) -> Result<MessageBus, Invalid> {
    let MessagingClaim { settings, virtual_host, suffix } = claim;
    let secret = name::part(context.name, suffix);
    let variable = Variable::secret("OS_DEFAULT__TRANSPORT_URL", &secret, TRANSPORT_URL);
    let Some(cluster) = &settings.cluster_ref else {
        let Some(given) = settings.secret_ref.as_ref().filter(|_| !settings.hosts.is_empty()) else {
            let reason = "is incomplete: name a RabbitMQ in clusterRef or existing servers in hosts";
            return Err(Invalid::new("spec.messaging", reason));
        };
        let path = settings.virtual_host.as_deref().unwrap_or("/");
        let address = Entry::Template(transport_url(&settings.hosts, &given.name, path));
        plan.secrets.push(SecretPlan::with_entries(&secret, [(TRANSPORT_URL, address)]));
        let port = settings.hosts.first().and_then(|host| host.rsplit(':').next()?.parse().ok());
        let (hosts, port) = (settings.hosts.len(), port.unwrap_or(BUS_PORT));
        return Ok(MessageBus { variable, secret, hosts, port });
    };
    let server = context.inputs.messaging(rabbitmq::KIND, &cluster.name, "spec.messaging.clusterRef.name")?;
    plan.messaging.push(Messaging {
        provider: Reference::new(rabbitmq::KIND, &cluster.name),
        server: server.clone(),
        virtual_host: (*virtual_host).to_owned(),
        secret: secret.clone(),
    });
    let hosts: Vec<String> = server.hosts.iter().map(|host| format!("{host}:{}", server.port)).collect();
    let entries = [
        ("username", Entry::Text((*virtual_host).to_owned())),
        ("password", Entry::Password { length: 32 }),
        (TRANSPORT_URL, Entry::Template(transport_url(&hosts, &secret, virtual_host))),
    ];
    plan.secrets.push(SecretPlan::with_entries(&secret, entries));
    Ok(MessageBus { variable, secret, hosts: hosts.len(), port: server.port })
}

/// Transport URL of a virtual host for oslo.messaging, with the login of a Secret.
fn transport_url(hosts: &[String], secret: &str, virtual_host: &str) -> Vec<Piece> {
    let mut address = vec![Piece::Text("rabbit://".to_owned())];
    for (index, host) in hosts.iter().enumerate() {
        if index > 0 {
            address.push(Piece::Text(",".to_owned()));
        }
        address.push(Piece::Escaped(SecretKey::new(secret, "username")));
        address.push(Piece::Text(":".to_owned()));
        address.push(Piece::Escaped(SecretKey::new(secret, "password")));
        address.push(Piece::Text(format!("@{host}")));
    }
    address.push(Piece::Text(format!("/{virtual_host}")));
    address
}

/// Options of oslo.messaging for RabbitMQ 4. Quorum queues are set from the start, because the type of a queue cannot
/// change.
pub(crate) fn messaging_options(document: Document) -> Document {
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
        .set("oslo_concurrency", "lock_path", "/tmp")
}

/// Process name for queues. Programs under uWSGI would all be named `uwsgi`.
pub(crate) fn process_name(name: &str) -> Variable {
    Variable::text("OS_OSLO_MESSAGING_RABBIT__PROCESSNAME", name)
}

/// Options of oslo.db for servers that may restart.
pub(crate) fn database_options(document: Document, section: &str) -> Document {
    document.set(section, "max_retries", -1).set(section, "connection_recycle_time", 280).set(
        section,
        "max_overflow",
        10,
    )
}

/// Options of oslo.cache, if the service has a cache.
pub(crate) fn cache_options(
    document: Document,
    settings: &ServiceCacheSettings,
    servers: &[String],
) -> Document {
    if servers.is_empty() {
        return document;
    }
    // Only this driver continues without a failed server; others fail every request until it is back.
    let backend = settings.backend.as_deref().unwrap_or("oslo_cache.memcache_pool");
    document
        .set("cache", "enabled", true)
        .set("cache", "backend", backend)
        .set("cache", "memcache_servers", servers.join(","))
        .set("cache", "memcache_socket_timeout", 1)
        .set("cache", "memcache_dead_retry", 60)
}

/// Cache servers of a service, if it has a cache.
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

#[cfg(test)]
mod tests;
