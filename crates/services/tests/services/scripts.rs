//! The scripts that containers run, on directories of a test and with programs that only say how they were called.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use openstack_operator_model::lower::Observed;

use crate::fixture::{case, cases};

/// Where a container has what its scripts name.
const MOVED: [&str; 5] = ["/etc/openstack/", "/etc/podinfo/", "/var/lib/", "/run/", "/dev/termination-log"];

/// A directory that stands for a container's file system.
struct Place(PathBuf);

impl Place {
    /// An empty one, with the files of a case where its scripts look for them.
    fn new(name: &str, title: &str) -> Self {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("scripts").join(name);
        if root.exists() {
            fs::remove_dir_all(&root).unwrap();
        }
        let place = Self(root);
        let plan = case(title).render(&Observed::default()).unwrap().plan;
        for (directory, files) in [("etc/openstack", &plan.files), ("etc/openstack/live", &plan.live_files)] {
            for (file, text) in files {
                place.write(&format!("{directory}/{file}"), &place.moved(text));
            }
        }
        for directory in ["bin", "dev", "run/mysqld", "run/rabbitmq", "var/lib/mysql", "var/lib/rabbitmq"] {
            fs::create_dir_all(place.0.join(directory)).unwrap();
        }
        place
    }

    fn moved(&self, text: &str) -> String {
        let root = self.0.to_str().unwrap();
        MOVED.iter().fold(text.to_owned(), |text, path| text.replace(path, &format!("{root}{path}")))
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.0.join(path)).unwrap_or_default()
    }

    fn has(&self, path: &str) -> bool {
        self.0.join(path).exists()
    }

    /// Puts a program before those of the machine.
    fn program(&self, name: &str, script: &str) {
        let path = format!("bin/{name}");
        self.write(&path, &format!("#!/usr/bin/env bash\nset -eu\nroot={}\n{script}", self.0.display()));
        fs::set_permissions(self.0.join(path), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs a script to its end, and to that of everything that it has started.
    fn run(&self, script: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
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

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Directories of a pod outlive its containers, and files of ConfigMaps are copied with their mode, which lets nobody write.
/// Tests may run as root, who may all the same: so it is the text that is looked at.
#[test]
fn what_a_container_copies_it_can_copy_again_after_a_restart_in_place() {
    let mut seen = 0;
    for case in cases() {
        for (file, text) in case.render(&Observed::default()).unwrap().plan.files {
            let copies = text.lines().map(str::trim).filter(|line| line.starts_with("cp "));
            for copy in copies {
                assert!(copy.starts_with("cp -f "), "{} {file}: {copy}", case.title);
                seen += 1;
            }
        }
    }
    assert!(seen > 0, "nothing is copied any more: remove this test");
}

/// A volume with these files, and a program that makes a database.
fn volume(name: &str, files: &[&str]) -> Place {
    let place = Place::new(name, "mariadb-minimal");
    for file in files {
        place.write(&format!("var/lib/mysql/{file}"), "precious");
    }
    let install = r#"for word; do case $word in --datadir=*) mkdir "${word#*=}/mysql" ;; esac; done"#;
    place.program("mariadb-install-db", install);
    place
}

#[test]
fn a_volume_that_holds_nothing_yet_gets_a_database() {
    let interrupted = ["mysql/half", ".installing", "ibdata1"];
    // Named by the transfer of all data itself.
    let receiving = [".sst/ibdata1", "grastate.dat", "galera.cache"];
    let killed = ["sst_in_progress", "grastate.dat"];
    let volumes: [(&str, &[&str]); 4] = [
        ("empty", &["lost+found/inode"]),
        ("interrupted", &interrupted),
        ("receiving", &receiving),
        ("killed", &killed),
    ];
    for (name, files) in volumes {
        let place = volume(name, files);
        let output = place.run("prepare.sh", &[], &[]);
        assert!(output.status.success(), "{name}: {}", errors(&output));
        assert!(place.has("var/lib/mysql/mysql"), "{name}");
        assert_eq!(place.read("dev/termination-log"), "{\"state\":\"empty\"}\n", "{name}");
        for file in files {
            let stays = file.starts_with("lost+found");
            assert_eq!(place.has(&format!("var/lib/mysql/{file}")), stays, "{name}: {file}");
        }
    }
}

#[test]
fn an_installation_that_fails_is_begun_anew() {
    let place = volume("failing", &[]);
    place.program("mariadb-install-db", "mkdir $root/var/lib/mysql/mysql; exit 1");
    assert!(!place.run("prepare.sh", &[], &[]).status.success());
    assert!(place.has("var/lib/mysql/.installing"));
    place.program("mariadb-install-db", "mkdir $root/var/lib/mysql/mysql");
    let output = place.run("prepare.sh", &[], &[]);
    assert!(output.status.success(), "{}", errors(&output));
    assert!(!place.has("var/lib/mysql/.installing"));
}

#[test]
fn a_volume_with_files_of_others_is_left_as_it_is() {
    let files = ["backup.sql", "wordpress/uploads", ".hidden"];
    let place = volume("foreign", &files);
    place.program("mariadb-install-db", "touch $root/installed");
    let output = place.run("prepare.sh", &[], &[]);
    assert!(!output.status.success());
    for part in ["/var/lib/mysql holds no database", "backup.sql", "Move them elsewhere"] {
        assert!(errors(&output).contains(part), "{}", errors(&output));
        // What the kubelet shows, and no report that a member might be chosen by.
        assert!(place.read("dev/termination-log").contains(part));
    }
    for file in files {
        assert_eq!(place.read(&format!("var/lib/mysql/{file}")), "precious", "{file}");
    }
    assert!(!place.has("installed") && !place.has("var/lib/mysql/.installing"));
}

#[test]
fn a_database_stays_and_is_reported() {
    let place = volume("database", &["mysql/user.frm", "cloud/table.ibd"]);
    place.write("var/lib/mysql/grastate.dat", "uuid: 12-34\nseqno: 56\nsafe_to_bootstrap: 1\n");
    place.program("mariadb-install-db", "touch $root/installed");
    let output = place.run("prepare.sh", &[], &[]);
    assert!(output.status.success(), "{}", errors(&output));
    let report = "{\"state\":\"data\",\"uuid\":\"12-34\",\"sequence\":56,\"safe\":1}\n";
    assert_eq!(place.read("dev/termination-log"), report);
    assert_eq!(place.read("var/lib/mysql/cloud/table.ibd"), "precious");
    assert!(!place.has("installed"));
}

/// A server that tells its position as the real one does: only with an address of a group.
const RECOVERY: &str = r#"
log= address=
for word; do case $word in --log-error=*) log=${word#*=} ;; --wsrep-cluster-address=*) address=yes ;; esac; done
if [ -z "$address" ]; then echo 'requires wsrep_cluster_address' >>"$log"; exit 1; fi
if [ -e "$root/broken" ]; then echo 'InnoDB: the log is corrupt' >>"$log"; exit 1; fi
echo 'WSREP: Recovered position: 12-34:57,0-1-2' >>"$log"
"#;

#[test]
fn a_database_that_was_cut_off_tells_its_position_or_why_it_cannot() {
    let place = volume("cut-off", &["mysql/user.frm"]);
    place.write("var/lib/mysql/grastate.dat", "uuid: 12-34\nseqno: -1\nsafe_to_bootstrap: 1\n");
    place.program("mariadbd", RECOVERY);
    let output = place.run("prepare.sh", &[], &[]);
    assert!(output.status.success(), "{}", errors(&output));
    let report = "{\"state\":\"data\",\"uuid\":\"12-34\",\"sequence\":57,\"safe\":0}\n";
    assert_eq!(place.read("dev/termination-log"), report);
    place.write("broken", "");
    assert!(!place.run("prepare.sh", &[], &[]).status.success());
    assert!(place.read("dev/termination-log").contains("the log is corrupt"));
    assert_eq!(place.read("var/lib/mysql/mysql/user.frm"), "precious");
}

const ADMINISTRATOR: [(&str, &str); 3] =
    [("ADMINISTRATOR_NAME", "admin"), ("ADMINISTRATOR_PASSWORD", "n3w-s3cret"), ("CLUSTER_COOKIE", "cookie")];

/// A member of a bus that has data, and was started last with another password.
fn bus(name: &str, title: &str) -> Place {
    let place = Place::new(name, title);
    place.write("var/lib/rabbitmq/mnesia/table", "");
    place.write("var/lib/rabbitmq/administrator.sha256", "old");
    place.program("rabbitmq-server", "");
    place.program("sleep", "");
    place
}

#[test]
fn a_new_password_is_told_until_the_broker_takes_it() {
    let place = bus("password", "rabbitmq-minimal");
    let client = r#"
echo "$*" >>"$root/calls"
case $1 in change_password) cat >"$root/password" ;; esac
if [ "$(wc -l <"$root/calls")" -lt 4 ]; then echo "the broker is not there: $1" >&2; exit 1; fi"#;
    place.program("rabbitmqctl", client);
    let output = place.run("start.sh", &[], &ADMINISTRATOR);
    assert!(output.status.success(), "{}", errors(&output));
    let started = "await_startup --timeout 600\n";
    assert_eq!(place.read("calls"), started.repeat(4) + "change_password admin\n");
    assert_eq!(place.read("password"), "n3w-s3cret");
    assert_eq!(place.read("var/lib/rabbitmq/administrator.sha256").len(), 64, "the next start is quick");
    let log = errors(&output);
    assert_eq!(log.matches("the broker is not there: await_startup").count(), 3, "{log}");
    assert_eq!(log.matches("failed to change the password of admin").count(), 3, "{log}");
    assert!(!log.contains("n3w-s3cret"), "{log}");
    place.program("rabbitmqctl", "touch $root/asked");
    place.run("start.sh", &[], &ADMINISTRATOR);
    assert!(!place.has("asked"), "a password that is known is not told again");
}

#[test]
fn a_password_that_the_broker_refuses_is_told_again() {
    let place = bus("refused", "rabbitmq-minimal");
    let client = r#"
case $1 in change_password) ;; *) exit 0 ;; esac
[ -e "$root/refused" ] || { touch "$root/refused"; echo "no such user" >&2; exit 1; }"#;
    place.program("rabbitmqctl", client);
    let output = place.run("start.sh", &[], &ADMINISTRATOR);
    assert!(errors(&output).contains("no such user"), "{}", errors(&output));
    assert_eq!(place.read("var/lib/rabbitmq/administrator.sha256").len(), 64);
}

