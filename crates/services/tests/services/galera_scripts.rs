//! Scripts of a Galera member: which server starts, with which position, and on whose instruction.

use std::process::Output;

use crate::scripts::{Sandbox, errors};

const VARIABLES: [(&str, &str); 5] = [
    ("POD_NAME", "test-1"),
    ("POD_IP", "10.0.0.1"),
    ("SERVICE", "test.openstack.svc"),
    ("MEMBERS", "test-members.openstack.svc"),
    ("ROOT_PASSWORD", "it's \\ secret"),
];

/// Recovers a position like the server, or records how it was started.
const SERVER: &str = r#"
case " $* " in
*' --wsrep-recover '*)
    for word; do case $word in --log-error=*) echo 'WSREP: Recovered position: 12-34:57' >>"${word#*=}" ;; esac; done ;;
*) printf '%s\n' "$@" >"$root/started" ;;
esac"#;

/// Answers the local server's script; other members answer with the content of `cluster`, and the writer with its name.
const CLIENT: &str = r#"
case " $* " in
*' --defaults-file='*-N*) echo 'wsrep_ready ON' ;;
*' --defaults-file='*) cat >>"$root/statements" ;;
*' --host=test.openstack.svc '*) echo test-0 ;;
*) cat "$root/cluster" 2>/dev/null || { echo 'ERROR 2002 (HY000): cannot connect' >&2; exit 1; } ;;
esac"#;

/// A member of three with data that a crash left, whose other members do not respond.
fn crashed(name: &str, title: &str) -> Sandbox {
    let sandbox = Sandbox::new(name, title);
    sandbox.write("var/lib/mysql/mysql/user.frm", "");
    sandbox.write("var/lib/mysql/grastate.dat", "uuid: 12-34\nseqno: -1\nsafe_to_bootstrap: 0\n");
    sandbox.write("etc/podinfo/annotations", "");
    sandbox.program("mariadbd", SERVER);
    sandbox.program("mariadb", CLIENT);
    sandbox.program("getent", "");
    // Ends a start that waits in vain.
    sandbox.program("sleep", "echo >>$root/slept; [ $(wc -l <$root/slept) -lt 20 ] || kill $PPID");
    sandbox
}

/// The same after it has reported.
fn reported(name: &str, title: &str, position: &str) -> Sandbox {
    let sandbox = crashed(name, title);
    sandbox.write("run/mysqld/ticket", "t1\n");
    sandbox.write("run/mysqld/position", &format!("{position}\n"));
    sandbox
}

fn instruct(sandbox: &Sandbox, ticket: &str) {
    sandbox.write("etc/podinfo/annotations", &format!("openstack.k8s.io/galera-bootstrap=\"{ticket}\"\n"));
}

fn start(sandbox: &Sandbox) -> Output {
    sandbox.run("start.sh", &[], &VARIABLES)
}

fn started(sandbox: &Sandbox) -> String {
    sandbox.read("started")
}

#[test]
fn an_instruction_for_another_start_is_ignored() {
    for instruction in ["t0", "uid/0", ""] {
        let sandbox = reported(&format!("galera-other-{}", instruction.len()), "mariadb-rich", "57 12-34");
        instruct(&sandbox, instruction);
        start(&sandbox);
        assert_eq!(started(&sandbox), "", "{instruction}");
        assert!(!sandbox.has("run/mysqld/ticket"), "a ticket is valid for one start");
    }
}

#[test]
fn the_instructed_member_keeps_the_history_of_its_cluster() {
    let sandbox = reported("galera-bootstrap", "mariadb-rich", "57 12-34");
    instruct(&sandbox, "t1");
    let output = start(&sandbox);
    assert!(output.status.success(), "{}", errors(&output));
    let arguments = started(&sandbox);
    assert!(arguments.contains("--wsrep-new-cluster\n--wsrep-start-position=12-34:57\n"), "{arguments}");
    assert!(sandbox.read("var/lib/mysql/grastate.dat").contains("safe_to_bootstrap: 1"));
    let statements = sandbox.read("statements");
    assert!(statements.contains(r"IDENTIFIED BY 'it''s \\ secret'"), "{statements}");
    assert!(!errors(&output).contains("secret"));
}

