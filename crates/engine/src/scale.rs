//! Scale-down: after pods of a component have stopped, a task removes the records that they left in their service.

use std::collections::BTreeMap;

use openstack_operator_model::condition::{ConditionType, Progress};
use openstack_operator_model::lower::task;
use openstack_operator_model::plan::Plan;

use crate::engine::{Engine, Key};
use crate::ports::PortResult;
use crate::work::Work;

impl Engine {
    /// Pods by component that a scale-down has removed. A component of which such a pod still exists has none, because the
    /// pod would write its record again.
    pub(crate) async fn removed_pods(
        &self,
        key: &Key,
        plan: &Plan,
        work: &Work,
    ) -> PortResult<BTreeMap<String, Vec<String>>> {
        let mut surplus = task::surplus_pods(&key.name, plan, &work.status.scale);
        if !surplus.is_empty() {
            let pods = self.pods(key).await?;
            let exists = |name: &String| pods.iter().any(|pod| pod.metadata.name.as_ref() == Some(name));
            surplus.retain(|_, names| !names.iter().any(exists));
        }
        Ok(surplus)
    }
}

impl Work {
    /// **Invariant:** the status records the number of pods before they start, so that their records are removed after any
    /// later scale-down.
    pub(crate) fn record_scale(&mut self, plan: &Plan) -> bool {
        let wanted = task::recorded_scale(plan);
        let known = &mut self.status.scale;
        known.retain(|component, _| wanted.contains_key(component));
        let before = known.clone();
        for (component, replicas) in wanted {
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
    pub(crate) fn forget_removed_pods(&mut self, plan: &Plan, removed: &BTreeMap<String, Vec<String>>) {
        if removed.is_empty() || !self.is_met(ConditionType::Finished) {
            return;
        }
        for (component, replicas) in task::recorded_scale(plan) {
            if removed.contains_key(&component) {
                self.status.scale.insert(component, replicas);
            }
        }
        self.requeue_now = true;
    }
}
