//! Domains, users in them, and roles of services.

use openstack_operator_engine::ports::IdentityDomainEntry;

use super::*;

/// A domain with an administrator who has no project, and two roles of a service.
fn domain_entries() -> IdentityEntries {
    let stacks = || Domain::Named("stacks".to_owned());
    IdentityEntries {
        owner: OWNER.to_owned(),
        domains: vec![IdentityDomainEntry { name: "stacks".to_owned(), claim: own_claim() }],
        roles: vec!["admin".to_owned()],
        service_roles: ["stack_owner", "stack_user"].map(str::to_owned).to_vec(),
        users: vec![IdentityAccount {
            login: login("domain_admin", "hunter2"),
            claim: own_claim(),
            domain: stacks(),
            grants: vec![
                Grant { role: "admin".to_owned(), on: GrantTarget::Domain(stacks()) },
                Grant { role: "stack_user".to_owned(), on: GrantTarget::Domain(Domain::Default) },
            ],
        }],
        ..IdentityEntries::default()
    }
}

fn description(server: &Server<Directory>, collection: &str, id: &str) -> serde_json::Value {
    server.change(|state| state.entry(collection, id)["description"].clone())
}

#[tokio::test]
async fn a_domain_gets_a_user_with_roles_on_domains_and_the_second_call_writes_nothing() -> Outcome {
    let (server, identity) = start().await?;
    let administrator = administrator(&server);
    assert!(identity.ensure(&administrator, &domain_entries()).await?);
    assert_eq!(
        writes(&server),
        [
            "POST domains",
            "POST roles",
            "POST roles",
            "POST roles",
            "POST users",
            "PUT domains/1/users/5/roles/2",
            "PUT domains/default/users/5/roles/4",
        ]
    );
    assert_eq!(server.change(|state| state.entry("users", "5")["domain_id"].clone()), "1");
    assert_eq!(description(&server, "domains", "1"), format!("openstack-operator: {OWNER}"));
    assert!(!identity.ensure(&administrator, &domain_entries()).await?);
    assert!(writes(&server).is_empty());
    Ok(())
}

#[tokio::test]
async fn a_disabled_domain_a_lost_role_and_a_lost_grant_are_corrected() -> Outcome {
    let (server, identity) = start().await?;
    let administrator = administrator(&server);
    identity.ensure(&administrator, &domain_entries()).await?;
    writes(&server);

    server.change(|state| state.entry("domains", "1")["enabled"] = json!(false));
    assert!(identity.ensure(&administrator, &domain_entries()).await?);
    assert_eq!(writes(&server), ["PATCH domains/1"]);

    server.change(|state| state.assignments.remove("domains/1/users/5/roles/2"));
    assert!(identity.ensure(&administrator, &domain_entries()).await?);
    assert_eq!(writes(&server), ["PUT domains/1/users/5/roles/2"]);

    server.change(|state| state.remove("roles", "3"));
    assert!(identity.ensure(&administrator, &domain_entries()).await?);
    assert_eq!(writes(&server), ["POST roles"]);
    assert!(!identity.ensure(&administrator, &domain_entries()).await?);
    Ok(())
}

#[tokio::test]
async fn a_domain_is_disabled_before_it_is_removed_with_everything_in_it() -> Outcome {
    let (server, identity) = start().await?;
    let administrator = administrator(&server);
    identity.ensure(&administrator, &domain_entries()).await?;
    writes(&server);
    for _ in 0..2 {
        identity.drop_domain(&administrator, "stacks", &own_claim()).await?;
    }
    assert_eq!(writes(&server), ["PATCH domains/1", "DELETE domains/1"]);
    let stacks = Domain::Named("stacks".to_owned());
    identity.drop_user(&administrator, &stacks, "domain_admin", &own_claim()).await?;
    assert!(writes(&server).is_empty(), "a user without a domain is gone");
    Ok(())
}

