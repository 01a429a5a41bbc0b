//! Quoting, names, and the statements for each state of a server; end-to-end tests cover a real server.

use openstack_operator_engine::claim::Adoption;

use super::*;
use crate::sql::tests::server::{Facts, FakeServer};
use crate::testing::{OTHER, OWNER, Outcome, claim, failure, full_error_text, own_claim};

mod server;

fn server(port: u16) -> SqlServer {
    let administrator = Login { username: "root".to_owned(), password: "topsecret".to_owned() };
    SqlServer { host: "127.0.0.1".to_owned(), port, administrator }
}

fn grant(database: &str, user: &str) -> SqlGrant {
    let user = Login { username: user.to_owned(), password: "hunter2".to_owned() };
    SqlGrant {
        database: database.to_owned(),
        charset: Charset::Utf8mb3,
        database_claim: own_claim(),
        user,
        user_claim: own_claim(),
    }
}

/// The same, with another claim.
fn claiming(claim: &Claim) -> SqlGrant {
    SqlGrant { database_claim: claim.clone(), user_claim: claim.clone(), ..grant("cloud_api", "cloud-api") }
}

#[test]
fn a_literal_cannot_be_escaped_from() {
    for (text, expected) in [
        ("plain", "'plain'"),
        ("", "''"),
        ("it's", "'it''s'"),
        (r"\", r"'\\'"),
        (r"\' OR 1=1 -- ", r"'\\'' OR 1=1 -- '"),
        ("a\0b", r"'a\0b'"),
        ("\"`;\n", "'\"`;\n'"),
        ("grüße", "'grüße'"),
    ] {
        assert_eq!(literal(text), expected);
    }
}

#[test]
fn quoting_does_not_depend_on_the_sql_mode_of_the_server() {
    assert!(SESSION.starts_with("SET SESSION sql_mode = "));
    assert!(!SESSION.contains("NO_BACKSLASH_ESCAPES") && !SESSION.contains("ANSI_QUOTES"));
}

#[test]
fn names_that_would_need_quoting_are_rejected() {
    let long = "x".repeat(64);
    for name in ["a", "cloud_api_0", "A9", &long] {
        assert!(database_name(name).is_ok(), "{name}");
    }
    let longer = "x".repeat(65);
    for name in ["", "a-b", "a`b", "a b", "ä", "a.b", &longer] {
        assert!(database_name(name).is_err(), "{name}");
    }
    let long = "x".repeat(80);
    for name in ["a", "cloud-api_0", &long] {
        assert!(account(name).is_ok(), "{name}");
    }
    let longer = "x".repeat(81);
    for name in ["", "a'b", "a@b", "a b", "ä", "%", r"a\", &longer] {
        assert!(account(name).is_err(), "{name}");
    }
}

#[test]
fn privileges_cover_only_this_database() {
    assert_eq!(grant_statement("cloud_api"), r"GRANT ALL PRIVILEGES ON `cloud\_api`.*");
}

#[tokio::test]
async fn an_invalid_name_is_rejected_without_a_connection() -> Outcome {
    for grant in [grant("a`b", "user"), grant("database", "a'b")] {
        let error = failure(MariaSql.ensure(&server(1), &grant).await)?;
        assert!(matches!(error, PortError::Rejected { .. }), "{error}");
    }
    assert!(matches!(
        failure(MariaSql.drop_database(&server(1), "", &own_claim()).await)?,
        PortError::Rejected { .. }
    ));
    assert!(matches!(
        failure(MariaSql.drop_user(&server(1), "'", &own_claim()).await)?,
        PortError::Rejected { .. }
    ));
    Ok(())
}

#[tokio::test]
async fn the_administrator_cannot_be_changed_or_removed() -> Outcome {
    let error = failure(MariaSql.ensure(&server(1), &grant("database", "root")).await)?;
    assert!(matches!(error, PortError::Rejected { .. }));
    assert!(matches!(
        failure(MariaSql.drop_user(&server(1), "root", &own_claim()).await)?,
        PortError::Rejected { .. }
    ));
    Ok(())
}

#[tokio::test]
async fn the_first_call_creates_everything() -> Outcome {
    let fake = FakeServer::start(Facts::default()).await?;
    assert!(MariaSql.ensure(&server(fake.port), &grant("cloud_api", "cloud-api")).await?.wrote);
    assert_eq!(
        fake.writes(),
        [
            "INSERT INTO `openstack_operator`.`owners` (kind, name, owner) VALUES ('database', 'cloud_api', 'Thing \
             openstack/sample')",
            "INSERT INTO `openstack_operator`.`owners` (kind, name, owner) VALUES ('database user', 'cloud-api', \
             'Thing openstack/sample')",
            "CREATE DATABASE IF NOT EXISTS `cloud_api` CHARACTER SET utf8mb3 COLLATE utf8mb3_general_ci",
            "CREATE USER IF NOT EXISTS 'cloud-api'@'%' IDENTIFIED BY 'hunter2'",
            r"GRANT ALL PRIVILEGES ON `cloud\_api`.* TO 'cloud-api'@'%'",
        ]
    );
    Ok(())
}

#[tokio::test]
async fn a_current_state_causes_no_writes() -> Outcome {
    for character_set in ["utf8mb3", "utf8mb4"] {
        let fake =
            FakeServer::start(Facts { character_set: Some(character_set), ..Facts::complete() }).await?;
        assert!(!MariaSql.ensure(&server(fake.port), &grant("cloud_api", "cloud-api")).await?.wrote);
        assert!(fake.writes().is_empty(), "{character_set}");
    }
    Ok(())
}

#[tokio::test]
async fn a_new_database_gets_its_character_set_and_an_existing_one_keeps_its_own() -> Outcome {
    for (charset, wanted) in [(Charset::Utf8mb3, "utf8mb3"), (Charset::Utf8mb4, "utf8mb4")] {
        let grant = SqlGrant { charset, ..grant("cloud_api", "cloud-api") };
        let fake = FakeServer::start(Facts::default()).await?;
        let outcome = MariaSql.ensure(&server(fake.port), &grant).await?;
        assert_eq!(outcome, SqlOutcome { wrote: true, other_charset: None });
        let created = format!("CHARACTER SET {wanted} COLLATE {wanted}_general_ci");
        assert!(fake.writes().iter().any(|statement| statement.ends_with(&created)), "{:?}", fake.writes());
        for existing in ["utf8", "utf8mb3", "utf8mb4", "latin1"] {
            let facts = Facts { character_set: Some(existing), ..Facts::complete() };
            let fake = FakeServer::start(facts).await?;
            let outcome = MariaSql.ensure(&server(fake.port), &grant).await?;
            let is_wanted = existing == wanted || existing == "utf8" && wanted == "utf8mb3";
            assert_eq!(outcome.other_charset, (!is_wanted).then(|| existing.to_owned()));
            assert!(fake.writes().is_empty());
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_missing_database_is_reported_and_not_created() -> Outcome {
    for (facts, exists) in [(Facts::default(), false), (Facts::complete(), true)] {
        let fake = FakeServer::start(facts).await?;
        assert_eq!(MariaSql.has_database(&server(fake.port), "cloud_api").await?, exists);
        assert!(fake.writes().is_empty());
    }
    let error = failure(MariaSql.has_database(&server(1), "a`b").await)?;
    assert!(matches!(error, PortError::Rejected { .. }), "{error}");
    Ok(())
}

#[tokio::test]
async fn only_differences_are_corrected() -> Outcome {
    let fake = FakeServer::start(Facts { denied_user: Some("cloud-api"), ..Facts::complete() }).await?;
    assert!(MariaSql.ensure(&server(fake.port), &grant("cloud_api", "cloud-api")).await?.wrote);
    assert_eq!(fake.writes(), ["ALTER USER 'cloud-api'@'%' IDENTIFIED BY 'hunter2'"]);

    let similar = "GRANT ALL PRIVILEGES ON `cloud\\_api\\_cell`.* TO `cloud-api`@`%`";
    let fake = FakeServer::start(Facts { grant: similar, ..Facts::complete() }).await?;
    assert!(MariaSql.ensure(&server(fake.port), &grant("cloud_api", "cloud-api")).await?.wrote);
    assert_eq!(fake.writes(), [r"GRANT ALL PRIVILEGES ON `cloud\_api`.* TO 'cloud-api'@'%'"]);
    Ok(())
}

#[tokio::test]
async fn removal_succeeds_if_nothing_exists() -> Outcome {
    let fake = FakeServer::start(Facts::default()).await?;
    let confirmed = claim(OWNER, Adoption::Unowned);
    MariaSql.drop_database(&server(fake.port), "cloud_api", &confirmed).await?;
    MariaSql.drop_user(&server(fake.port), "cloud-api", &confirmed).await?;
    assert_eq!(fake.writes(), ["DROP DATABASE IF EXISTS `cloud_api`", "DROP USER IF EXISTS 'cloud-api'@'%'"]);
    Ok(())
}

#[tokio::test]
async fn removal_forgets_the_owner_last() -> Outcome {
    let fake = FakeServer::start(Facts::complete()).await?;
    MariaSql.drop_database(&server(fake.port), "cloud_api", &own_claim()).await?;
    let forgotten =
        "DELETE FROM `openstack_operator`.`owners` WHERE kind = 'database' AND name = 'cloud_api'";
    assert_eq!(fake.writes(), ["DROP DATABASE IF EXISTS `cloud_api`", forgotten]);
    Ok(())
}

#[tokio::test]
async fn a_resource_of_another_owner_is_neither_changed_nor_removed() -> Outcome {
    let claimed = Facts { owner: Some(OTHER), ..Facts::default() };
    for facts in [claimed, Facts { owner: Some(OTHER), denied_user: Some("cloud-api"), ..Facts::complete() }]
    {
        let fake = FakeServer::start(facts).await?;
        for adoption in [Adoption::Nothing, Adoption::Unowned] {
            let claim = claim(OWNER, adoption);
            let error = failure(MariaSql.ensure(&server(fake.port), &claiming(&claim)).await)?;
            assert!(matches!(error, PortError::Foreign { .. }), "{error:?}");
            assert_eq!(error.to_string(), "database cloud_api belongs to Thing openstack/other");
            MariaSql.drop_database(&server(fake.port), "cloud_api", &claim).await?;
            MariaSql.drop_user(&server(fake.port), "cloud-api", &claim).await?;
        }
        assert!(fake.writes().is_empty(), "{:?}", fake.writes());
    }
    Ok(())
}

#[tokio::test]
async fn an_existing_resource_without_an_owner_is_adopted_only_with_consent() -> Outcome {
    let unowned = Facts { owner: None, ..Facts::complete() };
    let fake = FakeServer::start(unowned).await?;
    let error = failure(MariaSql.ensure(&server(fake.port), &claiming(&own_claim())).await)?;
    assert_eq!(error.to_string(), "database cloud_api exists and belongs to no object");
    MariaSql.drop_database(&server(fake.port), "cloud_api", &own_claim()).await?;
    assert!(fake.writes().is_empty(), "{:?}", fake.writes());
    for (facts, verb, adoption) in [
        (unowned, "INSERT", Adoption::Unowned),
        (Facts { owner: Some(OTHER), ..Facts::complete() }, "REPLACE", Adoption::Anything),
    ] {
        let fake = FakeServer::start(facts).await?;
        assert!(MariaSql.ensure(&server(fake.port), &claiming(&claim(OWNER, adoption))).await?.wrote);
        let written = fake.writes();
        assert!(written.len() == 2 && written.iter().all(|one| one.starts_with(verb)), "{written:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_missing_table_of_owners_is_created() -> Outcome {
    let fake = FakeServer::start(Facts { missing_table: true, ..Facts::default() }).await?;
    assert!(MariaSql.ensure(&server(fake.port), &grant("cloud_api", "cloud-api")).await?.wrote);
    let written = fake.writes();
    assert_eq!(written[1], "CREATE DATABASE IF NOT EXISTS `openstack_operator`");
    assert!(
        written[2].starts_with("CREATE TABLE IF NOT EXISTS `openstack_operator`.`owners` ("),
        "{written:?}"
    );
    assert_eq!(written[0], written[3], "the owner is recorded before the database is created");
    assert!(written[5].starts_with("CREATE DATABASE IF NOT EXISTS `cloud_api`"), "{written:?}");
    Ok(())
}

#[tokio::test]
async fn a_wrong_administrator_password_is_reported_and_not_printed() -> Outcome {
    let fake = FakeServer::start(Facts { denied_user: Some("root"), ..Facts::default() }).await?;
    let error = failure(MariaSql.ensure(&server(fake.port), &grant("database", "user")).await)?;
    assert!(matches!(error, PortError::LoginRejected { .. }), "{error:?}");
    let text = full_error_text(&error);
    assert!(text.contains("1045") && text.contains("Access denied"), "{text}");
    assert!(!text.contains("topsecret") && !text.contains("hunter2"), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_password_that_the_server_quotes_is_not_printed() -> Outcome {
    let owned = Facts { owner: Some(OWNER), rejects_writes: true, ..Facts::default() };
    let fake = FakeServer::start(owned).await?;
    let facts = Facts { character_set: Some("utf8mb3"), ..owned };
    let quoting = FakeServer::start(facts).await?;
    let error = failure(MariaSql.ensure(&server(fake.port), &grant("database", "user")).await)?;
    assert!(full_error_text(&error).contains("near 'CREATE DATABASE"));
    let error = failure(MariaSql.ensure(&server(quoting.port), &grant("database", "user")).await)?;
    let text = full_error_text(&error);
    assert!(text.contains("1064") && !text.contains("hunter2"), "{text}");
    Ok(())
}

#[test]
fn missing_privileges_are_permanent_errors() {
    let error = |code| Failure::Server { code, message: ": no".to_owned() }.into_port_error("act".to_owned());
    assert!(matches!(error(1044), PortError::Rejected { .. }));
    assert!(matches!(error(1047), PortError::Unavailable { .. }));
}
