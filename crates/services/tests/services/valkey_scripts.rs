//! Scripts of a Valkey member: which server is the primary at a start, and what happens beside the servers.

use std::process::Output;

use crate::scripts::{Sandbox, errors};

const DATA: &str = "var/lib/valkey/appendonlydir/log";
const STATE: &str = "var/lib/valkey/sentinel.state";
/// SHA-256 of `s3cret` and `an0ther`.
const DIGEST: &str = "1ec1c26b50d5d3c58d9583181af8076655fe00756bf7285940ba3670f99fcba0";
const ANOTHER: &str = "5a89eeaaaf204d72f7efd266d9dd6eba00f00f7bd913b453a3016c8862998df5";

/// Answers for Sentinels with the epoch and the primary in `sentinels/HOST`, and as a server with `info`. Records commands of the
/// administrator, and answers them with `answer`.
const CLIENT: &str = r#"
host=127.0.0.1
last=
for word; do case $last in -h) host=$word ;; esac; last=$word; done
case "$*" in
*"SENTINEL MASTER"*)
    [ -e "$root/sentinels/$host" ] || exit 1
    read -r epoch primary <"$root/sentinels/$host"
    printf 'name\ntest\nip\n%s\nport\n6379\nconfig-epoch\n%s\n' "$primary" "$epoch" ;;
*get-master-addr-by-name*) cat "$root/elected" ;;
*"INFO replication"*) cat "$root/info" ;;
*)
    echo "$REDISCLI_AUTH@$host $*" >>"$root/calls"
    while read -r line; do
        echo "$line" >>"$root/commands"
        cat "$root/answer" 2>/dev/null || echo OK
    done ;;
esac"#;

