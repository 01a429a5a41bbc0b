//! Scripts of a RabbitMQ member: when a broker starts, which members it joins, and what it does beside the broker.

use std::os::unix::process::ExitStatusExt;
use std::process::Output;

use openstack_operator_model::lower::Observed;
use openstack_operator_model::plan::Check;

use crate::fixture::case;
use crate::scripts::{Sandbox, errors};

const HOSTS: &str = "test-members.openstack.svc.cluster.local";
const TABLE: &str = "var/lib/rabbitmq/mnesia/rabbit@test-NUMBER.HOSTS/schema.DAT";
/// SHA-256 of `s3cret` and `an0ther`.
const DIGEST: &str = "1ec1c26b50d5d3c58d9583181af8076655fe00756bf7285940ba3670f99fcba0";
const ANOTHER_DIGEST: &str = "5a89eeaaaf204d72f7efd266d9dd6eba00f00f7bd913b453a3016c8862998df5";
const INCOMPLETE: &str = "var/lib/rabbitmq/.incomplete";

/// A connection to a host succeeds if a file of its name is in `serves`; other commands run without a limit.
const TIMEOUT: &str = r#"
case "$*" in
*/dev/tcp/*) arguments=$*; host=${arguments##*/dev/tcp/}; [ -e "$root/serves/${host%%/*}" ] ;;
*) shift; exec "$@" ;;
esac"#;

/// Records calls; fails with the content of `refusal`.
const CLIENT: &str = r#"
echo "$*" >>"$root/calls"
case $1 in change_password) cat >"$root/password" ;; esac
if [ -e "$root/refusal" ]; then cat "$root/refusal" >&2; exit 69; fi"#;

fn host(number: usize) -> String {
    format!("test-{number}.{HOSTS}")
}

fn table(number: usize) -> String {
    TABLE.replace("NUMBER", &number.to_string()).replace("HOSTS", HOSTS)
}

