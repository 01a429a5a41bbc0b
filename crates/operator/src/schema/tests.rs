//! Problems of objects by their schemas.

use serde_json::json;

use super::*;

fn problems(kind: &str, object: &Value) -> Vec<String> {
    let service = openstack_operator_services::of_kind(kind).unwrap();
    check(&of(service), object, None).iter().map(ToString::to_string).collect()
}

fn plane(spec: &Value) -> Vec<String> {
    problems("OpenStackControlPlane", &json!({ "metadata": { "name": "cloud" }, "spec": spec }))
}

#[test]
fn a_valid_object_has_no_problems() {
    assert_eq!(plane(&json!({})), Vec::<String>::new());
    assert_eq!(
        plane(&json!({ "keystone": { "replicas": 3, "policy": { "a:b": "role:x" } } })),
        Vec::<String>::new()
    );
}

#[test]
fn an_unknown_field_is_reported_with_the_most_similar_one() {
    assert_eq!(
        plane(&json!({ "keystone": { "replica": 3 } })),
        ["spec.keystone.replica: there is no such field; did you mean \"replicas\"?"]
    );
}

#[test]
fn the_release_of_a_cloud_that_has_served_changes_only_to_the_next_one() {
    let service = openstack_operator_services::of_kind("OpenStackControlPlane").unwrap();
    let cloud = |release: &str, status: Value| json!({ "metadata": { "name": "cloud" }, "spec": { "release": release }, "status": status });
    let change = |before: Value, release: &str| -> Vec<String> {
        let after = cloud(release, before["status"].clone());
        check(&of(service), &after, Some(&before)).iter().map(ToString::to_string).collect()
    };
    let served = |release: &str| json!({ "served": true, "release": release });
    let none = Vec::<String>::new();
    assert_eq!(change(cloud("2025.1", served("2025.1")), "2026.1"), none);
    assert_eq!(change(cloud("2026.1", served("2025.1")), "2025.1"), none, "planning decides");
    assert_eq!(change(cloud("2026.1", json!({ "release": "2026.1" })), "2025.1"), none, "it has no data");
    assert_eq!(change(cloud("2026.1", json!({})), "2025.1"), none);
    let found = change(cloud("2026.1", served("2026.1")), "2025.1");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("spec.release: can only change from the release in status.release"),
        "{found:?}"
    );
}

#[test]
fn values_outside_their_bounds_are_rejected() {
    let found = plane(&json!({
        "keystone": { "replicas": 0, "publicHostname": "A_b" }, "networkBackend": "vlan",
        "region": 5, "mariadb": { "replicas": "three" }
    }));
    let all = found.join("\n");
    assert_eq!(found.len(), 5, "{all}");
    assert!(all.contains("spec.keystone.replicas: must be at least 1, and 0 is not"), "{all}");
    assert!(all.contains("spec.keystone.publicHostname: \"A_b\" does not have the form"), "{all}");
    assert!(all.contains("spec.networkBackend: must be one of \"ovn\", \"ovs\""), "{all}");
    assert!(
        all.contains("spec.region: must be of type string, and 5 is not; write it in quotes: \"5\""),
        "{all}"
    );
    assert!(all.contains("spec.mariadb.replicas: must be of type integer"), "{all}");
}

#[test]
fn long_names_and_missing_specs_are_rejected() {
    let found = problems("Keystone", &json!({ "metadata": { "name": "k".repeat(60) } }));
    let name = found.iter().find(|problem| problem.starts_with("metadata.name: must be at most 40"));
    assert!(
        name.is_some_and(|problem| problem.ends_with(&format!("(it is {:?})", "k".repeat(60)))),
        "{found:?}"
    );
    assert!(found.iter().any(|problem| problem == "spec: is required"), "{found:?}");
}

#[test]
fn defaults_are_filled_in_at_every_level() {
    let schema = of(openstack_operator_services::of_kind("Keystone").unwrap());
    let mut object = json!({ "spec": { "fernet": { "maxActiveKeys": 5 }, "gatewayRef": null } });
    fill_defaults(&schema, &mut object);
    assert_eq!(object["spec"]["release"], "2025.1");
    assert_eq!(object["spec"]["fernet"]["rotationSchedule"], "0 0 * * 0");
    assert_eq!(object["spec"].get("gatewayRef"), None);
}

/// A schema that a test makes by hand.
fn made(schema: &Value) -> JSONSchemaProps {
    let spec = json!({ "type": "object", "properties": { "spec": schema } });
    serde_json::from_value(spec).unwrap()
}

