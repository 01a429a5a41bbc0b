//! Random valid specs: no service panics, and all plans lower to valid manifests.

use std::cell::Cell;

use openstack_operator_model::lower::Observed;
use openstack_operator_model::service::AnyService;
use openstack_operator_services::ALL;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::string::string_regex;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Map, Value, json};

use crate::fixture::{cases, object, render};
use crate::laws::{check_manifests, check_names};

/// Texts that often break parsers.
const NASTY: [&str; 10] =
    ["", " ", "a b", "x\ny", "\"", "\\", "e\u{301}\u{7f}", "$(POD_NAME)", "[section]\nx = y", "%s{}"];

const SCHEDULES: [&str; 4] = ["0 0 * * 0", "*/5 1-3 * * 1,2", "59 23 31 12 *", "0 0 30 2 *"];

/// Values that a schema allows. Keys of open maps are often meaningful names.
fn values(schema: &Value, words: &[String]) -> BoxedStrategy<Value> {
    if let Some(allowed) = schema["enum"].as_array() {
        let allowed: Vec<Value> = allowed.iter().filter(|value| !value.is_null()).cloned().collect();
        return select(allowed).boxed();
    }
    let number = |field: &str| schema[field].as_number().and_then(whole);
    match schema["type"].as_str() {
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("integer") => {
            let (least, most) = (number("minimum").unwrap_or(-1000), number("maximum").unwrap_or(1_000_000));
            prop_oneof![3 => Just(least), 3 => least..=most.min(least + 9), 1 => least..=most]
                .prop_map(Value::from)
                .boxed()
        }
        Some("string") => texts(schema),
        Some("array") => {
            let most = usize::try_from(number("maxItems").unwrap_or(3)).unwrap().min(3);
            vec(values(&schema["items"], words), 0..=most).prop_map(Value::from).boxed()
        }
        Some("object") if schema["additionalProperties"].is_object() => {
            let keys = prop_oneof![4 => select(words.to_vec()), 1 => "[a-zA-Z0-9_.:-]{1,30}"];
            let maps = btree_map(keys, values(&schema["additionalProperties"], words), 0..4);
            maps.prop_map(|map| Value::Object(map.into_iter().collect())).boxed()
        }
        Some("object") => objects(schema, words),
        None if schema["x-kubernetes-int-or-string"] == true => {
            prop_oneof![3 => texts(schema), 1 => (1..1000_i64).prop_map(Value::from)].boxed()
        }
        _ => panic!("a schema without a type: {schema}"),
    }
}

/// Bounds are written as `1` or as `1.0`.
fn whole(number: &serde_json::Number) -> Option<i64> {
    number.to_string().trim_end_matches(".0").parse().ok()
}

fn texts(schema: &Value) -> BoxedStrategy<Value> {
    let size = |field: &str, usual: u64| usize::try_from(schema[field].as_u64().unwrap_or(usual)).unwrap();
    let (least, most) = (size("minLength", 0), size("maxLength", 64));
    let fits = move |text: &String| (least..=most).contains(&text.chars().count());
    let some = if let Some(pattern) = schema["pattern"].as_str() {
        let bare = pattern.trim_start_matches('^').trim_end_matches('$');
        let any = string_regex(bare).unwrap();
        // A pattern with spaces is a schedule, which random values hardly ever match.
        let schedules = select(SCHEDULES.to_vec()).prop_map(str::to_owned);
        if pattern.contains(r"\s") { prop_oneof![6 => schedules, 1 => any].boxed() } else { any.boxed() }
    } else {
        let nasty = select(NASTY.to_vec()).prop_map(str::to_owned);
        let longest = "x".repeat(most.min(260));
        prop_oneof![2 => nasty, 4 => "[a-z][a-z0-9.-]{0,20}", 1 => Just(longest)].boxed()
    };
    some.prop_filter("of a length that the schema allows", fits).prop_map(Value::from).boxed()
}

fn objects(schema: &Value, words: &[String]) -> BoxedStrategy<Value> {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut fields: BoxedStrategy<Map<String, Value>> = Just(Map::new()).boxed();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let value = values(property, words);
        let value = if required.contains(&name.as_str()) {
            value.prop_map(Some).boxed()
        } else {
            proptest::option::weighted(0.4, value).boxed()
        };
        let name = name.clone();
        fields = (fields, value)
            .prop_map(move |(mut fields, value)| {
                fields.extend(value.map(|value| (name.clone(), value)));
                fields
            })
            .boxed();
    }
    fields.prop_map(Value::Object).boxed()
}

fn specs(service: &dyn AnyService) -> BoxedStrategy<Value> {
    let definition = serde_json::to_value(service.crd()).unwrap();
    let root = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut words: Vec<String> =
        ["DEFAULT", "token", "expiration", "uwsgi", "mysqld"].map(str::to_owned).to_vec();
    let mut known = Vec::new();
    for case in cases().into_iter().filter(|case| case.service.kind() == service.kind()) {
        words.extend(case.render(&Observed::default()).unwrap().plan.files.into_keys());
        known.push(case.spec);
    }
    let random = values(&root["properties"]["spec"], &words);
    // Most random specs are rejected early, so some fields come from a valid spec.
    (random, select(known), any::<u64>())
        .prop_map(|(mut random, known, chosen)| {
            let fields = known.as_object().into_iter().flatten();
            for (index, (field, value)) in fields.enumerate() {
                // Three of four fields stay, otherwise a service with many needs could never be planned.
                if chosen >> (2 * index % 64) & 3 != 0 {
                    random[field] = value.clone();
                }
            }
            random
        })
        .boxed()
}

/// Number of random specs per service.
const TRIES: u32 = 96;

/// Deterministic, so a failure comes from a code change.
fn runner() -> TestRunner {
    let config =
        Config { cases: TRIES, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

#[test]
fn no_spec_that_the_schema_allows_makes_a_service_panic() {
    for service in ALL.iter() {
        let planned = Cell::new(0);
        let outcome = runner().run(&specs(*service), |spec| {
            let object = object(*service, "test", &spec);
            if let Ok(rendered) = render(*service, &object, &Observed::default()) {
                planned.set(planned.get() + 1);
                let title = service.name();
                check_manifests(title, &rendered);
                check_names(title, &rendered);
                let again = render(*service, &object, &Observed::default()).unwrap();
                prop_assert_eq!(rendered.manifests, again.manifests);
            }
            Ok(())
        });
        outcome.unwrap_or_else(|failure| panic!("{}: {failure}", service.name()));
        let planned = planned.get();
        assert!(planned > TRIES / 10, "only {planned} of {TRIES} specs of {} can be planned", service.name());
    }
}

#[test]
fn policies_are_rendered_unchanged() {
    let rules = btree_map("[a-z:_]{1,20}", any::<String>(), 1..5);
    let keystone = openstack_operator_services::of_kind("Keystone").unwrap();
    let outcome = runner().run(&rules, |rules| {
        let spec = json!({ "database": { "clusterRef": { "name": "db" } }, "policy": rules });
        let rendered = render(keystone, &object(keystone, "test", &spec), &Observed::default()).unwrap();
        let written: Value = serde_saphyr::from_str(rendered.plan.files["policy.yaml"].text().unwrap())
            .map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(written, json!(rules));
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}
