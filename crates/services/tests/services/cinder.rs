//! Cinder: hosts and clusters of volume services, Ceph users, volume types, and records of removed services.

use openstack_operator_model::lower::Observed;
use openstack_operator_model::plan::{Container, Plan, VariableValue, Workload};
use serde_json::{Value, json};

use crate::fixture::{Case, case};
use crate::scripts::{Sandbox, errors};

fn plan(case: &Case) -> Plan {
    case.render(&Observed::default()).unwrap().plan
}

fn refusal(case: &Case) -> String {
    case.render(&Observed::default()).err().unwrap().to_string()
}

fn workload<'a>(plan: &'a Plan, component: &str) -> &'a Workload {
    plan.workloads.iter().find(|workload| workload.component == component).unwrap()
}

fn container<'a>(plan: &'a Plan, component: &str) -> &'a Container {
    &workload(plan, component).pod.containers[0]
}

fn variable(container: &Container, name: &str) -> Option<String> {
    let found = container.environment.iter().find(|variable| variable.name == name)?;
    match &found.value {
        VariableValue::Text(text) => Some(text.clone()),
        VariableValue::Secret(key) => Some(format!("{}/{}", key.secret, key.key)),
        VariableValue::Field(field) => Some((*field).to_owned()),
    }
}

fn lines(plan: &Plan, file: &str) -> Vec<String> {
    plan.files[file].text().unwrap().lines().map(str::to_owned).collect()
}

fn has(plan: &Plan, file: &str, line: &str) -> bool {
    lines(plan, file).iter().any(|found| found == line)
}

/// A volume belongs to the host of its volume service: another host loses it.
#[test]
fn the_host_of_a_backend_does_not_depend_on_its_pod() {
    let alone = plan(&case("cinder-minimal"));
    assert!(has(&alone, "backend-ceph.conf", "backend_host = cinder"));
    assert_eq!(variable(container(&alone, "volume-ceph"), "FIRST_HOST"), None);
    let rich = plan(&case("cinder-rich"));
    let member = container(&rich, "volume-ceph-rbd");
    assert!(!has(&rich, "backend-ceph-rbd.conf", "backend_host = cinder"), "members have different hosts");
    assert_eq!(variable(member, "FIRST_HOST").as_deref(), Some("cinder"));
    assert_eq!(variable(member, "OS_DEFAULT__CLUSTER").as_deref(), Some("ceph"));
    assert_eq!(workload(&rich, "volume-ceph-rbd").replicas, 2);
    // The number of pods of the service does not apply to backends.
    assert_eq!(workload(&rich, "volume-ceph-archive").replicas, 1);
    let on_nodes = plan(&case("cinder-lvm"));
    let host = variable(container(&on_nodes, "volume-lvm"), "OS_DEFAULT__HOST");
    assert_eq!(host.as_deref(), Some("$(NODE_NAME)"));
}

#[test]
fn each_volume_service_has_one_backend_whose_settings_restart_no_other_pod() {
    let mut case = case("cinder-rich");
    let before = plan(&case);
    case.spec["extraConfig"]["cinder.conf"]["ceph-rbd"]["rbd_max_clone_depth"] = json!("7");
    let after = plan(&case);
    let changed: Vec<&String> = after
        .files
        .iter()
        .filter(|(file, text)| before.files[*file] != **text)
        .map(|(file, _)| file)
        .collect();
    assert_eq!(changed, ["backend-ceph-rbd.conf"]);
    assert!(has(&after, "backend-ceph-rbd.conf", "rbd_max_clone_depth = 7"));
    for (component, backend) in [("volume-ceph-rbd", "ceph-rbd"), ("volume-zz9", "zz9")] {
        let found = variable(container(&after, component), "OS_DEFAULT__ENABLED_BACKENDS");
        assert_eq!(found.as_deref(), Some(backend));
    }
    // Two backends with one pool do not count each other's volumes.
    let exclusive = "rbd_exclusive_cinder_pool = false";
    assert!(
        has(&after, "backend-zz9.conf", exclusive) && has(&after, "backend-ceph-archive.conf", exclusive)
    );
    assert!(!has(&after, "backend-ceph-rbd.conf", exclusive));
}

