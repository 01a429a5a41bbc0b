//! The identity service against a fake Keystone.

use openstack_operator_engine::claim::Adoption;
use openstack_operator_engine::ports::{IdentityAccount, IdentityService, Login, PortError};
use openstack_operator_model::plan::{CatalogEndpoint, CatalogService, Grant, GrantTarget, Interface};
use reqwest::Method;
use serde_json::json;

use super::*;
use crate::identity::tests::server::{ADMINISTRATOR_PASSWORD, Directory};
use crate::testing::{OTHER, OWNER, Outcome, Server, claim, failure, full_error_text, own_claim};

mod domain;
mod server;

async fn start() -> Result<(Server<Directory>, IdentityV3), Box<dyn std::error::Error>> {
    let server = Server::start(Directory::default()).await?;
    Ok((server, IdentityV3::new()?))
}

fn login(username: &str, password: &str) -> Login {
    Login { username: username.to_owned(), password: password.to_owned() }
}

fn administrator(server: &Server<Directory>) -> IdentityLogin {
    IdentityLogin { url: format!("{}/v3", server.url), administrator: login("admin", ADMINISTRATOR_PASSWORD) }
}

fn endpoint(interface: Interface, url: &str) -> CatalogEndpoint {
    CatalogEndpoint { interface, url: url.to_owned() }
}

fn on_project(role: &str, project: &str) -> Grant {
    Grant { role: role.to_owned(), on: GrantTarget::Project(project.to_owned()) }
}

fn entries() -> IdentityEntries {
    IdentityEntries {
        owner: OWNER.to_owned(),
        domains: Vec::new(),
        service_roles: Vec::new(),
        projects: vec!["service".to_owned()],
        roles: vec!["service".to_owned(), "watcher".to_owned()],
        services: vec![IdentityService {
            entry: CatalogService {
                service_type: "example".to_owned(),
                name: "sample".to_owned(),
                description: "An example".to_owned(),
                region: "RegionOne".to_owned(),
                endpoints: vec![
                    endpoint(Interface::Public, "https://example.org"),
                    endpoint(Interface::Internal, "http://sample.svc"),
                ],
            },
            claim: own_claim(),
        }],
        users: vec![IdentityAccount {
            claim: own_claim(),
            login: login("sample", "hunter2"),
            domain: Domain::Default,
            grants: ["service", "watcher"].map(|role| on_project(role, "service")).to_vec(),
        }],
    }
}

/// Requests that write, without token requests.
fn writes(server: &Server<Directory>) -> Vec<String> {
    let requests = server.requests();
    let writes = requests.iter().filter(|request| {
        !matches!(request.method, Method::GET | Method::HEAD)
            && request.segments() != ["v3", "auth", "tokens"]
    });
    writes.map(|request| format!("{} {}", request.method, request.path[1..].join("/"))).collect()
}

#[tokio::test]
async fn the_first_call_creates_everything_and_the_second_writes_nothing() -> Outcome {
    let (server, identity) = start().await?;
    let administrator = administrator(&server);
    assert!(identity.ensure(&administrator, &entries()).await?);
    assert_eq!(
        writes(&server),
        [
            "POST projects",
            "POST roles",
            "POST roles",
            "POST services",
            "POST regions",
            "POST endpoints",
            "POST endpoints",
            "POST users",
            "PUT projects/1/users/8/roles/2",
            "PUT projects/1/users/8/roles/3",
        ]
    );
    assert!(!identity.ensure(&administrator, &entries()).await?);
    assert!(writes(&server).is_empty());
    Ok(())
}

#[tokio::test]
async fn projects_and_roles_may_be_created_by_another_object_meanwhile() -> Outcome {
    let (server, identity) = start().await?;
    server.change(|state| state.is_raced = true);
    identity.ensure(&administrator(&server), &entries()).await?;
    assert_eq!(server.change(|state| state.assignments.len()), 2);
    Ok(())
}

#[tokio::test]
async fn a_token_is_reused_until_it_is_rejected() -> Outcome {
    let (server, identity) = start().await?;
    let administrator = administrator(&server);
    identity.ensure(&administrator, &entries()).await?;
    identity.drop_service(&administrator, "none", None, &own_claim()).await?;
    assert_eq!(server.change(|state| state.administrator_logins), 1);

    server.change(Directory::revoke_tokens);
    identity.drop_service(&administrator, "none", None, &own_claim()).await?;
    assert_eq!(server.change(|state| state.administrator_logins), 2);
    Ok(())
}

#[tokio::test]
async fn a_token_that_is_about_to_expire_is_not_used() -> Outcome {
    let (server, identity) = start().await?;
    let administrator = administrator(&server);
    server.change(|state| state.token_lifetime = jiff::SignedDuration::from_secs(30));
    identity.drop_service(&administrator, "none", None, &own_claim()).await?;
    identity.drop_service(&administrator, "none", None, &own_claim()).await?;
    assert_eq!(server.change(|state| state.administrator_logins), 2);
    Ok(())
}

