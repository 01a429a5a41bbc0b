//! Members: reads what pods report, asks the service what to tell them, and tells them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use kube::core::DynamicObject;
use openstack_operator_model::condition::Progress;
use openstack_operator_model::kind::POD;
use openstack_operator_model::lower::{COMPONENT_LABEL, INSTANCE_LABEL, KIND_LABEL};
use openstack_operator_model::service::{AnyService, Member};
use serde_json::json;

use crate::engine::{Engine, Key, Stop, guarded};

/// What was decided, and how far the members are.
pub(crate) struct Directed {
    pub(crate) memory: BTreeMap<String, String>,
    pub(crate) progress: Progress,
}

impl Engine {
    /// **Invariant:** what is decided is remembered in the status before anybody is told, so that an operator that
    /// ends in between decides the same again.
    pub(crate) async fn direct(
        &self,
        key: &Key,
        service: &dyn AnyService,
        object: &DynamicObject,
        memory: &BTreeMap<String, String>,
    ) -> Result<Directed, Stop> {
        let labels = BTreeMap::from([
            (INSTANCE_LABEL.to_owned(), key.name.clone()),
            (KIND_LABEL.to_owned(), key.kind.kind.to_owned()),
        ]);
        let pods = self.ports.cluster.list(POD, &key.namespace, &labels).await?;
        let members: Vec<Member> = pods.iter().map(member).collect();
        let direction = guarded("directing members", || service.direct(object, &members, memory))?;
        if direction.memory == *memory {
            for order in &direction.orders {
                let metadata = json!({ "uid": order.uid, "annotations": { order.annotation: order.value } });
                self.ports.cluster.patch_metadata(POD, &key.namespace, &order.pod, metadata).await?;
                tracing::info!(
                    pod = order.pod,
                    annotation = order.annotation,
                    value = order.value,
                    "gave an order"
                );
            }
        }
        let progress = direction.waiting.map_or(Progress::Done, Progress::waiting);
        Ok(Directed { memory: direction.memory, progress })
    }
}

fn member(pod: &DynamicObject) -> Member {
    let status: PodStatus = pod
        .data
        .get("status")
        .and_then(|status| serde_json::from_value(status.clone()).ok())
        .unwrap_or_default();
    let main = status.container_statuses.iter().flatten().next();
    let restarts = main.map_or(0, |main| main.restart_count);
    let setup = status.init_container_statuses.iter().flatten().next();
    let ready = status
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let labels = pod.metadata.labels.as_ref();
    Member {
        name: pod.metadata.name.clone().unwrap_or_default(),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        component: labels.and_then(|labels| labels.get(COMPONENT_LABEL)).cloned().unwrap_or_default(),
        ready: ready && pod.metadata.deletion_timestamp.is_none(),
        restarts,
        // Once the main container ran, what the setup container said is out of date.
        report: if restarts > 0 { main.and_then(last_words) } else { setup.and_then(words) },
        annotations: pod.metadata.annotations.clone().unwrap_or_default(),
    }
}

fn words(container: &ContainerStatus) -> Option<String> {
    container.state.as_ref()?.terminated.as_ref()?.message.clone()
}

fn last_words(container: &ContainerStatus) -> Option<String> {
    container.last_state.as_ref()?.terminated.as_ref()?.message.clone()
}
