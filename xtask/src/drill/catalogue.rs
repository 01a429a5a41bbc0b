//! All faults, in the order in which they run and in which the document lists them.

use anyhow::{Result, bail};

use super::fault::{Action, Api, Fault, Injection, Nodes, Quorum, Target, WITH_OPERATOR};

/// The faults of `--short`: the worst ones of the database, one of the message bus, and the loss of a node.
const SHORT: [&str; 4] = ["mariadb-all", "mariadb-two", "rabbitmq-0", "power-writer"];
/// The fault that stands for one fault per Secret.
const SECRETS: &str = "secrets";
/// The start of the name of a fault of one Secret.
const SECRET: &str = "secret-";
/// Ends of the names of Secrets that the operator cannot generate again: data or members depend on their values.
const IRREPLACEABLE: [&str; 2] = ["-keystone-credential", "-rabbitmq-cookie"];
/// Seconds that faults last which no condition ends.
const OUTAGE: u64 = 60;
/// Seconds of errors that the loss of any single member or node may cost.
const ONE: u32 = 30;
/// Seconds for which the API server does not answer.
const API_SERVER_OUTAGE: u64 = 180;

/// Every fault alone, then every fault during which the operator is killed.
pub(super) fn all() -> Vec<Fault> {
    let mut faults = alternate(Quorum::ALL.map(kills));
    faults.extend([1, 2, 3].map(|number| power(&format!("power-node{number}"), Nodes::Number(number))));
    faults.push(power("power-writer", Nodes::Writer));
    faults.extend([power_of_all(), drain_and_power(), partition()]);
    faults.extend(Quorum::ALL.map(volume));
    faults.extend([full_volume(), secrets(), api_server()]);
    let with_operator: Vec<Fault> = faults.iter().map(Fault::with_operator_killed).collect();
    faults.extend(with_operator);
    faults
}

/// The first of each, then the second of each, and so on: the kubelet delays the restart of a container that has crashed
/// within the last ten minutes, and the delay doubles with every crash.
fn alternate<const N: usize>(kinds: [Vec<Fault>; N]) -> Vec<Fault> {
    let mut kinds = kinds.map(Vec::into_iter);
    let mut faults = Vec::new();
    loop {
        let before = faults.len();
        faults.extend(kinds.iter_mut().filter_map(Iterator::next));
        if faults.len() == before {
            return faults;
        }
    }
}

/// The faults of these names, in the order of the catalogue; without names all of them.
pub(super) fn select(names: &[String]) -> Result<Vec<Fault>> {
    let all = all();
    if let Some(unknown) = names.iter().find(|name| !all.iter().any(|fault| fault.name == entry(name))) {
        bail!("there is no fault {unknown:?}: cargo xtask drill --list shows all");
    }
    let is_named = |fault: &Fault| names.is_empty() || names.iter().any(|name| entry(name) == fault.name);
    Ok(all.into_iter().filter(is_named).collect())
}

/// The name of the catalogue's entry for a fault: that of all Secrets for the fault of one.
pub(super) fn entry(name: &str) -> String {
    match name.strip_prefix(SECRET) {
        Some(_) if name.ends_with(WITH_OPERATOR) => format!("{SECRETS}{WITH_OPERATOR}"),
        Some(_) => SECRETS.to_owned(),
        None => name.to_owned(),
    }
}

pub(super) fn short() -> Result<Vec<Fault>> {
    select(&SHORT.map(ToOwned::to_owned))
}

/// Replaces the fault that stands for all Secrets by one for each Secret of the cloud, or for each that is named.
pub(super) fn expand(
    faults: Vec<Fault>,
    names: &[String],
    cloud: &str,
    secrets: &[String],
) -> Result<Vec<Fault>> {
    let mut expanded = Vec::new();
    for fault in faults {
        if fault.injection != Injection::EachSecret {
            expanded.push(fault);
            continue;
        }
        let every = names.is_empty() || names.contains(&fault.name);
        let each = secrets.iter().map(|name| secret(cloud, name));
        let each = each
            .map(|one| if fault.name.ends_with(WITH_OPERATOR) { one.with_operator_killed() } else { one });
        expanded.extend(each.filter(|fault| every || names.contains(&fault.name)));
    }
    let is_run = |name: &String| expanded.iter().any(|fault| fault.name == *name);
    let mut of_secrets = names.iter().filter(|name| name.starts_with(SECRET));
    if let Some(unknown) = of_secrets.find(|name| !is_run(name)) {
        bail!("there is no fault {unknown:?}: the cloud has the Secrets {}", secrets.join(", "));
    }
    Ok(expanded)
}

