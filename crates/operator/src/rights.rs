//! Permissions of the operator: exactly those that the engine uses, from the same list of kinds.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::PolicyRule;
use openstack_operator_model::kind::{CHILD_KINDS, Kind, NODE, POD, STORAGE_CLASS};
use openstack_operator_services::kinds;

/// Permissions in all namespaces. **Must not** have `*`, access to processes in pods, or roles: no workload uses the API.
pub(crate) fn cluster_rules() -> Vec<PolicyRule> {
    let own = kinds();
    let whole = ["get", "list", "watch", "create", "patch", "delete"];
    let mut rules = rules(&own, "", &whole);
    rules.extend(rules_of_part(&own, "status", &["get", "patch"]));
    // Some API servers allow owner references that block deletion only with this permission.
    rules.extend(rules_of_part(&own, "finalizers", &["update"]));
    rules.extend(self::rules(CHILD_KINDS, "", &whole));
    // Members of a quorum report in termination messages and get orders by annotation. Pods that a DaemonSet leaves on a
    // node that was deselected are deleted.
    rules.extend(self::rules(&[POD], "", &["get", "list", "watch", "patch", "delete"]));
    // Labels and taints select the nodes of an object.
    rules.extend(self::rules(&[NODE], "", &["get", "list", "watch"]));
    // A storage class says whether its volumes can grow.
    rules.extend(self::rules(&[STORAGE_CLASS], "", &["get"]));
    rules.push(rule("events.k8s.io", vec!["events".to_owned()], &["create", "patch"]));
    rules
}

/// Permissions in the operator's namespace: leader election.
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
        let has = |list: &Option<Vec<String>>, wanted: &str| list.iter().flatten().any(|item| item == wanted);
        let rules = cluster_rules().into_iter();
        rules
            .filter(|rule| has(&rule.api_groups, group) && has(&rule.resources, resource))
            .flat_map(|rule| rule.verbs)
            .collect()
    }

    #[test]
    fn no_wildcard_and_no_access_to_processes_in_pods_is_granted() {
        for rule in cluster_rules().iter().chain(&lease_rules()) {
            let names =
                [&rule.api_groups, &rule.resources].into_iter().flatten().flatten().chain(&rule.verbs);
            for name in names {
                assert!(!name.contains('*'), "{rule:?}");
                for forbidden in ["exec", "attach", "portforward", "role", "escalate", "bind", "impersonate"]
                {
                    assert!(!name.contains(forbidden), "{rule:?}");
                }
            }
        }
    }

    #[test]
    fn permissions_are_those_that_the_engine_uses() {
        let whole = ["get", "list", "watch", "create", "patch", "delete"];
        for kind in kinds().iter().chain(CHILD_KINDS) {
            assert_eq!(verbs(kind.group, kind.plural), whole, "{}", kind.kind);
        }
        assert_eq!(verbs("", "pods"), ["get", "list", "watch", "patch", "delete"]);
        assert_eq!(verbs("openstack.k8s.io", "keystones/status"), ["get", "patch"]);
        assert_eq!(verbs("openstack.k8s.io", "keystones/finalizers"), ["update"]);
        assert_eq!(verbs("events.k8s.io", "events"), ["create", "patch"]);
        assert_eq!(verbs("", "nodes"), ["get", "list", "watch"]);
        assert_eq!(verbs("storage.k8s.io", "storageclasses"), ["get"]);
        assert_eq!(verbs("", "namespaces"), Vec::<String>::new());
    }
}
