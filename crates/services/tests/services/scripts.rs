//! Scripts of containers, run in test directories with stub programs that record their calls.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use openstack_operator_model::lower::Observed;

use crate::fixture::{case, cases};

/// Paths in containers that scripts use.
const MOVED: [&str; 5] = ["/etc/openstack/", "/etc/podinfo/", "/var/lib/", "/run/", "/dev/termination-log"];

/// Test directory instead of the file system of a container.
pub(crate) struct Sandbox(PathBuf);

impl Sandbox {
    /// An empty directory with the files of a case at their paths.
    pub(crate) fn new(name: &str, title: &str) -> Self {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("scripts").join(name);
        if root.exists() {
            fs::remove_dir_all(&root).unwrap();
        }
        let sandbox = Self(root);
        let plan = case(title).render(&Observed::default()).unwrap().plan;
        for (file, content) in &plan.files {
            sandbox.write(&format!("etc/openstack/{file}"), &sandbox.relocate(content.text().unwrap()));
        }
        for (file, text) in &plan.live_files {
            sandbox.write(&format!("etc/openstack/live/{file}"), &sandbox.relocate(text));
        }
        for directory in ["bin", "dev", "run/mysqld", "run/rabbitmq", "var/lib/mysql", "var/lib/rabbitmq"] {
            fs::create_dir_all(sandbox.0.join(directory)).unwrap();
        }
        sandbox
    }