/// Seconds of errors, and seconds until Ready.
fn target(errors: u32, ready: u32) -> Target {
    Target { errors: Some(errors), ready }
}

/// Seconds until Ready after an outage that the fault itself ends.
fn target_after_outage(ready: u32) -> Target {
    Target { errors: None, ready }
}

/// SIGKILL of each member, of two, of all, and of all again when the first serves.
fn kills(quorum: Quorum) -> Vec<Fault> {
    let [one, two, all, again] = match quorum {
        Quorum::MariaDb => [target(ONE, 60), target(60, 180), target(60, 180), target(120, 300)],
        Quorum::RabbitMq => [target(ONE, 60), target(75, 180), target(120, 240), target(180, 300)],
        Quorum::Northbound | Quorum::Southbound => {
            [target(ONE, 60), target(ONE, 60), target(ONE, 60), target(60, 120)]
        }
    };
    let fault = |name: &str, summary: String, steps: Vec<Action>, target: Target| Fault {
        name: format!("{}-{name}", quorum.part()),
        summary,
        injection: Injection::Steps(steps),
        repair: Vec::new(),
        may_fail: quorum.users(),
        target,
        person: None,
    };
    let kill = |members: &'static [usize]| Action::Kill(quorum, members);
    let of = |which: &str| format!("SIGKILL of {which} of {quorum}");
    let one_of = |name: &str, members: &'static [usize]| {
        fault(name, of(&format!("member {name}")), vec![kill(members)], one)
    };
    let twice = vec![kill(&[0, 1, 2]), Action::AwaitFirstMember(quorum), kill(&[0, 1, 2])];
    vec![
        one_of("0", &[0]),
        one_of("1", &[1]),
        one_of("2", &[2]),
        fault("two", of("two of three members"), vec![kill(&[0, 1])], two),
        fault("all", of("all members"), vec![kill(&[0, 1, 2])], all),
        fault("twice", format!("{}, and again when the first serves", of("all members")), twice, again),
    ]
}

/// A node without power, until the others serve.
fn power(name: &str, nodes: Nodes) -> Fault {
    let which = match nodes {
        Nodes::Number(number) => format!("node{number}"),
        Nodes::Writer => "the node that the database is written on".to_owned(),
        Nodes::All => "all nodes".to_owned(),
    };
    Fault {
        name: name.to_owned(),
        summary: format!("power cut of {which}, until the other nodes serve"),
        injection: Injection::Steps(vec![Action::PowerOff(nodes), Action::AwaitLoss, Action::AwaitService]),
        repair: vec![Action::PowerOn],
        may_fail: &Api::ALL,
        target: target(ONE, 180),
        person: None,
    }
}

fn power_of_all() -> Fault {
    Fault {
        name: "power-all".to_owned(),
        summary: "power cut of all nodes for 15 s".to_owned(),
        injection: Injection::Steps(vec![Action::PowerOff(Nodes::All), Action::Hold(15)]),
        repair: vec![Action::PowerOn],
        may_fail: &Api::ALL,
        target: target_after_outage(300),
        person: None,
    }
}

fn drain_and_power() -> Fault {
    let steps = vec![Action::Drain(3), Action::PowerOff(Nodes::Number(2)), Action::Hold(OUTAGE)];
    Fault {
        name: "drain-and-power".to_owned(),
        summary: format!("drain of node3, then power cut of node2 for {OUTAGE} s"),
        injection: Injection::Steps(steps),
        repair: vec![Action::PowerOn, Action::Uncordon],
        may_fail: &Api::ALL,
        target: target_after_outage(300),
        person: Some("uncordons the drained node"),
    }
}