/// The volume of a member of three that has served, whose other members do not.
fn member(name: &str) -> Sandbox {
    let sandbox = Sandbox::new(&format!("rabbitmq-{name}"), "rabbitmq-rich");
    sandbox.write("etc/podinfo/annotations", "");
    sandbox.write("etc/openstack/administrator/username", "admin");
    sandbox.write("etc/openstack/administrator/password", "s3cret");
    sandbox.write("etc/openstack/cookie/cookie", "biscuit");
    sandbox.write("etc/openstack/live/mode", "formed");
    sandbox.program("timeout", TIMEOUT);
    sandbox.program("rabbitmqctl", CLIENT);
    sandbox.program("rabbitmq-queues", r#"echo "$*" >>"$root/calls"; cat "$root/failed" 2>/dev/null || :"#);
    // The broker serves from now on.
    let broker = r#"cat "$root"/run/rabbitmq/conf.d/*.conf >"$root/started"; touch "$root/serves/127.0.0.1""#;
    sandbox.program("rabbitmq-server", broker);
    // Ends loops that would wait in vain.
    sandbox.program("sleep", "echo >>$root/slept; [ $(wc -l <$root/slept) -lt 9 ] || kill $PPID");
    sandbox.write("serves/none", "");
    sandbox
}

fn serve(sandbox: &Sandbox, number: usize) {
    sandbox.write(&format!("serves/{}", host(number)), "");
}

fn instruct(sandbox: &Sandbox, order: &str) {
    sandbox.write("etc/podinfo/annotations", &format!("openstack.k8s.io/rabbitmq-order=\"{order}\"\n"));
}

fn run(sandbox: &Sandbox, script: &str, number: usize) -> Output {
    let (pod, node) = (format!("test-{number}"), format!("rabbit@{}", host(number)));
    let variables = [("POD_NAME", pod.as_str()), ("POD_UID", "uid"), ("RABBITMQ_NODENAME", node.as_str())];
    let _ = std::fs::remove_file(sandbox.path("slept"));
    sandbox.run(script, &["120"], &variables)
}

/// Starts a member, and returns the members that its discovery finds; none if the broker did not start.
fn start(sandbox: &Sandbox, number: usize) -> Option<Vec<usize>> {
    let output = run(sandbox, "start.sh", number);
    assert!(!errors(&output).contains("s3cret"), "{}", errors(&output));
    let settings = sandbox.read("started");
    let node = |line: &str| line.split_once("nodes.")?.1.split_once("test-")?.1.chars().next()?.to_digit(10);
    let nodes = settings.lines().filter_map(node).map(|number| usize::try_from(number).unwrap());
    sandbox.has("started").then(|| nodes.collect())
}

fn report(sandbox: &Sandbox) -> String {
    sandbox.read("dev/termination-log")
}

#[test]
fn only_the_first_member_of_a_new_cluster_forms_it() {
    for (number, expected) in [(0, Some(vec![0])), (1, None), (2, None)] {
        let sandbox = member(&format!("new-{number}"));
        sandbox.write("etc/openstack/live/mode", "new");
        assert_eq!(start(&sandbox, number), expected);
        assert!(!sandbox.has("calls"), "there is no other member to ask");
    }
}

#[test]
fn an_empty_member_of_a_formed_cluster_never_forms_another() {
    for number in 0..3 {
        let sandbox = member(&format!("grown-{number}"));
        assert_eq!(start(&sandbox, number), None);
        assert_eq!(report(&sandbox), "{\"state\":\"empty\"}\n");
    }
}

#[test]
fn an_empty_member_joins_only_members_that_serve() {
    let sandbox = member("join");
    serve(&sandbox, 1);
    assert_eq!(start(&sandbox, 2), Some(vec![1, 2]));
    let forget = format!("--node rabbit@{} forget_cluster_node rabbit@{}\n", host(1), host(2));
    assert_eq!(sandbox.read("calls"), forget, "the others may know it from the data that it lost");
    assert_eq!(report(&sandbox), "", "the report is outdated once the broker runs");
    assert!(!sandbox.has(INCOMPLETE));
}

#[test]
fn a_member_that_the_others_do_not_know_joins_and_one_that_they_do_not_forget_waits() {
    let sandbox = member("unknown");
    serve(&sandbox, 0);
    sandbox.write("refusal", "{:not_a_cluster_node, ~c\"The node selected is not in the cluster.\"}");
    assert_eq!(start(&sandbox, 2), Some(vec![0, 2]));
    let sandbox = member("running");
    serve(&sandbox, 0);
    sandbox.write("refusal", "RabbitMQ on node rabbit@test-2 must be stopped with stop_app");
    assert_eq!(start(&sandbox, 2), None);
}

#[test]
fn an_instructed_pod_forms_the_cluster_again() {
    for (order, expected) in [("form/uid", Some(vec![1])), ("form/another", None)] {
        let sandbox = member(&format!("form-{}", order.len()));
        instruct(&sandbox, order);
        assert_eq!(start(&sandbox, 1), expected);
    }
    let sandbox = member("form-late");
    instruct(&sandbox, "form/uid");
    serve(&sandbox, 2);
    assert_eq!(start(&sandbox, 1), Some(vec![1, 2]), "a member that serves has data");
}

#[test]
fn an_instructed_member_starts_without_waiting_for_lost_members() {
    let forced = |name: &str, order: &str, peer: Option<usize>| {
        let sandbox = member(name);
        sandbox.write(&table(1), "");
        instruct(&sandbox, order);
        if let Some(number) = peer {
            serve(&sandbox, number);
        }
        assert!(start(&sandbox, 1).is_some());
        sandbox.has(&table(1).replace("schema.DAT", "force_load"))
    };
    assert!(forced("boot", "boot/uid", None));
    assert!(!forced("boot-another", "boot/another", None));
    assert!(!forced("boot-late", "boot/uid", Some(0)), "another member serves newer data");
}

#[test]
fn a_broker_that_waits_ends_on_the_instruction_to_start_alone() {
    let sandbox = member("boot-waiting");
    sandbox.write(&table(1), "");
    sandbox.program("rabbitmq-server", "while [ ! -e $root/over ]; do read -t 0.1 _ <> <(:) || :; done");
    let sleep = r#"
echo 'openstack.k8s.io/rabbitmq-order="boot/uid"' >$root/etc/podinfo/annotations
echo >>$root/slept; [ $(wc -l <$root/slept) -lt 9 ] || { touch $root/over; kill $PPID; }"#;
    sandbox.program("sleep", sleep);
    let output = run(&sandbox, "start.sh", 1);
    assert_eq!(output.status.signal(), Some(9), "{}", errors(&output));
}

#[test]
fn a_member_with_data_starts_at_once() {
    let sandbox = member("data");
    sandbox.write(&table(1), "precious");
    assert_eq!(start(&sandbox, 1), Some(vec![0, 1, 2]));
    assert_eq!(sandbox.read(&table(1)), "precious");
    assert_eq!(sandbox.read("calls"), "change_password admin\n", "the password in the data is unknown");
    assert_eq!(report(&sandbox), "", "the message of a crash is its log");
}

#[test]
fn an_interrupted_first_start_is_repeated() {
    let sandbox = member("interrupted");
    sandbox.write(&table(1), "half");
    sandbox.write(INCOMPLETE, "");
    assert_eq!(start(&sandbox, 1), None);
    assert!(!sandbox.has(&table(1)));
    serve(&sandbox, 0);
    sandbox.program("rabbitmq-server", "touch $root/started");
    start(&sandbox, 1);
    assert!(sandbox.has(INCOMPLETE), "the broker did not serve");
}

#[test]
fn the_report_says_whether_the_volume_has_data() {
    let sandbox = member("report");
    let state = || {
        assert!(run(&sandbox, "report.sh", 1).status.success());
        report(&sandbox)
    };
    assert_eq!(state(), "{\"state\":\"empty\"}\n");
    sandbox.write(&table(1), "");
    assert_eq!(state(), "{\"state\":\"data\"}\n");
    sandbox.write(INCOMPLETE, "");
    assert_eq!(state(), "{\"state\":\"empty\"}\n");
}

#[test]
fn a_member_that_leaves_hands_over_its_queues_before_it_stops() {
    let sandbox = member("leave");
    sandbox.write(&table(2), "");
    sandbox.write("var/lib/rabbitmq/administrator.sha256", DIGEST);
    instruct(&sandbox, "leave/uid/0");
    start(&sandbox, 2);
    let calls = format!(
        "--quiet grow rabbit@{} all --membership voter --errors-only\n--quiet shrink rabbit@{} --errors-only\nstop\n",
        host(0),
        host(2)
    );
    assert_eq!(sandbox.read("calls"), calls);
    assert!(sandbox.has(INCOMPLETE), "the next start does not use the data");
    let sandbox = member("leave-later");
    sandbox.write(&table(2), "");
    sandbox.write("failed", "nova\tconductor\t1\terror: the last node cannot be removed\n");
    instruct(&sandbox, "leave/uid/0");
    start(&sandbox, 2);
    assert!(!sandbox.has(INCOMPLETE) && !sandbox.read("calls").contains("stop"), "a queue would be lost");
}

#[test]
fn a_member_without_data_leaves_once_the_others_have_forgotten_it() {
    let sandbox = member("left");
    instruct(&sandbox, "leave/uid/0");
    assert_eq!(start(&sandbox, 2), None);
    assert_eq!(report(&sandbox), "{\"state\":\"empty\"}\n", "no member could forget it");
    serve(&sandbox, 0);
    let output = run(&sandbox, "start.sh", 2);
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(report(&sandbox), "{\"state\":\"left\"}\n");
    sandbox.write("dev/termination-log", "");
    let output = run(&sandbox, "start.sh", 2);
    assert!(!output.status.success(), "the next start waits");
    assert_eq!(report(&sandbox), "{\"state\":\"left\"}\n");
    assert_eq!(sandbox.read("calls").lines().count(), 1, "it asks once");
    instruct(&sandbox, "");
    assert_eq!(start(&sandbox, 2), Some(vec![0, 2]), "it is wanted again");
}

#[test]
fn a_regenerated_password_reaches_the_running_broker() {
    let sandbox = member("password");
    sandbox.write(&table(0), "");
    sandbox.write("var/lib/rabbitmq/administrator.sha256", DIGEST);
    // The kubelet refreshes the file after a while, and the broker rejects the first attempt.
    let sleep = r#"
echo >>$root/slept
case $(wc -l <$root/slept) in
3) printf an0ther >$root/etc/openstack/administrator/password; echo "no such user" >$root/refusal ;;
5) rm $root/refusal ;;
9) kill $PPID ;;
esac"#;
    sandbox.program("sleep", sleep);
    let output = run(&sandbox, "start.sh", 0);
    assert_eq!(sandbox.read("calls"), "change_password admin\n".repeat(3));
    assert_eq!(sandbox.read("password"), "an0ther");
    assert_eq!(sandbox.read("var/lib/rabbitmq/administrator.sha256").trim(), ANOTHER_DIGEST);
    let log = errors(&output);
    assert_eq!(log.matches("no such user").count(), 2, "{log}");
    assert_eq!(log.matches("failed to change the password of admin").count(), 2, "{log}");
    assert!(!log.contains("an0ther"), "{log}");
}