/// Member of three that has served. The addresses of Services end with the ordinals of their pods.
fn member(name: &str) -> Sandbox {
    let sandbox = Sandbox::new(&format!("valkey-{name}"), "valkey-rich");
    sandbox.write("etc/podinfo/annotations", "");
    sandbox.write("etc/openstack/password/password", "s3cret");
    sandbox.write("etc/openstack/administrator/password", "adm1n");
    sandbox.write("etc/openstack/live/formed", "yes");
    sandbox.write("etc/openstack/live/removals", "0");
    sandbox.write("sentinels/none", "");
    sandbox.program("getent", r#"name=${2%%.*}; echo "10.0.0.${name##*-} STREAM $2""#);
    sandbox.program("valkey-cli", CLIENT);
    sandbox.program("valkey-server", r#"cat "$1" >"$root/started""#);
    sandbox.program(
        "valkey-sentinel",
        r#"cat "$1" >"$root/started"; cat "$root/learned" >>"$1" 2>/dev/null || :"#,
    );
    // Ends loops that would wait in vain.
    sandbox.program("sleep", "echo >>$root/slept; [ $(wc -l <$root/slept) -lt 9 ] || kill $PPID");
    sandbox
}

fn run(sandbox: &Sandbox, script: &str, mode: &str, number: usize) -> Output {
    let members: Vec<String> =
        (0..3).map(|number| format!("test-{number}.openstack.svc.cluster.local")).collect();
    let (pod, members) = (format!("test-{number}"), members.join(" "));
    let variables = [
        ("POD_NAME", pod.as_str()),
        ("POD_NAMESPACE", "openstack"),
        ("POD_UID", "uid"),
        ("MODE", mode),
        ("MEMBERS", &members),
        ("PRIMARY", "test"),
    ];
    let _ = std::fs::remove_file(sandbox.path("slept"));
    let output = sandbox.run(script, &["5"], &variables);
    for secret in ["s3cret", "adm1n", "an0ther"] {
        assert!(!errors(&output).contains(secret), "{}", errors(&output));
    }
    output
}

/// Number of the member that the server follows; its own if it is the primary, none if it has not started.
fn start(sandbox: &Sandbox, number: usize) -> Option<usize> {
    let _ = std::fs::remove_file(sandbox.path("started"));
    let output = run(sandbox, "start.sh", "sentinel", number);
    let settings = sandbox.read("started");
    if settings.is_empty() {
        assert!(!sandbox.has("run/valkey/primary"), "its Sentinel waits too");
        return None;
    }
    assert!(
        settings.contains(&format!("replica-announce-ip 10.0.0.{number}\n")),
        "{settings}{}",
        errors(&output)
    );
    let address = |line: &str| line.strip_prefix("replicaof 10.0.0.")?.strip_suffix(" 6379")?.parse().ok();
    let primary = settings.lines().find_map(address).unwrap_or(number);
    assert_eq!(sandbox.read("run/valkey/primary"), format!("10.0.0.{primary}"));
    Some(primary)
}

/// The Sentinel of a member answers.
fn answers(sandbox: &Sandbox, number: usize, epoch: u32, primary: usize) {
    let host = format!("sentinels/test-{number}.openstack.svc.cluster.local");
    sandbox.write(&host, &format!("{epoch} 10.0.0.{primary}\n"));
}

fn knows(sandbox: &Sandbox, epoch: u32, primary: usize) {
    let state =
        format!("sentinel monitor test 10.0.0.{primary} 6379 2\nsentinel config-epoch test {epoch}\n");
    sandbox.write(STATE, &state);
}

#[test]
fn only_the_first_member_of_a_new_cluster_starts_as_primary() {
    for (number, expected) in [(0, Some(0)), (1, None), (2, None)] {
        let sandbox = member(&format!("new-{number}"));
        sandbox.write("etc/openstack/live/formed", "no");
        assert_eq!(start(&sandbox, number), expected);
    }
}

#[test]
fn a_member_without_data_waits_for_another_primary_unless_it_is_instructed() {
    for number in 0..3 {
        let sandbox = member(&format!("empty-{number}"));
        assert_eq!(start(&sandbox, number), None);
        let other = (number + 1) % 3;
        answers(&sandbox, other, 4, number);
        assert_eq!(start(&sandbox, number), None, "the others would copy its empty data");
        answers(&sandbox, other, 5, other);
        assert_eq!(start(&sandbox, number), Some(other));
    }
    let sandbox = member("instructed");
    sandbox.write("etc/podinfo/annotations", "openstack.k8s.io/valkey-order=\"form/former\"\n");
    assert_eq!(start(&sandbox, 1), None, "the instruction is for another pod");
    sandbox.write("etc/podinfo/annotations", "openstack.k8s.io/valkey-order=\"form/uid\"\n");
    assert_eq!(start(&sandbox, 1), Some(1));
}

#[test]
fn the_newest_knowledge_of_a_primary_counts() {
    let sandbox = member("newest");
    sandbox.write(DATA, "");
    knows(&sandbox, 7, 2);
    assert_eq!(start(&sandbox, 2), Some(2), "no other member answers");
    answers(&sandbox, 0, 6, 0);
    assert_eq!(start(&sandbox, 2), Some(2));
    answers(&sandbox, 1, 10, 1);
    assert_eq!(start(&sandbox, 2), Some(1));
}

#[test]
fn a_member_with_data_and_without_knowledge_is_the_primary_only_if_it_is_the_first() {
    for (number, expected) in [(0, Some(0)), (1, None)] {
        let sandbox = member(&format!("grown-{number}"));
        sandbox.write(DATA, "");
        assert_eq!(start(&sandbox, number), expected);
    }
}

#[test]
fn a_single_server_starts_without_sentinels() {
    let sandbox = member("single");
    knows(&sandbox, 7, 2);
    assert!(run(&sandbox, "report.sh", "single", 0).status.success());
    assert!(!sandbox.has(STATE), "members that are added later are others");
    run(&sandbox, "start.sh", "single", 0);
    let settings = sandbox.read("started");
    assert!(settings.contains("appendonly yes\n") && !settings.contains("replica"), "{settings}");
}

#[test]
fn the_volume_of_a_removed_member_is_not_used_again() {
    for (number, removals, kept) in [(1, "0", true), (1, "1", false), (0, "1", true)] {
        let sandbox = member(&format!("removed-{number}-{removals}"));
        sandbox.write("etc/openstack/live/removals", removals);
        sandbox.write("var/lib/valkey/removals", "0");
        sandbox.write(DATA, "");
        knows(&sandbox, 3, 1);
        assert!(run(&sandbox, "report.sh", "sentinel", number).status.success());
        assert_eq!((sandbox.has(DATA), sandbox.has(STATE)), (kept, kept), "{number} {removals}");
        let report = if kept { "{\"state\":\"data\"}\n" } else { "{\"state\":\"empty\"}\n" };
        assert_eq!(sandbox.read("dev/termination-log"), report);
    }
}

#[test]
fn settings_contain_digests_of_the_passwords_and_any_character() {
    let sandbox = member("passwords");
    sandbox.write("etc/openstack/live/formed", "no");
    assert_eq!(start(&sandbox, 0), Some(0));
    let settings = sandbox.read("started");
    let user = format!("user default on #{DIGEST} ~* &* +@all -@admin -flushall -flushdb -swapdb\n");
    assert!(settings.contains(&user), "{settings}");
    assert!(!settings.contains("s3cret") && settings.contains("user probe on nopass -@all +ping +info\n"));
    sandbox.write("etc/openstack/administrator/password", "a\" b");
    assert_eq!(start(&sandbox, 0), Some(0));
    let settings = sandbox.read("started");
    assert!(settings.contains("primaryauth \"\\x61\\x22\\x20\\x62\"\n"), "{settings}");
}

#[test]
fn a_changed_password_is_added_to_the_former_one() {
    let sandbox = member("changed");
    sandbox.write("etc/openstack/live/formed", "no");
    // The password changes while the server starts.
    let change = r#"cat "$1" >"$root/started"; printf an0ther >"$root/etc/openstack/password/password""#;
    sandbox.program("valkey-server", change);
    start(&sandbox, 0);
    let commands = sandbox.read("commands");
    assert!(commands.starts_with(&format!("ACL SETUSER default #{ANOTHER}\n")), "{commands}");
    assert!(!sandbox.read("calls").contains("an0ther"), "it is not an argument");
    assert_eq!(sandbox.read("calls").lines().count(), 1, "it is set once");
    assert!(sandbox.read("calls").starts_with("adm1n@127.0.0.1 "));
}

#[test]
fn a_password_that_the_server_refuses_is_set_again() {
    let sandbox = member("refused");
    sandbox.write("etc/openstack/live/formed", "no");
    sandbox.write("answer", "ERR unknown an0ther\n");
    let change = r#"cat "$1" >"$root/started"; printf an0ther >"$root/etc/openstack/password/password""#;
    sandbox.program("valkey-server", change);
    let output = run(&sandbox, "start.sh", "sentinel", 0);
    assert!(sandbox.read("calls").lines().count() > 1);
    assert!(errors(&output).contains("the answer is ERR"), "{}", errors(&output));
}

/// The settings with which a Sentinel starts.
fn sentinel(sandbox: &Sandbox) -> String {
    run(sandbox, "sentinel.sh", "sentinel", 1);
    sandbox.read("started")
}

#[test]
fn a_sentinel_waits_for_its_server_and_continues_with_what_it_knew() {
    let sandbox = member("sentinel");
    assert_eq!(sentinel(&sandbox), "", "the server has not decided");
    sandbox.write("run/valkey/primary", "10.0.0.0");
    let first = sentinel(&sandbox);
    for line in ["sentinel monitor test 10.0.0.0 6379 2\n", "sentinel announce-ip 10.0.0.1\n", "port 26379\n"]
    {
        assert!(first.contains(line), "{first}");
    }
    sandbox.write(STATE, "sentinel monitor test 10.0.0.2 6379 2\nsentinel config-epoch test 9\n");
    let later = sentinel(&sandbox);
    assert!(later.contains("sentinel monitor test 10.0.0.2 6379 2\n"), "{later}");
    assert!(!later.contains("10.0.0.0 "), "its own knowledge is as new as that of the others: {later}");
    let monitor = later.find("sentinel monitor").unwrap();
    let epoch = later.find("sentinel config-epoch test 9").unwrap();
    assert!(monitor < epoch && later.find("sentinel auth-pass").unwrap() > monitor, "{later}");
    let identity =
        |settings: &str| settings.lines().find(|line| line.starts_with("sentinel myid")).map(str::to_owned);
    assert_eq!(identity(&first), identity(&later), "a lost volume does not change it");
}

#[test]
fn the_volume_gets_what_a_sentinel_learns_and_no_password() {
    let sandbox = member("learned");
    sandbox.write("run/valkey/primary", "10.0.0.0");
    let learned =
        "sentinel known-sentinel test 10.0.0.2 26379 abc\nsentinel current-epoch 4\nuser default on #123\n";
    sandbox.write("learned", learned);
    sentinel(&sandbox);
    let kept = "sentinel monitor test 10.0.0.0 6379 2\nsentinel known-sentinel test 10.0.0.2 26379 abc\n\
                sentinel current-epoch 4\n";
    assert_eq!(sandbox.read(STATE), kept);
}

#[test]
fn a_primary_hands_over_before_it_stops() {
    let sandbox = member("stop");
    sandbox.write("info", "role:master\r\n");
    sandbox.write("elected", "10.0.0.1\n6379\n");
    assert!(run(&sandbox, "stop.sh", "sentinel", 0).status.success());
    assert_eq!(sandbox.read("commands"), "CLIENT PAUSE 5000 WRITE\nSENTINEL FAILOVER test\n");
    let calls = sandbox.read("calls");
    assert!(calls.lines().last().unwrap().starts_with("adm1n@test-1."), "{calls}");
}

#[test]
fn a_replica_and_a_single_server_stop_at_once() {
    for (name, mode, role) in
        [("replica", "sentinel", "role:slave\r\n"), ("alone", "single", "role:master\r\n")]
    {
        let sandbox = member(name);
        sandbox.write("info", role);
        assert!(run(&sandbox, "stop.sh", mode, 0).status.success(), "{name}");
        assert!(!sandbox.has("commands"), "{name}");
    }
}

#[test]
fn a_sentinel_that_refuses_is_followed_by_the_next() {
    let sandbox = member("busy");
    sandbox.write("info", "role:master\r\n");
    sandbox.write("answer", "INPROG Failover already in progress\n");
    // The pause is not the handover.
    let pausing = CLIENT
        .replace("cat \"$root/answer\"", "[ \"$host\" = 127.0.0.1 ] && echo OK || cat \"$root/answer\"");
    sandbox.program("valkey-cli", &pausing);
    let output = run(&sandbox, "stop.sh", "sentinel", 0);
    assert!(output.status.success(), "the server stops all the same");
    assert_eq!(sandbox.read("commands").matches("SENTINEL FAILOVER").count(), 2);
    assert!(errors(&output).contains("no other member takes over"), "{}", errors(&output));
}

#[test]
fn a_server_is_ready_as_primary_or_while_it_follows_one() {
    let sandbox = member("check");
    for (info, ready) in [
        ("role:master\r\nconnected_slaves:0\r\n", true),
        ("role:slave\r\nmaster_link_status:up\r\n", true),
        ("role:slave\r\nmaster_link_status:down\r\n", false),
        ("LOADING the server loads the data\n", false),
    ] {
        sandbox.write("info", info);
        assert_eq!(run(&sandbox, "check.sh", "sentinel", 0).status.success(), ready, "{info}");
    }
}
