//! Objects of other operators: they match the definitions of their kinds, if these exist beside the repository.

use std::path::{Path, PathBuf};

use openstack_operator_model::foreign::ForeignKind;
use openstack_operator_model::kind::Kind;
use openstack_operator_model::lower::Observed;
use openstack_operator_model::status::KeyValueServer;
use openstack_operator_services::{ALL, child_kinds, foreign_kinds};
use serde_json::{Value, json};

use crate::fixture::{case, rendered};

/// Definition of a kind, if it exists beside the repository.
fn definition(kind: Kind) -> Option<Value> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/crds");
    let projects = std::fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path());
    let file = |project: PathBuf| project.join(format!("{}_{}.yaml", kind.group, kind.plural));
    let text = projects.map(file).find_map(|file| std::fs::read_to_string(file).ok())?;
    Some(serde_saphyr::from_str(&text).unwrap())
}

/// Fields of a value that a schema does not have, or with another type.
fn unknown(path: &str, schema: &Value, value: &Value, found: &mut Vec<String>) {
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    let matches = schema["x-kubernetes-int-or-string"] == true
        || match value {
            Value::Object(_) => schema["type"] == "object",
            Value::Array(_) => schema["type"] == "array",
            Value::String(_) => schema["type"] == "string",
            Value::Bool(_) => schema["type"] == "boolean",
            Value::Number(_) => schema["type"] == "integer" || schema["type"] == "number",
            Value::Null => false,
        };
    if !matches {
        found.push(format!("{path}: {value} is not of type {}", schema["type"]));
    }
    for (field, value) in value.as_object().into_iter().flatten() {
        let inner = schema["properties"].get(field).or_else(|| schema.get("additionalProperties"));
        match inner {
            Some(inner) => unknown(&format!("{path}.{field}"), inner, value, found),
            None => found.push(format!("{path}.{field} does not exist")),
        }
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        unknown(&format!("{path}[{index}]"), &schema["items"], item, found);
    }
}

#[test]
fn objects_of_other_operators_match_the_definitions_of_their_kinds() {
    let mut kinds = Vec::new();
    for (case, rendered) in rendered() {
        for object in &rendered.plan.foreign {
            kinds.push(object.kind.kind);
            let Some(definition) = definition(object.kind.kind) else { continue };
            let versions = definition["spec"]["versions"].as_array().unwrap();
            let version =
                versions.iter().find(|version| version["name"] == object.kind.kind.version).unwrap();
            assert_eq!(definition["spec"]["names"]["kind"], object.kind.kind.kind);
            assert_eq!(
                (&version["served"], &definition["spec"]["scope"]),
                (&json!(true), &json!("Namespaced"))
            );
            let schema = &version["schema"]["openAPIV3Schema"]["properties"]["spec"];
            let mut found = Vec::new();
            unknown("spec", schema, &object.spec, &mut found);
            assert!(found.is_empty(), "{}: {}", case.title, found.join("\n"));
        }
    }
    for ForeignKind { kind, .. } in ALL.iter().flat_map(|service| service.foreign_kinds()) {
        assert!(kinds.contains(kind), "no case has a {}", kind.definition());
    }
}

#[test]
fn every_kind_of_another_project_is_written_once_and_by_one_rule() {
    let (foreign, children) = (foreign_kinds(), child_kinds());
    for (index, one) in foreign.iter().enumerate() {
        assert!(children.contains(&one.kind), "{}", one.kind.definition());
        for other in &foreign[index + 1..] {
            assert!(one.kind != other.kind || one == other, "{} has two rules", one.kind.definition());
        }
    }
    let mut unique = children.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), children.len());
}

#[test]
fn clients_of_a_delegated_store_use_the_secret_that_the_other_operator_writes() {
    let plan = case("valkey-delegated").render(&Observed::default()).unwrap().plan;
    let spec = &plan.foreign[0].spec;
    assert_eq!(spec["binding"]["secretName"], "test-password");
    let template = spec["binding"]["template"].as_str().unwrap();
    assert!(template.contains("username:") && template.contains("password:"), "{template}");
    let expected = KeyValueServer {
        servers: vec!["valkey-test.openstack.svc:26379".to_owned()],
        sentinel: Some("myprimary".to_owned()),
        database: 0,
        secret: Some("test-password".to_owned()),
        sentinel_secret: Some("test-password".to_owned()),
    };
    assert_eq!(plan.provides.key_value, Some(expected));
    assert!(plan.secrets.is_empty() && !plan.has_pods());
}
