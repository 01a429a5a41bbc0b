//! Ceph: the script that ensures pools and users, keys for libvirt, and storage of images and disks.

use std::process::{Command, Output};

use openstack_operator_model::lower::Observed;
use openstack_operator_model::plan::{Mount, Plan};
use serde_json::{Value, json};

use crate::fixture::case;
use crate::scripts::{Sandbox, errors};

const RADOS: &str = include_str!("fake_rados.py");
const RBD: &str = r#"
import rados

Error = rados.Error

class RBD:
    def pool_init(self, pool, force):
        rados.Rados(None, "admin", {}).initialize(pool.name)
"#;

fn plan(title: &str) -> Plan {
    case(title).render(&Observed::default()).unwrap().plan
}

/// Lines of a section of a configuration file.
fn section(plan: &Plan, file: &str, name: &str) -> Vec<String> {
    let text = plan.files[file].text().unwrap_or_default();
    let lines = text.lines().skip_while(|line| *line != format!("[{name}]")).skip(1);
    lines.take_while(|line| !line.starts_with('[')).map(str::to_owned).collect()
}

/// A Ceph cluster with a task of an object.
struct Cluster(Sandbox);

impl Cluster {
    fn new(name: &str, title: &str) -> Self {
        let cluster = Self(Sandbox::new(name, title));
        cluster.0.write("modules/rados.py", RADOS);
        cluster.0.write("modules/rbd.py", RBD);
        for user in cluster.wanted()["users"].as_array().unwrap() {
            let user = user["name"].as_str().unwrap();
            cluster.0.write(&format!("etc/openstack/keys/{user}"), &format!("key of {user}"));
        }
        let empty = json!({
            "pools": {}, "users": {}, "owners": {}, "filesystems": [], "changes": [], "may_delete": true,
        });
        cluster.change(|state| *state = empty);
        cluster
    }

    fn wanted(&self) -> Value {
        serde_json::from_str(&self.0.read("etc/openstack/storage.json")).unwrap()
    }

    fn state(&self) -> Value {
        serde_json::from_str(&self.0.read("state")).unwrap_or_default()
    }

    fn change(&self, change: impl FnOnce(&mut Value)) {
        let mut state = self.state();
        change(&mut state);
        self.0.write("state", &state.to_string());
    }

    fn run_as(&self, user: &str, action: &str) -> Output {
        Command::new("python3")
            .arg(self.0.path("etc/openstack/storage.py"))
            .arg(action)
            .env("PYTHONPATH", self.0.path("modules"))
            .env("STATE", self.0.path("state"))
            .env("CEPH_USER", user)
            .output()
            .unwrap()
    }

    /// Runs the script, and returns its changes.
    fn run(&self, action: &str) -> Vec<String> {
        self.change(|state| state["changes"] = json!([]));
        let output = self.run_as("admin", action);
        assert!(output.status.success(), "{}", errors(&output));
        assert!(!String::from_utf8_lossy(&output.stdout).contains("key of"), "a key is in the log");
        serde_json::from_value(self.state()["changes"].clone()).unwrap()
    }

    /// Runs the script, which fails, and returns its message.
    fn refusal(&self, action: &str) -> String {
        let output = self.run_as("admin", action);
        assert!(!output.status.success(), "{:?}", self.state());
        self.0.read("dev/termination-log")
    }
}

