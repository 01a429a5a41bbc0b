//! Definitions of kinds, so that kinds of other projects are watched once the cluster serves them.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use openstack_operator_model::kind::CUSTOM_RESOURCE_DEFINITION;
use tokio::sync::watch;

/// Names of the definitions of the cluster; none before they are listed.
#[derive(Clone, Debug)]
pub(crate) struct Definitions {
    names: Arc<watch::Sender<Option<BTreeSet<String>>>>,
}

impl Default for Definitions {
    fn default() -> Self {
        Self { names: Arc::new(watch::Sender::new(None)) }
    }
}

impl Definitions {
    /// Whether the cluster has a definition. Waits until all are listed.
    pub(crate) async fn contains(&self, name: &str) -> bool {
        let mut names = self.names.subscribe();
        // The sender lives as long as this object.
        let Ok(names) = names.wait_for(Option::is_some).await else { return false };
        names.as_ref().is_some_and(|names| names.contains(name))
    }

    /// Waits until the cluster has a definition.
    pub(crate) async fn until_contains(&self, name: &str) {
        let has = |names: &Option<BTreeSet<String>>| names.as_ref().is_some_and(|names| names.contains(name));
        // The sender lives as long as this object.
        let _ = self.names.subscribe().wait_for(has).await;
    }

    /// Follows the definitions of a cluster until the process ends.
    pub(crate) async fn follow(self, client: Client) {
        let api: Api<PartialObjectMeta<DynamicObject>> =
            Api::all_with(client, &CUSTOM_RESOURCE_DEFINITION.resource());
        let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
        let mut listed = BTreeSet::new();
        loop {
            match events.try_next().await {
                Ok(Some(event)) => self.record(event, &mut listed),
                // The stream never ends; it retries after errors with backoff.
                Ok(None) => return,
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "watch of definitions interrupted; retrying");
                }
            }
        }
    }

    fn record(&self, event: watcher::Event<PartialObjectMeta<DynamicObject>>, listed: &mut BTreeSet<String>) {
        match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(definition) => _ = listed.insert(definition.name_any()),
            watcher::Event::InitDone => _ = self.names.send_replace(Some(std::mem::take(listed))),
            watcher::Event::Apply(definition) => self.change(|names| names.insert(definition.name_any())),
            watcher::Event::Delete(definition) => self.change(|names| names.remove(&definition.name_any())),
        }
    }

    fn change(&self, change: impl FnOnce(&mut BTreeSet<String>) -> bool) {
        self.names.send_if_modified(|names| names.as_mut().is_some_and(change));
    }
}