#[tokio::test]
async fn users_with_one_name_in_two_domains_are_different() -> Outcome {
    let (server, identity) = start().await?;
    let administrator = administrator(&server);
    let mut both = domain_entries();
    let foreign = IdentityAccount { domain: Domain::Default, ..both.users[0].clone() };
    both.users.push(foreign);
    identity.ensure(&administrator, &both).await?;
    writes(&server);
    let stacks = Domain::Named("stacks".to_owned());
    identity.drop_user(&administrator, &stacks, "domain_admin", &own_claim()).await?;
    assert_eq!(writes(&server), ["DELETE users/5"]);
    // Outside of the default domain, the name of the administrator is an ordinary name.
    let mut own = domain_entries();
    own.users[0].login = login("admin", "another");
    identity.ensure(&administrator, &own).await?;
    identity.drop_user(&administrator, &stacks, "admin", &own_claim()).await?;
    Ok(())
}

#[tokio::test]
async fn a_domain_of_another_owner_is_neither_used_nor_removed() -> Outcome {
    let (server, identity) = start().await?;
    let administrator = administrator(&server);
    identity.ensure(&administrator, &domain_entries()).await?;
    writes(&server);
    let other = claim(OTHER, Adoption::Unowned);
    let mut wanted = domain_entries();
    wanted.domains[0].claim = other.clone();
    let error = failure(identity.ensure(&administrator, &wanted).await)?;
    assert_eq!(error.to_string(), format!("identity domain stacks belongs to {OWNER}"));
    identity.drop_domain(&administrator, "stacks", &other).await?;
    assert!(writes(&server).is_empty());
    Ok(())
}

#[tokio::test]
async fn a_role_of_a_service_is_removed_with_the_last_object_that_needs_it() -> Outcome {
    let (server, identity) = start().await?;
    let administrator = administrator(&server);
    let needing = |owner: &str| IdentityEntries {
        owner: owner.to_owned(),
        service_roles: vec!["stack_owner".to_owned()],
        ..IdentityEntries::default()
    };
    for owner in [OWNER, OTHER] {
        assert!(identity.ensure(&administrator, &needing(owner)).await?);
        assert!(!identity.ensure(&administrator, &needing(owner)).await?);
    }
    assert_eq!(writes(&server), ["POST roles", "PATCH roles/1"]);
    identity.release_role(&administrator, "stack_owner", OWNER).await?;
    assert_eq!(writes(&server), ["PATCH roles/1"]);
    assert_eq!(description(&server, "roles", "1"), format!("openstack-operator: {OTHER}"));
    for _ in 0..2 {
        identity.release_role(&administrator, "stack_owner", OTHER).await?;
    }
    assert_eq!(writes(&server), ["DELETE roles/1"]);
    Ok(())
}

#[tokio::test]
async fn a_role_that_a_user_holds_or_that_no_object_created_stays() -> Outcome {
    let (server, identity) = start().await?;
    let administrator = administrator(&server);
    let needed = || IdentityEntries {
        owner: OWNER.to_owned(),
        service_roles: vec!["stack_owner".to_owned()],
        ..IdentityEntries::default()
    };
    identity.ensure(&administrator, &needed()).await?;
    server.change(|state| state.assignments.insert("projects/7/users/9/roles/1".to_owned()));
    writes(&server);
    for _ in 0..2 {
        identity.release_role(&administrator, "stack_owner", OWNER).await?;
    }
    assert_eq!(writes(&server), ["PATCH roles/1"]);
    assert!(identity.ensure(&administrator, &needed()).await?, "the object needs it again");

    server.change(|state| {
        state.assignments.clear();
        state.entry("roles", "1")["description"] = json!("of a person");
    });
    writes(&server);
    assert!(!identity.ensure(&administrator, &needed()).await?);
    identity.release_role(&administrator, "stack_owner", OWNER).await?;
    assert!(writes(&server).is_empty());
    Ok(())
}

#[tokio::test]
async fn a_missing_domain_is_temporary() -> Outcome {
    let (server, identity) = start().await?;
    let mut entries = domain_entries();
    entries.domains.clear();
    let error = failure(identity.ensure(&administrator(&server), &entries).await)?;
    assert!(matches!(error, PortError::Unavailable { .. }));
    assert!(full_error_text(&error).contains("domain stacks does not exist yet"));
    Ok(())
}
