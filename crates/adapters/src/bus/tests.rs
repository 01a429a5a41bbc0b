//! The message bus against a fake management API.

use std::collections::BTreeMap;

use openstack_operator_engine::claim::Adoption;
use openstack_operator_engine::ports::{Login, PortError};
use reqwest::Method;

use super::*;
use crate::testing::{
    self, FakeResponse, FakeService, OTHER, OWNER, Outcome, Server, claim, failure, full_error_text,
    own_claim,
};

const ADMINISTRATOR_PASSWORD: &str = "topsecret";

/// Stores entries by path.
#[derive(Default)]
struct Broker {
    entries: BTreeMap<String, Value>,
}

impl FakeService for Broker {
    fn respond(&mut self, request: &testing::Request) -> FakeResponse {
        let expected = format!("Basic {}", STANDARD.encode(format!("root:{ADMINISTRATOR_PASSWORD}")));
        if request.header("authorization") != expected {
            let body = json!({"error": "not_authorised", "reason": "Login failed"});
            return FakeResponse::new(401, body);
        }
        let path = request.path.join("/");
        if request.method == Method::GET {
            self.entries
                .get(&path)
                .map_or(FakeResponse::empty(404), |entry| FakeResponse::new(200, entry.clone()))
        } else if request.method == Method::DELETE {
            self.entries.remove(&path).map_or(FakeResponse::empty(404), |_| FakeResponse::empty(204))
        } else {
            let mut entry = request.body.clone();
            if let Some(tags) = entry["tags"].as_str() {
                entry["tags"] = tags.split(',').filter(|tag| !tag.is_empty()).collect();
            }
            self.entries.insert(path, entry);
            FakeResponse::empty(201)
        }
    }
}

fn server(address: &str, password: &str) -> BusServer {
    let administrator = Login { username: "root".to_owned(), password: password.to_owned() };
    BusServer { management_url: address.to_owned(), administrator }
}

fn grant() -> BusGrant {
    let user = Login { username: "some_user".to_owned(), password: "hunter2".to_owned() };
    BusGrant {
        virtual_host: "a/b".to_owned(),
        virtual_host_claim: own_claim(),
        queue_members: 3,
        user,
        user_claim: own_claim(),
    }
}

fn writes(broker: &Server<Broker>) -> Vec<String> {
    let requests = broker.requests();
    let writes = requests.iter().filter(|request| request.method != Method::GET);
    writes.map(|request| format!("{} {}", request.method, request.path.join("/"))).collect()
}

#[test]
fn passwords_are_hashed_like_rabbitmq_does() {
    // Example from RabbitMQ's documentation.
    let hashed = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR";
    assert_eq!(hash([0x90, 0x8d, 0xc6, 0x0a], "test12"), hashed);
    let user = json!({"password_hash": hashed, "hashing_algorithm": HASHING});
    assert!(has_password(&user, "test12"));
    assert!(!has_password(&user, "test13"));
    let other = json!({"password_hash": hashed, "hashing_algorithm": "rabbit_password_hashing_sha512"});
    assert!(!has_password(&other, "test12"));
    assert!(!has_password(&json!({"password_hash": "", "hashing_algorithm": HASHING}), ""));
}

#[tokio::test]
async fn the_first_call_creates_everything_and_the_second_writes_nothing() -> Outcome {
    let broker = Server::start(Broker::default()).await?;
    let (bus, server) = (ManagementBus::new()?, server(&broker.url, ADMINISTRATOR_PASSWORD));
    assert!(bus.ensure(&server, &grant()).await?);
    assert_eq!(
        writes(&broker),
        [
            "PUT api/vhosts/a%2Fb",
            "PUT api/policies/a%2Fb/openstack-operator",
            "PUT api/users/some_user",
            "PUT api/permissions/a%2Fb/some_user",
        ]
    );
    broker.change(|state| {
        let mark = "openstack-operator: Thing openstack/sample";
        let virtual_host = json!({"default_queue_type": "quorum", "description": mark});
        assert_eq!(state.entries["api/vhosts/a%2Fb"], virtual_host);
        assert_eq!(state.entries["api/users/some_user"]["tags"], json!([mark]));
        let policy = json!({
            "pattern": ".*", "apply-to": "quorum_queues", "definition": {"target-group-size": 3}, "priority": 0,
        });
        assert_eq!(state.entries["api/policies/a%2Fb/openstack-operator"], policy);
        assert!(!state.entries["api/users/some_user"].to_string().contains("hunter2"));
        let rights = json!({"configure": ".*", "write": ".*", "read": ".*"});
        assert_eq!(state.entries["api/permissions/a%2Fb/some_user"], rights);
    });
    assert!(!bus.ensure(&server, &grant()).await?);
    assert!(writes(&broker).is_empty());
    Ok(())
}