fn partition() -> Fault {
    Fault {
        name: "partition".to_owned(),
        summary: "node2 without network, until the other nodes serve".to_owned(),
        injection: Injection::Steps(vec![Action::Isolate(2), Action::AwaitLoss, Action::AwaitService]),
        repair: vec![Action::Rejoin],
        may_fail: &Api::ALL,
        target: target(ONE, 120),
        person: None,
    }
}

fn volume(quorum: Quorum) -> Fault {
    Fault {
        name: format!("volume-{}", quorum.part()),
        summary: format!("volume of one member of {quorum} deleted, with its pod"),
        injection: Injection::Steps(vec![Action::LoseVolume(quorum, 1)]),
        repair: Vec::new(),
        may_fail: quorum.users(),
        target: target(ONE, 120),
        person: None,
    }
}

fn full_volume() -> Fault {
    let (quorum, member) = (Quorum::MariaDb, 1);
    let steps =
        vec![Action::LimitVolume(quorum, member), Action::FillVolume(quorum, member), Action::Hold(OUTAGE)];
    Fault {
        name: "full-volume".to_owned(),
        summary: format!("small volume of one member of {quorum} full for {OUTAGE} s"),
        injection: Injection::Steps(steps),
        repair: vec![Action::RestoreVolume(quorum, member)],
        may_fail: quorum.users(),
        target: target(ONE, 120),
        person: Some("frees space or enlarges the volume"),
    }
}

fn secrets() -> Fault {
    Fault {
        name: SECRETS.to_owned(),
        summary: "every Secret of the cloud deleted, one after the other".to_owned(),
        injection: Injection::EachSecret,
        repair: Vec::new(),
        may_fail: &Api::ALL,
        target: target(30, 300),
        person: Some("restores what cannot be generated again"),
    }
}

fn secret(cloud: &str, name: &str) -> Fault {
    let short = name.strip_prefix(&format!("{cloud}-")).unwrap_or(name);
    let mut fault = Fault {
        name: format!("{SECRET}{short}"),
        summary: format!("Secret {short} of the cloud deleted"),
        injection: Injection::Steps(vec![Action::DeleteSecret(name.to_owned())]),
        person: None,
        ..secrets()
    };
    if IRREPLACEABLE.iter().any(|end| name.ends_with(end)) {
        let steps = vec![Action::DeleteSecret(name.to_owned()), Action::AwaitStalled];
        fault.injection = Injection::Steps(steps);
        fault.repair = vec![Action::RestoreSecret(name.to_owned())];
        fault.person = Some("restores the Secret");
    }
    fault
}

