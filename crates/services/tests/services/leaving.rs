//! Pods on leaving nodes equal those of other nodes, which do not restart.

use openstack_operator_model::kind::DAEMON_SET;
use openstack_operator_model::lower::{Manifest, Observed};
use serde_json::{Value, json};

use crate::fixture::{cases, render_leaving};
use crate::laws::of;

const TERMS: &str = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";

fn pod(set: &Manifest) -> Value {
    set.body["spec"]["template"]["spec"].clone()
}

/// DaemonSet with this name.
fn set<'a>(manifests: &'a [Manifest], name: &str) -> &'a Manifest {
    of(manifests, DAEMON_SET).into_iter().find(|set| set.name == name).unwrap()
}

#[test]
fn pods_on_leaving_nodes_equal_those_of_other_nodes() {
    let mut kept = 0;
    for case in cases() {
        let observed = Observed::default();
        let plain = case.render(&observed).unwrap().manifests;
        let rendered = render_leaving(case.service, &case.object(), &observed, &["node-x", "node-y"]);
        let leaving = rendered.unwrap().manifests;
        for kept_set in of(&leaving, DAEMON_SET).into_iter().filter(|set| set.name.ends_with("-leaving")) {
            let other_set = set(&plain, kept_set.name.trim_end_matches("-leaving"));
            let (mut pod, mut other) = (pod(kept_set), pod(other_set));
            let terms = pod.pointer(TERMS).and_then(Value::as_array).unwrap();
            let names: Vec<&Value> = terms.iter().map(|term| &term["matchFields"][0]["values"][0]).collect();
            assert_eq!(names, ["node-x", "node-y"], "{}", case.title);
            pod.as_object_mut().unwrap().remove("affinity");
            let tolerations = pod.as_object_mut().unwrap().remove("tolerations");
            assert_eq!(
                tolerations,
                Some(json!([{ "operator": "Exists" }])),
                "a taint may be the reason why they leave"
            );
            other.as_object_mut().unwrap().remove("nodeSelector");
            other.as_object_mut().unwrap().remove("tolerations");
            assert_eq!(pod, other, "{}", case.title);
            assert_ne!(
                kept_set.body["spec"]["selector"], other_set.body["spec"]["selector"],
                "{}",
                case.title
            );
            kept += 1;
        }
        for before in of(&plain, DAEMON_SET) {
            let after = set(&leaving, &before.name);
            assert_eq!(after.body, before.body, "{}: pods of other nodes are replaced", case.title);
        }
    }
    assert_eq!(
        kept,
        2 * 3 + 3 * 2 + 4 + 3,
        "two cases of OVN with three pods, three of compute nodes with two, one with all agents, one with those of switches"
    );
}
