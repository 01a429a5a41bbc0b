//! What services have on databases, message buses and caches of others.

use std::collections::BTreeMap;

use openstack_operator_model::common::{CacheSettings, DatabaseSettings, DeletionPolicy, MessagingSettings};
use openstack_operator_model::name;
use openstack_operator_model::need::Needs;
use openstack_operator_model::oslo::Document;
use openstack_operator_model::plan::{
    Database, Entry, Messaging, Piece, Plan, SecretContent, SecretKey, SecretPlan, Variable,
};
use openstack_operator_model::service::{Context, Invalid};

use super::reference;
use crate::{mariadb, memcached, rabbitmq};

pub(crate) fn database_needs(needs: Needs, settings: &DatabaseSettings) -> Needs {
    let cluster = settings.cluster_ref.as_ref().map(|reference| reference.name.as_str());
    let secret = settings.secret_ref.as_ref().map(|reference| reference.name.as_str());
    needs.object("spec.database.clusterRef", mariadb::KIND, cluster).secret(
        "spec.database.secretRef",
        secret,
        &["username", "password"],
    )
}

/// Ends of the names of Secrets.
const DATABASE: &str = "database";
const MESSAGING: &str = "messaging";

/// Secret with the login of a service's own database user.
pub(crate) fn database_secret(name: &str) -> String {
    name::part(name, DATABASE)
}

/// Adds a service's database to its plan and returns the variable with its connection.
pub(crate) fn database<K>(
    context: &Context<'_, K>,
    plan: &mut Plan,
    settings: &DatabaseSettings,
    default_name: &str,
    section: &str,
) -> Result<Variable, Invalid> {
    let database = settings.database.clone().unwrap_or_else(|| default_name.to_owned());
    one_database(context, plan, settings, &database, (DATABASE, section))
}

/// Adds one of several databases: its Secret's name ends in the first of `place`, and the second is the section of the
/// configuration that its connection belongs to.
pub(crate) fn one_database<K>(
    context: &Context<'_, K>,
    plan: &mut Plan,
    settings: &DatabaseSettings,
    database: &str,
    (part, section): (&str, &str),
) -> Result<Variable, Invalid> {
    let secret = name::part(context.name, part);
    let mut entries = BTreeMap::new();
    let credentials = settings.secret_ref.as_ref().map_or(&secret, |given| &given.name).clone();
    if settings.secret_ref.is_none() {
        entries.insert("username".to_owned(), Entry::Text(database.to_owned()));
        entries.insert("password".to_owned(), Entry::Password { length: 32 });
    }
    let (host, port) = claim_database(context, plan, settings, database, &credentials)?;
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
    Ok(Variable::secret(format!("OS_{}__CONNECTION", section.to_uppercase()), secret, "connection"))
}

/// Adds a database of the user whose login a Secret holds, and returns the server's host and port.
pub(crate) fn claim_database<K>(
    context: &Context<'_, K>,
    plan: &mut Plan,
    settings: &DatabaseSettings,
    database: &str,
    credentials: &str,
) -> Result<(String, u16), Invalid> {
    match (&settings.cluster_ref, &settings.host) {
        (Some(cluster), None) => {
            let server =
                context.inputs.database(mariadb::KIND, &cluster.name, "spec.database.clusterRef.name")?;
            plan.databases.push(Database {
                provider: reference(mariadb::KIND, &cluster.name),
                server: server.clone(),
                database: database.to_owned(),
                secret: credentials.to_owned(),
                retained: settings.deletion_policy == DeletionPolicy::Retain,
            });
            Ok((server.host.clone(), server.port))
        }
        (None, Some(host)) if settings.secret_ref.is_some() => {
            Ok((host.clone(), settings.port.unwrap_or(DATABASE_PORT)))
        }
        (None, Some(_)) => {
            Err(Invalid::new("spec.database.secretRef", "is missing: a host needs a Secret with its user"))
        }
        (Some(_), Some(_)) | (None, None) => {
            Err(Invalid::new("spec.database", "needs either a clusterRef or a host with a secretRef"))
        }
    }
}

pub(crate) fn messaging_needs(needs: Needs, settings: &MessagingSettings) -> Needs {
    let cluster = settings.cluster_ref.as_ref().map(|reference| reference.name.as_str());
    needs.object("spec.messaging.clusterRef", rabbitmq::KIND, cluster)
}

/// Port of databases, where nobody says another.
pub(crate) const DATABASE_PORT: u16 = 3306;
/// Port of message buses.
pub(crate) const BUS_PORT: u16 = 5672;

/// Secret whose `transport_url` leads to a service's virtual host.
pub(crate) fn messaging_secret(name: &str) -> String {
    name::part(name, MESSAGING)
}

/// Adds a service's virtual host to its plan and returns the variable with its address.
pub(crate) fn messaging<K>(
    context: &Context<'_, K>,
    plan: &mut Plan,
    settings: &MessagingSettings,
    virtual_host: &str,
) -> Result<Variable, Invalid> {
    one_bus(context, plan, settings, virtual_host, MESSAGING)
}

/// Adds one of several virtual hosts, whose Secret's name ends in `part`.
pub(crate) fn one_bus<K>(
    context: &Context<'_, K>,
    plan: &mut Plan,
    settings: &MessagingSettings,
    virtual_host: &str,
    part: &str,
) -> Result<Variable, Invalid> {
    let Some(cluster) = &settings.cluster_ref else {
        return Err(Invalid::new("spec.messaging.clusterRef", "is missing: name a RabbitMQ"));
    };
    let server = context.inputs.messaging(rabbitmq::KIND, &cluster.name, "spec.messaging.clusterRef.name")?;
    let secret = name::part(context.name, part);
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

/// Tells the queues of a program that uWSGI runs from those of others, which are all called `uwsgi`.
pub(crate) fn process_name(name: &str) -> Variable {
    Variable::text("OS_OSLO_MESSAGING_RABBIT__PROCESSNAME", name)
}

/// How oslo.db must treat a server that may go away.
pub(crate) fn database_options(document: Document, section: &str) -> Document {
    document.set(section, "max_retries", -1).set(section, "connection_recycle_time", 280).set(
        section,
        "max_overflow",
        10,
    )
}

/// How oslo.cache uses the servers of a service's cache; nothing where it has none.
pub(crate) fn cache_options(document: Document, settings: &CacheSettings, servers: &[String]) -> Document {
    if servers.is_empty() {
        return document;
    }
    // Of the drivers only this one goes on without a server that went away; others answer every request with an error
    // until it is back.
    let backend = settings.backend.as_deref().unwrap_or("oslo_cache.memcache_pool");
    document
        .set("cache", "enabled", true)
        .set("cache", "backend", backend)
        .set("cache", "memcache_servers", servers.join(","))
        .set("cache", "memcache_socket_timeout", 1)
        .set("cache", "memcache_dead_retry", 60)
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
