//! Connections to databases and to the message buses of other services.

use openstack_operator_model::status::{NotificationServer, Provides};

use super::*;
use crate::keystone;
use crate::testing::{provided, with_context};

/// Plan with a database of this character set, and the text of its connection.
fn connection(charset: Charset) -> (Plan, String) {
    let server = DatabaseServer {
        host: "db.openstack.svc".to_owned(),
        port: 3306,
        admin_port: 3307,
        secret: "db-root".to_owned(),
    };
    let provides = Provides { database: Some(server), ..Provides::default() };
    let settings =
        DatabaseSettings { cluster_ref: Some(NameReference::new("db")), ..DatabaseSettings::default() };
    let mut plan = Plan::default();
    with_context(&provided(mariadb::KIND, "db", provides), |context| {
        let claim = DatabaseClaim { charset, ..DatabaseClaim::new(&settings, "sample", "database") };
        database(context, &mut plan, &claim).unwrap();
    });
    let SecretContent::Entries(entries) = &plan.secrets[0].content else { panic!("{:?}", plan.secrets) };
    let Entry::Template(pieces) = &entries[CONNECTION] else { panic!("{entries:?}") };
    let text = pieces.iter().filter_map(|piece| match piece {
        Piece::Text(text) => Some(text.as_str()),
        _ => None,
    });
    let text = text.collect();
    (plan, text)
}

#[test]
fn clients_use_the_character_set_of_their_database() {
    for (charset, option) in [(Charset::Utf8mb3, "?charset=utf8&"), (Charset::Utf8mb4, "?charset=utf8mb4&")] {
        let (plan, connection) = connection(charset);
        assert_eq!(plan.databases[0].charset, charset);
        assert!(connection.contains(option), "{connection}");
    }
}

#[test]
fn a_consumer_of_notifications_connects_to_the_virtual_host_of_the_producer() {
    let server = NotificationServer { secret: "cloud-keystone-messaging".to_owned(), port: 5672 };
    let provides = Provides { notifications: Some(server), ..Provides::default() };
    let variable = |provides: Provides| {
        with_context(&provided(keystone::KIND, "cloud-keystone", provides), |context| {
            let producer = (keystone::KIND, &NameReference::new("cloud-keystone"));
            notifications(context, producer, "spec.keystone.clusterRef.name", "OS_DEFAULT__TRANSPORT_URL")
        })
    };
    let expected = Variable::secret("OS_DEFAULT__TRANSPORT_URL", "cloud-keystone-messaging", "transport_url");
    assert_eq!(variable(provides), Ok((expected, 5672)));
    let error = variable(Provides::default()).unwrap_err();
    let reason = "Keystone \"cloud-keystone\" provides no notifications: name another object";
    assert_eq!((error.path.as_str(), error.reason.as_str()), ("spec.keystone.clusterRef.name", reason));
}