fn found(schema: &JSONSchemaProps, spec: &Value, live: Option<&Value>) -> Vec<String> {
    let live = live.map(|spec| json!({ "spec": spec }));
    check(schema, &json!({ "spec": spec }), live.as_ref()).iter().map(ToString::to_string).collect()
}

#[test]
fn a_field_may_take_numbers_and_text() {
    let amount = json!({ "x-kubernetes-int-or-string": true, "pattern": "^[0-9]+m?$", "maxLength": 4 });
    let schema = made(&json!({ "type": "object", "properties": { "cpu": amount } }));
    let cpu = |value: Value| found(&schema, &json!({ "cpu": value }), None);
    for right in [json!(2), json!("2"), json!("500m"), json!(12345), Value::Null] {
        assert_eq!(cpu(right.clone()), Vec::<String>::new(), "{right}");
    }
    assert_eq!(cpu(json!("many")), [r#"spec.cpu: "many" does not have the form ^[0-9]+m?$"#]);
    assert_eq!(cpu(json!("12345")), ["spec.cpu: has 5 character(s), and may have at most 4"]);
    assert_eq!(
        cpu(json!(true)),
        [r#"spec.cpu: must be a whole number or text, and true is not; write it in quotes: "true""#]
    );
    assert_eq!(
        cpu(json!(0.5)),
        [r#"spec.cpu: must be a whole number or text, and 0.5 is not; write it in quotes: "0.5""#]
    );
    assert_eq!(cpu(json!([])), ["spec.cpu: must be a whole number or text, and [] is not"]);
}

#[test]
fn a_list_has_each_item_once() {
    let keyed = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "port"],
        "items": { "type": "object", "properties": {
            "name": { "type": "string" }, "port": { "type": "integer", "default": 80 }, "note": { "type": "string" }
        } }
    });
    let set = json!({ "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } });
    let schema = made(&json!({ "type": "object", "properties": { "keyed": keyed, "set": set } }));
    let once = json!({ "keyed": [{ "name": "a" }, { "name": "a", "port": 81 }], "set": ["a", "b"] });
    assert_eq!(found(&schema, &once, None), Vec::<String>::new());
    let twice =
        json!({ "keyed": [{ "name": "a" }, { "name": "a", "port": 80, "note": "" }], "set": ["a", "a"] });
    assert_eq!(
        found(&schema, &twice, None),
        [
            r#"spec.keyed[1]: there is another item with name "a", port 80: remove one of them"#,
            r#"spec.set[1]: there is another item with "a": remove one of them"#
        ]
    );
}

/// Every function that rules use, with a spec for which the rule holds and one for which it does not.
fn functions() -> Vec<(&'static str, &'static str, Value, Value)> {
    vec![
        ("matches", "self.text.matches('^a+$')", json!({ "text": "aa" }), json!({ "text": "ab" })),
        (
            "quantity",
            "quantity(self.text) == quantity('1Gi')",
            json!({ "text": "1024Mi" }),
            json!({ "text": "1G" }),
        ),
        (
            "compareTo",
            "quantity(self.text).compareTo(quantity('1500m')) <= 0",
            json!({ "text": "1.5" }),
            json!({ "text": "2" }),
        ),
        ("isQuantity", "isQuantity(string(self.both))", json!({ "both": 2 }), json!({ "both": "many" })),
        ("string", "string(self.both) == '2'", json!({ "both": 2 }), json!({ "both": "3" })),
    ]
}

fn ruled(rule: &str) -> JSONSchemaProps {
    made(&json!({
        "type": "object",
        "properties": {
            "text": { "type": "string" }, "both": { "x-kubernetes-int-or-string": true },
            "list": { "type": "array", "items": { "type": "string" } },
            "map": { "type": "object", "additionalProperties": { "type": "string" } },
        },
        "x-kubernetes-validations": [{ "rule": rule, "message": "broken" }],
    }))
}

#[test]
fn every_function_of_rules_is_evaluated() {
    // Macros and operators of the language are not functions.
    let macros = [
        ("has", "has(self.text)", json!({ "text": "" }), json!({})),
        ("in", "'a' in self.list", json!({ "list": ["a"] }), json!({ "list": ["b"] })),
        (
            "all",
            "self.map.all(key, key.matches('^a'))",
            json!({ "map": { "ab": "" } }),
            json!({ "map": { "b": "" } }),
        ),
    ];
    for (name, rule, right, wrong) in functions().into_iter().chain(macros) {
        let schema = ruled(rule);
        assert_eq!(found(&schema, &right, None), Vec::<String>::new(), "{name}");
        assert_eq!(found(&schema, &wrong, None), ["spec: broken"], "{name}");
    }
}

#[test]
fn a_rule_that_cannot_be_evaluated_is_a_problem() {
    for rule in ["self.text.dance()", "self.text ==", "unknown(self.text)", "self.text"] {
        let problems = found(&ruled(rule), &json!({ "text": "a" }), None);
        assert_eq!(problems.len(), 1, "{rule}: {problems:?}");
    }
}

#[test]
fn a_broken_rule_is_reported_with_its_value() {
    let name = json!({
        "type": "string", "x-kubernetes-validations": [{ "rule": "self != 'a'", "message": "a is taken" }]
    });
    let schema = made(&json!({ "type": "object", "properties": {
        "name": name, "names": { "type": "array", "items": name }
    } }));
    assert_eq!(
        found(&schema, &json!({ "name": "a", "names": ["b", "a"] }), None),
        ["spec.name: a is taken (it is \"a\")", "spec.names[1]: a is taken (it is \"a\")"]
    );
}

#[test]
fn transition_rules_apply_to_existing_objects() {
    let schema = ruled("self.text == oldSelf.text");
    let (one, other) = (json!({ "text": "a" }), json!({ "text": "b" }));
    assert_eq!(found(&schema, &one, None), Vec::<String>::new());
    assert_eq!(found(&schema, &one, Some(&one)), Vec::<String>::new());
    assert_eq!(found(&schema, &one, Some(&other)), ["spec: broken"]);
}

#[test]
fn rules_see_defaults() {
    let mut schema = ruled("self.text == 'a'");
    let spec = schema.properties.as_mut().unwrap().get_mut("spec").unwrap();
    spec.properties.as_mut().unwrap().get_mut("text").unwrap().default =
        Some(serde_json::from_value(json!("a")).unwrap());
    assert_eq!(found(&schema, &json!({}), None), Vec::<String>::new());
    assert_eq!(found(&schema, &json!({ "text": null }), None), Vec::<String>::new());
}

#[test]
fn every_rule_and_pattern_of_every_definition_can_be_checked_here() {
    let known: Vec<&str> = functions().iter().map(|(name, ..)| *name).collect();
    let mut rules = 0;
    for service in openstack_operator_services::ALL.iter() {
        let schema = serde_json::to_value(of(*service)).unwrap();
        visit(&kube_cel::compile_schema(&schema), &mut |compiled| {
            let references = compiled.program.references();
            // Names of operators are not identifiers.
            let functions =
                references.functions().into_iter().filter(|name| name.starts_with(char::is_alphabetic));
            for function in functions {
                assert!(known.contains(&function), "{}: no test evaluates {function}", compiled.rule.rule);
            }
            rules += 1;
        });
        visit_patterns(&schema, &mut |pattern| assert!(Regex::new(pattern).is_ok(), "{pattern}"));
        let whole = schema["x-kubernetes-validations"].as_array().unwrap();
        for rule in whole {
            let message = rule["message"].as_str().unwrap();
            assert!(message.starts_with("spec.") || message.starts_with("metadata."), "{message}");
        }
    }
    assert!(rules > 100, "{rules}");
}

/// Calls back for every rule, all of which must compile.
fn visit(schema: &kube_cel::CompiledSchema, found: &mut dyn FnMut(&kube_cel::CompilationResult)) {
    for rule in &schema.validations {
        match rule {
            Ok(rule) => found(rule),
            Err(error) => panic!("{error}"),
        }
    }
    if let Some(items) = &schema.items {
        visit(items, &mut |rule| {
            // kube-cel correlates items by index, an API server by key.
            assert!(!rule.is_transition_rule, "{}: it is below a list", rule.rule.rule);
            found(rule);
        });
    }
    let nested = schema.additional_properties.iter().map(AsRef::as_ref);
    let branches = schema.all_of.iter().chain(&schema.one_of).chain(&schema.any_of);
    for schema in schema.properties.values().chain(nested).chain(branches) {
        visit(schema, found);
    }
}

fn visit_patterns(schema: &Value, found: &mut impl FnMut(&str)) {
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
        found(pattern);
    }
    let inner = schema.as_object().into_iter().flat_map(|fields| fields.values());
    inner.chain(schema.as_array().into_iter().flatten()).for_each(|schema| visit_patterns(schema, found));
}