fn api_server() -> Fault {
    Fault {
        name: "api-server".to_owned(),
        summary: format!("API server of Kubernetes without an answer for {API_SERVER_OUTAGE} s"),
        injection: Injection::Steps(vec![Action::SuspendApiServer, Action::Hold(API_SERVER_OUTAGE)]),
        repair: vec![Action::ResumeApiServer],
        may_fail: &[],
        target: target(0, 60),
        person: None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn named(name: &str) -> Fault {
        let found = all().into_iter().find(|fault| fault.name == name);
        found.unwrap_or_else(|| panic!("{name} is not in the catalogue"))
    }

    #[test]
    fn names_of_faults_are_unique() {
        let all = all();
        let names: BTreeSet<&str> = all.iter().map(|fault| fault.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
    }

    #[test]
    fn faults_of_one_cluster_do_not_follow_each_other() {
        let kills: Vec<String> = all().into_iter().take(24).map(|fault| fault.name).collect();
        assert_eq!(&kills[..5], ["mariadb-0", "rabbitmq-0", "ovn-nb-0", "ovn-sb-0", "mariadb-1"]);
        assert_eq!(kills[23], "ovn-sb-twice");
    }

    #[test]
    fn every_kind_of_fault_is_in_the_catalogue() {
        for part in ["mariadb", "rabbitmq", "ovn-nb", "ovn-sb"] {
            for which in ["0", "1", "2", "two", "all", "twice"] {
                named(&format!("{part}-{which}"));
            }
            named(&format!("volume-{part}"));
        }
        for name in ["power-node1", "power-node2", "power-node3", "power-writer", "power-all"] {
            named(name);
        }
        for name in ["drain-and-power", "partition", "full-volume", "secrets", "api-server"] {
            named(name);
        }
    }

    #[test]
    fn the_operator_is_killed_during_every_fault_that_can_be_injected() {
        let all = all();
        let (with, without): (Vec<_>, Vec<_>) =
            all.iter().partition(|fault| fault.name.ends_with(WITH_OPERATOR));
        assert_eq!(with.len(), without.len());
        for fault in with.iter().filter(|fault| !fault.steps().is_empty()) {
            assert!(fault.steps().contains(&Action::KillOperator), "{}", fault.name);
        }
    }

    #[test]
    fn a_fault_that_lasts_has_a_repair() {
        let lasts = |action: &Action| {
            matches!(
                action,
                Action::PowerOff(_)
                    | Action::Isolate(_)
                    | Action::Drain(_)
                    | Action::SuspendApiServer
                    | Action::FillVolume(..)
            )
        };
        for fault in all().iter().filter(|fault| fault.steps().iter().any(lasts)) {
            assert!(!fault.repair.is_empty(), "{}", fault.name);
        }
    }

    #[test]
    fn all_members_are_killed_again_when_the_first_serves() {
        let steps = named("mariadb-twice").injection;
        let kill = Action::Kill(Quorum::MariaDb, &[0, 1, 2]);
        let expected = vec![kill.clone(), Action::AwaitFirstMember(Quorum::MariaDb), kill];
        assert_eq!(steps, Injection::Steps(expected));
    }

    #[test]
    fn every_secret_of_the_cloud_is_a_fault_of_its_own() -> Result<()> {
        let secrets = ["cloud-keystone-admin".to_owned(), "cloud-keystone-credential".to_owned()];
        let names = ["secrets".to_owned(), "secrets+operator".to_owned(), "api-server".to_owned()];
        let faults = expand(select(&names)?, &names, "cloud", &secrets)?;
        let names: Vec<&str> = faults.iter().map(|fault| fault.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "secret-keystone-admin",
                "secret-keystone-credential",
                "api-server",
                "secret-keystone-admin+operator",
                "secret-keystone-credential+operator"
            ]
        );
        assert_eq!(faults[0].steps(), [Action::DeleteSecret("cloud-keystone-admin".to_owned())]);
        assert_eq!((&faults[0].repair, faults[0].person), (&Vec::new(), None));
        Ok(())
    }

    #[test]
    fn the_fault_of_one_secret_can_be_selected() -> Result<()> {
        let secrets = ["cloud-keystone-admin".to_owned(), "cloud-nova-database".to_owned()];
        let names = ["secret-nova-database+operator".to_owned()];
        let faults = expand(select(&names)?, &names, "cloud", &secrets)?;
        assert_eq!(faults.iter().map(|fault| &fault.name).collect::<Vec<_>>(), [&names[0]]);
        let missing = ["secret-swift".to_owned()];
        let error = expand(select(&missing)?, &missing, "cloud", &secrets).err();
        assert!(error.is_some_and(|error| error.to_string().contains("cloud-nova-database")));
        Ok(())
    }

    #[test]
    fn an_irreplaceable_secret_is_reported_and_then_restored() {
        let fault = secret("cloud", "cloud-keystone-credential");
        assert_eq!(fault.steps().last(), Some(&Action::AwaitStalled));
        assert_eq!(fault.repair, [Action::RestoreSecret("cloud-keystone-credential".to_owned())]);
        assert!(fault.person.is_some());
    }

    #[test]
    fn the_short_selection_exists_and_an_unknown_name_is_rejected() -> Result<()> {
        assert_eq!(short()?.len(), SHORT.len());
        let unknown = select(&["earthquake".to_owned()]).err().map(|error| error.to_string());
        assert!(unknown.is_some_and(|text| text.contains("\"earthquake\": cargo xtask drill --list")));
        Ok(())
    }
}
