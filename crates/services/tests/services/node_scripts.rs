//! Scripts on nodes: what one object has set up there, the scripts of another one do not touch.

use std::process::Output;

use crate::scripts::{Sandbox, errors};

const OTHER: &str = "OVNNetwork/first/cloud-ovn";
const OWN: &str = "OVNNetwork/openstack/test";

/// A stub database of Open vSwitch: external IDs are files, and every other change is recorded.
const DATABASE: &str = r#"
for word; do case $word in --*) shift ;; *) break ;; esac; done
case "$1 ${4:-}" in
    "get external-ids:"*) key=${4#*:}; [ ! -e "$root/ids/$key" ] || echo "\"$(cat "$root/ids/$key")\"" ;;
    "set external-ids:"*) for word in "${@:4}"; do
        word=${word#external-ids:}; echo "${word%%=*}" >>"$root/changes"; value=${word#*=}
        printf '%s' "${value//\"/}" >"$root/ids/${word%%=*}"
    done ;;
    "show "* | "init "*) ;;
    *) echo "$*" >>"$root/changes" ;;
esac
"#;

/// A node whose switch belongs to an object, or to none.
fn node(name: &str, owner: &str) -> Sandbox {
    let sandbox = Sandbox::new(name, "ovn-minimal");
    sandbox.program("ovs-vsctl", DATABASE);
    sandbox.program("ovs-vswitchd", "touch $root/started");
    sandbox.program("ip", "echo ip >>$root/changes");
    sandbox.program("getent", "exit 2");
    // Ends the loop that keeps the settings current.
    sandbox.program("sleep", "kill $PPID");
    if owner.is_empty() {
        sandbox.write("ids/none", "");
    } else {
        sandbox.write("ids/openstack-owner", owner);
    }
    sandbox
}

fn run_switch(sandbox: &Sandbox, node: &str) -> Output {
    sandbox.run("switch.sh", &[], &[("OWNER", OWN), ("NODE_NAME", node), ("HOST_IP", "10.0.0.1")])
}

#[test]
fn a_switch_of_another_object_is_not_changed() {
    let sandbox = node("switch-foreign", OTHER);
    let output = run_switch(&sandbox, "node-x");
    assert!(!output.status.success());
    let message = sandbox.read("dev/termination-log");
    for part in ["node node-x belongs to OVNNetwork/first/cloud-ovn", OWN, "select other nodes"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(sandbox.read("changes"), "", "{}", errors(&output));
    assert_eq!(sandbox.read("ids/openstack-owner"), OTHER);
    assert!(!sandbox.has("started"));
}

#[test]
fn a_switch_without_an_owner_and_one_on_an_assigned_node_are_taken_over() {
    for (name, owner, on) in [
        ("switch-free", "", "node-x"),
        ("switch-own", OWN, "node-x"),
        // The settings assign this node to the object; the other one no longer exists.
        ("switch-assigned", OTHER, "node-a"),
    ] {
        let sandbox = node(name, owner);
        let output = run_switch(&sandbox, on);
        assert!(output.status.success(), "{name}: {}", errors(&output));
        assert_eq!(sandbox.read("ids/openstack-owner"), OWN, "{name}");
        assert_eq!(sandbox.read("ids/hostname"), on, "{name}");
        assert!(sandbox.has("started"), "{name}");
    }
}

#[test]
fn a_running_switch_ends_when_another_object_has_taken_it_over() {
    let sandbox = node("switch-lost", OWN);
    // The shell of the script waits for this program, as it would become ovs-vswitchd.
    sandbox.program(
        "ovs-vswitchd",
        &format!("printf %s {OTHER} >$root/ids/openstack-owner\nexec tail -f /dev/null"),
    );
    sandbox.program("sleep", "touch $root/slept");
    let output = run_switch(&sandbox, "node-x");
    assert!(!output.status.success());
    assert!(sandbox.read("dev/termination-log").contains("belongs to OVNNetwork/first/cloud-ovn"));
    assert_eq!(sandbox.read("ids/openstack-owner"), OTHER);
}

#[test]
fn ovn_controller_waits_until_the_switch_belongs_to_its_network() {
    let sandbox = Sandbox::new("controller-foreign", "ovn-minimal");
    sandbox.program("ovs-vsctl", DATABASE);
    sandbox.write("ids/ovn-remote", "tcp:10.0.0.1:6642");
    sandbox.write("ids/openstack-owner", OTHER);
    sandbox.program("ovn-sbctl", "echo some-uuid");
    sandbox.program("ovn-controller", "cp $root/ids/openstack-owner $root/started");
    sandbox.program("sleep", &format!("printf %s {OWN} >$root/ids/openstack-owner"));
    let output = sandbox.run("controller.sh", &[], &[("OWNER", OWN)]);
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(sandbox.read("started"), OWN);
}

/// A node with directories of Nova that belong to an object.
fn compute_node(name: &str, owner: &str) -> Sandbox {
    let sandbox = Sandbox::new(name, "nova-compute-minimal");
    sandbox.program("chown", "echo chown >>$root/changes");
    sandbox.program("sleep", "exit 1");
    sandbox.program("virtlogd", "touch $root/started");
    sandbox.program("libvirtd", "touch $root/started");
    sandbox.write("var/lib/nova/openstack-owner", owner);
    sandbox
}

const COMPUTE: [(&str, &str); 3] =
    [("OWNER", "NovaCompute/openstack/test"), ("NODE_NAME", "node-x"), ("USER_NUMBER", "42436")];

#[test]
fn libvirt_and_nova_compute_do_not_start_on_a_node_of_another_object() {
    let other = "NovaCompute/first/cloud-compute\n";
    for script in ["prepare.sh", "libvirt.sh"] {
        let sandbox = compute_node(&format!("foreign-{script}"), other);
        let output = sandbox.run(script, &[], &COMPUTE);
        assert!(!output.status.success(), "{script}");
        let message = sandbox.read("dev/termination-log");
        assert!(
            message.contains("node node-x belongs to NovaCompute/first/cloud-compute"),
            "{script}: {message}"
        );
        assert_eq!(sandbox.read("var/lib/nova/openstack-owner"), other, "{script}");
        assert!(!sandbox.has("changes") && !sandbox.has("started"), "{script}");
    }
}

#[test]
fn a_compute_node_without_an_owner_and_an_assigned_one_are_taken_over() {
    for (name, owner, on) in
        [("compute-free", "", "node-x"), ("compute-assigned", "NovaCompute/first/cloud-compute\n", "node-a")]
    {
        let sandbox = compute_node(name, owner);
        let mut variables = COMPUTE;
        variables[1].1 = on;
        sandbox.run("prepare.sh", &[], &variables);
        assert_eq!(sandbox.read("var/lib/nova/openstack-owner"), "NovaCompute/openstack/test\n", "{name}");
        assert!(sandbox.has("changes"), "{name}");
    }
}
