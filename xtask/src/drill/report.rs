//! The table of the document, and the results in the format of the test layers.

use std::fmt::Write as _;

use super::catalogue;
use super::fault::Fault;
use super::measure::Row;

const HEADER: &str = "| fault | Keystone | Neutron | Nova | Glance | Placement | target | Ready after | target \
                      | missing writes | instances | person |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n";

/// The table with these rows instead of those that it has for the same faults, in the order of the catalogue.
pub(super) fn table(before: &str, rows: &[String]) -> String {
    let mut all: Vec<&str> = before.lines().filter(|line| is_row(line)).collect();
    all.retain(|line| !rows.iter().any(|row| fault_of(row) == fault_of(line)));
    all.extend(rows.iter().map(String::as_str));
    let order: Vec<String> = catalogue::all().into_iter().map(|fault| fault.name).collect();
    let rank = |line: &str| {
        let name = fault_of(line).unwrap_or_default();
        let entry = catalogue::entry(name);
        (order.iter().position(|known| *known == entry).unwrap_or(order.len()), name.to_owned())
    };
    all.sort_by_key(|line| rank(line));
    all.into_iter().fold(HEADER.to_owned(), |mut table, line| {
        // Writing to a String cannot fail.
        let _ = writeln!(table, "{line}");
        table
    })
}

/// Whether a line is a row with a fault, not the header.
fn is_row(line: &str) -> bool {
    fault_of(line).is_some()
}

/// The fault of a row: the name between backticks in its first cell.
fn fault_of(line: &str) -> Option<&str> {
    line.strip_prefix("| `")?.split('`').next()
}

/// The row of a fault that has run.
pub(super) fn row(fault: &Fault, row: &Row) -> String {
    let mut text = format!("| `{}` |", row.fault);
    for (api, seconds) in row.errors {
        // Errors of an API that the fault must not reach stand out.
        let mark = if seconds > 0.0 && !fault.may_fail.contains(&api) { "**" } else { "" };
        let _ = write!(text, " {mark}{}{mark} |", whole(seconds));
    }
    let target = fault.target.errors.map_or_else(|| "-".to_owned(), |seconds| seconds.to_string());
    let ready = row.ready.map_or_else(|| "**never**".to_owned(), whole);
    let missing = match (row.ready, row.missing) {
        (None, _) => "not read".to_owned(),
        (_, 0) => format!("0 of {}", row.acknowledged),
        (_, missing) => format!("**{missing}** of {}", row.acknowledged),
    };
    let _ = write!(text, " {target} | {ready} | {} | {missing} |", fault.target.ready);
    let instances = match row.stopped.len() {
        0 if row.silence < 1.0 => "answer".to_owned(),
        0 => format!("silent for {}", whole(row.silence)),
        stopped => format!("**{stopped} stopped**"),
    };
    let _ = write!(text, " {instances} | {} |", fault.person.unwrap_or_default());
    text
}

fn whole(seconds: f64) -> String {
    format!("{seconds:.0}")
}

/// The results of all faults as cargo's test runner prints them.
pub(super) fn results(rows: &[Row], seconds: f64) -> String {
    let mut text = String::new();
    for row in rows {
        let verdict = if row.failures.is_empty() { "ok" } else { "FAILED" };
        let _ = writeln!(text, "test drill::{} ... {verdict} ({:.1} s)", row.fault, row.seconds);
    }
    let failed: Vec<&Row> = rows.iter().filter(|row| !row.failures.is_empty()).collect();
    if !failed.is_empty() {
        text.push_str("\nfailures:\n\n");
        for row in &failed {
            let _ = writeln!(text, "---- drill::{} ----\n{}\n", row.fault, row.failures.join("\n"));
        }
    }
    let verdict = if failed.is_empty() { "ok" } else { "FAILED" };
    let passed = rows.len() - failed.len();
    let _ = write!(
        text,
        "\ntest result: {verdict}. {passed} passed; {} failed; finished in {seconds:.2}s",
        failed.len()
    );
    text
}

