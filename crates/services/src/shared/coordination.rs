//! Coordination of the pods of a service with locks and groups in a key-value store.

use openstack_operator_model::name;
use openstack_operator_model::plan::{Entry, Piece, Plan, SecretKey, SecretPlan, Variable};
use openstack_operator_model::service::{Context, Invalid};
use openstack_operator_model::status::KeyValueServer;

use crate::concern::KeyValueSettings;
use crate::valkey;

/// Key of a Secret with the URL of the key-value store.
const BACKEND_URL: &str = "backend_url";
/// A client of a server without power notices it after these seconds, and asks the Sentinels for the new primary.
const TIMEOUTS: &str =
    "socket_timeout=10&socket_connect_timeout=3&health_check_interval=10&retry_on_timeout=true";

/// Adds the URL of the key-value store to a plan, in the form of the library tooz. Returns the variable of this name with the
/// URL; none if the service has no key-value store.
pub(crate) fn coordination<K>(
    context: &Context<'_, K>,
    plan: &mut Plan,
    settings: &KeyValueSettings,
    variable: &str,
) -> Result<Option<Variable>, Invalid> {
    let server = match &settings.cluster_ref {
        Some(cluster) => {
            context.inputs.key_value(valkey::KIND, &cluster.name, "spec.keyValue.clusterRef.name")?.clone()
        }
        None if settings.servers.is_empty() => return Ok(None),
        None => KeyValueServer {
            servers: settings.servers.clone(),
            sentinel: settings.sentinel.clone(),
            database: settings.database.unwrap_or_default(),
            secret: settings.secret_ref.as_ref().map(|secret| secret.name.clone()),
            sentinel_secret: settings.sentinel_secret_ref.as_ref().map(|secret| secret.name.clone()),
        },
    };
    let secret = name::part(context.name, "coordination");
    // Objects that share a database must not see the locks and groups of each other.
    let namespace = format!("{}.{}", context.namespace, context.name);
    let url = Entry::Template(tooz_url(&server, &namespace));
    plan.secrets.push(SecretPlan::with_entries(&secret, [(BACKEND_URL, url)]));
    Ok(Some(Variable::secret(variable, secret, BACKEND_URL)))
}

/// URL of a key-value store for tooz. All keys begin with the namespace.
fn tooz_url(server: &KeyValueServer, namespace: &str) -> Vec<Piece> {
    let KeyValueServer { servers, sentinel, database, secret, sentinel_secret } = server;
    let mut url = vec![Piece::Text("redis://".to_owned())];
    if let Some(secret) = secret {
        url.extend([
            Piece::Escaped(SecretKey::new(secret, "username")),
            Piece::Text(":".to_owned()),
            Piece::Escaped(SecretKey::new(secret, "password")),
            Piece::Text("@".to_owned()),
        ]);
    }
    let (first, others) = servers.split_first().map_or(("", &[][..]), |(first, others)| (first, others));
    let mut rest = format!("{first}?db={database}&namespace={namespace}&{TIMEOUTS}");
    if let Some(primary) = sentinel {
        rest.push_str("&sentinel=");
        rest.push_str(primary);
        for other in others {
            rest.push_str("&sentinel_fallback=");
            rest.push_str(other);
        }
    }
    url.push(Piece::Text(rest));
    if let Some(secret) = sentinel_secret {
        url.push(Piece::Text("&sentinel_password=".to_owned()));
        url.push(Piece::Escaped(SecretKey::new(secret, "password")));
    }
    url
}

#[cfg(test)]
mod tests;
