//! Objects as they were read last, so that an object that has not changed since is not read again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::core::DynamicObject;
use openstack_operator_model::kind::{Kind, SECRET};
use openstack_operator_model::lower::{MANAGED_BY_LABEL, MANAGER};
use tokio::time::Instant;

/// How long an object is kept. A watch may lose its connection without notice, and memory at rest must stay small.
const LIFETIME: Duration = Duration::from_secs(30);
const MAX_OBJECTS: usize = 256;

type Location = (Kind, String, String);

/// Objects that are watched. An event with another version than the one that was read removes the object. A reader may
/// therefore see an old version until the event arrives, and the event triggers the next reconcile.
pub struct RecentObjects {
    own_kinds: Vec<Kind>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    objects: HashMap<Location, Recent>,
    /// Requests whose answers are outstanding.
    requests: HashMap<Location, Outstanding>,
}

struct Recent {
    version: String,
    /// JSON, which takes a fraction of the memory of the parsed object.
    body: Box<[u8]>,
    since: Instant,
}

#[derive(Default)]
struct Outstanding {
    count: usize,
    /// Version in the last event since the first of the requests; empty if the event has none.
    event: Option<String>,
}

/// A request for an object. Events that arrive before its answer decide whether the answer is kept.
pub struct Request<'a> {
    objects: &'a RecentObjects,
    location: Location,
}

impl RecentObjects {
    #[must_use]
    pub fn new(own_kinds: Vec<Kind>) -> Self {
        Self { own_kinds, state: Mutex::default() }
    }

    /// The object, if it was read recently and has not changed since.
    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<DynamicObject> {
        let location = (kind, namespace.to_owned(), name.to_owned());
        let mut state = self.state();
        let recent = state.objects.get(&location)?;
        if recent.since.elapsed() >= LIFETIME {
            state.objects.remove(&location);
            return None;
        }
        serde_json::from_slice(&recent.body).ok()
    }

