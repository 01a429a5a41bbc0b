//! Every Kubernetes object of planned objects, in reading order.

use std::collections::BTreeMap;

use openstack_operator_engine::engine::Key;
use openstack_operator_model::kind::{
    CONFIG_MAP, CRON_JOB, DAEMON_SET, DEPLOYMENT, HTTP_ROUTE, JOB, Kind, PERSISTENT_VOLUME_CLAIM,
    POD_DISRUPTION_BUDGET, SECRET, SERVICE, STATEFUL_SET,
};
use openstack_operator_model::lower::{Instance, Manifest, Source, manifest};
use openstack_operator_model::plan::{CERTIFICATE_KEYS, Entry, Piece, SSH_KEYS, SecretContent, SecretPlan};
use serde_json::{Value, json};

use crate::plan_all::Planned;

/// An object that the operator would create.
#[derive(Clone, Debug)]
pub(crate) struct Desired {
    pub(crate) key: Key,
    /// The object that owns it.
    pub(crate) owner: Key,
    pub(crate) body: Value,
    /// The part of the owner's plan that it comes from.
    pub(crate) source: Source,
}

/// All objects: the operator's kinds, then configuration and tasks, then workloads, then Services and routes.
pub(crate) fn desired(planned: &[Planned]) -> Vec<Desired> {
    let mut all: Vec<Desired> = planned.iter().flat_map(of_one).collect();
    all.sort_by_key(|desired| rank(desired.key.kind));
    all
}

fn of_one(planned: &Planned) -> Vec<Desired> {
    let secrets = planned.plan.secrets.iter().map(|secret| secret_without_values(&planned.instance, secret));
    let applied = planned.manifests.values().flatten().cloned();
    let desired = |Manifest { kind, name, body, source }: Manifest| Desired {
        key: Key { kind, namespace: planned.key.namespace.clone(), name },
        owner: planned.key.clone(),
        body,
        source,
    };
    secrets.chain(applied).map(desired).collect()
}

fn rank(kind: Kind) -> usize {
    let order = [
        SECRET,
        CONFIG_MAP,
        PERSISTENT_VOLUME_CLAIM,
        JOB,
        CRON_JOB,
        DEPLOYMENT,
        STATEFUL_SET,
        DAEMON_SET,
        POD_DISRUPTION_BUDGET,
        SERVICE,
        HTTP_ROUTE,
    ];
    // The operator's own kinds come first.
    order.iter().position(|known| *known == kind).map_or(0, |position| position + 1)
}

/// A Secret as it is planned. **Invariant:** it holds no value, since planning knows none.
fn secret_without_values(instance: &Instance, secret: &SecretPlan) -> Manifest {
    let mut metadata = instance.metadata(&secret.name, None);
    if secret.retained {
        metadata.owner_references = None;
    }
    let entries: BTreeMap<String, String> = match &secret.content {
        SecretContent::Entries(entries) => {
            entries.iter().map(|(key, entry)| (key.clone(), placeholder(entry))).collect()
        }
        SecretContent::KeyRing(_) => generated(&["0", "1"]),
        SecretContent::Certificate(_) => generated(&CERTIFICATE_KEYS),
        SecretContent::SshKey => generated(&SSH_KEYS),
    };
    manifest(SECRET, &secret.name, &metadata, [("type", json!("Opaque")), ("stringData", json!(entries))])
}

const GENERATED: &str = "<generated>";

fn generated(keys: &[&str]) -> BTreeMap<String, String> {
    keys.iter().map(|&key| (key.to_owned(), GENERATED.to_owned())).collect()
}

fn placeholder(entry: &Entry) -> String {
    match entry {
        Entry::Password { .. } | Entry::Bytes { .. } | Entry::Uuid => GENERATED.to_owned(),
        Entry::Text(text) => text.clone(),
        Entry::Template(pieces) => pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.clone(),
                Piece::Value(key) | Piece::Escaped(key) | Piece::Option(key) => {
                    format!("<{}/{}>", key.secret, key.key)
                }
                Piece::Keys { ring, before, after } => format!("{before}<every key of {ring}>{after}"),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use openstack_operator_model::plan::SecretKey;

    use super::*;

    #[test]
    fn a_template_has_placeholders_for_values() {
        let pieces = vec![
            Piece::Text("mysql://".to_owned()),
            Piece::Escaped(SecretKey::new("s", "username")),
            Piece::Text("@h".to_owned()),
        ];
        assert_eq!(placeholder(&Entry::Template(pieces)), "mysql://<s/username>@h");
        assert_eq!(placeholder(&Entry::Password { length: 32 }), "<generated>");
        let keys = Piece::Keys { ring: "ring".into(), before: "kek = ".into(), after: "\n".into() };
        let option = Piece::Option(SecretKey::new("s", "password"));
        assert_eq!(
            placeholder(&Entry::Template(vec![keys, option])),
            "kek = <every key of ring>\n<s/password>"
        );
    }

    #[test]
    fn own_kinds_come_first_and_routes_last() {
        let kinds = [HTTP_ROUTE, SERVICE, JOB, SECRET, Kind::own("Keystone", "keystones")];
        let mut sorted = kinds;
        sorted.sort_by_key(|kind| rank(*kind));
        assert_eq!(sorted.map(|kind| kind.kind), ["Keystone", "Secret", "Job", "Service", "HTTPRoute"]);
    }
}
