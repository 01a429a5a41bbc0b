//! Remembers what was applied, for objects that the API server stores in another form.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use openstack_operator_model::kind::Kind;
use openstack_operator_model::lower::{INSTANCE_LABEL, KIND_LABEL, Manifest};

use crate::engine::Key;

/// Manifests that the API server stores in another form than they were sent in, so that comparing them is useless.
#[derive(Default)]
pub(crate) struct AppliedIntents {
    known: Mutex<HashMap<Location, Intent>>,
}

struct Intent {
    revision: Revision,
    /// Kind and name of the object that the manifest belongs to.
    owner: Option<(String, String)>,
}

pub(crate) type Location = (Kind, String, String);
/// Hash of the manifest, and the generation of the object after it was applied.
pub(crate) type Revision = (String, String);

impl AppliedIntents {
    pub(crate) fn matches(&self, location: &Location, revision: &Revision) -> bool {
        self.known().get(location).is_some_and(|intent| intent.revision == *revision)
    }

    pub(crate) fn remember(&self, manifest: &Manifest, location: Location, revision: Revision) {
        let intent = Intent { revision, owner: owner(manifest) };
        self.known().insert(location, intent);
    }

    pub(crate) fn forget(&self, location: &Location) {
        self.known().remove(location);
    }

    /// Forgets the manifests of an object that no longer exists.
    pub(crate) fn forget_owner(&self, key: &Key) {
        let is_owner = |(kind, name): &(String, String)| kind == key.kind.kind && *name == key.name;
        self.known().retain(|location, intent| {
            location.1 != key.namespace || !intent.owner.as_ref().is_some_and(is_owner)
        });
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Location, Intent>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn location(namespace: &str, manifest: &Manifest) -> Location {
    (manifest.kind, namespace.to_owned(), manifest.name.clone())
}

fn owner(manifest: &Manifest) -> Option<(String, String)> {
    let labels = manifest.body.pointer("/metadata/labels")?;
    let label = |name: &str| labels.get(name)?.as_str().map(str::to_owned);
    Some((label(KIND_LABEL)?, label(INSTANCE_LABEL)?))
}

#[cfg(test)]
mod tests {
    use openstack_operator_model::kind::SERVICE;
    use openstack_operator_model::lower::Source;
    use serde_json::json;

    use super::*;

    #[test]
    fn manifests_of_deleted_objects_are_forgotten() {
        let intents = AppliedIntents::default();
        let manifest = |name: &str, instance: &str| {
            let labels = json!({ KIND_LABEL: "Thing", INSTANCE_LABEL: instance });
            let body = json!({ "metadata": { "name": name, "labels": labels } });
            Manifest { kind: SERVICE, name: name.to_owned(), body, source: Source::Other }
        };
        let revision = || ("hash".to_owned(), "1".to_owned());
        let manifests = [manifest("a", "gone"), manifest("b", "gone"), manifest("c", "kept")];
        for manifest in &manifests {
            intents.remember(manifest, location("n", manifest), revision());
        }
        intents.forget(&location("n", &manifests[0]));
        let key = |namespace: &str| Key {
            kind: Kind::own("Thing", "things"),
            namespace: namespace.to_owned(),
            name: "gone".to_owned(),
        };
        let known =
            || manifests.each_ref().map(|manifest| intents.matches(&location("n", manifest), &revision()));
        intents.forget_owner(&key("other"));
        assert_eq!(known(), [false, true, true]);
        intents.forget_owner(&key("n"));
        assert_eq!(known(), [false, false, true]);
    }
}
