//! Notifications of services, by topic.

use openstack_operator_model::lower::Observed;
use serde_json::{Value, json};

use crate::fixture::case;

/// Notification options of Keystone, and the Secret with the URL for consumers.
fn keystone(notifications: Value) -> (Vec<String>, Option<String>) {
    let mut case = case("keystone-minimal");
    case.spec["messaging"] = json!({ "clusterRef": { "name": "bus" } });
    case.spec["notifications"] = notifications;
    let plan = case.render(&Observed::default()).unwrap().plan;
    let file = plan.files["keystone.conf"].text().unwrap();
    let section = file.split("[oslo_messaging_notifications]\n").nth(1).unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.is_empty() && !line.starts_with('['));
    (lines.map(str::to_owned).collect(), plan.provides.notifications.map(|server| server.secret))
}

#[test]
fn a_service_sends_notifications_only_if_there_is_a_topic() {
    let secret = Some("test-messaging".to_owned());
    let driver = "driver = messagingv2";
    let retry = "retry = 1";
    for (notifications, lines, bus) in [
        (json!({}), vec![], None),
        (json!({ "enabled": true }), vec![driver, retry], secret.clone()),
        (json!({ "topics": ["a", "b"] }), vec![driver, retry, "topics = a,b"], secret.clone()),
        (
            json!({ "enabled": true, "topics": ["a"] }),
            vec![driver, retry, "topics = notifications,a"],
            secret,
        ),
    ] {
        let (mut found, provided) = keystone(notifications.clone());
        found.sort();
        assert_eq!(found, lines, "{notifications}");
        assert_eq!(provided, bus, "{notifications}");
    }
}
