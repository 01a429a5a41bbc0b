//! Laws of tasks.

use openstack_operator_model::plan::{Controller, TaskStage};

use crate::fixture::rendered;

/// Only pods of a `StatefulSet` have names that say which ones a scale-down removes, and only a workload with the name of its
/// component can be found when it is gone. A workload on nodes has no number of pods.
#[test]
fn tasks_after_a_scale_down_follow_stateful_sets() {
    let mut followed = 0;
    for (case, rendered) in rendered() {
        for task in &rendered.plan.tasks {
            let TaskStage::ScaleDown { components } = task.stage else { continue };
            let covered =
                rendered.plan.workloads.iter().filter(|one| task.stage.removes_records_of(&one.component));
            for workload in covered {
                let title = format!("{}: {} follows {}", case.title, task.name, workload.component);
                let has_names =
                    matches!(workload.controller, Controller::StatefulSet { .. } | Controller::DaemonSet);
                assert!(has_names, "{title}");
                assert_eq!(workload.suffix.as_ref(), Some(&workload.component), "{title}");
                followed += 1;
            }
            assert!(!components.is_empty(), "{}: {}", case.title, task.name);
        }
    }
    assert!(followed > 0);
}
