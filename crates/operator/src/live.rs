//! Objects of a cluster at one moment, without values of Secrets.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::try_join_all;
use kube::Client;
use kube::api::ListParams;
use kube::core::{DynamicObject, ObjectMeta, TypeMeta};
use openstack_operator_engine::engine::Key;
use openstack_operator_model::kind::{CHILD_KINDS, Kind, NODE, SECRET, SERVICE};
use openstack_operator_model::lower::{MANAGED_BY_LABEL, MANAGER, ROTATIONS_ANNOTATION, SecretFacts};
use openstack_operator_model::node::Node;
use openstack_operator_services::kinds;
use serde_json::Value;
use snafu::{ResultExt, Snafu};

use crate::cluster::{self, Listing, api};
use crate::plan_all::{Known, KnownObject};

#[derive(Debug, Snafu)]
pub(crate) enum Error {
    #[snafu(transparent)]
    Cluster { source: cluster::Error },
    #[snafu(display("forbidden: cannot list {resource} in namespace {namespace}"))]
    Forbidden { resource: &'static str, namespace: String },
    #[snafu(display("failed to decode {key} of the cluster"))]
    Convert { key: Key, source: serde_json::Error },
}

/// Live objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live {
    pub(crate) objects: BTreeMap<Key, Value>,
    /// By namespace and name; none if they are not readable.
    pub(crate) secrets: Option<BTreeMap<(String, String), LiveSecret>>,
    /// Kinds that the cluster does not serve.
    pub(crate) unserved: BTreeSet<Kind>,
    /// None if they are not readable.
    pub(crate) nodes: Option<BTreeMap<String, Node>>,
}

/// A Secret without its values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LiveSecret {
    /// Unknown without managed fields.
    pub(crate) keys: Option<BTreeSet<String>>,
    pub(crate) rotations: u32,
    pub(crate) owners: Vec<String>,
}

/// Reads all objects of the operator in some namespaces.
pub(crate) async fn read(client: &Client, namespaces: &BTreeSet<String>) -> Result<Live, Error> {
    let mut live = Live { secrets: Some(BTreeMap::new()), ..Live::default() };
    let all = namespaces.iter().flat_map(|namespace| {
        let children = CHILD_KINDS.iter().copied().filter(|kind| *kind != SECRET);
        kinds().into_iter().chain(children).map(move |kind| list(client, kind, namespace))
    });
    for (kind, namespace, listing) in try_join_all(all).await? {
        match listing {
            Listing::Found(found) => {
                for mut object in found {
                    // Items of a list do not carry their kind.
                    object.types =
                        Some(TypeMeta { api_version: kind.api_version(), kind: kind.kind.to_owned() });
                    let name = object.metadata.name.clone().unwrap_or_default();
                    let key = Key { kind, namespace: namespace.clone(), name };
                    let value = serde_json::to_value(object).context(ConvertSnafu { key: key.clone() })?;
                    live.objects.insert(key, value);
                }
            }
            Listing::NotServed => _ = live.unserved.insert(kind),
            Listing::Forbidden => return ForbiddenSnafu { resource: kind.plural, namespace }.fail(),
        }
    }
    let listed = api(client, NODE, None).list(&ListParams::default()).await;
    if let Listing::Found(found) = Listing::new(NODE.plural, listed)? {
        let node = |DynamicObject { metadata, data, .. }: DynamicObject| {
            let node = Node::new(metadata.labels.unwrap_or_default(), &data);
            (metadata.name.unwrap_or_default(), node)
        };
        live.nodes = Some(found.into_iter().map(node).collect());
    }
    for namespace in namespaces {
        let listed = api(client, SECRET, Some(namespace)).list_metadata(&ListParams::default()).await;
        match Listing::new(SECRET.plural, listed)? {
            Listing::Found(found) => {
                let secrets = found.iter().map(|object| {
                    let name = object.metadata.name.clone().unwrap_or_default();
                    ((namespace.clone(), name), secret(&object.metadata))
                });
                live.secrets.get_or_insert_default().extend(secrets);
            }
            Listing::NotServed | Listing::Forbidden => {
                live.secrets = None;
                break;
            }
        }
    }
    Ok(live)
}

