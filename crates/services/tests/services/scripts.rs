//! The scripts that containers run, on directories of a test and with programs that only say how they were called.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use openstack_operator_model::lower::Observed;

use crate::fixture::case;

/// Where a container has what its scripts name.
const MOVED: [&str; 4] = ["/etc/openstack/", "/var/lib/", "/run/", "/dev/termination-log"];

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