#[test]
fn pools_and_users_are_created_once_with_the_least_capabilities() {
    let cluster = Cluster::new("ceph-ensure", "ceph-rich");
    let changes = cluster.run("ensure");
    assert!(changes.contains(&"osd pool create east-vms replicated 1 True".to_owned()), "{changes:#?}");
    assert!(
        changes.contains(&"osd pool set-quota east-disks max_bytes 536870912000".to_owned()),
        "{changes:#?}"
    );
    assert!(changes.contains(&"fs new east-shares east-shares-metadata east-shares-data".to_owned()));
    let state = cluster.state();
    assert_eq!(state["pools"]["east-disks"]["options"], json!({ "compression_mode": "force" }));
    assert_eq!(state["pools"]["east-disks"]["application_metadata"], json!({ "rbd": {} }));
    assert_eq!(
        state["pools"]["east-shares-data"].get("application_metadata"),
        None,
        "it is not for block devices"
    );
    let nova = json!({
        "key": "key of east-nova",
        "caps": { "mon": "profile rbd", "mgr": "profile rbd pool=east-vms",
                  "osd": "profile rbd pool=east-vms, profile rbd-read-only pool=east-images" },
    });
    assert_eq!(state["users"]["client.east-nova"], nova);
    assert_eq!(state["users"]["client.east-glance"]["caps"]["osd"], "profile rbd pool=east-images");
    assert_eq!(state["users"].get("client.east-cinder-backup"), None, "its pool is disabled");
    assert_eq!(cluster.run("ensure"), [""; 0]);
}

#[test]
fn changes_of_others_and_new_keys_are_corrected() {
    let cluster = Cluster::new("ceph-drift", "ceph-minimal");
    cluster.run("ensure");
    cluster.change(|state| {
        state["pools"]["images"]["size"] = json!(2);
        state["pools"]["volumes"]["quota_max_bytes"] = json!(5);
        state["users"]["client.nova"]["caps"]["mon"] = json!("allow *");
    });
    cluster.0.write("etc/openstack/keys/glance", "another key");
    let changes = cluster.run("ensure");
    let expected = [
        "osd pool set-quota volumes max_bytes 0",
        "osd pool set images size 3",
        "auth import",
        "auth import",
    ];
    assert_eq!(changes, expected);
    let state = cluster.state();
    assert_eq!(state["users"]["client.nova"]["caps"]["mon"], "profile rbd");
    assert_eq!(state["users"]["client.glance"]["key"], "another key");
}

#[test]
fn resources_of_others_are_neither_changed_nor_removed() {
    let cluster = Cluster::new("ceph-foreign", "ceph-minimal");
    let (owner, other) = ("openstack.k8s.io/owner/pool/images", "CephStorage/first/cloud-ceph");
    cluster.change(|state| {
        state["pools"]["images"] = json!({ "pool_name": "images", "size": 1 });
        state["owners"][owner] = json!(other);
    });
    let message = cluster.refusal("ensure");
    assert!(message.contains(&format!("pool images belongs to {other}")), "{message}");
    assert!(message.contains("openstack.k8s.io/adopt: images"), "{message}");
    cluster.change(|state| {
        state["owners"].as_object_mut().unwrap().remove(owner);
    });
    assert!(cluster.refusal("ensure").contains("pool images exists and has no owner"));
    assert_eq!(cluster.state()["pools"]["images"]["size"], 1);
    cluster.run("remove");
    assert!(cluster.state()["pools"].get("images").is_some());
    // The user decides that the pool belongs to the object.
    let mut wanted = cluster.wanted();
    wanted["adopt"] = json!(["images"]);
    cluster.0.write("etc/openstack/storage.json", &wanted.to_string());
    cluster.run("ensure");
    assert_eq!(cluster.state()["pools"]["images"]["size"], 3);
}

#[test]
fn everything_of_the_object_is_removed_with_it_also_what_an_earlier_spec_contained() {
    let cluster = Cluster::new("ceph-remove", "ceph-rich");
    cluster.run("ensure");
    let mut wanted = cluster.wanted();
    wanted["pools"] = json!([]);
    wanted["users"] = json!([]);
    cluster.0.write("etc/openstack/storage.json", &wanted.to_string());
    cluster.change(|state| state["may_delete"] = json!(false));
    assert!(cluster.refusal("remove").contains("osd pool delete"));
    cluster.change(|state| state["may_delete"] = json!(true));
    cluster.run("remove");
    let state = cluster.state();
    for part in ["pools", "users", "owners"] {
        assert_eq!(state[part], json!({}), "{part}");
    }
    assert_eq!(state["filesystems"], json!([]));
    assert_eq!(cluster.run("remove"), [""; 0]);
}