#[test]
fn overrides_of_options_that_pods_get_otherwise_are_refused() {
    for (option, remedy) in [("enabled_backends", "`backends`"), ("cluster", "`backends`")] {
        let mut case = case("cinder-rich");
        case.spec["extraConfig"]["cinder.conf"]["DEFAULT"][option] = json!("x");
        let reason = refusal(&case);
        assert!(reason.contains("would have no effect") && reason.contains(remedy), "{reason}");
    }
    let mut case = case("cinder-custom");
    case.spec["extraConfig"]["cinder.conf"]["netapp"]["netapp_password"] = json!("x");
    let reason = refusal(&case);
    assert!(reason.contains("netapp_password") && reason.contains("from a Secret"), "{reason}");
}

#[test]
fn an_override_replaces_an_option_of_backups() {
    let mut case = case("cinder-rich");
    case.spec["extraConfig"]["cinder.conf"]["DEFAULT"]["backup_ceph_pool"] = json!("elsewhere");
    let plan = plan(&case);
    assert!(has(&plan, "backup.conf", "backup_ceph_pool = elsewhere"));
    assert!(!has(&plan, "backup.conf", "quota_volumes = 100"), "other options are in the main file");
}

#[test]
fn a_password_of_a_driver_is_only_in_the_pods_of_its_backend() {
    let plan = plan(&case("cinder-custom"));
    let mounts = |component: &str| format!("{:?}", container(&plan, component).mounts);
    assert!(mounts("volume-netapp").contains("test-backend-netapp"));
    for other in ["api", "scheduler"] {
        assert!(!mounts(other).contains("test-backend-netapp"), "{other}");
    }
}

/// The backup service reads volumes as the users of their backends.
#[test]
fn the_backup_service_has_the_keys_of_all_backends() {
    let plan = plan(&case("cinder-rich"));
    let mounts = format!("{:?}", container(&plan, "backup").mounts);
    for user in ["cinder", "cinder-backup"] {
        assert!(mounts.contains(&format!("/etc/ceph/ceph.client.{user}.keyring")), "{mounts}");
    }
    let mut case = case("cinder-existing");
    case.spec["backends"] = json!([
        { "name": "a", "rbd": own_cluster("one") }, { "name": "b", "rbd": own_cluster("two") },
    ]);
    let reason = refusal(&case);
    assert!(reason.contains("Secrets one and two are both of Ceph user cinder"), "{reason}");
    case.spec["backends"][1]["rbd"]["cephClientRef"] = json!({ "name": "second" });
    self::plan(&case);
}

fn own_cluster(secret: &str) -> Value {
    json!({ "cephSecretRef": { "name": secret }, "secretUuid": "00000000-0000-4000-8000-000000000001" })
}

#[test]
fn every_backend_has_a_volume_type_and_the_first_one_is_the_default() {
    let minimal = plan(&case("cinder-minimal"));
    let types = minimal.volume_types.as_ref().unwrap();
    assert_eq!(types.url, "http://test.openstack.svc:8776/v3");
    assert_eq!(types.types[0].properties["volume_backend_name"], "ceph");
    assert!(has(&minimal, "cinder.conf", "default_volume_type = ceph"));
    let rich = plan(&case("cinder-rich"));
    let types = &rich.volume_types.as_ref().unwrap().types;
    let names: Vec<&str> = types.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["ceph-rbd", "zz9", "encrypted", "shared", "ceph-archive"]);
    assert_eq!(types[2].encryption.as_ref().unwrap().key_size, 512);
    assert_eq!(types[4].description, "Slow volumes");
    // Without an administrator of Keystone the operator cannot use the API.
    let existing = plan(&case("cinder-existing"));
    assert_eq!(existing.volume_types, None);
    assert!(existing.remarks[0].contains("create the volume types ceph"), "{:?}", existing.remarks);
}

