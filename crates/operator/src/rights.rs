//! What the operator may do in a cluster: exactly what the engine does, from the same list of kinds.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::PolicyRule;
use openstack_operator_model::kind::{CHILD_KINDS, Kind, NODE, POD};
use openstack_operator_services::kinds;

/// Rights in all namespaces. **Must not** have `*`, any way into pods, or roles: no workload needs the API.
pub(crate) fn cluster_rules() -> Vec<PolicyRule> {
    let own = kinds();
    let whole = ["get", "list", "watch", "create", "patch", "delete"];
    let mut rules = rules(&own, "", &whole);
    rules.extend(rules_of_part(&own, "status", &["get", "patch"]));
    // Where the API server lets only those block an owner's deletion who may finalize it.
    rules.extend(rules_of_part(&own, "finalizers", &["update"]));
    rules.extend(self::rules(CHILD_KINDS, "", &whole));
    // Members of a group report by their pods' last words, and are told what to do by annotation.
    // Those that a DaemonSet leaves on a node that takes no more of them are deleted.
    rules.extend(self::rules(&[POD], "", &["get", "list", "watch", "patch", "delete"]));
    // Their labels and taints say which have a part of what.
    rules.extend(self::rules(&[NODE], "", &["get", "list", "watch"]));
    rules.push(rule("events.k8s.io", vec!["events".to_owned()], &["create", "patch"]));
    rules
}

/// Rights in the operator's own namespace: the election.
pub(crate) fn lease_rules() -> Vec<PolicyRule> {
    vec![rule("coordination.k8s.io", vec!["leases".to_owned()], &["get", "create", "patch"])]
}

fn rules_of_part(kinds: &[Kind], part: &str, verbs: &[&str]) -> Vec<PolicyRule> {
    rules(kinds, &format!("/{part}"), verbs)
}

/// One rule for each group.
fn rules(kinds: &[Kind], end: &str, verbs: &[&str]) -> Vec<PolicyRule> {
    let mut groups: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for kind in kinds {
        groups.entry(kind.group).or_default().push(format!("{}{end}", kind.plural));
    }
    groups
        .into_iter()
        .map(|(group, mut resources)| {
            resources.sort();
            rule(group, resources, verbs)
        })
        .collect()
}

fn rule(group: &str, resources: Vec<String>, verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(resources),
        verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
        ..PolicyRule::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verbs(group: &str, resource: &str) -> Vec<String> {
        let has = |list: &Option<Vec<String>>, word: &str| list.iter().flatten().any(|item| item == word);
        let rules = cluster_rules().into_iter();
        rules
            .filter(|rule| has(&rule.api_groups, group) && has(&rule.resources, resource))
            .flat_map(|rule| rule.verbs)
            .collect()
    }

    #[test]
    fn nothing_is_granted_that_would_be_all_or_a_way_into_pods() {
        for rule in cluster_rules().iter().chain(&lease_rules()) {
            let words =
                [&rule.api_groups, &rule.resources].into_iter().flatten().flatten().chain(&rule.verbs);
            for word in words {
                assert!(!word.contains('*'), "{rule:?}");
                for forbidden in ["exec", "attach", "portforward", "role", "escalate", "bind", "impersonate"]
                {
                    assert!(!word.contains(forbidden), "{rule:?}");
                }
            }
        }
    }

    #[test]
    fn rights_are_what_the_engine_uses() {
        let whole = ["get", "list", "watch", "create", "patch", "delete"];
        for kind in kinds().iter().chain(CHILD_KINDS) {
            assert_eq!(verbs(kind.group, kind.plural), whole, "{}", kind.kind);
        }
        assert_eq!(verbs("", "pods"), ["get", "list", "watch", "patch", "delete"]);
        assert_eq!(verbs("openstack.k8s.io", "keystones/status"), ["get", "patch"]);
        assert_eq!(verbs("openstack.k8s.io", "keystones/finalizers"), ["update"]);
        assert_eq!(verbs("events.k8s.io", "events"), ["create", "patch"]);
        assert_eq!(verbs("", "nodes"), ["get", "list", "watch"]);
        assert_eq!(verbs("", "namespaces"), Vec::<String>::new());
    }
}