    fn relocate(&self, text: &str) -> String {
        let root = self.0.to_str().unwrap();
        MOVED.iter().fold(text.to_owned(), |text, path| text.replace(path, &format!("{root}{path}")))
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.0.join(path)).unwrap_or_default()
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.0.join(path).exists()
    }

    /// Adds a stub program.
    pub(crate) fn program(&self, name: &str, script: &str) {
        let path = format!("bin/{name}");
        self.write(&path, &format!("#!/usr/bin/env bash\nset -eu\nroot={}\n{script}", self.0.display()));
        fs::set_permissions(self.0.join(path), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs a script and waits for all its child processes.
    pub(crate) fn run(&self, script: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        let path = format!("{}:{}", self.0.join("bin").display(), std::env::var("PATH").unwrap());
        Command::new("bash")
            .arg(self.0.join("etc/openstack").join(script))
            .args(arguments)
            .env("PATH", path)
            .envs(variables.iter().copied())
            .output()
            .unwrap()
    }
}

pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Volumes of a pod survive its containers, and copies of ConfigMap files are read-only. Tests may run as root, who
/// can overwrite them, so the test checks the script text.
#[test]
fn files_can_be_copied_again_after_a_container_restart() {
    let mut seen = 0;
    for case in cases() {
        for (file, content) in case.render(&Observed::default()).unwrap().plan.files {
            let copies = content
                .text()
                .unwrap_or_default()
                .lines()
                .map(str::trim)
                .filter(|line| line.starts_with("cp "));
            for copy in copies {
                assert!(copy.starts_with("cp -f "), "{} {file}: {copy}", case.title);
                seen += 1;
            }
        }
    }
    assert!(seen > 0, "no script copies files: remove this test");
}

/// A volume with these files, and a stub that installs a database.
fn volume(name: &str, files: &[&str]) -> Sandbox {
    let sandbox = Sandbox::new(name, "mariadb-minimal");
    for file in files {
        sandbox.write(&format!("var/lib/mysql/{file}"), "precious");
    }
    let install = r#"for word; do case $word in --datadir=*) mkdir "${word#*=}/mysql" ;; esac; done"#;
    sandbox.program("mariadb-install-db", install);
    sandbox
}

/// Ticket of the next start of a database.
fn ticket(sandbox: &Sandbox) -> String {
    sandbox.read("run/mysqld/ticket").trim().to_owned()
}

fn report(sandbox: &Sandbox, sequence: i64, safe: u8) -> String {
    let ticket = ticket(sandbox);
    format!(
        "{{\"state\":\"data\",\"uuid\":\"12-34\",\"sequence\":{sequence},\"safe\":{safe},\"excluded\":0,\"ticket\":\"{ticket}\"}}\n"
    )
}

#[test]
fn an_empty_volume_gets_a_database() {
    let interrupted = ["mysql/half", ".installing", "ibdata1"];
    // Files of the state transfer.
    let receiving = [".sst/ibdata1", "grastate.dat", "galera.cache"];
    let killed = ["sst_in_progress", "grastate.dat"];
    let volumes: [(&str, &[&str]); 4] = [
        ("empty", &["lost+found/inode"]),
        ("interrupted", &interrupted),
        ("receiving", &receiving),
        ("killed", &killed),
    ];
    for (name, files) in volumes {
        let sandbox = volume(name, files);
        let output = sandbox.run("prepare.sh", &[], &[]);
        assert!(output.status.success(), "{name}: {}", errors(&output));
        assert!(sandbox.has("var/lib/mysql/mysql"), "{name}");
        let report = format!("{{\"state\":\"empty\",\"ticket\":\"{}\"}}\n", ticket(&sandbox));
        assert_eq!(sandbox.read("dev/termination-log"), report, "{name}");
        for file in files {
            let stays = file.starts_with("lost+found");
            assert_eq!(sandbox.has(&format!("var/lib/mysql/{file}")), stays, "{name}: {file}");
        }
    }
}

#[test]
fn a_failed_installation_is_repeated() {
    let sandbox = volume("failing", &[]);
    sandbox.program("mariadb-install-db", "mkdir $root/var/lib/mysql/mysql; exit 1");
    assert!(!sandbox.run("prepare.sh", &[], &[]).status.success());
    assert!(sandbox.has("var/lib/mysql/.installing"));
    sandbox.program("mariadb-install-db", "mkdir $root/var/lib/mysql/mysql");
    let output = sandbox.run("prepare.sh", &[], &[]);
    assert!(output.status.success(), "{}", errors(&output));
    assert!(!sandbox.has("var/lib/mysql/.installing"));
}

#[test]
fn a_volume_with_unknown_files_is_not_changed() {
    let files = ["backup.sql", "wordpress/uploads", ".hidden"];
    let sandbox = volume("foreign", &files);
    sandbox.program("mariadb-install-db", "touch $root/installed");
    let output = sandbox.run("prepare.sh", &[], &[]);
    assert!(!output.status.success());
    for part in ["/var/lib/mysql contains no database", "backup.sql", "Move them elsewhere"] {
        assert!(errors(&output).contains(part), "{}", errors(&output));
        // The kubelet shows the error, and there is no report to select the member by.
        assert!(sandbox.read("dev/termination-log").contains(part));
    }
    for file in files {
        assert_eq!(sandbox.read(&format!("var/lib/mysql/{file}")), "precious", "{file}");
    }
    assert!(!sandbox.has("installed") && !sandbox.has("var/lib/mysql/.installing"));
}

#[test]
fn an_existing_database_is_kept_and_reported() {
    let sandbox = volume("database", &["mysql/user.frm", "cloud/table.ibd"]);
    sandbox.write("var/lib/mysql/grastate.dat", "uuid: 12-34\nseqno: 56\nsafe_to_bootstrap: 1\n");
    sandbox.program("mariadb-install-db", "touch $root/installed");
    let output = sandbox.run("prepare.sh", &[], &[]);
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(sandbox.read("dev/termination-log"), report(&sandbox, 56, 1));
    assert_eq!(sandbox.read("var/lib/mysql/cloud/table.ibd"), "precious");
    assert!(!sandbox.has("installed"));
}

/// A stub server that reports its position only with a cluster address, like MariaDB.
const RECOVERY: &str = r#"
log= address=
for word; do case $word in --log-error=*) log=${word#*=} ;; --wsrep-cluster-address=*) address=yes ;; esac; done
if [ -z "$address" ]; then echo 'requires wsrep_cluster_address' >>"$log"; exit 1; fi
if [ -e "$root/broken" ]; then echo 'InnoDB: the log is corrupt' >>"$log"; exit 1; fi
echo 'WSREP: Recovered position: 12-34:57,0-1-2' >>"$log"
"#;

#[test]
fn a_crashed_database_reports_its_position_or_the_error() {
    let sandbox = volume("cut-off", &["mysql/user.frm"]);
    sandbox.write("var/lib/mysql/grastate.dat", "uuid: 12-34\nseqno: -1\nsafe_to_bootstrap: 1\n");
    sandbox.program("mariadbd", RECOVERY);
    let output = sandbox.run("prepare.sh", &[], &[]);
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(sandbox.read("dev/termination-log"), report(&sandbox, 57, 0));
    sandbox.write("broken", "");
    assert!(!sandbox.run("prepare.sh", &[], &[]).status.success());
    assert!(sandbox.read("dev/termination-log").contains("the log is corrupt"));
    assert_eq!(sandbox.read("var/lib/mysql/mysql/user.frm"), "precious");
}

/// A cluster whose second member lost its volume and rejoined under a new ID. The fourth pod is not in the list yet,
/// and the fifth was lost.
const STATUS: &str = "Role: ROLE
Leader: self
Servers:
    1111 (1111 at tcp:test-nb-0.HOSTS:6643) (self) next_index=2 match_index=9
    2222 (2222 at tcp:test-nb-1.HOSTS:6643) next_index=10 match_index=7
    3333 (3333 at tcp:test-nb-2.HOSTS:6643) next_index=10 match_index=9 last msg 300000 ms ago
    4444 (4444 at tcp:test-nb-1.HOSTS:6643) next_index=10 match_index=9 last msg 100 ms ago
    5555 (5555 at tcp:test-nb-0.HOSTS:6643) next_index=10 match_index=9 last msg 90000 ms ago
    6666 (6666 at tcp:test-nb-3.HOSTS:6643) next_index=10 match_index=9 last msg 300 ms ago
    7777 (7777 at tcp:test-nb-4.HOSTS:6643) next_index=10 match_index=9 last msg 300000 ms ago
";

fn status(role: &str) -> String {
    STATUS.replace("ROLE", role).replace("HOSTS", "test-nb.openstack.svc.cluster.local")
}

/// A member with data, and stubs that end each loop after one round.
fn networks(name: &str) -> Sandbox {
    let sandbox = Sandbox::new(name, "ovn-rich");
    sandbox.write("var/lib/ovn/nb.db", "data");
    sandbox.program("sleep", "[ ! -e $root/slept-$1 ] && touch $root/slept-$1 || kill $PPID");
    sandbox.program("ovsdb-server", "exit 0");
    sandbox
}

const NETWORKS: [(&str, &str); 7] = [
    ("POD_NAME", "x"),
    ("POD_UID", "x"),
    ("SCHEMA", "x"),
    ("SCHEMA_FILE", "x"),
    ("CLIENT_PORT", "x"),
    ("GROUP_PORT", "x"),
    ("DATABASE", "nb"),
];

#[test]
fn the_leader_removes_lost_members() {
    for (role, kicked) in [("leader", "2222\n5555\n7777\n"), ("follower", "")] {
        let sandbox = networks(&format!("lost-{role}"));
        sandbox.write("status", &status(role));
        let appctl = "case \"$*\" in *cluster/status*) cat $root/status ;; *kick*) echo ${@: -1} >>$root/kicked ;; esac";
        sandbox.program("ovs-appctl", appctl);
        sandbox.program("ovsdb-client", "echo no");
        let output = sandbox.run("database.sh", &[], &NETWORKS);
        assert!(output.status.success(), "{role}: {}", errors(&output));
        assert_eq!(sandbox.read("kicked"), kicked, "{role}: {}", errors(&output));
    }
}

#[test]
fn a_member_that_is_instructed_to_leave_deletes_its_data_after_leaving() {
    let cases = [
        ("leave/x/0/7", "leave\nwait with data\nexit\n"),
        ("leave/x/0/6", ""),
        ("leave/another/0/7", ""),
        ("stay/x", ""),
    ];
    for (order, calls) in cases {
        let sandbox = networks(&format!("leave-{}", order.replace('/', "-")));
        sandbox.write("etc/podinfo/annotations", &format!("openstack.k8s.io/ovn-order=\"{order}\"\n"));
        sandbox.write("status", &status("follower"));
        let appctl = "case \"$*\" in *cluster/leave*) echo leave >>$root/calls ;; *\" exit\") echo exit >>$root/calls ;;
            *cluster/status*) cat $root/status ;; esac";
        sandbox.program("ovs-appctl", appctl);
        let client =
            "[ $1 != wait ] || [ ! -e $root/var/lib/ovn/nb.db ] || echo wait with data >>$root/calls";
        sandbox.program("ovsdb-client", client);
        let output = sandbox.run("database.sh", &[], &NETWORKS);
        assert!(output.status.success(), "{order}: {}", errors(&output));
        assert_eq!(sandbox.read("calls"), calls, "{order}: {}", errors(&output));
        let (has_left, said) = (!calls.is_empty(), sandbox.read("dev/termination-log"));
        assert_eq!(said, if has_left { "{\"state\":\"left\"}\n" } else { "" }, "{order}");
        assert_eq!(sandbox.has("var/lib/ovn/nb.db"), !has_left, "{order}");
        assert!(!sandbox.has("var/lib/ovn/nb.db.leaving"), "{order}");
    }
}

