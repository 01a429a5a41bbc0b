//! The examples that the project was asked for are accepted as they are written.

use openstack_operator_services::of_kind;
use openstack_operator_testkit::examples;

use super::*;

#[test]
#[expect(clippy::print_stderr, reason = "a skipped test must be visible")]
fn examples_are_accepted_as_they_are_written() {
    let examples = examples();
    if examples.is_empty() {
        eprintln!("the documents with the examples are not beside the repository: nothing is checked");
    }
    let mut rejected = Vec::new();
    for object in &examples {
        let kind = object["kind"].as_str().unwrap();
        let problems = check(&of(of_kind(kind).unwrap()), object, None);
        rejected.extend(problems.iter().map(|problem| format!("{kind}: {problem}")));
    }
    assert!(rejected.is_empty(), "{}", rejected.join("\n"));
}
