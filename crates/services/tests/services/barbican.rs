//! Barbican: its keys, and the message buses of its programs.

use std::collections::BTreeMap;

use openstack_operator_model::lower::Observed;
use openstack_operator_model::plan::{Plan, SecretContent, TaskStage, VariableValue, Workload};
use serde_json::json;

use crate::fixture::{case, resolved, site};
use crate::scripts::{Sandbox, errors};

fn plan(title: &str) -> Plan {
    case(title).render(&Observed::default()).unwrap().plan
}

fn workload<'a>(plan: &'a Plan, component: &str) -> Option<&'a Workload> {
    plan.workloads.iter().find(|workload| workload.component == component)
}

/// Secret with the message bus of a component.
fn bus(plan: &Plan, component: &str) -> String {
    let container = &workload(plan, component).unwrap().pod.containers[0];
    let mut urls = container.environment.iter().filter(|one| one.name == "OS_DEFAULT__TRANSPORT_URL");
    let url = urls.next().unwrap();
    assert_eq!(urls.next(), None, "{component}");
    let VariableValue::Secret(key) = &url.value else { panic!("{url:?}") };
    key.secret.clone()
}

#[test]
fn the_listener_uses_the_message_bus_of_keystone_and_all_others_their_own() {
    let plan = plan("barbican-minimal");
    assert_eq!(bus(&plan, "keystone-listener"), "identity-messaging");
    for component in ["api", "worker", "retry-scheduler"] {
        assert_eq!(bus(&plan, component), "test-messaging");
    }
}

#[test]
fn there_is_no_listener_without_notifications() {
    assert!(workload(&plan("barbican-existing"), "keystone-listener").is_none());
    let case = case("barbican-minimal");
    let decoded = case.service.decode(&case.object()).unwrap();
    let mut inputs = resolved(&decoded.needs(), &[]);
    for provides in inputs.objects.values_mut() {
        provides.notifications = None;
    }
    let plan = decoded.plan(&inputs, &site(), &BTreeMap::new()).unwrap();
    assert!(workload(&plan, "keystone-listener").is_none());
    assert!(plan.remarks[0].contains("add barbican_notifications to its spec.notifications.topics"));
}

#[test]
fn a_cloud_with_barbican_makes_its_keystone_send_notifications() {
    for (enabled, topics) in [(true, json!(["barbican_notifications"])), (false, json!(null))] {
        let mut case = case("controlplane-minimal");
        case.spec["barbican"] = json!({ "enabled": enabled });
        let plan = case.render(&Observed::default()).unwrap().plan;
        let keystone = plan.children.iter().find(|child| child.name == "test-keystone").unwrap();
        assert_eq!(keystone.spec["notifications"]["topics"], topics, "{enabled}");
        assert_eq!(plan.children.iter().any(|child| child.name == "test-barbican"), enabled);
    }
}

#[test]
fn the_keys_of_a_retained_database_are_retained_and_never_replaced() {
    for (title, retained) in [("barbican-minimal", true), ("barbican-rich", false)] {
        let plan = plan(title);
        let ring = plan.secrets.iter().find(|secret| secret.name == "test-kek").unwrap();
        assert!(matches!(ring.content, SecretContent::KeyRing(_)), "{ring:?}");
        assert!(ring.irreplaceable, "{title}");
        assert_eq!(ring.retained, retained, "{title}");
        let rewrap = plan.tasks.iter().find(|task| task.name == "rewrap").unwrap();
        assert_eq!(rewrap.stage, TaskStage::Rotate { ring: "test-kek".to_owned() });
    }
}

#[test]
fn tasks_are_queued_again_by_one_scheduler() {
    let plan = plan("barbican-rich");
    assert_eq!(workload(&plan, "keystone-listener").unwrap().replicas, 2);
    assert_eq!(workload(&plan, "retry-scheduler").unwrap().replicas, 1);
}

/// The program succeeds although it could not encrypt the keys of a project.
#[test]
fn a_project_whose_key_was_not_rewrapped_fails_the_task() {
    let done = "Retrieving KEKs for Project 7";
    for (name, output, status, succeeds) in [
        ("done", done, 0, true),
        ("failed", "Error occurred! SQLAlchemy automatically rolled-back the transaction", 0, false),
        ("only-shown", "-- Running in dry-run mode --", 0, false),
        ("broken", "ERROR: no database", 1, false),
    ] {
        let sandbox = Sandbox::new(&format!("rewrap-{name}"), "barbican-minimal");
        let program = format!("echo \"$*\" >$root/arguments; echo '{output}'; exit {status}");
        sandbox.program("barbican-manage", &program);
        let result = sandbox.run("rewrap.sh", &[], &[]);
        assert_eq!(result.status.success(), succeeds, "{name}: {}", errors(&result));
        assert!(String::from_utf8_lossy(&result.stdout).contains(output), "{name}: the log shows the output");
        assert_eq!(sandbox.read("arguments"), "simple_crypto rewrap_pkek\n");
    }
}
