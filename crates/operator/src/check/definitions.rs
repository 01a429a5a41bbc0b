//! Definitions of the operator's kinds in a cluster, compared with those of this program.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{items, text};
use crate::installation;

/// How the definitions in a cluster compare with those of this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Definitions {
    Absent,
    Same,
    /// Definitions that are missing or differ, each with one difference.
    Different(Vec<String>),
}

pub(super) fn compare(found: &[Value]) -> Definitions {
    if found.is_empty() {
        return Definitions::Absent;
    }
    let wanted = installation::crds();
    let named = |name: &str| found.iter().find(|definition| text(definition, "/metadata/name") == name);
    let mut differences = Vec::new();
    let mut missing = 0;
    for definition in &wanted {
        let name = text(definition, "/metadata/name");
        match named(name) {
            None => {
                missing += 1;
                differences.push(format!("{name} is missing"));
            }
            Some(live) => differences.extend(difference(name, definition, live)),
        }
    }
    match (missing == wanted.len(), differences.is_empty()) {
        (true, _) => Definitions::Absent,
        (false, true) => Definitions::Same,
        (false, false) => Definitions::Different(differences),
    }
}

/// The first field or rule that only one of two definitions has. Descriptions and the API server's defaults do not count.
fn difference(name: &str, wanted: &Value, live: &Value) -> Option<String> {
    let [wanted, live] = [wanted, live].map(|definition| {
        let mut entries = BTreeSet::new();
        for version in items(definition, "/spec/versions") {
            let path = text(version, "/name").to_owned();
            collect(version.pointer("/schema/openAPIV3Schema").unwrap_or(&Value::Null), &path, &mut entries);
        }
        entries
    });
    let missing = wanted.difference(&live).next().map(|entry| format!("{name} has no {entry}"));
    missing
        .or_else(|| live.difference(&wanted).next().map(|entry| format!("{name} has an additional {entry}")))
}

fn collect(schema: &Value, path: &str, entries: &mut BTreeSet<String>) {
    for (field, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{field}");
        entries.insert(path.clone());
        collect(inner, &path, entries);
    }
    for (name, inner) in [("[]", &schema["items"]), (".*", &schema["additionalProperties"])] {
        if inner.is_object() {
            collect(inner, &format!("{path}{name}"), entries);
        }
    }
    for rule in items(schema, "/x-kubernetes-validations") {
        entries.insert(format!("rule of {path}: {}", text(rule, "/rule").trim()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn definitions_of_this_program_are_the_same_whatever_the_server_adds() {
        let mut found = installation::crds();
        assert_eq!(compare(&found), Definitions::Same);
        found[0]["status"] = json!({ "acceptedNames": {} });
        found[0]["spec"]["conversion"] = json!({ "strategy": "None" });
        assert_eq!(compare(&found), Definitions::Same);
        assert_eq!(compare(&[]), Definitions::Absent);
    }

    #[test]
    fn definitions_of_another_version_differ_by_a_named_field() {
        let mut found = installation::crds();
        let properties = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        found[0].pointer_mut(properties).unwrap().as_object_mut().unwrap().remove("region");
        let removed = found.pop().unwrap();
        let Definitions::Different(differences) = compare(&found) else { panic!("the same") };
        assert_eq!(
            differences,
            [
                "openstackcontrolplanes.openstack.k8s.io has no v1alpha1.spec.region".to_owned(),
                format!("{} is missing", text(&removed, "/metadata/name")),
            ]
        );
    }
}