async fn list(
    client: &Client,
    kind: Kind,
    namespace: &str,
) -> Result<(Kind, String, Listing<DynamicObject>), cluster::Error> {
    let parameters = if CHILD_KINDS.contains(&kind) {
        ListParams::default().labels(&format!("{MANAGED_BY_LABEL}={MANAGER}"))
    } else {
        ListParams::default()
    };
    let listed = api(client, kind, Some(namespace)).list(&parameters).await;
    Ok((kind, namespace.to_owned(), Listing::new(kind.plural, listed)?))
}

/// Keys, rotations and owners of a Secret, from its metadata; managed fields name the keys.
pub(crate) fn secret(metadata: &ObjectMeta) -> LiveSecret {
    let writers = metadata.managed_fields.as_ref();
    let keys = writers.map(|writers| {
        let fields = writers.iter().filter_map(|writer| writer.fields_v1.as_ref());
        let data = fields.filter_map(|fields| fields.0.get("f:data")?.as_object());
        data.flatten().filter_map(|(field, _)| Some(field.strip_prefix("f:")?.to_owned())).collect()
    });
    let rotations = metadata.annotations.as_ref().and_then(|all| all.get(ROTATIONS_ANNOTATION));
    LiveSecret {
        keys,
        rotations: rotations.and_then(|count| count.parse().ok()).unwrap_or(0),
        owners: metadata.owner_references.iter().flatten().map(|owner| owner.uid.clone()).collect(),
    }
}

impl Live {
    /// Facts for planning.
    pub(crate) fn known(&self) -> Known {
        let own = kinds();
        let objects = self.objects.iter().filter(|(key, _)| own.contains(&key.kind)).map(|(key, object)| {
            let status = object.get("status").and_then(|status| serde_json::from_value(status.clone()).ok());
            let known = KnownObject {
                uid: uid(object).to_owned(),
                generation: object.pointer("/metadata/generation").and_then(Value::as_i64),
                spec: object.get("spec").cloned().unwrap_or_default(),
                status: status.unwrap_or_default(),
            };
            (key.clone(), known)
        });
        // The revision is a hash of values, which are not read here.
        let facts =
            |secret: &LiveSecret| SecretFacts { revision: String::new(), rotations: secret.rotations };
        let secrets = self.secrets.iter().flatten().map(|(place, secret)| (place.clone(), facts(secret)));
        let addresses =
            self.objects.iter().filter(|(key, _)| key.kind == SERVICE).filter_map(|(key, service)| {
                let address = service.pointer("/spec/clusterIP")?.as_str()?;
                Some(((key.namespace.clone(), key.name.clone()), address.to_owned()))
            });
        Known {
            objects: objects.collect(),
            secrets: secrets.collect(),
            addresses: addresses.collect(),
            nodes: self.nodes.clone(),
        }
    }
}

pub(crate) fn uid(object: &Value) -> &str {
    object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default()
}

/// Whether an object belongs to the one with this uid.
pub(crate) fn is_owned(object: &Value, owner_uid: &str) -> bool {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    !owner_uid.is_empty() && owners.into_iter().flatten().any(|owner| owner["uid"] == owner_uid)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_of_a_secret_are_read_without_its_values() {
        let metadata: ObjectMeta = serde_json::from_value(json!({
            "name": "s", "annotations": { "openstack.k8s.io/rotations": "4" },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "K", "name": "k", "uid": "u" }],
            "managedFields": [
                { "manager": "a", "fieldsV1": { "f:data": { ".": {}, "f:username": {} } } },
                { "manager": "b", "fieldsV1": { "f:data": { "f:password": {} }, "f:type": {} } }
            ]
        }))
        .unwrap();
        let found = secret(&metadata);
        assert_eq!(found.keys.unwrap().into_iter().collect::<Vec<_>>(), ["password", "username"]);
        assert_eq!((found.rotations, found.owners), (4, vec!["u".to_owned()]));
        assert_eq!(secret(&ObjectMeta::default()).keys, None);
    }
}