#[test]
fn a_rejected_login_names_what_to_check() {
    let cluster = Cluster::new("ceph-login", "ceph-minimal");
    let output = cluster.run_as("stranger", "ensure");
    assert!(!output.status.success());
    assert!(errors(&output).contains("permission denied"), "{}", errors(&output));
}

#[test]
fn a_removal_task_exists_only_if_the_user_wants_it() {
    let names = |title: &str| -> Vec<&str> { plan(title).tasks.iter().map(|task| task.name).collect() };
    assert_eq!(names("ceph-minimal"), ["ensure"]);
    assert_eq!(names("ceph-rich"), ["ensure", "remove"]);
}

#[test]
fn libvirt_gets_the_keys_of_all_users_before_it_is_ready() {
    let sandbox = Sandbox::new("libvirt-keys", "nova-compute-rbd");
    sandbox.write("etc/openstack/ceph-keys/11", "the key");
    sandbox.write("etc/openstack/ceph-keys/22", "another key");
    sandbox.program("virsh", r#"shift 2; case $1 in secret-define) cat "$2" >>$root/calls ;; secret-*) echo "$@" >>$root/calls ;; esac"#);
    let output = sandbox.run("keys.sh", &["1"], &[]);
    assert!(output.status.success(), "{}", errors(&output));
    let calls = sandbox.read("calls");
    for uuid in ["11", "22"] {
        assert!(calls.contains(&format!("<uuid>{uuid}</uuid>")), "{calls}");
        assert!(calls.contains(&format!("secret-set-value {uuid} --file ")), "{calls}");
    }
    assert!(!calls.contains("key</") && !calls.contains("the key"), "a key is an argument: {calls}");
    assert!(sandbox.has("run/openstack-ceph-keys"));
    let plan = plan("nova-compute-rbd");
    let libvirt = plan.workloads.iter().find(|workload| workload.component == "libvirt").unwrap();
    let container = &libvirt.pod.containers[0];
    assert!(format!("{:?}", container.probes.startup).contains("/run/openstack-ceph-keys"));
    let keys = |mount: &&Mount| matches!(mount, Mount::SecretFile { key, .. } if key == "key");
    assert_eq!(container.mounts.iter().filter(keys).count(), 2, "of Nova and of Cinder");
}

#[test]
fn the_process_that_waits_for_libvirt_ends_with_it() {
    let sandbox = Sandbox::new("libvirt-gone", "nova-compute-rbd");
    sandbox.program("virsh", "exit 1");
    // No process has this PID.
    assert!(!sandbox.run("keys.sh", &["99999999"], &[]).status.success());
}

#[test]
fn a_node_with_local_disks_does_not_change_to_disks_on_ceph() {
    let start = |name: &str, disk: &str, backend: &str| {
        let sandbox = Sandbox::new(name, "nova-compute-rbd");
        sandbox.program("chown", "true");
        sandbox.program("sleep", "kill $PPID");
        sandbox.write(&format!("var/lib/nova/instances/one/{disk}"), "");
        let variables = [
            ("OWNER", "NovaCompute/openstack/test"),
            ("NODE_NAME", "node-a"),
            ("USER_NUMBER", "42436"),
            ("DISK_BACKEND", backend),
        ];
        sandbox.run("prepare.sh", &[], &variables);
        sandbox.read("dev/termination-log")
    };
    let refused = start("disk-local-rbd", "disk", "rbd");
    assert!(refused.contains("node node-a has 1 instances with local disks"), "{refused}");
    assert_eq!(start("disk-local-local", "disk", "local"), "");
    assert_eq!(start("disk-none-rbd", "console.log", "rbd"), "");
}

#[test]
fn nova_compute_uses_the_ephemeral_pool_with_its_own_user() {
    let plan = plan("nova-compute-rbd");
    let options = section(&plan, "nova.conf", "libvirt");
    for line in [
        "images_type = rbd",
        "images_rbd_pool = vms",
        "rbd_user = nova",
        "images_rbd_ceph_conf = /etc/ceph/ceph.conf",
    ] {
        assert!(options.contains(&line.to_owned()), "{options:?}");
    }
    let uuid = openstack_operator_model::name::uuid("nova");
    assert!(options.contains(&format!("rbd_secret_uuid = {uuid}")), "{options:?}");
    let mut case = case("nova-compute-rbd");
    case.spec["ceph"] = json!({});
    let invalid = case.render(&Observed::default()).err().unwrap().to_string();
    assert_eq!(invalid, "spec.ceph.clusterRef: is missing: name a CephStorage");
}

#[test]
fn images_can_be_in_several_stores_of_which_one_is_the_default() {
    let plan = plan("glance-stores");
    let default = section(&plan, "glance-api.conf", "DEFAULT");
    assert!(default.contains(&"enabled_backends = pvc:file,rbd:rbd".to_owned()), "{default:?}");
    assert!(default.contains(&"show_image_direct_url = true".to_owned()), "{default:?}");
    assert!(default.iter().any(|line| line.contains("copy-image")), "{default:?}");
    assert_eq!(section(&plan, "glance-api.conf", "glance_store")[0], "default_backend = rbd");
    let rbd = section(&plan, "glance-api.conf", "rbd");
    for line in ["rbd_store_pool = images", "rbd_store_user = glance", "weight = 1"] {
        assert!(rbd.contains(&line.to_owned()), "{rbd:?}");
    }
    assert_eq!(plan.volumes.len(), 1);
    let mut case = case("glance-stores");
    case.spec["defaultStore"] = json!("s3");
    let invalid = case.render(&Observed::default()).err().unwrap().to_string();
    assert_eq!(invalid, "spec.defaultStore: s3 is not a store: add it to stores, or use pvc or rbd");
}

#[test]
fn glance_starts_only_when_ceph_answers() {
    for title in ["glance-rbd", "glance-ceph", "glance-stores"] {
        let plan = plan(title);
        let setup: Vec<&str> = plan.workloads[0].pod.setup.iter().map(|container| container.name).collect();
        assert_eq!(setup, ["await-ceph"], "{title}");
    }
    assert!(plan("glance-minimal").workloads[0].pod.setup.is_empty());
}

#[test]
fn one_line_moves_a_cloud_to_ceph_and_each_service_can_differ() {
    let backend = |cloud: &crate::fixture::Case, kind: &str| -> Value {
        let plan = cloud.render(&Observed::default()).unwrap().plan;
        plan.children.iter().find(|child| child.kind.kind == kind).unwrap().spec.clone()
    };
    let mut cloud = case("controlplane-ceph");
    let (glance, compute) = (backend(&cloud, "Glance"), backend(&cloud, "NovaCompute"));
    assert_eq!((&glance["storage"]["backend"], &glance["replicas"]), (&json!("rbd"), &json!(2)));
    assert_eq!(glance["ceph"]["clusterRef"]["name"], "test-ceph");
    assert_eq!(compute["ephemeral"]["backend"], "rbd");
    assert_eq!(compute["ceph"]["clusterRef"]["name"], "test-ceph");
    cloud.spec["glance"] = json!({ "storage": { "backend": "pvc" } });
    cloud.spec["compute"] = json!({ "ephemeral": { "backend": "local" } });
    let (glance, compute) = (backend(&cloud, "Glance"), backend(&cloud, "NovaCompute"));
    assert_eq!((&glance["storage"]["backend"], glance.get("replicas")), (&json!("pvc"), None));
    assert_eq!(glance["ceph"], json!({}), "it does not wait for Ceph");
    assert_eq!(compute["ephemeral"]["backend"], "local");
    // Volumes of Cinder still need their key.
    assert_eq!(compute["ceph"]["clusterRef"]["name"], "test-ceph");
}
