//! Quoting and names, and what becomes of a server's refusal; statements are tested against a real server.

use tokio::io::AsyncWriteExt;

use super::*;
use crate::testing::{Outcome, everything_said, failure};

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
        assert!(matches!(error, PortError::Refused { .. }), "{error}");
    }
    assert!(matches!(failure(MariaSql.drop_database(&server(1), "").await)?, PortError::Refused { .. }));
    assert!(matches!(failure(MariaSql.drop_user(&server(1), "'").await)?, PortError::Refused { .. }));
    Ok(())
}

#[tokio::test]
async fn the_administrator_is_neither_changed_nor_removed() -> Outcome {
    let error = failure(MariaSql.ensure(&server(1), &grant("database", "root")).await)?;
    assert!(matches!(error, PortError::Refused { .. }));
    assert!(matches!(failure(MariaSql.drop_user(&server(1), "root").await)?, PortError::Refused { .. }));
    Ok(())
}

/// Greets everyone with an error, as a server does that lets nobody in.
async fn refusing(code: u16, message: &str) -> std::io::Result<u16> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let mut packet = vec![0xff];
    packet.extend(code.to_le_bytes());
    packet.extend(message.as_bytes());
    let length = u8::try_from(packet.len()).unwrap_or(u8::MAX);
    packet.splice(0..0, [length, 0, 0, 0]);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            drop(stream.write_all(&packet).await);
        }
    });
    Ok(port)
}

#[tokio::test]
async fn an_administrator_who_is_not_let_in_may_be_let_in_later() -> Outcome {
    let port = refusing(ACCESS_DENIED, "Access denied for user 'root'@'127.0.0.1'").await?;
    let error = failure(MariaSql.ensure(&server(port), &grant("database", "user")).await)?;
    assert!(matches!(error, PortError::Unavailable { .. }), "{error:?}");
    let said = everything_said(&error);
    assert!(said.contains("1045") && said.contains("Access denied"), "{said}");
    assert!(!said.contains("topsecret") && !said.contains("hunter2"), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_user_who_is_not_let_in_has_another_password() -> Outcome {
    let port = refusing(ACCESS_DENIED, "Access denied").await?;
    assert!(matches!(accepts(&server(port), &grant("database", "user").user).await, Ok(false)));
    let port = refusing(1040, "Too many connections").await?;
    assert!(accepts(&server(port), &grant("database", "user").user).await.is_err());
    Ok(())
}

#[test]
fn only_what_will_not_change_is_refused() {
    let error = |code| Failure::Server { code, message: ": no".to_owned() }.into_port_error("act".to_owned());
    assert!(matches!(error(1044), PortError::Refused { .. }));
    assert!(matches!(error(1047), PortError::Unavailable { .. }));
}

#[test]
fn the_server_s_words_about_a_password_are_not_repeated() {
    let failure = Failure::Server { code: 1064, message: ": syntax error near 'hunter2'".to_owned() };
    assert_eq!(failure.without_message().to_string(), "the server answered with error 1064");
}