#[tokio::test]
async fn a_changed_administrator_password_does_not_reuse_an_old_token() -> Outcome {
    let (server, identity) = start().await?;
    let mut administrator = administrator(&server);
    identity.drop_service(&administrator, "none", None, &own_claim()).await?;
    administrator.administrator.password = "another".to_owned();
    assert!(identity.drop_service(&administrator, "none", None, &own_claim()).await.is_err());
    Ok(())
}

#[tokio::test]
async fn services_and_endpoints_that_differ_are_corrected() -> Outcome {
    let (server, identity) = start().await?;
    let administrator = administrator(&server);
    identity.ensure(&administrator, &entries()).await?;
    writes(&server);

    server.change(|state| state.entry("endpoints", "6")["url"] = json!("https://elsewhere.example.org"));
    assert!(identity.ensure(&administrator, &entries()).await?);
    assert_eq!(writes(&server), ["PATCH endpoints/6"]);
    assert_eq!(server.change(|state| state.entry("endpoints", "6")["url"].clone()), "https://example.org");

    server.change(|state| state.remove("endpoints", "7"));
    assert!(identity.ensure(&administrator, &entries()).await?);
    assert_eq!(writes(&server), ["POST endpoints"]);

    for (field, value) in [("name", json!("old")), ("description", json!("Old")), ("enabled", json!(false))] {
        server.change(|state| state.entry("services", "4")[field] = value);
        assert!(identity.ensure(&administrator, &entries()).await?);
        assert_eq!(writes(&server), ["PATCH services/4"], "{field}");
    }
    assert!(!identity.ensure(&administrator, &entries()).await?);
    Ok(())
}

#[tokio::test]
async fn duplicate_endpoints_are_removed_except_in_other_regions() -> Outcome {
    let (server, identity) = start().await?;
    let administrator = administrator(&server);
    identity.ensure(&administrator, &entries()).await?;
    writes(&server);

    server.change(|state| {
        let mut copy = state.entry("endpoints", "6").clone();
        state.insert("endpoints", copy.clone());
        copy["region_id"] = json!("RegionTwo");
        state.insert("endpoints", copy);
        state.entry("endpoints", "6")["url"] = json!("https://wrong.example.org");
    });
    assert!(identity.ensure(&administrator, &entries()).await?);
    assert_eq!(writes(&server), ["DELETE endpoints/6"]);
    assert!(!identity.ensure(&administrator, &entries()).await?);
    assert!(server.change(|state| state.list("endpoints").any(|entry| entry["region_id"] == "RegionTwo")));
    Ok(())
}

#[tokio::test]
async fn accounts_that_differ_are_corrected() -> Outcome {
    let (server, identity) = start().await?;
    let administrator = administrator(&server);
    identity.ensure(&administrator, &entries()).await?;
    writes(&server);

    server.change(|state| state.entry("users", "8")["password"] = json!("forgotten"));
    assert!(identity.ensure(&administrator, &entries()).await?);
    assert_eq!(writes(&server), ["PATCH users/8"]);
    assert_eq!(server.change(|state| state.entry("users", "8")["password"].clone()), "hunter2");

    server.change(|state| state.entry("users", "8")["enabled"] = json!(false));
    assert!(identity.ensure(&administrator, &entries()).await?);
    assert_eq!(writes(&server), ["PATCH users/8"]);

    server.change(|state| state.entry("projects", "1")["enabled"] = json!(false));
    assert!(identity.ensure(&administrator, &entries()).await?);
    assert_eq!(writes(&server), ["PATCH projects/1"]);

    server.change(|state| state.assignments.remove("projects/1/users/8/roles/3"));
    assert!(identity.ensure(&administrator, &entries()).await?);
    assert_eq!(writes(&server), ["PUT projects/1/users/8/roles/3"]);
    assert!(!identity.ensure(&administrator, &entries()).await?);
    Ok(())
}

#[tokio::test]
async fn a_missing_project_is_temporary() -> Outcome {
    let (server, identity) = start().await?;
    let mut entries = entries();
    entries.projects.clear();
    let error = failure(identity.ensure(&administrator(&server), &entries).await)?;
    assert!(matches!(error, PortError::Unavailable { .. }));
    assert!(full_error_text(&error).contains("project service does not exist yet"));
    Ok(())
}

#[tokio::test]
async fn removal_succeeds_twice() -> Outcome {
    let (server, identity) = start().await?;
    let administrator = administrator(&server);
    identity.ensure(&administrator, &entries()).await?;
    writes(&server);
    for _ in 0..2 {
        identity.drop_service(&administrator, "example", None, &own_claim()).await?;
        identity.drop_user(&administrator, &Domain::Default, "sample", &own_claim()).await?;
    }
    assert_eq!(
        writes(&server),
        ["DELETE endpoints/6", "DELETE endpoints/7", "DELETE services/4", "DELETE users/8"]
    );
    Ok(())
}