#[test]
fn a_member_waits_for_the_others_before_it_stops() {
    let place = bus("stop", "rabbitmq-rich");
    place.program("rabbitmq-upgrade", r#"echo "$*" >>"$root/calls"; exit 3"#);
    let output = place.run("stop.sh", &["120"], &[]);
    assert_eq!(place.read("calls"), "await_online_quorum_plus_one --timeout 110\n");
    assert_eq!(output.status.code(), Some(3), "the kubelet tells that it was in vain");
    let alone = bus("stop-alone", "rabbitmq-minimal");
    alone.program("rabbitmq-upgrade", "touch $root/calls");
    assert!(alone.run("stop.sh", &["120"], &[]).status.success());
    assert!(!alone.has("calls"), "there is nobody to wait for");
}

#[test]
fn a_member_that_waits_is_given_the_time_to_end_in_order() {
    for title in ["rabbitmq-minimal", "rabbitmq-rich"] {
        let pod = case(title).render(&Observed::default()).unwrap().plan.workloads.remove(0).pod;
        let command = pod.containers[0].before_stop.clone().unwrap();
        let waits: i64 = command.last().unwrap().parse().unwrap();
        assert!(waits + 30 <= pod.grace_seconds, "{waits} of {} seconds", pod.grace_seconds);
    }
}

/// A group whose second member lost its volume and joined again: it is heard of under its new name only. The fourth pod
/// is so new that nobody lists it yet, and there was a fifth, which went without a word.
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

/// A member of a group with data, and with programs that go round once in each loop.
fn networks(name: &str) -> Place {
    let place = Place::new(name, "ovn-rich");
    place.write("var/lib/ovn/nb.db", "data");
    place.program("sleep", "[ ! -e $root/slept-$1 ] && touch $root/slept-$1 || kill $PPID");
    place.program("ovsdb-server", "exit 0");
    place
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
fn the_leader_of_a_group_forgets_members_that_will_not_come_back() {
    for (role, kicked) in [("leader", "2222\n5555\n7777\n"), ("follower", "")] {
        let place = networks(&format!("lost-{role}"));
        place.write("status", &status(role));
        let appctl = "case \"$*\" in *cluster/status*) cat $root/status ;; *kick*) echo ${@: -1} >>$root/kicked ;; esac";
        place.program("ovs-appctl", appctl);
        place.program("ovsdb-client", "echo no");
        let output = place.run("database.sh", &[], &NETWORKS);
        assert!(output.status.success(), "{role}: {}", errors(&output));
        assert_eq!(place.read("kicked"), kicked, "{role}: {}", errors(&output));
    }
}

#[test]
fn a_member_that_is_told_to_leave_drops_its_data_once_it_has_left() {
    let cases = [
        ("leave/x/0/7", "leave\nwait with data\nexit\n"),
        ("leave/x/0/6", ""),
        ("leave/another/0/7", ""),
        ("stay/x", ""),
    ];
    for (order, calls) in cases {
        let place = networks(&format!("leave-{}", order.replace('/', "-")));
        place.write("etc/podinfo/annotations", &format!("openstack.k8s.io/ovn-order=\"{order}\"\n"));
        place.write("status", &status("follower"));
        let appctl = "case \"$*\" in *cluster/leave*) echo leave >>$root/calls ;; *\" exit\") echo exit >>$root/calls ;;
            *cluster/status*) cat $root/status ;; esac";
        place.program("ovs-appctl", appctl);
        let client =
            "[ $1 != wait ] || [ ! -e $root/var/lib/ovn/nb.db ] || echo wait with data >>$root/calls";
        place.program("ovsdb-client", client);
        let output = place.run("database.sh", &[], &NETWORKS);
        assert!(output.status.success(), "{order}: {}", errors(&output));
        assert_eq!(place.read("calls"), calls, "{order}: {}", errors(&output));
        let (has_left, said) = (!calls.is_empty(), place.read("dev/termination-log"));
        assert_eq!(said, if has_left { "{\"state\":\"left\"}\n" } else { "" }, "{order}");
        assert_eq!(place.has("var/lib/ovn/nb.db"), !has_left, "{order}");
        assert!(!place.has("var/lib/ovn/nb.db.leaving"), "{order}");
    }
}

#[test]
fn the_data_of_a_member_that_was_stopped_while_it_left_is_dropped_only_if_it_had_left() {
    for (note, said) in [("left", "empty"), ("transfer leadership", "data")] {
        let place = networks(&format!("stopped-{said}"));
        place.write("var/lib/ovn/nb.db.leaving", "");
        place.program(
            "ovsdb-tool",
            &format!("case $1 in show-log) echo ' note: \"{note}\"' ;; *) echo id ;; esac"),
        );
        let output = place.run("report.sh", &[], &NETWORKS);
        assert!(output.status.success(), "{note}: {}", errors(&output));
        assert!(place.read("dev/termination-log").contains(said), "{note}");
        assert_eq!(place.has("var/lib/ovn/nb.db"), said == "data", "{note}");
        assert!(!place.has("var/lib/ovn/nb.db.leaving"), "{note}");
    }
}

#[test]
fn a_switch_is_set_up_once_the_database_of_networks_holds_something() {
    let place = Place::new("controller", "ovn-minimal");
    // There is no address at first, then a database without content.
    place.program("ovs-vsctl", "[ ! -e $root/slept ] || echo '\"tcp:10.0.0.1:6642\"'");
    place.program("ovn-sbctl", "echo \"$*\" >>$root/asked; [ $(wc -l <$root/asked) = 1 ] || echo some-uuid");
    place.program("sleep", "touch $root/slept");
    place.program("ovn-controller", "cp $root/asked $root/asked-before");
    let output = place.run("controller.sh", &[], &[]);
    assert!(output.status.success(), "{}", errors(&output));
    let asked = place.read("asked-before");
    assert_eq!(asked.lines().count(), 2, "{asked}");
    assert!(asked.contains("--db=tcp:10.0.0.1:6642"), "{asked}");
}