#[tokio::test]
async fn only_differences_are_corrected() -> Outcome {
    let broker = Server::start(Broker::default()).await?;
    let (bus, server) = (ManagementBus::new()?, server(&broker.url, ADMINISTRATOR_PASSWORD));
    bus.ensure(&server, &grant()).await?;
    writes(&broker);

    broker.change(|state| {
        state.entries.entry("api/permissions/a%2Fb/some_user".to_owned()).or_default()["read"] = json!("^$");
    });
    assert!(bus.ensure(&server, &grant()).await?);
    assert_eq!(writes(&broker), ["PUT api/permissions/a%2Fb/some_user"]);

    let grown = BusGrant { queue_members: 5, ..grant() };
    assert!(bus.ensure(&server, &grown).await?);
    assert_eq!(writes(&broker), ["PUT api/policies/a%2Fb/openstack-operator"]);
    broker.change(|state| {
        let policy = state.entries.entry("api/policies/a%2Fb/openstack-operator".to_owned()).or_default();
        policy["definition"] = json!({"target-group-size": 5, "expires": 1});
    });
    assert!(bus.ensure(&server, &grown).await?);
    assert_eq!(writes(&broker), ["PUT api/policies/a%2Fb/openstack-operator"]);

    let mut changed = grown;
    changed.user.password = "hunter3".to_owned();
    assert!(bus.ensure(&server, &changed).await?);
    assert_eq!(writes(&broker), ["PUT api/users/some_user"]);

    broker.change(|state| {
        state.entries.entry("api/users/some_user".to_owned()).or_default()["tags"] = json!(["administrator"]);
    });
    // The tag with the owner is lost, too, but the status has a confirmed record.
    changed.user_claim = claim(OWNER, Adoption::Unowned);
    assert!(bus.ensure(&server, &changed).await?);
    assert_eq!(writes(&broker), ["PUT api/users/some_user"]);
    assert!(!bus.ensure(&server, &changed).await?);
    Ok(())
}

#[tokio::test]
async fn removal_succeeds_twice() -> Outcome {
    let broker = Server::start(Broker::default()).await?;
    let (bus, server) = (ManagementBus::new()?, server(&broker.url, ADMINISTRATOR_PASSWORD));
    bus.ensure(&server, &grant()).await?;
    for _ in 0..2 {
        bus.drop_user(&server, "some_user", &own_claim()).await?;
        bus.drop_virtual_host(&server, "a/b", &own_claim()).await?;
    }
    broker.change(|state| {
        let left: Vec<&String> = state.entries.keys().collect();
        let of_virtual_host = ["api/permissions/a%2Fb/some_user", "api/policies/a%2Fb/openstack-operator"];
        assert_eq!(left, of_virtual_host, "a broker drops them with the virtual host");
    });
    Ok(())
}

fn claiming(claim: &Claim) -> BusGrant {
    BusGrant { virtual_host_claim: claim.clone(), user_claim: claim.clone(), ..grant() }
}

#[tokio::test]
async fn a_resource_of_another_owner_is_neither_changed_nor_removed() -> Outcome {
    let broker = Server::start(Broker::default()).await?;
    let (bus, server) = (ManagementBus::new()?, server(&broker.url, ADMINISTRATOR_PASSWORD));
    bus.ensure(&server, &claiming(&claim(OTHER, Adoption::Nothing))).await?;
    writes(&broker);
    let own = claim(OWNER, Adoption::Unowned);
    let mut grant = claiming(&own);
    grant.user.password = "hunter3".to_owned();
    let error = failure(bus.ensure(&server, &grant).await)?;
    assert_eq!(error.to_string(), "virtual host a/b belongs to Thing openstack/other");
    grant.virtual_host = "free".to_owned();
    let error = failure(bus.ensure(&server, &grant).await)?;
    assert_eq!(error.to_string(), "message bus user some_user belongs to Thing openstack/other");
    bus.drop_virtual_host(&server, "a/b", &own).await?;
    bus.drop_user(&server, "some_user", &own).await?;
    assert!(writes(&broker).is_empty());
    Ok(())
}