#[test]
fn a_running_member_keeps_its_cookie() {
    let sandbox = member("cookie");
    sandbox.write("etc/openstack/live/mode", "new");
    start(&sandbox, 0);
    let cookie = || sandbox.read("var/lib/rabbitmq/.erlang.cookie");
    assert_eq!(cookie(), "biscuit");
    sandbox.write("etc/openstack/cookie/cookie", "another");
    sandbox.write(&table(0), "");
    start(&sandbox, 0);
    assert_eq!(cookie(), "biscuit");
    sandbox.write(INCOMPLETE, "");
    start(&sandbox, 0);
    assert_eq!(cookie(), "another", "a member without data joins with the current cookie");
}

#[test]
fn a_member_waits_for_the_others_before_it_stops() {
    let stop = |name: &str, peer: Option<usize>, order: &str| {
        let sandbox = member(name);
        sandbox.program("rabbitmq-upgrade", r#"echo "$*" >>"$root/waits"; exit 3"#);
        sandbox.write("serves/127.0.0.1", "");
        if let Some(number) = peer {
            serve(&sandbox, number);
        }
        instruct(&sandbox, order);
        (run(&sandbox, "stop.sh", 2).status.code(), sandbox.read("waits"))
    };
    let waits = "await_online_quorum_plus_one --timeout 110\n".to_owned();
    assert_eq!(stop("stop", Some(0), ""), (Some(3), waits), "the kubelet reports the failure");
    assert_eq!(stop("stop-last", None, ""), (Some(0), String::new()), "no other member serves");
    assert_eq!(stop("stop-self", Some(2), ""), (Some(0), String::new()), "no other member serves");
    assert_eq!(stop("stop-leaving", Some(0), "leave/uid/0"), (Some(0), String::new()));
}

#[test]
fn the_grace_period_covers_the_wait_before_shutdown() {
    for title in ["rabbitmq-minimal", "rabbitmq-rich"] {
        let pod = case(title).render(&Observed::default()).unwrap().plan.workloads.remove(0).pod;
        let command = pod.containers[0].before_stop.clone().unwrap();
        let waits: i64 = command.last().unwrap().parse().unwrap();
        assert!(waits + 30 <= pod.grace_seconds, "{waits} of {} seconds", pod.grace_seconds);
    }
}

#[test]
fn the_startup_probe_fails_before_discovery_forms_another_cluster() {
    let plan = case("rabbitmq-minimal").render(&Observed::default()).unwrap().plan;
    let option = |name: &str| -> i32 {
        let line =
            plan.files["rabbitmq.conf"].text().unwrap().lines().find(|line| line.contains(name)).unwrap();
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    };
    let probe = plan.workloads[0].pod.containers[0].probes.startup.clone().unwrap();
    assert!(matches!(probe.check, Check::Connect { .. }));
    let seconds = option("discovery_retry_limit") * (option("discovery_retry_interval") / 1000);
    assert!(probe.failures * probe.period_seconds < seconds);
}
