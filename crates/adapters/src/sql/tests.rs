//! Quoting, names, and what is said to a server in which case; what a real one makes of it is tested elsewhere.

use super::*;
use crate::sql::tests::server::{Facts, FakeServer};
use crate::testing::{Outcome, everything_said, failure};

mod server;

fn server(port: u16) -> SqlServer {
    let administrator = Login { username: "root".to_owned(), password: "topsecret".to_owned() };
    SqlServer { host: "127.0.0.1".to_owned(), port, administrator }
}

fn grant(database: &str, user: &str) -> SqlGrant {
    let user = Login { username: user.to_owned(), password: "hunter2".to_owned() };
    SqlGrant { database: database.to_owned(), user }
}

#[test]
fn a_literal_cannot_be_left() {
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
fn quoting_does_not_depend_on_the_server_s_mode() {
    assert!(SESSION.starts_with("SET SESSION sql_mode = "));
    assert!(!SESSION.contains("NO_BACKSLASH_ESCAPES") && !SESSION.contains("ANSI_QUOTES"));
}

#[test]
fn names_that_would_need_quoting_are_refused() {
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
fn rights_are_on_this_database_and_no_similar_one() {
    assert_eq!(all_rights("cloud_api"), r"GRANT ALL PRIVILEGES ON `cloud\_api`.*");
}

#[tokio::test]
async fn a_bad_name_is_refused_before_anything_is_asked() -> Outcome {
    for grant in [grant("a`b", "user"), grant("database", "a'b")] {
        let error = failure(MariaSql.ensure(&server(1), &grant).await)?;
        assert!(matches!(error, PortError::Rejected { .. }), "{error}");
    }
    assert!(matches!(failure(MariaSql.drop_database(&server(1), "").await)?, PortError::Rejected { .. }));
    assert!(matches!(failure(MariaSql.drop_user(&server(1), "'").await)?, PortError::Rejected { .. }));
    Ok(())
}

#[tokio::test]
async fn the_administrator_is_neither_changed_nor_removed() -> Outcome {
    let error = failure(MariaSql.ensure(&server(1), &grant("database", "root")).await)?;
    assert!(matches!(error, PortError::Rejected { .. }));
    assert!(matches!(failure(MariaSql.drop_user(&server(1), "root").await)?, PortError::Rejected { .. }));
    Ok(())
}

#[tokio::test]
async fn the_first_time_makes_everything() -> Outcome {
    let fake = FakeServer::start(Facts::default()).await?;
    assert!(MariaSql.ensure(&server(fake.port), &grant("cloud_api", "cloud-api")).await?);
    assert_eq!(
        fake.writes(),
        [
            "CREATE DATABASE IF NOT EXISTS `cloud_api` CHARACTER SET utf8mb3 COLLATE utf8mb3_general_ci",
            "CREATE USER IF NOT EXISTS 'cloud-api'@'%' IDENTIFIED BY 'hunter2'",
            r"GRANT ALL PRIVILEGES ON `cloud\_api`.* TO 'cloud-api'@'%'",
        ]
    );
    Ok(())
}

#[tokio::test]
async fn what_is_as_it_should_be_is_left_alone() -> Outcome {
    for character_set in ["utf8mb3", "utf8mb4"] {
        let fake =
            FakeServer::start(Facts { character_set: Some(character_set), ..Facts::complete() }).await?;
        assert!(!MariaSql.ensure(&server(fake.port), &grant("cloud_api", "cloud-api")).await?);
        assert!(fake.writes().is_empty(), "{character_set}");
    }
    Ok(())
}

#[tokio::test]
async fn what_differs_is_corrected_and_nothing_else() -> Outcome {
    let fake = FakeServer::start(Facts { refused_user: Some("cloud-api"), ..Facts::complete() }).await?;
    assert!(MariaSql.ensure(&server(fake.port), &grant("cloud_api", "cloud-api")).await?);
    assert_eq!(fake.writes(), ["ALTER USER 'cloud-api'@'%' IDENTIFIED BY 'hunter2'"]);

    let similar = "GRANT ALL PRIVILEGES ON `cloud\\_api\\_cell`.* TO `cloud-api`@`%`";
    let fake = FakeServer::start(Facts { grant: similar, ..Facts::complete() }).await?;
    assert!(MariaSql.ensure(&server(fake.port), &grant("cloud_api", "cloud-api")).await?);
    assert_eq!(fake.writes(), [r"GRANT ALL PRIVILEGES ON `cloud\_api`.* TO 'cloud-api'@'%'"]);
    Ok(())
}

#[tokio::test]
async fn what_is_removed_need_not_exist() -> Outcome {
    let fake = FakeServer::start(Facts::default()).await?;
    MariaSql.drop_database(&server(fake.port), "cloud_api").await?;
    MariaSql.drop_user(&server(fake.port), "cloud-api").await?;
    assert_eq!(fake.writes(), ["DROP DATABASE IF EXISTS `cloud_api`", "DROP USER IF EXISTS 'cloud-api'@'%'"]);
    Ok(())
}

#[tokio::test]
async fn an_administrator_who_is_not_let_in_may_be_let_in_later() -> Outcome {
    let fake = FakeServer::start(Facts { refused_user: Some("root"), ..Facts::default() }).await?;
    let error = failure(MariaSql.ensure(&server(fake.port), &grant("database", "user")).await)?;
    assert!(matches!(error, PortError::Unavailable { .. }), "{error:?}");
    let said = everything_said(&error);
    assert!(said.contains("1045") && said.contains("Access denied"), "{said}");
    assert!(!said.contains("topsecret") && !said.contains("hunter2"), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_password_is_not_told_by_a_server_that_quotes_it() -> Outcome {
    let fake = FakeServer::start(Facts { refuses_writes: true, ..Facts::default() }).await?;
    let facts = Facts { character_set: Some("utf8mb3"), refuses_writes: true, ..Facts::default() };
    let quoting = FakeServer::start(facts).await?;
    let error = failure(MariaSql.ensure(&server(fake.port), &grant("database", "user")).await)?;
    assert!(everything_said(&error).contains("near 'CREATE DATABASE"));
    let error = failure(MariaSql.ensure(&server(quoting.port), &grant("database", "user")).await)?;
    let said = everything_said(&error);
    assert!(said.contains("1064") && !said.contains("hunter2"), "{said}");
    Ok(())
}

#[test]
fn only_what_will_not_change_is_refused() {
    let error = |code| Failure::Server { code, message: ": no".to_owned() }.into_port_error("act".to_owned());
    assert!(matches!(error(1044), PortError::Rejected { .. }));
    assert!(matches!(error(1047), PortError::Unavailable { .. }));
}