#[test]
fn the_data_of_a_member_stopped_while_leaving_is_deleted_only_if_it_had_left() {
    for (note, said) in [("left", "empty"), ("transfer leadership", "data")] {
        let sandbox = networks(&format!("stopped-{said}"));
        sandbox.write("var/lib/ovn/nb.db.leaving", "");
        sandbox.program(
            "ovsdb-tool",
            &format!("case $1 in show-log) echo ' note: \"{note}\"' ;; *) echo id ;; esac"),
        );
        let output = sandbox.run("report.sh", &[], &NETWORKS);
        assert!(output.status.success(), "{note}: {}", errors(&output));
        assert!(sandbox.read("dev/termination-log").contains(said), "{note}");
        assert_eq!(sandbox.has("var/lib/ovn/nb.db"), said == "data", "{note}");
        assert!(!sandbox.has("var/lib/ovn/nb.db.leaving"), "{note}");
    }
}

#[test]
fn ovn_controller_starts_once_the_southbound_database_has_content() {
    let sandbox = Sandbox::new("controller", "ovn-minimal");
    // At first there is no address, then an empty database.
    let address = "[ ! -e $root/slept ] || echo '\"tcp:10.0.0.1:6642\"'";
    sandbox.program("ovs-vsctl", &format!("case \"$*\" in *owner) echo '\"own\"' ;; *) {address} ;; esac"));
    sandbox
        .program("ovn-sbctl", "echo \"$*\" >>$root/asked; [ $(wc -l <$root/asked) = 1 ] || echo some-uuid");
    sandbox.program("sleep", "touch $root/slept");
    sandbox.program("ovn-controller", "cp $root/asked $root/asked-before");
    let output = sandbox.run("controller.sh", &[], &[("OWNER", "own")]);
    assert!(output.status.success(), "{}", errors(&output));
    let asked = sandbox.read("asked-before");
    assert_eq!(asked.lines().count(), 2, "{asked}");
    assert!(asked.contains("--db=tcp:10.0.0.1:6642"), "{asked}");
}
