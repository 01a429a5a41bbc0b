//! Laws of tasks.

use openstack_operator_model::plan::{Controller, TaskStage};

use crate::fixture::rendered;

/// Only pods of a StatefulSet have names that say which ones a scale-down removes.
#[test]
fn tasks_after_a_scale_down_follow_a_stateful_set() {
    for (case, rendered) in rendered() {
        for task in &rendered.plan.tasks {
            let TaskStage::ScaleDown { component } = task.stage else { continue };
            let workload = rendered.plan.workloads.iter().find(|workload| workload.component == component);
            let is_set = workload
                .is_some_and(|workload| matches!(workload.controller, Controller::StatefulSet { .. }));
            assert!(is_set, "{}: {} follows {component}", case.title, task.name);
        }
    }
}
