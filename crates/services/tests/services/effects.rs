//! Every field of a spec changes a plan, or is an exception with a reason.

use std::collections::{BTreeMap, BTreeSet};

use openstack_operator_model::lower::Observed;
use openstack_operator_model::service::AnyService;
use openstack_operator_services::ALL;
use serde_json::{Value, json};

use crate::fixture::{Case, cases, object, render};

/// Fields that change no plan, each with the reason.
const EXCEPTIONS: [(&str, &str); 10] = [
    ("OpenStackControlPlane.spec.storageBackend", "admission rejects it"),
    ("OpenStackControlPlane.spec.tls.", "admission rejects it"),
    ("Heat.spec.keystone.appCredentialRef", "admission rejects it"),
    (".spec.release", "there is one release"),
    (".encapsulation.type", "there is one type"),
    (".spec.dependsOn[].condition", "the engine waits for it before it plans; `needs` has it"),
    ("Neutron.spec.ovn.enabled", "it is equivalent to mechanism, which a rule enforces"),
    (".spec.neutron.ovn.enabled", "the same in a cloud"),
    (
        "MariaDB.spec.recovery.lostMembers",
        "it directs members: `a_lost_member_does_not_block_once_the_user_gives_it_up`",
    ),
    ("OVNChassis.spec.", "its network reads it: `a_chassis_of_the_user_overrides_the_settings_of_its_node`"),
];

/// Exception for a leaf.
fn exception(path: &str) -> Option<&'static str> {
    EXCEPTIONS.iter().map(|(part, _)| *part).find(|part| path.contains(part))
}

/// Leaf of a schema with the steps to it.
#[derive(Clone)]
struct Leaf {
    path: String,
    steps: Vec<Step>,
    schema: Value,
}

#[derive(Clone)]
enum Step {
    Field(String),
    /// The first item of a list, or the first entry of a map.
    Item(Value),
    Entry(Value),
}

fn leaves(path: &str, steps: &[Step], schema: &Value, found: &mut Vec<Leaf>) {
    let next = |step: Step| [steps, &[step]].concat();
    if let Some(fields) = schema["properties"].as_object() {
        for (name, field) in fields {
            leaves(&format!("{path}.{name}"), &next(Step::Field(name.clone())), field, found);
        }
    } else if schema["items"].is_object() {
        leaves(&format!("{path}[]"), &next(Step::Item(schema.clone())), &schema["items"], found);
    } else if schema["additionalProperties"].is_object() {
        let inner = &schema["additionalProperties"];
        leaves(&format!("{path}{{}}"), &next(Step::Entry(schema.clone())), inner, found);
    } else {
        found.push(Leaf { path: path.to_owned(), steps: steps.to_vec(), schema: schema.clone() });
    }
}

/// Replacement values.
fn replacements(schema: &Value, now: &Value) -> Vec<Value> {
    if let Some(allowed) = schema["enum"].as_array() {
        return allowed.iter().filter(|value| *value != now).cloned().collect();
    }
    match schema["type"].as_str() {
        Some("boolean") => vec![json!(true), json!(false)],
        Some("integer") => {
            let least = schema["minimum"].as_f64().unwrap_or(0.0);
            #[expect(clippy::cast_possible_truncation, reason = "bounds of integers are whole")]
            let least = least as i64;
            vec![json!(least + 2), json!(least + 4)]
        }
        _ => texts(schema),
    }
}

/// Texts that match the patterns of fields.
const TEXTS: [&str; 20] = [
    "zz9",
    "cell2",
    "neutron",
    "metadata",
    "zz-9",
    "zz",
    "7Gi",
    "7",
    "Zz",
    "https://zz.example.com/v3",
    "zz.example.com:7777",
    "zz.example.com.",
    "7 7 * * 7",
    "1 2 3 4 5",
    "/zz9",
    "tcp:zz.example.com:7777",
    "10.7.7.7",
    "example.com/zz",
    "phys:7:9",
    "zz_9",
];

fn texts(schema: &Value) -> Vec<Value> {
    let pattern = schema["pattern"].as_str().map(|pattern| regex::Regex::new(pattern).unwrap());
    let fits = |text: &&&str| {
        let long_enough = text.len() as u64 >= schema["minLength"].as_u64().unwrap_or(0);
        let short_enough = text.len() as u64 <= schema["maxLength"].as_u64().unwrap_or(64);
        long_enough && short_enough && pattern.as_ref().is_none_or(|pattern| pattern.is_match(text))
    };
    TEXTS.iter().filter(fits).map(|text| json!(text)).collect()
}

