//! Invariants of the definitions: bounds, names, columns and rules.

use std::collections::BTreeMap;

use openstack_operator_model::{keyring, schema};
use openstack_operator_services::{ALL, PARTS, control_plane};
use openstack_operator_testkit::with_services;
use regex::Regex;
use serde_json::Value;

pub(crate) fn definitions() -> Vec<Value> {
    ALL.iter().map(|service| serde_json::to_value(service.crd()).unwrap()).collect()
}

fn version(definition: &Value) -> &Value {
    let versions = definition["spec"]["versions"].as_array().unwrap();
    assert_eq!(versions.len(), 1);
    &versions[0]
}

pub(crate) fn root(definition: &Value) -> &Value {
    &version(definition)["schema"]["openAPIV3Schema"]
}

/// Visits all parts of a schema with their paths.
pub(crate) fn parts<'a>(path: &str, schema: &'a Value, visit: &mut impl FnMut(&str, &'a Value)) {
    visit(path, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        parts(&format!("{path}.{name}"), property, visit);
    }
    for (field, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[field].is_object() {
            parts(&format!("{path}{mark}"), &schema[field], visit);
        }
    }
}

/// Planned number of services of a cloud.
const SERVICES: usize = 35;

#[test]
fn the_largest_definition_stays_below_the_size_limit() {
    let plane = ALL.iter().find(|service| service.kind() == control_plane::KIND).unwrap();
    let definition = serde_json::to_value(plane.crd()).unwrap();
    let wide = with_services(&definition, PARTS.len(), SERVICES);
    let (now, size) = (definition.to_string().len(), wide.to_string().len());
    assert!(size < 170_000, "{size} bytes with {SERVICES} services, {now} with {}", PARTS.len());
}

#[test]
fn all_fields_of_a_spec_have_bounds() {
    let mut unbounded = Vec::new();
    for definition in definitions() {
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap();
        let spec = &root(&definition)["properties"]["spec"];
        assert!(spec["properties"].is_object(), "{kind} has no spec");
        parts(&format!("{kind}.spec"), spec, &mut |path, schema| {
            let has = |field: &str| schema.get(field).is_some();
            let bounded = match schema["type"].as_str() {
                Some("string") => has("maxLength") || has("enum"),
                Some("array") => has("maxItems") && schema["items"].is_object(),
                Some("object") => {
                    let open =
                        schema.get("additionalProperties").is_some_and(|rest| *rest != Value::Bool(false));
                    let unknown = schema["x-kubernetes-preserve-unknown-fields"] == true;
                    (has("properties") || has("maxProperties")) && (!open || has("maxProperties")) && !unknown
                }
                Some("integer" | "number") => has("maximum") && has("minimum"),
                Some("boolean") => true,
                None => schema["x-kubernetes-int-or-string"] == true && has("maxLength"),
                _ => false,
            };
            if !bounded {
                unbounded.push(format!("{path}: {schema}"));
            }
        });
    }
    assert!(unbounded.is_empty(), "{}", unbounded.join("\n"));
}

#[test]
fn patterns_match_the_whole_text() {
    for definition in definitions() {
        parts("", root(&definition), &mut |path, schema| {
            if let Some(pattern) = schema["pattern"].as_str() {
                assert!(pattern.starts_with('^') && pattern.ends_with('$'), "{path}: {pattern}");
            }
        });
    }
}

#[test]
fn fields_without_a_default_are_optional_or_required() {
    // The API server rejects all objects if a default violates its schema.
    for definition in definitions() {
        parts("", root(&definition), &mut |path, schema| {
            let Some(default) = schema.get("default") else { return };
            if let Some(allowed) = schema["enum"].as_array() {
                assert!(allowed.contains(default), "{path}: {default}");
            }
            if let (Some(text), Some(longest)) = (default.as_str(), schema["maxLength"].as_u64()) {
                assert!(text.len() as u64 <= longest, "{path}: {default}");
            }
            if let (Some(number), Some(least)) = (default.as_f64(), schema["minimum"].as_f64()) {
                assert!(number >= least, "{path}: {default}");
            }
            for required in schema["required"].as_array().into_iter().flatten() {
                let field = required.as_str().unwrap();
                let own = schema["properties"][field].get("default").is_some();
                assert!(default.get(field).is_some() || own, "{path} is by default without {field}");
            }
        });
    }
}

#[test]
fn all_kinds_have_the_annotation_of_the_protected_group() {
    for definition in definitions() {
        let approved = &definition["metadata"]["annotations"]["api-approved.kubernetes.io"];
        assert_eq!(*approved, "unapproved, experimental-only");
        assert_eq!(definition["spec"]["group"], "openstack.k8s.io");
        assert_eq!(definition["spec"]["scope"], "Namespaced");
        let names = &definition["spec"]["names"];
        assert_eq!(names["categories"], serde_json::json!(["openstack"]), "{names}");
        assert!(version(&definition)["subresources"]["status"].is_object(), "{names}");
    }
}