#[tokio::test]
async fn an_adopted_resource_keeps_its_settings_and_gets_its_owner() -> Outcome {
    let broker = Server::start(Broker::default()).await?;
    let (bus, server) = (ManagementBus::new()?, server(&broker.url, ADMINISTRATOR_PASSWORD));
    broker.change(|state| {
        let host = json!({"default_queue_type": "classic", "description": "of a person", "tags": ["east"]});
        state.entries.insert("api/vhosts/a%2Fb".to_owned(), host);
    });
    let error = failure(bus.ensure(&server, &grant()).await)?;
    assert_eq!(error.to_string(), "virtual host a/b exists and belongs to no object");
    assert!(writes(&broker).is_empty());
    assert!(bus.ensure(&server, &claiming(&claim(OWNER, Adoption::Unowned))).await?);
    broker.change(|state| {
        let mark = "openstack-operator: Thing openstack/sample";
        let host = json!({"default_queue_type": "classic", "description": mark, "tags": ["east"]});
        assert_eq!(state.entries["api/vhosts/a%2Fb"], host);
    });
    writes(&broker);
    assert!(!bus.ensure(&server, &grant()).await?);
    Ok(())
}

#[tokio::test]
async fn the_administrator_cannot_be_changed_or_removed() -> Outcome {
    let broker = Server::start(Broker::default()).await?;
    let (bus, server) = (ManagementBus::new()?, server(&broker.url, ADMINISTRATOR_PASSWORD));
    let mut own = grant();
    own.user.username = "root".to_owned();
    assert!(matches!(bus.ensure(&server, &own).await, Err(PortError::Rejected { .. })));
    assert!(matches!(bus.drop_user(&server, "root", &own_claim()).await, Err(PortError::Rejected { .. })));
    assert!(broker.requests().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_wrong_administrator_password_is_reported_and_not_printed() -> Outcome {
    let broker = Server::start(Broker::default()).await?;
    let (bus, server) = (ManagementBus::new()?, server(&broker.url, "outdated-password"));
    let error = failure(bus.ensure(&server, &grant()).await)?;
    assert!(matches!(error, PortError::LoginRejected { .. }));
    let text = full_error_text(&error);
    assert!(text.contains("401") && text.contains("api/vhosts/a%2Fb"), "{text}");
    assert!(!text.contains("outdated-password") && !text.contains("hunter2"), "{text}");
    Ok(())
}

#[tokio::test]
async fn an_unreachable_server_is_temporary() -> Outcome {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}", listener.local_addr()?);
    drop(listener);
    testing::install_tls_provider();
    let bus = ManagementBus::new()?;
    let error = failure(bus.ensure(&server(&address, "secret-of-root"), &grant()).await)?;
    assert!(matches!(error, PortError::Unavailable { .. }));
    assert!(!full_error_text(&error).contains("secret-of-root"));
    Ok(())
}

#[tokio::test]
async fn a_broker_reports_the_members_of_its_cluster() -> Outcome {
    let broker = Server::start(Broker::default()).await?;
    let (bus, server) = (ManagementBus::new()?, server(&broker.url, ADMINISTRATOR_PASSWORD));
    assert!(bus.view(&server).await.is_err());
    broker.change(|state| {
        let nodes = json!([{"name": "rabbit@a", "running": true}, {"name": "rabbit@b", "running": false, "type": "disc"}]);
        state.entries.insert("api/nodes".to_owned(), nodes);
    });
    let view = bus.view(&server).await?;
    assert_eq!(view.known, ["rabbit@a".to_owned(), "rabbit@b".to_owned()].into());
    assert_eq!(view.running, ["rabbit@a".to_owned()].into());
    Ok(())
}
