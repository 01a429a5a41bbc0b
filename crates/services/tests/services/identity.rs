//! Invariants of entries in the identity service.

use std::collections::BTreeSet;

use openstack_operator_model::plan::{Catalog, Domain, GrantTarget};

use crate::fixture::rendered;

/// Otherwise the registration would wait forever for a role, project or domain that nothing creates.
#[test]
fn users_refer_only_to_domains_projects_and_roles_of_their_catalog() {
    let mut checked = 0;
    for (case, rendered) in rendered() {
        let Some(Catalog { domains, projects, roles, service_roles, users, .. }) = &rendered.plan.catalog
        else {
            continue;
        };
        let has_domain = |wanted: &Domain| {
            wanted.name().is_none_or(|name| domains.iter().any(|domain| domain.name == name))
        };
        for user in users {
            assert!(has_domain(&user.domain), "{}: {user:?}", case.title);
            for grant in &user.grants {
                assert!([roles, service_roles].iter().any(|all| all.contains(&grant.role)), "{grant:?}");
                let is_known = match &grant.on {
                    GrantTarget::Domain(domain) => has_domain(domain),
                    GrantTarget::Project(project) => projects.contains(project),
                };
                assert!(is_known, "{}: {grant:?}", case.title);
                checked += 1;
            }
        }
    }
    assert!(checked > 0);
}

#[test]
fn names_in_a_catalog_are_unique() {
    for (case, rendered) in rendered() {
        let Some(catalog) = &rendered.plan.catalog else { continue };
        let mut names = BTreeSet::new();
        let users = catalog.users.iter().map(|user| format!("user {} of {:?}", user.name, user.domain));
        let services = catalog.services.iter().map(|service| format!("service {}", service.service_type));
        let domains = catalog.domains.iter().map(|domain| format!("domain {}", domain.name));
        let roles = catalog.roles.iter().chain(&catalog.service_roles).map(|role| format!("role {role}"));
        for name in users.chain(services).chain(domains).chain(roles) {
            assert!(names.insert(name.clone()), "{}: {name}", case.title);
        }
    }
}