#[test]
fn a_start_after_a_crash_reports_and_ends_and_its_ticket_is_for_the_next_one() {
    let sandbox = crashed("galera-crash", "mariadb-rich");
    instruct(&sandbox, "");
    let output = start(&sandbox);
    assert_eq!(output.status.code(), Some(3), "{}", errors(&output));
    assert_eq!(started(&sandbox), "");
    let ticket = sandbox.read("run/mysqld/ticket").trim().to_owned();
    let report = format!(
        "{{\"state\":\"data\",\"uuid\":\"12-34\",\"sequence\":57,\"safe\":0,\"excluded\":0,\"ticket\":\"{ticket}\"}}\n"
    );
    assert_eq!(sandbox.read("dev/termination-log"), report);
    assert!(sandbox.read("slept").lines().count() >= 5, "survivors need time to notice");
    instruct(&sandbox, &ticket);
    start(&sandbox);
    assert!(started(&sandbox).contains("--wsrep-start-position=12-34:57"));
}

/// A report with the end of the server, and not with that of another container, because the kubelet delays restarts.
#[test]
fn the_end_of_a_crashed_server_is_its_report() {
    let sandbox = reported("galera-crash-report", "mariadb-rich", "50 12-34");
    instruct(&sandbox, "t1");
    sandbox.program(
        "mariadbd",
        &format!("{SERVER}\ncase \" $* \" in *' --wsrep-recover '*) ;; *) kill -9 $$ ;; esac"),
    );
    let output = start(&sandbox);
    assert_eq!(output.status.code(), Some(137), "{}", errors(&output));
    let ticket = sandbox.read("run/mysqld/ticket").trim().to_owned();
    assert!(!ticket.is_empty() && ticket != "t1", "{ticket}");
    let report = sandbox.read("dev/termination-log");
    assert!(report.contains("\"sequence\":57") && report.contains(&ticket), "{report}");
    assert!(sandbox.has("slept"), "survivors need time to notice");
}

#[test]
fn a_server_that_gets_a_signal_stops_and_reports_nothing() {
    let sandbox = reported("galera-stop", "mariadb-rich", "57 12-34");
    instruct(&sandbox, "t1");
    // The script that starts the server gets the signal, as the first process of the container.
    let server = r#"trap 'echo stopped >"$root/stopped"; exit 0' TERM
    kill $PPID
    while :; do read -r -t 0.1 _ <> <(:) || :; done"#;
    sandbox.program("mariadbd", server);
    let output = start(&sandbox);
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(sandbox.read("stopped"), "stopped\n");
    assert!(!sandbox.has("run/mysqld/ticket") && !sandbox.has("dev/termination-log"));
}

#[test]
fn a_member_that_was_killed_during_a_state_transfer_joins_without_a_position() {
    let sandbox = crashed("galera-transfer", "mariadb-rich");
    sandbox.write("var/lib/mysql/sst_in_progress", "");
    sandbox.write("cluster", "wsrep_cluster_status\tPrimary\n");
    let output = start(&sandbox);
    assert!(output.status.success(), "{}", errors(&output));
    let arguments = started(&sandbox);
    assert!(arguments.contains("--wsrep-sst-donor=") && !arguments.contains("start-position"), "{arguments}");
}

#[test]
fn a_member_joins_only_a_cluster_with_a_quorum() {
    let sandbox = reported("galera-minority", "mariadb-rich", "57 12-34");
    sandbox.write("cluster", "wsrep_cluster_status\tnon-Primary\n");
    start(&sandbox);
    assert_eq!(started(&sandbox), "");
    for (name, answer) in [
        ("quorum", "wsrep_cluster_status\tPrimary\n"),
        ("password", "ERROR 1045 (28000): Access denied for user 'root'\n"),
    ] {
        let sandbox = reported(&format!("galera-{name}"), "mariadb-rich", "57 12-34");
        sandbox.write("cluster", answer);
        instruct(&sandbox, "t1");
        let output = start(&sandbox);
        assert!(output.status.success(), "{}", errors(&output));
        let arguments = started(&sandbox);
        assert!(!arguments.contains("--wsrep-new-cluster"), "{name}: a cluster that serves is joined");
        assert!(arguments.contains("--wsrep-start-position=12-34:57"), "{name}: {arguments}");
        assert!(arguments.contains("--wsrep-sst-donor=test-2,\n"), "{name}: not the writer: {arguments}");
    }
}