/// A valid value of a schema with all required fields.
fn smallest(schema: &Value) -> Value {
    if schema["properties"].is_object() {
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        return required
            .map(|field| (field.to_owned(), smallest(&schema["properties"][field])))
            .collect::<serde_json::Map<_, _>>()
            .into();
    }
    if schema["type"] == "array" {
        return json!([]);
    }
    if schema["type"] == "object" {
        return json!({});
    }
    replacements(schema, &Value::Null).into_iter().next().unwrap_or(Value::Null)
}

/// Sets a leaf to a value and creates its parents.
fn replace(value: &mut Value, steps: &[Step], schema: &Value, leaf: &Value, words: &[String]) {
    let Some((step, rest)) = steps.split_first() else {
        *value = leaf.clone();
        return;
    };
    match step {
        Step::Field(name) => {
            if !value.is_object() {
                *value = smallest(schema);
            }
            replace(&mut value[name.as_str()], rest, &schema["properties"][name], leaf, words);
        }
        Step::Item(list) => {
            let items = &list["items"];
            if value.as_array().is_none_or(Vec::is_empty) {
                *value = json!([smallest(items)]);
            }
            replace(&mut value[0], rest, items, leaf, words);
        }
        Step::Entry(map) => {
            let inner = &map["additionalProperties"];
            let known = value.as_object().and_then(|entries| entries.keys().next().cloned());
            let key = known.or_else(|| words.first().cloned()).unwrap_or_else(|| "zz".to_owned());
            if !value.is_object() {
                *value = json!({});
            }
            replace(&mut value[key.as_str()], rest, inner, leaf, words);
        }
    }
}

/// Plan of a spec, if it can be planned.
fn planned(service: &'static dyn AnyService, spec: &Value) -> Option<String> {
    let rendered = render(service, &object(service, "test", spec), &Observed::default()).ok()?;
    Some(format!("{:?}{:?}{:?}", rendered.needs, rendered.plan, rendered.manifests))
}

/// Whether a leaf changes the plan of one of the cases.
fn has_effect(service: &'static dyn AnyService, root: &Value, leaf: &Leaf, cases: &[Case]) -> bool {
    cases.iter().any(|case| {
        let before = planned(service, &case.spec);
        let rendered = case.render(&Observed::default()).unwrap();
        let words: Vec<String> =
            rendered.plan.files.keys().filter(|file| !file.contains(".sh")).cloned().collect();
        replacements(&leaf.schema, &Value::Null).iter().any(|replacement| {
            let mut spec = case.spec.clone();
            replace(&mut spec, &leaf.steps, root, replacement, &words);
            planned(service, &spec).is_some_and(|after| Some(after) != before)
        })
    })
}

#[test]
fn every_leaf_of_every_schema_changes_a_plan() {
    let mut without = Vec::new();
    let mut used = BTreeSet::new();
    for service in ALL.iter().copied() {
        let definition = serde_json::to_value(service.crd()).unwrap();
        let root = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let kind = service.kind().kind;
        let cases: Vec<Case> =
            cases().into_iter().filter(|case| case.service.kind() == service.kind()).collect();
        let mut found = Vec::new();
        leaves(&format!("{kind}.spec"), &[], root, &mut found);
        for leaf in found {
            let effective = has_effect(service, root, &leaf, &cases);
            if let Some(exception) = exception(&leaf.path) {
                used.insert(exception);
            } else if !effective {
                without.push(leaf.path);
            }
        }
    }
    assert!(without.is_empty(), "no effect:\n{}", without.join("\n"));
    assert_eq!(used.len(), EXCEPTIONS.len(), "an exception is not needed: {used:?}");
}

#[test]
fn a_chassis_of_the_user_overrides_the_settings_of_its_node() {
    let case = crate::fixture::case("ovn-minimal");
    let decoded = case.service.decode(&case.object()).unwrap();
    let mut resolved = crate::fixture::resolved(&decoded.needs(), &[]);
    let plan = |resolved: &_| decoded.plan(resolved, &crate::fixture::site(), &BTreeMap::new()).unwrap();
    let before = plan(&resolved);
    let spec = json!({
        "hostname": "node-a", "systemId": "rack1-a", "ovn": { "clusterRef": { "name": "test" } },
        "bridgeMappings": [{ "physicalNetwork": "edge", "bridge": "br-edge" }],
        "encapsulation": { "ip": "10.7.7.7" }, "gateway": { "enabled": false },
    });
    resolved.peers.insert(("OVNChassis".to_owned(), "written".to_owned()), spec);
    let after = plan(&resolved);
    let settings = &after.live_files["node-node-a"];
    for line in ["system-id rack1-a", "address 10.7.7.7", "mapping edge br-edge ", "gateway no"] {
        assert!(settings.lines().any(|found| found == line), "{line}: {settings}");
    }
    assert_eq!(before.live_files.get("node-node-a"), None);
    // The chassis of the user replaces the one of the operator.
    assert_eq!(after.children.len() + 1, before.children.len());
}
