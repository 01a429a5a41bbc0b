//! Parts that consume notifications of other parts.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::placement::Placement;
use crate::template::ApiTemplate;
use crate::{PARTS, glance, keystone};

/// A part that consumes notifications of some parts.
struct Listener;
/// A part that consumes notifications of all parts.
struct Collector;

macro_rules! consumer {
    ($part:ident, $name:literal, $producers:expr) => {
        impl Part for $part {
            type Object = Placement;
            type Template = ApiTemplate;
            const KIND: Kind = Kind::own(stringify!($part), concat!($name, "s"));
            const NAME: &'static str = $name;
            const STAGE: Stage = Stage::ExtendedServices;
            const SUBSCRIPTIONS: &'static [Subscription] =
                &[Subscription { topic: concat!($name, "_notifications"), producers: $producers }];

            fn template(object: &Placement) -> &ApiTemplate {
                &object.spec.template
            }

            fn plan(_context: &Context<'_, Placement>) -> Result<Plan, Invalid> {
                Ok(Plan::default())
            }
        }
    };
}

consumer!(Listener, "listener", Producers::Of(&[keystone::KIND]));
consumer!(Collector, "collector", Producers::All);

static LISTENER: Entry<Deployed<Listener>> = Entry::new();
static COLLECTOR: Entry<Deployed<Collector>> = Entry::new();

/// Spec of Keystone in a cloud with these consumers.
fn keystone_with(consumers: &[&str]) -> Value {
    let blocks: Value =
        consumers.iter().map(|name| ((*name).to_owned(), json!({ "enabled": true }))).collect();
    let spec: OpenStackControlPlaneSpec = serde_json::from_value(blocks).unwrap();
    let synthetic: [&'static dyn AnyPart; 2] = [&LISTENER, &COLLECTOR];
    let cloud = Cloud::new("cloud", &spec, PARTS.iter().copied().chain(synthetic));
    let part = PARTS.iter().find(|part| part.kind() == keystone::KIND).unwrap();
    match part.settle(&json!({}), &cloud).unwrap() {
        Settled::Child { spec, .. } => Value::Object(spec),
        Settled::LeftOut(reason) => panic!("{reason}"),
    }
}

#[test]
fn a_producer_gets_one_topic_for_each_enabled_consumer_and_the_bus_only_then() {
    let both = json!(["listener_notifications", "collector_notifications"]);
    for (consumers, topics) in [
        (&[][..], Value::Null),
        (&["listener"], json!(["listener_notifications"])),
        (&["listener", "collector"], both),
    ] {
        let spec = keystone_with(consumers);
        assert_eq!(spec["notifications"]["topics"], topics, "{consumers:?}");
        let bus = &spec["messaging"]["clusterRef"]["name"];
        assert_eq!(bus == "cloud-rabbitmq", topics.is_array(), "{consumers:?}: {bus}");
    }
}

#[test]
fn only_the_producers_that_a_consumer_names_send_to_its_topic() {
    let spec = serde_json::from_value(json!({ "listener": { "enabled": true } })).unwrap();
    let synthetic: [&'static dyn AnyPart; 1] = [&LISTENER];
    let cloud = Cloud::new("cloud", &spec, PARTS.iter().copied().chain(synthetic));
    assert_eq!(cloud.topics(keystone::KIND), ["listener_notifications"]);
    assert!(cloud.topics(glance::KIND).is_empty());
}

/// Consumers of one topic would take notifications from each other.
#[test]
fn no_two_parts_consume_the_same_topic() {
    let synthetic: [&'static dyn AnyPart; 2] = [&LISTENER, &COLLECTOR];
    let mut topics = BTreeSet::new();
    for part in PARTS.iter().copied().chain(synthetic) {
        for subscription in part.subscriptions() {
            assert!(topics.insert(subscription.topic), "{}: {}", part.field(), subscription.topic);
        }
    }
    assert!(topics.len() >= 2);
}