    /// Starts a request that answers with the object. What was read before it is forgotten.
    #[must_use]
    pub fn request(&self, kind: Kind, namespace: &str, name: &str) -> Request<'_> {
        let location = (kind, namespace.to_owned(), name.to_owned());
        let mut state = self.state();
        state.objects.remove(&location);
        state.requests.entry(location.clone()).or_default().count += 1;
        drop(state);
        Request { objects: self, location }
    }

    /// An event of a watch: the object now has this version, or does not exist any more.
    pub(crate) fn changed(&self, kind: Kind, namespace: &str, name: &str, version: Option<&str>) {
        let location = (kind, namespace.to_owned(), name.to_owned());
        let version = version.unwrap_or_default();
        let mut state = self.state();
        if state.objects.get(&location).is_some_and(|recent| recent.version != version) {
            state.objects.remove(&location);
        }
        if let Some(outstanding) = state.requests.get_mut(&location) {
            outstanding.event = Some(version.to_owned());
        }
    }

    /// A watch starts again and may have missed events.
    pub(crate) fn forget_kind(&self, kind: Kind) {
        self.state().objects.retain(|location, _| location.0 != kind);
    }

    /// Whether a change of the object causes an event. Of other kinds, only objects with the operator's label are watched.
    fn is_watched(&self, kind: Kind, object: &DynamicObject) -> bool {
        let manager = object.metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY_LABEL));
        kind == SECRET || self.own_kinds.contains(&kind) || manager.is_some_and(|manager| manager == MANAGER)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Request<'_> {
    /// Keeps the answer, unless an event with another version arrived before it.
    pub fn answered(self, object: &DynamicObject) {
        let Some(version) = object.metadata.resource_version.clone() else { return };
        if !self.objects.is_watched(self.location.0, object) {
            return;
        }
        let mut object = object.clone();
        // The engine does not read it, and it is often larger than the rest.
        object.metadata.managed_fields = None;
        let Ok(body) = serde_json::to_vec(&object) else { return };
        let mut state = self.objects.state();
        let event = state.requests.get(&self.location).and_then(|outstanding| outstanding.event.as_ref());
        if event.is_some_and(|event| *event != version) {
            return;
        }
        state.objects.retain(|_, recent| recent.since.elapsed() < LIFETIME);
        if state.objects.len() < MAX_OBJECTS {
            let recent = Recent { version, body: body.into(), since: Instant::now() };
            state.objects.insert(self.location.clone(), recent);
        }
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        let mut state = self.objects.state();
        if let Some(outstanding) = state.requests.get_mut(&self.location) {
            outstanding.count -= 1;
            if outstanding.count == 0 {
                state.requests.remove(&self.location);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use openstack_operator_model::kind::{CONFIG_MAP, SECRET};
    use serde_json::json;

    use super::*;

    fn object(version: usize) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": "s", "namespace": "n", "resourceVersion": version.to_string(),
                "managedFields": [{ "manager": "kubectl" }],
            },
            "data": { "version": version.to_string() },
        }))
        .unwrap()
    }

    fn read(objects: &RecentObjects, version: usize) {
        objects.request(SECRET, "n", "s").answered(&object(version));
    }

    fn version(objects: &RecentObjects) -> Option<String> {
        objects.get(SECRET, "n", "s")?.metadata.resource_version
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_is_kept_until_an_event_with_another_version() {
        let objects = RecentObjects::new(Vec::new());
        assert_eq!(version(&objects), None);
        read(&objects, 5);
        let kept = objects.get(SECRET, "n", "s").unwrap();
        assert_eq!(kept.data["data"], json!({ "version": "5" }));
        assert!(kept.metadata.managed_fields.is_none());
        objects.changed(SECRET, "n", "s", Some("5"));
        assert!(version(&objects).is_some(), "the event of the version that was read");
        objects.changed(SECRET, "n", "other", Some("6"));
        objects.changed(CONFIG_MAP, "n", "s", Some("6"));
        assert!(version(&objects).is_some(), "events of other objects");
        objects.changed(SECRET, "n", "s", Some("6"));
        assert_eq!(version(&objects), None);
        read(&objects, 6);
        objects.changed(SECRET, "n", "s", None);
        assert_eq!(version(&objects), None, "deleted");
    }

    #[tokio::test(start_paused = true)]
    async fn only_watched_objects_are_kept() {
        const OWN: Kind = Kind::own("Thing", "things");
        let objects = RecentObjects::new(vec![OWN]);
        let labelled = |manager: &str| {
            let mut object = object(5);
            object.metadata.labels = Some([(MANAGED_BY_LABEL.to_owned(), manager.to_owned())].into());
            object
        };
        let is_kept = |kind: Kind, object: &DynamicObject| {
            objects.request(kind, "n", "s").answered(object);
            objects.get(kind, "n", "s").is_some()
        };
        assert!(is_kept(OWN, &object(5)) && is_kept(SECRET, &object(5)));
        assert!(is_kept(CONFIG_MAP, &labelled(MANAGER)));
        assert!(!is_kept(CONFIG_MAP, &labelled("Helm")) && !is_kept(CONFIG_MAP, &object(5)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_older_than_an_event_is_not_kept() {
        let objects = RecentObjects::new(Vec::new());
        for (event, kept) in [("4", None), ("6", None), ("5", Some("5".to_owned()))] {
            let request = objects.request(SECRET, "n", "s");
            objects.changed(SECRET, "n", "s", Some(event));
            request.answered(&object(5));
            assert_eq!(version(&objects), kept, "event of version {event}");
        }
        assert!(objects.state().requests.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_forgets_the_object() {
        let objects = RecentObjects::new(Vec::new());
        read(&objects, 5);
        drop(objects.request(SECRET, "n", "s"));
        assert_eq!(version(&objects), None);
        assert!(objects.state().requests.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_restarted_watch_forgets_its_kind() {
        let objects = RecentObjects::new(Vec::new());
        read(&objects, 5);
        objects.forget_kind(CONFIG_MAP);
        assert!(version(&objects).is_some());
        objects.forget_kind(SECRET);
        assert_eq!(version(&objects), None);
    }

    #[tokio::test(start_paused = true)]
    async fn objects_expire_and_their_number_is_limited() {
        let objects = RecentObjects::new(Vec::new());
        read(&objects, 5);
        tokio::time::advance(LIFETIME).await;
        assert_eq!(version(&objects), None);
        for number in 0..=MAX_OBJECTS {
            objects.request(SECRET, "n", &number.to_string()).answered(&object(1));
        }
        assert_eq!(objects.state().objects.len(), MAX_OBJECTS);
        tokio::time::advance(LIFETIME).await;
        read(&objects, 5);
        assert_eq!(objects.state().objects.len(), 1);
    }
}