/// The faults with what they do and whether a person is needed.
pub(super) fn list(faults: &[Fault]) -> String {
    let mut text = String::new();
    for fault in faults {
        let remark = fault.person.map(|person| format!("; a person {person}")).unwrap_or_default();
        let _ = writeln!(text, "{:<26} {}{remark}", fault.name, fault.summary);
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::fault::Api;
    use super::*;

    fn fault(name: &str) -> Fault {
        let found = catalogue::all().into_iter().find(|fault| fault.name == name);
        found.unwrap_or_else(|| panic!("{name} is not in the catalogue"))
    }

    fn measured(name: &str) -> Row {
        Row {
            fault: name.to_owned(),
            errors: Api::ALL.map(|api| (api, if api == Api::Glance { 3.4 } else { 0.0 })),
            ready: Some(41.7),
            acknowledged: 120,
            missing: 0,
            stopped: Vec::new(),
            silence: 0.2,
            failures: Vec::new(),
            seconds: 61.26,
        }
    }

    #[test]
    fn a_row_has_the_figures_and_the_targets() {
        assert_eq!(
            row(&fault("mariadb-all"), &measured("mariadb-all")),
            "| `mariadb-all` | 0 | 0 | 0 | 3 | 0 | 60 | 42 | 180 | 0 of 120 | answer |  |"
        );
        let columns = HEADER.lines().next().map(|line| line.matches('|').count());
        let found = row(&fault("mariadb-all"), &measured("mariadb-all"));
        assert_eq!(Some(found.matches('|').count()), columns);
    }

    #[test]
    fn unexpected_errors_missing_writes_and_stopped_instances_stand_out() {
        let measured = Row {
            ready: None,
            silence: 90.0,
            stopped: vec!["observed-1".to_owned()],
            ..measured("ovn-nb-0")
        };
        let text = row(&fault("ovn-nb-0"), &measured);
        assert!(text.contains("| **3** |"), "Glance does not use OVN: {text}");
        assert!(text.contains("| **never** |") && text.contains("| not read |"), "{text}");
        assert!(text.contains("| **1 stopped** |"), "{text}");
        let measured = Row { missing: 2, silence: 7.0, ..self::measured("ovn-nb-0") };
        let text = row(&fault("ovn-nb-0"), &measured);
        assert!(text.contains("| **2** of 120 | silent for 7 |"), "{text}");
    }

    #[test]
    fn new_rows_replace_those_of_the_same_fault_and_keep_the_order_of_the_catalogue() {
        let before = format!("{HEADER}| `mariadb-0` | old |\n| `api-server` | kept |\n");
        let rows = ["| `secret-b` | new |", "| `mariadb-0` | new |", "| `secret-a` | new |"];
        let table = table(&before, &rows.map(ToOwned::to_owned));
        let expected =
            "| `mariadb-0` | new |\n| `secret-a` | new |\n| `secret-b` | new |\n| `api-server` | kept |\n";
        assert_eq!(table, format!("{HEADER}{expected}"));
    }

    #[test]
    fn results_have_the_format_of_cargos_test_runner() {
        let failed = Row { failures: vec!["2 writes are missing".to_owned()], ..measured("rabbitmq-0") };
        let text = results(&[measured("mariadb-0"), failed], 130.0);
        assert_eq!(
            text,
            "test drill::mariadb-0 ... ok (61.3 s)\ntest drill::rabbitmq-0 ... FAILED (61.3 s)\n\nfailures:\n\n\
             ---- drill::rabbitmq-0 ----\n2 writes are missing\n\n\n\
             test result: FAILED. 1 passed; 1 failed; finished in 130.00s"
        );
        assert!(results(&[measured("mariadb-0")], 1.0).contains("test result: ok. 1 passed; 0 failed;"));
    }

    #[test]
    fn the_list_names_faults_that_need_a_person() {
        let text = list(&catalogue::all());
        assert!(text.contains("drain-and-power            drain of node3"), "{text}");
        assert!(text.contains("; a person uncordons the drained node"), "{text}");
    }
}
