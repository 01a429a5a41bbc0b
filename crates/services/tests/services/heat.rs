//! Engines of Heat: how they stop, what they leave, and whom they act for.

use openstack_operator_model::lower::Observed;
use openstack_operator_model::plan::Plan;
use serde_json::json;

use crate::fixture::{Case, case};
use crate::scripts::{Sandbox, errors};

fn plan(case: &Case) -> Plan {
    case.render(&Observed::default()).unwrap().plan
}

/// Lines of a section of the configuration.
fn section(plan: &Plan, name: &str) -> Vec<String> {
    let text = plan.files["heat.conf"].text().unwrap_or_default();
    let lines = text.lines().skip_while(|line| *line != format!("[{name}]")).skip(1);
    lines.take_while(|line| !line.starts_with('[')).map(str::to_owned).collect()
}

/// An engine that is killed leaves its stacks in progress.
#[test]
fn an_engine_ends_by_its_own_timeout_before_it_is_killed() {
    for title in ["heat-minimal", "heat-rich"] {
        let plan = plan(&case(title));
        let engine = plan.workloads.iter().find(|workload| workload.component == "engine").unwrap();
        let options = section(&plan, "DEFAULT");
        let timeout =
            options.iter().find_map(|line| line.strip_prefix("graceful_shutdown_timeout = ")).unwrap();
        assert!(timeout.parse::<i64>().unwrap() < engine.pod.grace_seconds, "{title}: {timeout}");
    }
}

/// A trust has its own project, and Keystone rejects a login with two.
#[test]
fn the_login_for_trusts_has_no_project_and_a_password() {
    for title in ["heat-minimal", "heat-existing"] {
        let options = section(&plan(&case(title)), "trustee");
        assert!(options.contains(&"auth_type = password".to_owned()), "{title}: {options:?}");
        assert!(!options.iter().any(|line| line.starts_with("project")), "{title}: {options:?}");
    }
    let mut case = case("heat-existing");
    case.spec["keystone"] = json!({
        "authUrl": "https://keystone.example.com/v3", "appCredentialRef": { "secretName": "credential" },
    });
    let invalid = case.render(&Observed::default()).err().unwrap().to_string();
    assert!(invalid.contains("spec.keystone.appCredentialRef") && invalid.contains("secretRef"), "{invalid}");
}

/// Instances are outside of the Kubernetes cluster.
#[test]
fn instances_get_only_public_urls() {
    let plan = plan(&case("heat-rich"));
    let options = section(&plan, "DEFAULT");
    let expected = [
        "heat_metadata_server_url = https://stacks-cfn.example.com",
        "heat_waitcondition_server_url = https://stacks-cfn.example.com/v1/waitcondition",
        "server_keystone_endpoint_type = public",
    ];
    for line in expected {
        assert!(options.iter().any(|option| option == line), "{line}: {options:#?}");
    }
    assert_eq!(section(&plan, "clients_heat").first().unwrap(), "endpoint_type = publicURL");
}

/// Lists engines by a file, and marks the records as down with every call of `sleep`.
fn engines(name: &str, records: &[(&str, &str)]) -> Sandbox {
    let sandbox = Sandbox::new(name, "heat-minimal");
    let lines = records
        .iter()
        .map(|(host, state)| format!("{host} heat-engine 3f6b {host} engine {state} 2026-01-01 00:00:00\n"));
    sandbox.write("records", &lines.collect::<String>());
    let manage = r#"echo "$*" >> $root/calls
if [ "$*" = "service list" ]; then
    echo "Hostname Binary Engine_Id Host Topic Status Updated At"
    cat $root/records
fi"#;
    sandbox.program("heat-manage", manage);
    sandbox.program("sleep", "sed -i 's/^\\(heat-engine-[23] .*\\) up /\\1 down /' $root/records");
    sandbox
}

fn clean(sandbox: &Sandbox) -> String {
    let output = sandbox.run("clean.sh", &[], &[("REMOVED_PODS", "heat-engine-2 heat-engine-3")]);
    assert!(output.status.success(), "{}", errors(&output));
    sandbox.read("calls")
}

#[test]
fn records_of_removed_engines_are_removed_once_they_count_as_down() {
    let kept = ("heat-engine-0", "up");
    let killed = engines("heat-killed", &[kept, ("heat-engine-2", "up"), ("heat-engine-3", "down")]);
    assert_eq!(clean(&killed), "service list\nservice list\nservice clean\n");
    let stopped = engines("heat-stopped", &[kept, ("heat-engine-1", "down")]);
    assert_eq!(clean(&stopped), "service list\n");
}

#[test]
fn a_failure_to_list_engines_fails_the_removal() {
    let sandbox = engines("heat-failing", &[]);
    sandbox.program("heat-manage", "exit 1");
    let output = sandbox.run("clean.sh", &[], &[("REMOVED_PODS", "heat-engine-2")]);
    assert!(!output.status.success());
}

/// An API is open to every user of the cloud.
#[test]
fn only_engines_have_the_key_of_the_database_and_the_login_for_trusts() {
    let plan = plan(&case("heat-minimal"));
    let held = |component: &str| {
        let workload = plan.workloads.iter().find(|workload| workload.component == component).unwrap();
        let names: Vec<&str> =
            workload.pod.containers[0].environment.iter().map(|variable| variable.name.as_str()).collect();
        let secrets = [
            "OS_DEFAULT__AUTH_ENCRYPTION_KEY",
            "OS_DEFAULT__STACK_DOMAIN_ADMIN_PASSWORD",
            "OS_TRUSTEE__PASSWORD",
        ];
        secrets.iter().filter(|secret| names.contains(secret)).count()
    };
    assert_eq!(["api", "cfn", "engine"].map(held), [0, 0, 3]);
}
