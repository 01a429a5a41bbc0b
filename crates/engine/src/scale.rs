//! Scale-down: after pods of a component have stopped, a task removes the records that they left in their service.

use std::collections::BTreeMap;

use kube::ResourceExt;
use kube::core::DynamicObject;
use openstack_operator_model::condition::{ConditionType, Progress};
use openstack_operator_model::kind::{CONTROLLERS, STATEFUL_SET};
use openstack_operator_model::lower::COMPONENT_LABEL;
use openstack_operator_model::lower::task::{self, Extent, Removed};
use openstack_operator_model::name;
use openstack_operator_model::plan::Plan;

use crate::engine::{Engine, Key};
use crate::ports::PortResult;
use crate::work::Work;

impl Engine {
    /// Pods by component that a scale-down has removed. A component of which such a pod still exists has none, because the
    /// pod would write its record again. The same applies to a component that is not wanted, until its workload is deleted.
    pub(crate) async fn removed_pods(
        &self,
        key: &Key,
        plan: &Plan,
        work: &Work,
    ) -> PortResult<BTreeMap<String, Removed>> {
        let mut removed = BTreeMap::new();
        let surplus = task::surplus_pods(&key.name, plan, &work.status.scale);
        if surplus.is_empty() {
            return Ok(removed);
        }
        let pods = self.pods(key).await?;
        for (component, one) in surplus {
            let exists = |pod: &DynamicObject| match one.extent {
                Extent::Pods => pod.metadata.name.as_ref().is_some_and(|name| one.pods.contains(name)),
                Extent::Component => pod.labels().get(COMPONENT_LABEL) == Some(&component),
            };
            let is_left = one.extent == Extent::Component
                && self.has_workload(&key.namespace, &key.name, &component).await?;
            if !is_left && !pods.iter().any(exists) {
                removed.insert(component, one);
            }
        }
        Ok(removed)
    }

    /// Whether the workload of a component exists that the plan no longer has.
    async fn has_workload(&self, namespace: &str, object: &str, component: &str) -> PortResult<bool> {
        for &kind in CONTROLLERS {
            let name = if kind == STATEFUL_SET {
                name::set(object, Some(component))
            } else {
                name::part(object, component)
            };
            if self.ports.cluster.get(kind, namespace, &name).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Work {
    /// **Invariant:** the status records the number of pods before they start, so that their records are removed after any
    /// later scale-down.
    pub(crate) fn record_scale(&mut self, plan: &Plan) -> bool {
        let known = &mut self.status.scale;
        known.retain(|component, _| task::has_records(plan, component));
        let before = known.clone();
        for (component, replicas) in task::recorded_scale(plan) {
            let known = known.entry(component).or_default();
            *known = replicas.max(*known);
        }
        let has_recorded = *known == before;
        if !has_recorded {
            self.requeue_now = true;
            self.record(ConditionType::ConfigReady, Progress::waiting("not started"));
        }
        has_recorded
    }

    /// Forgets removed pods once no record of them remains.
    pub(crate) fn forget_removed_pods(&mut self, plan: &Plan, removed: &BTreeMap<String, Removed>) {
        if removed.is_empty() || !self.is_met(ConditionType::Finished) {
            return;
        }
        let wanted = task::recorded_scale(plan);
        for component in removed.keys() {
            match wanted.get(component) {
                Some(replicas) => self.status.scale.insert(component.clone(), *replicas),
                None => self.status.scale.remove(component),
            };
        }
        self.requeue_now = true;
    }
}
