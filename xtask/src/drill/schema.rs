//! Schemas of the database's members: a member that missed a change of the schema differs from the others for good.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail};

use super::fault::Quorum;
use super::view::{MEMBERS, View};
use crate::cloud::NAMESPACE;
use crate::command::output;

/// Lists columns and indexes, after the member has applied what the others have committed. Galera does not replicate
/// changes of the server's own databases.
const QUERY: &str = "SET SESSION wsrep_sync_wait = 1; \
    SELECT CONCAT(table_schema, '.', table_name, '.', column_name, ' ', column_type, ' ', is_nullable) \
    FROM information_schema.columns \
    WHERE table_schema NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys') \
    UNION SELECT CONCAT(table_schema, '.', table_name, ' index ', index_name, ' ', seq_in_index, ' ', column_name) \
    FROM information_schema.statistics \
    WHERE table_schema NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys')";
/// The client reads the socket and the user from the settings of the server.
const CLIENT: [&str; 5] =
    ["mariadb", "--defaults-file=/etc/openstack/mariadb.cnf", "--batch", "--skip-column-names", "--execute"];
/// How many differences are listed.
const LISTED: usize = 5;

/// Columns and indexes, one per line of the answer.
type Schema = BTreeSet<String>;

/// Fails if the members of the database differ before the first fault.
pub(super) fn require_equal(view: &View) -> Result<()> {
    match difference(view)? {
        Some(difference) => bail!("{difference}: delete the volume of the wrong member and its pod"),
        None => Ok(()),
    }
}

/// How the schemas of the members differ; none if they are equal.
pub(super) fn difference(view: &View) -> Result<Option<String>> {
    let pods = (0..MEMBERS).map(|member| Quorum::MariaDb.pod(&view.cloud, member));
    let schemas: Result<Vec<_>> = pods.map(|pod| schema(view, &pod).map(|schema| (pod, schema))).collect();
    Ok(compare(&schemas?))
}

fn schema(view: &View, pod: &str) -> Result<Schema> {
    let mut command = view.kubectl.command();
    command.args(["--namespace", NAMESPACE, "exec", "--quiet", pod, "--container=mariadb", "--"]);
    let answer = output(command.args(CLIENT).arg(QUERY));
    let answer = answer.with_context(|| format!("failed to read the schema of {pod}"))?;
    let schema: Schema = answer.lines().map(ToOwned::to_owned).collect();
    if schema.is_empty() {
        bail!("{pod} lists no columns");
    }
    Ok(schema)
}

/// Compares all members with the first.
fn compare(schemas: &[(String, Schema)]) -> Option<String> {
    let ((first, expected), others) = schemas.split_first()?;
    let differences: Vec<String> = others
        .iter()
        .filter(|(_, found)| found != expected)
        .map(|(pod, found)| {
            let missing = list("without", expected.difference(found));
            let additional = list("with", found.difference(expected));
            let parts: Vec<String> = missing.into_iter().chain(additional).collect();
            format!("the schema of {pod} differs from that of {first}: {}", parts.join("; "))
        })
        .collect();
    (!differences.is_empty()).then(|| differences.join("\n"))
}

/// The first lines and the number of the others; none without lines.
fn list<'a>(relation: &str, lines: impl Iterator<Item = &'a String>) -> Option<String> {
    let lines: Vec<&str> = lines.map(String::as_str).collect();
    let (shown, hidden) = lines.split_at(lines.len().min(LISTED));
    let rest = if hidden.is_empty() { String::new() } else { format!(" and {} more", hidden.len()) };
    (!shown.is_empty()).then(|| format!("{relation} {}{rest}", shown.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(number: usize, lines: &[&str]) -> (String, Schema) {
        (format!("cloud-mariadb-{number}"), lines.iter().map(|line| (*line).to_owned()).collect())
    }

    #[test]
    fn equal_schemas_are_no_difference() {
        let members = [member(0, &["a.t.x int", "a.t.y int"]), member(1, &["a.t.y int", "a.t.x int"])];
        assert_eq!(compare(&members), None);
    }

    #[test]
    fn a_member_that_missed_a_change_is_named_with_the_change() {
        let renamed = ["neutron.ports.id", "neutron.ports.project_id"];
        let members = [
            member(0, &renamed),
            member(1, &["neutron.ports.id", "neutron.ports.tenant_id"]),
            member(2, &renamed),
        ];
        assert_eq!(
            compare(&members).as_deref(),
            Some(
                "the schema of cloud-mariadb-1 differs from that of cloud-mariadb-0: without \
                 neutron.ports.project_id; with neutron.ports.tenant_id"
            )
        );
    }

    #[test]
    fn a_long_list_is_cut_and_has_its_length() {
        let columns: Vec<String> =
            (0..135).map(|number| format!("neutron.table{number:03}.project_id")).collect();
        let expected: Vec<&str> = columns.iter().map(String::as_str).collect();
        let text = compare(&[member(0, &expected), member(1, &expected[..1])]).unwrap_or_default();
        assert!(
            text.ends_with("neutron.table004.project_id, neutron.table005.project_id and 129 more"),
            "{text}"
        );
    }
}