#[test]
fn settings_of_another_type_of_backend_are_refused() {
    let with = |title: &str, field: &str, value: Value| {
        let mut case = case(title);
        case.spec["backends"][0][field] = value;
        refusal(&case)
    };
    let reason = with("cinder-custom", "rbd", json!({ "pool": "x" }));
    assert_eq!(reason, "spec.backends[netapp].rbd: is only for type ceph: remove it, or set type to ceph");
    let reason = with("cinder-lvm", "driver", json!("cinder.volume.drivers.nfs.NfsDriver"));
    assert!(reason.contains("remove it, or set type to custom"), "{reason}");
    let reason = with("cinder-lvm", "cluster", json!("x"));
    assert!(reason.contains("each node has its own volumes"), "{reason}");
    let mut case = case("cinder-existing");
    case.spec["backup"]["swift"] = json!({ "container": "x" });
    assert!(refusal(&case).contains("spec.backup.swift: is only for type swift"));
}

#[test]
fn a_volume_type_names_what_exists() {
    let with = |field: &str, value: Value| {
        let mut case = case("cinder-minimal");
        case.spec[field] = value;
        refusal(&case)
    };
    let reason = with("volumeTypes", json!([{ "name": "x", "backend": "tape" }]));
    assert_eq!(reason, "spec.volumeTypes[0].backend: \"tape\" is not a backend: use one of ceph");
    let reason = with("volumeTypes", json!([{ "name": "x", "encryption": {} }]));
    assert!(reason.contains("spec.volumeTypes[0].encryption: requires a key manager"), "{reason}");
    let reason = with("defaultVolumeType", json!("gold"));
    assert!(reason.contains("add it to volumeTypes, or use one of ceph, __DEFAULT__"), "{reason}");
}

/// A volume service that is killed leaves volumes in a transitional state.
#[test]
fn services_end_by_their_own_timeout_before_they_are_killed() {
    for title in ["cinder-minimal", "cinder-rich", "cinder-lvm"] {
        let plan = plan(&case(title));
        let storage =
            |workload: &&Workload| workload.component.starts_with("volume") || workload.component == "backup";
        for workload in plan.workloads.iter().filter(storage) {
            let timeout = variable(&workload.pod.containers[0], "OS_DEFAULT__GRACEFUL_SHUTDOWN_TIMEOUT");
            let timeout: i64 = timeout.unwrap().parse().unwrap();
            assert!(timeout < workload.pod.grace_seconds, "{title}: {}", workload.component);
        }
    }
}

/// Nova gets the options of other services only if they exist.
#[test]
fn nova_uses_volumes_and_keys_only_if_the_cloud_has_them() {
    let sections = |title: &str| {
        let plan = plan(&case(title));
        let compute = plan.provides.compute.clone().unwrap();
        let found = ["[cinder]", "[barbican]"].map(|section| has(&plan, "nova.conf", section));
        (found, [compute.has_volumes, compute.has_key_manager])
    };
    assert_eq!(sections("nova-minimal"), ([false, false], [false, false]));
    assert_eq!(sections("nova-rich"), ([true, true], [true, true]));
}

const STARTED: &str = r#"
printf '%s\n' "host ${OS_DEFAULT__HOST:-}" "project ${OS_DEFAULT__CINDER_INTERNAL_TENANT_PROJECT_ID:-}" \
    "user ${OS_DEFAULT__CINDER_INTERNAL_TENANT_USER_ID:-}" "arguments $*" "root $(sudo cinder-rootwrap file echo as "$0")" > "$root/started"
"#;

#[test]
fn the_first_member_of_a_cluster_keeps_the_host_and_commands_need_no_sudo() {
    let start = |name: &str, variables: &[(&str, &str)]| {
        let sandbox = Sandbox::new(name, "cinder-rich");
        sandbox.program("cinder-volume", STARTED);
        let output = sandbox.run("start.sh", &["cinder-volume", "--option"], variables);
        assert!(output.status.success(), "{}", errors(&output));
        sandbox.read("started")
    };
    let alone = start("cinder-alone", &[("HOSTNAME", "volume-0")]);
    assert!(alone.contains("host \n") && alone.contains("arguments --option\n"), "{alone}");
    assert!(alone.contains("root as "), "{alone}");
    let first = start("cinder-first", &[("HOSTNAME", "volume-0"), ("FIRST_HOST", "cinder")]);
    assert!(first.contains("host cinder\n"), "{first}");
    let second = start("cinder-second", &[("HOSTNAME", "volume-1"), ("FIRST_HOST", "cinder")]);
    assert!(second.contains("host \n"), "{second}");
}