#[tokio::test]
async fn a_service_stays_while_another_region_has_endpoints() -> Outcome {
    let (server, identity) = start().await?;
    let administrator = administrator(&server);
    identity.ensure(&administrator, &entries()).await?;
    let mut elsewhere = entries();
    elsewhere.services[0].entry.region = "Elsewhere".to_owned();
    identity.ensure(&administrator, &elsewhere).await?;
    writes(&server);
    identity.drop_service(&administrator, "example", Some("Elsewhere"), &own_claim()).await?;
    let removed = writes(&server);
    assert_eq!(removed.len(), elsewhere.services[0].entry.endpoints.len(), "{removed:?}");
    assert!(removed.iter().all(|write| write.starts_with("DELETE endpoints/")), "{removed:?}");
    assert!(!identity.ensure(&administrator, &entries()).await?, "the first region lost something");
    Ok(())
}

/// The entries with another claim.
fn claiming(claim: &Claim) -> IdentityEntries {
    let mut entries = entries();
    entries.services[0].claim = claim.clone();
    entries.users[0].claim = claim.clone();
    entries
}

#[tokio::test]
async fn an_entry_of_another_owner_is_neither_changed_nor_removed() -> Outcome {
    let (server, identity) = start().await?;
    let administrator = administrator(&server);
    identity.ensure(&administrator, &claiming(&claim(OTHER, Adoption::Nothing))).await?;
    writes(&server);
    let own = claim(OWNER, Adoption::Unowned);
    let mut wanted = claiming(&own);
    wanted.services[0].entry.endpoints[0].url = "https://second.example.org".to_owned();
    wanted.services[0].entry.description = "Another".to_owned();
    wanted.users[0].login.password = "hunter3".to_owned();
    let error = failure(identity.ensure(&administrator, &wanted).await)?;
    assert_eq!(error.to_string(), "catalog service example belongs to Thing openstack/other");
    wanted.services.clear();
    let error = failure(identity.ensure(&administrator, &wanted).await)?;
    assert_eq!(error.to_string(), "identity user sample belongs to Thing openstack/other");
    identity.drop_service(&administrator, "example", Some("RegionOne"), &own).await?;
    identity.drop_user(&administrator, &Domain::Default, "sample", &own).await?;
    assert!(writes(&server).is_empty());
    Ok(())
}

#[tokio::test]
async fn entries_without_an_owner_get_one_if_they_may_be_adopted() -> Outcome {
    let (server, identity) = start().await?;
    let administrator = administrator(&server);
    identity.ensure(&administrator, &entries()).await?;
    server.change(|state| {
        for (collection, id) in [("endpoints", "6"), ("endpoints", "7"), ("users", "8")] {
            state.entry(collection, id)["description"] = json!(null);
        }
    });
    writes(&server);
    assert!(identity.ensure(&administrator, &entries()).await.is_err());
    identity.drop_user(&administrator, &Domain::Default, "sample", &own_claim()).await?;
    assert!(writes(&server).is_empty());
    assert!(identity.ensure(&administrator, &claiming(&claim(OWNER, Adoption::Unowned))).await?);
    assert_eq!(writes(&server), ["PATCH endpoints/6", "PATCH endpoints/7", "PATCH users/8"]);
    assert!(!identity.ensure(&administrator, &entries()).await?);
    Ok(())
}

#[tokio::test]
async fn the_administrator_cannot_be_changed_or_removed() -> Outcome {
    let (server, identity) = start().await?;
    let administrator = administrator(&server);
    let mut own = entries();
    own.users[0].login = login("admin", "another");
    assert!(matches!(identity.ensure(&administrator, &own).await, Err(PortError::Rejected { .. })));
    assert!(matches!(
        identity.drop_user(&administrator, &Domain::Default, "admin", &own_claim()).await,
        Err(PortError::Rejected { .. })
    ));
    Ok(())
}

#[tokio::test]
async fn a_wrong_administrator_password_is_reported_and_not_printed() -> Outcome {
    let (server, identity) = start().await?;
    let mut administrator = administrator(&server);
    administrator.administrator.password = "outdated-password".to_owned();
    let error = failure(identity.ensure(&administrator, &entries()).await)?;
    assert!(matches!(error, PortError::LoginRejected { .. }));
    let text = full_error_text(&error);
    assert!(text.contains("401") && text.contains("auth/tokens"), "{text}");
    assert!(!text.contains("outdated-password") && !text.contains("hunter2"), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_rejected_password_is_not_printed() -> Outcome {
    let (server, identity) = start().await?;
    server.change(|state| state.rejects_users = true);
    let error = failure(identity.ensure(&administrator(&server), &entries()).await)?;
    assert!(matches!(error, PortError::Rejected { .. }));
    let text = full_error_text(&error);
    assert!(text.contains("set up user sample") && !text.contains("hunter2"), "{text}");
    Ok(())
}