#[test]
fn names_and_short_names_are_unique() {
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    for definition in definitions() {
        let names = &definition["spec"]["names"];
        let kind = names["kind"].as_str().unwrap().to_owned();
        let short = names["shortNames"].as_array();
        let singular = names["singular"].as_str().unwrap();
        let all = short
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .chain([singular, names["plural"].as_str().unwrap()]);
        for name in all {
            // Some names have no plural.
            if let Some(other) = owners.insert(name.to_owned(), kind.clone()).filter(|other| *other != kind) {
                panic!("{name} is a name of {other} and of {kind}");
            }
        }
    }
}

#[test]
fn all_kinds_print_ready_and_message() {
    for definition in definitions() {
        let columns = version(&definition)["additionalPrinterColumns"].as_array().unwrap();
        let names: Vec<&str> = columns.iter().map(|column| column["name"].as_str().unwrap()).collect();
        assert_eq!(names.first(), Some(&"Ready"), "{names:?}");
        assert_eq!(names[names.len() - 2..], ["Message", "Age"]);
    }
}

#[test]
fn kinds_equal_their_definitions() {
    for service in ALL.iter() {
        let (kind, definition) = (service.kind(), service.crd());
        assert_eq!(definition.spec.group, kind.group);
        assert_eq!(definition.spec.names.kind, kind.kind);
        assert_eq!(definition.spec.names.plural, kind.plural);
        assert_eq!(definition.spec.versions[0].name, kind.version);
    }
}

#[test]
fn rules_of_types_are_in_the_definitions() {
    let rules = |kind: &str| {
        let definition = definitions().into_iter().find(|one| one["spec"]["names"]["kind"] == kind).unwrap();
        let mut messages = Vec::new();
        parts("", root(&definition), &mut |_, schema| {
            for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
                messages.push(rule["message"].as_str().unwrap_or_else(|| panic!("{rule}")).to_owned());
            }
        });
        messages.join("\n")
    };
    for (kind, message) in [
        ("MariaDB", "storageSize cannot be reduced"),
        ("MariaDB", "storageClass cannot be changed"),
        ("MariaDB", "replicas must be odd"),
        ("OVNNetwork", "storage.size cannot be reduced"),
        ("RabbitMQ", "storageSize cannot be reduced"),
        ("RabbitMQ", "replicas must be odd"),
        ("Keystone", "spec.database is incomplete"),
        ("Keystone", "host requires secretRef"),
        ("OpenStackControlPlane", "storageSize cannot be reduced"),
        ("OpenStackControlPlane", "storageSize cannot be removed"),
        ("OpenStackControlPlane", "replicas must be odd"),
        ("OpenStackControlPlane", "spec.database.host names an existing server and spec.mariadb deploys one"),
        ("OpenStackControlPlane", "tls.enabled is not supported yet"),
        ("OpenStackControlPlane", "metadata.name must be at most 26"),
        ("Keystone", "metadata.name must be at most 40"),
    ] {
        assert!(rules(kind).contains(message), "{kind} has lost: {message}\n{}", rules(kind));
    }
}

#[test]
fn schedules_that_match_the_pattern_are_cron_expressions() {
    let pattern = Regex::new(schema::SCHEDULE).unwrap();
    for schedule in ["0 0 * * 0", "*/15 1,13 1-7 JAN,MAR-MAY MON-FRI", "0  0 1 */3 SUN", "59 23 31 12 6"] {
        assert!(pattern.is_match(schedule), "{schedule}");
        assert_eq!(keyring::check_schedule(schedule), Ok(()), "{schedule}");
    }
    let wrong =
        ["a b c d e", "0 0 * *", "0 0 0 * * 0", "@weekly", "0 0 * * SUNDAY", "MON 0 * * *", " 0 0 * * 0"];
    for schedule in wrong {
        assert!(!pattern.is_match(schedule), "{schedule}");
    }
}

/// Schema of a field below `self` of a rule.
fn field<'a>(schema: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(schema, |schema, name| schema["properties"].get(name))
}

#[test]
fn rules_read_only_existing_fields() {
    // The API server rejects a definition with a rule that reads an unknown field.
    let paths = Regex::new(r"(?:self|oldSelf)((?:\.[a-zA-Z0-9]+)+)(\(?)").unwrap();
    let mut checked = 0;
    for definition in definitions() {
        parts("", root(&definition), &mut |place, schema| {
            for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
                for found in paths.captures_iter(rule["rule"].as_str().unwrap()) {
                    let mut path = found[1].trim_start_matches('.');
                    if &found[2] == "(" {
                        // The last name is a function.
                        path = path.rsplit_once('.').map_or("", |(fields, _)| fields);
                    }
                    let known =
                        path.is_empty() || path.starts_with("metadata") || field(schema, path).is_some();
                    assert!(known, "{place}: {path} in {rule}");
                    checked += 1;
                }
            }
        });
    }
    assert!(checked > 100, "{checked}");
}
