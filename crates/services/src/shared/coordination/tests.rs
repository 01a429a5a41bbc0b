//! URLs of key-value stores.

use openstack_operator_model::common::NameReference;
use openstack_operator_model::plan::SecretContent;
use openstack_operator_model::status::Provides;

use super::*;
use crate::testing::{provided, with_context};

/// The URL with the names of Secrets and keys in place of their values.
fn url(provides: Provides, settings: &KeyValueSettings) -> Result<Option<String>, Invalid> {
    let mut plan = Plan::default();
    let variable = with_context(&provided(valkey::KIND, "store", provides), |context| {
        coordination(context, &mut plan, settings, "OS_COORDINATION__BACKEND_URL")
    })?;
    let Some(variable) = variable else {
        assert!(plan.secrets.is_empty(), "{:?}", plan.secrets);
        return Ok(None);
    };
    let expected =
        Variable::secret("OS_COORDINATION__BACKEND_URL", "cloud-sample-coordination", "backend_url");
    assert_eq!(variable, expected);
    let SecretContent::Entries(entries) = &plan.secrets[0].content else { panic!("{:?}", plan.secrets) };
    let Entry::Template(pieces) = &entries[BACKEND_URL] else { panic!("{entries:?}") };
    let text = pieces.iter().map(|piece| match piece {
        Piece::Text(text) => text.clone(),
        Piece::Escaped(SecretKey { secret, key }) => format!("<{secret}.{key}>"),
        other => panic!("{other:?}"),
    });
    Ok(Some(text.collect()))
}

fn of_object() -> KeyValueSettings {
    KeyValueSettings { cluster_ref: Some(NameReference::new("store")), ..KeyValueSettings::default() }
}

#[test]
fn clients_of_sentinels_know_all_of_them() {
    let server = KeyValueServer {
        servers: ["a:26379", "b:26379", "c:26379"].map(str::to_owned).to_vec(),
        sentinel: Some("primary".to_owned()),
        database: 0,
        secret: Some("store-password".to_owned()),
        sentinel_secret: None,
    };
    let provides = Provides { key_value: Some(server), ..Provides::default() };
    let expected = format!(
        "redis://<store-password.username>:<store-password.password>@a:26379?db=0&namespace=openstack.cloud-sample\
         &{TIMEOUTS}&sentinel=primary&sentinel_fallback=b:26379&sentinel_fallback=c:26379"
    );
    assert_eq!(url(provides, &of_object()), Ok(Some(expected)));
}

#[test]
fn clients_log_in_to_existing_sentinels() {
    let reference = |name: &str| Some(NameReference::new(name));
    let settings = KeyValueSettings {
        servers: vec!["sentinel.example.com:26379".to_owned()],
        sentinel: Some("mymaster".to_owned()),
        secret_ref: reference("login"),
        sentinel_secret_ref: reference("sentinels"),
        ..KeyValueSettings::default()
    };
    let expected = format!(
        "redis://<login.username>:<login.password>@sentinel.example.com:26379?db=0&namespace=openstack.cloud-sample\
         &{TIMEOUTS}&sentinel=mymaster&sentinel_password=<sentinels.password>"
    );
    assert_eq!(url(Provides::default(), &settings), Ok(Some(expected)));
}

#[test]
fn an_existing_server_needs_no_login() {
    let settings = KeyValueSettings {
        servers: vec!["redis.example.com:6379".to_owned()],
        database: Some(3),
        ..KeyValueSettings::default()
    };
    let expected = format!("redis://redis.example.com:6379?db=3&namespace=openstack.cloud-sample&{TIMEOUTS}");
    assert_eq!(url(Provides::default(), &settings), Ok(Some(expected)));
}

#[test]
fn a_service_without_a_store_gets_no_url() {
    assert_eq!(url(Provides::default(), &KeyValueSettings::default()), Ok(None));
}

#[test]
fn an_object_that_is_no_store_is_refused() {
    let error = url(Provides::default(), &of_object()).unwrap_err();
    let reason = "Valkey \"store\" provides no key-value store: name another object";
    assert_eq!((error.path.as_str(), error.reason.as_str()), ("spec.keyValue.clusterRef.name", reason));
}