#[test]
fn the_copies_of_images_belong_to_the_service_user() {
    let sandbox = Sandbox::new("cinder-cache", "cinder-rich");
    sandbox.program("cinder-volume", STARTED);
    // The interpreter of the stub program runs the file.
    sandbox.write("etc/openstack/tenant.py", "echo project-id user-id\n");
    let output = sandbox.run("start.sh", &["cinder-volume"], &[("IMAGE_VOLUME_CACHE", "true")]);
    assert!(output.status.success(), "{}", errors(&output));
    let started = sandbox.read("started");
    assert!(started.contains("project project-id\nuser user-id\n"), "{started}");
}

const MANAGE: &str = r#"
case "$1 $2" in
"service list")
    echo "Binary           Host                                 Zone             Status     State Updated At           RPC Version"
    cat "$root/services"
    ;;
"cluster list")
    echo "Name                                 Binary           Status     State Heartbeat"
    echo "shared@gone                          cinder-volume    enabled    XXX   -"
    echo "shared@kept                          cinder-volume    enabled    :-)   -"
    ;;
*) echo "$*" >> "$root/calls" ;;
esac
"#;

fn record(program: &str, host: &str, state: &str) -> String {
    format!("{program:16} {host:36} nova             enabled    {state:5} 2026-01-01 00:00:00  3.0\n")
}

fn removed(name: &str, services: &[String], pods: &str, components: &str) -> String {
    let sandbox = Sandbox::new(name, "cinder-rich");
    sandbox.program("cinder-manage", MANAGE);
    sandbox.write("services", &services.concat());
    let variables = [("REMOVED_PODS", pods), ("REMOVED_COMPONENTS", components), ("LIMIT", "0")];
    let output = sandbox.run("records.sh", &[], &variables);
    assert!(output.status.success(), "{}", errors(&output));
    sandbox.read("calls")
}

#[test]
fn only_records_of_removed_pods_and_backends_are_removed() {
    let services = [
        record("cinder-scheduler", "c-scheduler-0", ":-)"),
        record("cinder-scheduler", "c-scheduler-1", "XXX"),
        record("cinder-volume", "cinder@kept", "XXX"),
        record("cinder-volume", "c-volume-kept-1@kept", "XXX"),
        record("cinder-volume", "cinder@gone", "XXX"),
        record("cinder-volume", "other-site@gone-too", "XXX"),
    ];
    let pods = removed("cinder-pods", &services, "c-scheduler-1 c-volume-kept-1", "");
    let expected = [
        "service remove cinder-scheduler c-scheduler-1",
        "service remove cinder-volume c-volume-kept-1@kept",
    ];
    assert_eq!(pods.lines().collect::<Vec<_>>(), expected);
    let backend = removed("cinder-backend", &services[..5], "c-volume-gone-0", "volume-gone");
    assert!(backend.contains("service remove cinder-volume cinder@gone\n"), "{backend}");
    assert!(!backend.contains("kept"), "{backend}");
}

#[test]
fn a_record_that_is_up_stays() {
    let services = [record("cinder-volume", "elsewhere@gone", ":-)")];
    assert_eq!(removed("cinder-up", &services, "c-volume-gone-0", "volume-gone"), "");
}

#[test]
fn nothing_is_removed_without_records() {
    assert_eq!(removed("cinder-none", &[], "c-backup-0", "backup"), "");
}

#[test]
fn a_cluster_is_removed_with_its_backend() {
    let calls = removed("cinder-cluster", &[], "c-volume-gone-0", "volume-gone");
    assert_eq!(calls, "cluster remove cinder-volume shared@gone\n");
}

#[test]
fn a_failure_to_list_services_fails_the_removal() {
    let sandbox = Sandbox::new("cinder-failure", "cinder-rich");
    sandbox.program("cinder-manage", "exit 1");
    let variables = [("REMOVED_PODS", "c-scheduler-1"), ("REMOVED_COMPONENTS", "")];
    assert!(!sandbox.run("records.sh", &[], &variables).status.success());
}
