//! Golden files: all manifests and Secrets of all cases. A changed golden file is a change for every user.

use std::collections::BTreeMap;
use std::fmt::Write;

use openstack_operator_model::lower::{Observed, SecretFacts};
use openstack_operator_testkit::documents;

use crate::fixture::{Case, case, cases, gadget};

fn check(title: &str, case: &Case, observed: &Observed) {
    let rendered = case.render(observed).unwrap();
    let bodies: Vec<_> = rendered.manifests.into_iter().map(|manifest| manifest.body).collect();
    let mut text = documents(&bodies);
    for secret in &rendered.plan.secrets {
        writeln!(text, "---\n{secret:#?}").unwrap();
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(title, text));
}

#[test]
fn every_case_is_lowered_to_its_golden() {
    for case in cases() {
        check(&case.title, &case, &Observed::default());
    }
}

#[test]
fn elements_that_few_services_need_are_lowered_to_their_golden() {
    check("gadget", &gadget(), &Observed::default());
}

#[test]
fn an_upgrade_after_a_rotation_is_lowered_to_its_golden() {
    let rotated = |rotations| SecretFacts { revision: "0123456789".to_owned(), rotations };
    let observed = Observed {
        installed: Some("registry.example.com/openstack/keystone:1.1".to_owned()),
        secrets: BTreeMap::from([
            ("test-admin".to_owned(), rotated(0)),
            ("test-database".to_owned(), rotated(0)),
            ("test-credential".to_owned(), rotated(2)),
            ("test-fernet".to_owned(), rotated(7)),
        ]),
        ..Observed::default()
    };
    check("keystone-upgrade", &case("keystone-rich"), &observed);
}
