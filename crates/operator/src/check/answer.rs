//! Answers of the API server within a time limit: objects, or the reason why they cannot be read.

use std::fmt;
use std::time::Duration;

use kube::api::{Api, ListParams};
use kube::core::{DynamicObject, TypeMeta};
use kube::{Client, Error};
use openstack_operator_model::kind::Kind;
use serde_json::Value;
use tokio::time::timeout;

use crate::cluster::api;
use crate::output;

/// A request that takes longer counts as failed, so that a check never hangs.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

/// Why something cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// The caller's permissions do not allow it.
    Forbidden(String),
    /// The cluster does not serve the kind.
    NotServed(String),
    Failed(String),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forbidden(reason) | Self::NotServed(reason) | Self::Failed(reason) => {
                formatter.write_str(reason)
            }
        }
    }
}

pub(crate) type Answer<T> = Result<T, Unreadable>;

/// The scope of a list, for messages.
pub(crate) fn scope(namespace: Option<&str>) -> String {
    namespace.map_or_else(|| "cluster-wide".to_owned(), |namespace| format!("in namespace {namespace}"))
}

/// The message for a list that the API server forbids.
pub(crate) fn forbidden(resource: &str, namespace: Option<&str>) -> String {
    let remedy = if namespace.is_none() { "; pass -n NAMESPACE" } else { "" };
    format!("forbidden: cannot list {resource} {}{remedy}", scope(namespace))
}

/// All objects of a kind in a namespace, or in the cluster.
pub(crate) async fn list(
    client: &Client,
    kind: Kind,
    namespace: Option<&str>,
    labels: &str,
) -> Answer<Vec<Value>> {
    let api = api(client, kind, namespace);
    let parameters = ListParams::default().labels(labels);
    match timeout(TIMEOUT, api.list(&parameters)).await {
        Ok(Ok(list)) => Ok(list.items.into_iter().map(|object| value(kind, object)).collect()),
        Ok(Err(Error::Api(status))) if status.code == 403 => {
            Err(Unreadable::Forbidden(forbidden(kind.plural, namespace)))
        }
        Ok(Err(Error::Api(status))) if status.code == 404 => {
            Err(Unreadable::NotServed(format!("the cluster does not serve {}", kind.plural)))
        }
        Ok(Err(error)) => {
            Err(Unreadable::Failed(format!("cannot list {}: {}", kind.plural, output::chain(&error))))
        }
        Err(_) => Err(Unreadable::Failed(format!(
            "cannot list {}: no answer within {} s",
            kind.plural,
            TIMEOUT.as_secs()
        ))),
    }
}

/// One object, or none if it does not exist. `namespace` is none for kinds of the cluster.
pub(crate) async fn get(
    client: &Client,
    kind: Kind,
    namespace: Option<&str>,
    name: &str,
) -> Answer<Option<Value>> {
    let api: Api<DynamicObject> = api(client, kind, namespace);
    match timeout(TIMEOUT, api.get_opt(name)).await {
        Ok(Ok(found)) => Ok(found.map(|object| value(kind, object))),
        Ok(Err(Error::Api(status))) if status.code == 403 => {
            let place = namespace.map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
            Err(Unreadable::Forbidden(format!("forbidden: cannot read {} {name}{place}", kind.kind)))
        }
        Ok(Err(error)) => {
            Err(Unreadable::Failed(format!("cannot read {} {name}: {}", kind.kind, output::chain(&error))))
        }
        Err(_) => Err(Unreadable::Failed(format!(
            "cannot read {} {name}: no answer within {} s",
            kind.kind,
            TIMEOUT.as_secs()
        ))),
    }
}

/// Items of a list do not carry their kind.
fn value(kind: Kind, mut object: DynamicObject) -> Value {
    object.types = Some(TypeMeta { api_version: kind.api_version(), kind: kind.kind.to_owned() });
    serde_json::to_value(object).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forbidden_list_names_the_way_out() {
        assert_eq!(forbidden("nodes", None), "forbidden: cannot list nodes cluster-wide; pass -n NAMESPACE");
        assert_eq!(forbidden("pods", Some("a")), "forbidden: cannot list pods in namespace a");
    }
}