#[test]
fn a_single_member_starts_alone_unless_its_data_is_gone() {
    for (formed, position, starts) in
        [("yes", "57 12-34", true), ("no", "-1 ", true), ("no", "57 12-34", true), ("yes", "-1 ", false)]
    {
        let sandbox =
            reported(&format!("galera-single-{formed}-{}", position.len()), "mariadb-minimal", position);
        sandbox.write("etc/openstack/live/formed", formed);
        start(&sandbox);
        let arguments = started(&sandbox);
        assert_eq!(arguments.contains("--wsrep-new-cluster"), starts, "{formed} {position}: {arguments}");
    }
    let sandbox = reported("galera-single-grown", "mariadb-minimal", "57 12-34");
    sandbox.program("getent", "echo '10.0.0.1 STREAM x'; echo '10.0.0.2 STREAM x'");
    sandbox.write("cluster", "wsrep_cluster_status\tPrimary\n");
    start(&sandbox);
    assert!(!started(&sandbox).contains("--wsrep-new-cluster"), "the cluster has grown meanwhile");
}

#[test]
fn a_server_is_ready_when_it_serves_and_its_administrator_is_prepared() {
    let sandbox = crashed("galera-check", "mariadb-minimal");
    let ready = |sandbox: &Sandbox| sandbox.run("check.sh", &["ready"], &[]).status.success();
    sandbox.program("mariadb", "printf 'wsrep_ready ON\nwsrep_local_state 4\n'");
    assert!(!ready(&sandbox), "the password of the administrator is not set");
    sandbox.write("run/mysqld/prepared", "");
    assert!(ready(&sandbox));
    sandbox.program("mariadb", "printf 'wsrep_local_state 4\n'");
    assert!(!ready(&sandbox), "it lost the quorum");
}

#[test]
fn a_state_transfer_is_not_interrupted() {
    let sandbox = crashed("galera-alive", "mariadb-minimal");
    sandbox.program("mariadb-admin", "exit 1");
    let alive = |sandbox: &Sandbox| sandbox.run("check.sh", &["alive"], &[]).status.success();
    assert!(!alive(&sandbox));
    sandbox.write("var/lib/mysql/sst_in_progress", "");
    assert!(alive(&sandbox));
}

/// With MariaDB 11.8.6, four of six members that received a full copy while columns were renamed differed from their donor
/// without an error, and none joined while changes followed each other faster. With this mode all had the donor's schema.
#[test]
fn a_full_copy_contains_the_changes_of_schemas_up_to_its_position() {
    for title in ["mariadb-minimal", "mariadb-rich"] {
        let sandbox = Sandbox::new(&format!("galera-settings-{title}"), title);
        let settings = sandbox.read("etc/openstack/mariadb.cnf");
        let lines: Vec<&str> = settings.lines().collect();
        let copies = ["wsrep_sst_method = mariabackup", "wsrep_mode = BF_ABORT_MARIABACKUP"];
        assert!(copies.iter().all(|line| lines.contains(line)), "{title}: {settings}");
        assert!(lines.contains(&"wsrep_ignore_apply_errors = 0"), "{title}: no error is ignored: {settings}");
    }
}

#[test]
fn a_member_that_the_others_excluded_reports_it() {
    let sandbox = crashed("galera-excluded", "mariadb-rich");
    sandbox.write("var/lib/mysql/grastate.dat", "uuid: 00000000-0000\nseqno: -1\nsafe_to_bootstrap: 0\n");
    start(&sandbox);
    let report = sandbox.read("dev/termination-log");
    assert!(report.contains("\"uuid\":\"12-34\"") && report.contains("\"excluded\":1"), "{report}");
}

#[test]
fn a_member_that_the_others_excluded_restarts() {
    let sandbox = crashed("galera-inconsistent", "mariadb-minimal");
    sandbox.program("mariadb-admin", "");
    let alive = |answer: &str| {
        sandbox.program("mariadb", answer);
        sandbox.run("check.sh", &["alive"], &[]).status.success()
    };
    assert!(alive("printf 'wsrep_local_state_comment\\tSynced\\n'"));
    assert!(alive("printf 'wsrep_local_state_comment\\tDonor/Desynced\\n'"));
    assert!(
        alive("echo 'ERROR 1040 (08004): Too many connections' >&2; exit 1"),
        "a busy server must not restart"
    );
    assert!(!alive("printf 'wsrep_local_state_comment\\tInconsistent\\n'"));
}
