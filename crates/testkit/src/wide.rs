//! Definition of a cloud with all planned services, to test the limits of the API server.

use serde_json::Value;

/// Blocks to copy in turn: the largest ones.
const COPIED: [&str; 4] = ["neutron", "glance", "nova", "keystone"];

/// Part of the message of a rule that names all services which require a part.
const REQUIRED_BY: &str = " is disabled, but required by ";

/// A definition with additional blocks `service11` and so on, and their rules for topologies, requirements and
/// components.
pub fn with_services(definition: &Value, present: usize, services: usize) -> Value {
    let mut wide = definition.clone();
    let schema =
        wide.pointer_mut("/spec/versions/0/schema/openAPIV3Schema").expect("a definition has a schema");
    for (number, copied) in (present + 1..=services).zip(COPIED.iter().cycle()) {
        let name = format!("service{number}");
        let blocks = &mut schema["properties"]["spec"]["properties"];
        blocks[&name] = blocks[*copied].clone();
        let rules = schema["x-kubernetes-validations"].as_array_mut().expect("a definition has rules");
        let copies: Vec<Value> = rules.iter().filter_map(|rule| topology_rule(rule, copied, &name)).collect();
        assert!(!copies.is_empty(), "{copied} has no topology");
        rules.extend(copies);
        for rule in rules.iter_mut().filter(|rule| rule.to_string().contains(REQUIRED_BY)) {
            extend(rule, copied, &name);
        }
        let components = &mut schema["properties"]["spec"]["properties"]["components"]["items"];
        for rule in components["x-kubernetes-validations"].as_array_mut().into_iter().flatten() {
            extend(rule, copied, &name);
        }
    }
    wide
}

fn topology_rule(rule: &Value, copied: &str, name: &str) -> Option<Value> {
    let is_meant = rule["message"].as_str()?.starts_with(&format!("spec.{copied}."))
        && rule["rule"].as_str()?.contains("self.spec.topologies.exists");
    let renamed = rule.to_string().replace(&format!("spec.{copied}"), &format!("spec.{name}"));
    is_meant.then(|| serde_json::from_str(&renamed).expect("a renamed rule is JSON"))
}

/// Adds a service to a rule that names all services.
fn extend(rule: &mut Value, copied: &str, name: &str) {
    let text = |field: &str| rule[field].as_str().unwrap_or_default().to_owned();
    let (mut condition, mut message) = (text("rule"), text("message"));
    if message.contains(REQUIRED_BY) && message.contains(copied) {
        let block = format!("self.spec.{name}");
        condition = format!("{condition} && !(has({block}) && has({block}.enabled) && {block}.enabled)");
        message = message.replacen(REQUIRED_BY, &format!("{REQUIRED_BY}{name}, "), 1);
    } else {
        // Components of the copied service.
        condition = condition.replacen(&format!("'{copied}'"), &format!("'{copied}','{name}'"), 1);
        let own = format!("self.service == '{copied}'");
        let copy = condition.split(" || ").find(|way| way.starts_with(&own));
        let copy = copy.map(|way| way.replace(&own, &format!("self.service == '{name}'")));
        condition = [condition.clone()].into_iter().chain(copy).collect::<Vec<_>>().join(" || ");
    }
    rule["rule"] = condition.into();
    rule["message"] = message.into();
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_added_service_has_a_block_and_is_in_all_rules() {
        let rules: Vec<Value> = COPIED
            .iter()
            .map(|block| {
                json!({ "message": format!("spec.{block}.topology is unknown"),
                        "rule": format!("self.spec.topologies.exists(t, t.name == self.spec.{block}.topology)") })
            })
            .chain([
                json!({ "message": "spec.mariadb is disabled, but required by neutron", "rule": "a || !b" }),
            ])
            .collect();
        let components = json!({ "items": { "x-kubernetes-validations": [{ "message": "no such component", "rule":
            "self.component == 'all' && self.service in ['neutron'] || self.service == 'neutron' && self.component in ['api']" }] } });
        let blocks = json!({ "neutron": { "type": "object" }, "glance": {}, "nova": {}, "keystone": {},
                             "components": components });
        let schema =
            json!({ "properties": { "spec": { "properties": blocks } }, "x-kubernetes-validations": rules });
        let definition = json!({ "spec": { "versions": [{ "schema": { "openAPIV3Schema": schema } }] } });
        let wide = with_services(&definition, 10, 11);
        let schema = &wide["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        assert_eq!(schema["properties"]["spec"]["properties"]["service11"], json!({ "type": "object" }));
        let rules = schema["x-kubernetes-validations"].to_string();
        assert!(rules.contains("t.name == self.spec.service11.topology"), "{rules}");
        assert!(rules.contains("a || !b && !(has(self.spec.service11)"), "{rules}");
        let components = schema["properties"]["spec"]["properties"]["components"].to_string();
        assert!(components.contains("['neutron','service11']"), "{components}");
        assert!(
            components.contains("self.service == 'service11' && self.component in ['api']"),
            "{components}"
        );
    }
}
