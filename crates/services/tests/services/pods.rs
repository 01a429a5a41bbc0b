//! Invariants of pods: privileges, mounts and probes.

use std::collections::{BTreeMap, BTreeSet};

use openstack_operator_model::kind::{CONFIG_MAP, CRON_JOB, JOB, STATEFUL_SET};
use openstack_operator_model::lower::{Manifest, Observed};
use serde_json::{Value, json};

use crate::fixture::{Rendered, case, cases_and_gadget};
use crate::laws::of;

const HOSTNAME: &str = "kubernetes.io/hostname";

/// All pods of all cases, including upgrades.
fn pods() -> Vec<(String, bool, Value, Rendered)> {
    let mut pods = Vec::new();
    for case in cases_and_gadget() {
        for installed in [None, Some("another".to_owned())] {
            let observed = Observed { installed, ..Observed::default() };
            let manifests = case.render(&observed).unwrap().manifests;
            for Manifest { kind, name, body, .. } in &manifests {
                let runs = body.pointer("/spec/jobTemplate/spec/template/spec");
                if let Some(pod) = body.pointer("/spec/template/spec").or(runs) {
                    let title = format!("{}: {} {name}", case.title, kind.kind);
                    let mut pod = pod.clone();
                    pod["claims"] = body["spec"]["volumeClaimTemplates"].clone();
                    pods.push((title, [JOB, CRON_JOB].contains(kind), pod, case.render(&observed).unwrap()));
                }
            }
        }
    }
    assert!(!pods.is_empty());
    pods
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value[field].as_array().into_iter().flatten()
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    list(pod, "initContainers").chain(list(pod, "containers"))
}

/// Pods with access to their node, and the maximum privileges of their containers. No other pod is root, has
/// capabilities or mounts host paths.
const NODE_PODS: [(&str, Privileges); 8] = [
    ("ovs-db", Privileges::Root(&[])),
    ("ovs-vswitchd", Privileges::Root(&["NET_ADMIN", "NET_RAW"])),
    ("ovn-controller", Privileges::Root(&[])),
    ("metadata-agent", Privileges::Privileged),
    ("openvswitch-agent", Privileges::Privileged),
    ("network-agents", Privileges::Privileged),
    ("libvirt", Privileges::Privileged),
    ("nova-compute", Privileges::Privileged),
];

#[derive(Clone, Copy, PartialEq)]
enum Privileges {
    Root(&'static [&'static str]),
    Privileged,
}

fn node_privileges(title: &str) -> Option<Privileges> {
    let component = title.rsplit("DaemonSet test-").next().filter(|_| title.contains("DaemonSet"))?;
    NODE_PODS.iter().find(|(name, _)| *name == component).map(|(_, privileges)| *privileges)
}

#[test]
fn node_pods_have_only_the_listed_privileges() {
    let mut seen = BTreeSet::new();
    for (title, _, pod, _) in pods().into_iter().filter(|(title, ..)| title.contains("DaemonSet")) {
        let privileges = node_privileges(&title).unwrap_or_else(|| panic!("{title} is not listed"));
        seen.insert(title.rsplit("test-").next().unwrap().to_owned());
        assert_eq!(pod["automountServiceAccountToken"], false, "{title}");
        assert_eq!(pod["dnsPolicy"], "ClusterFirstWithHostNet", "{title}");
        assert_eq!(pod.get("hostIPC"), None, "{title}");
        assert_eq!(pod.get("hostPID").is_some(), title.ends_with("-libvirt"), "{title}");
        for container in containers(&pod) {
            let security = &container["securityContext"];
            if security["privileged"] == true {
                assert!(privileges == Privileges::Privileged, "{title}");
                continue;
            }
            assert_eq!(security["allowPrivilegeEscalation"], false, "{title}");
            assert_eq!(security["readOnlyRootFilesystem"], true, "{title}");
            assert_eq!(security["capabilities"]["drop"], json!(["ALL"]), "{title}");
            if let Privileges::Root(capabilities) = privileges {
                let more = list(&security["capabilities"], "add")
                    .all(|added| capabilities.iter().any(|one| added == one));
                assert!(more, "{title}");
            }
        }
    }
    assert_eq!(seen.len(), NODE_PODS.len(), "a listed pod no longer exists: {seen:?}");
}

#[test]
fn pods_have_minimal_privileges() {
    for (title, _, pod, _) in pods().into_iter().filter(|(title, ..)| node_privileges(title).is_none()) {
        let security = &pod["securityContext"];
        assert_eq!(security["runAsNonRoot"], true, "{title}");
        assert!(security["runAsUser"].as_i64().is_some_and(|user| user > 0), "{title}");
        assert_eq!(security["seccompProfile"], json!({ "type": "RuntimeDefault" }), "{title}");
        assert_eq!(pod["automountServiceAccountToken"], false, "{title}");
        assert_eq!(pod["enableServiceLinks"], false, "{title}");
        for field in ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"] {
            assert_eq!(pod.get(field), None, "{title}");
        }
        for container in containers(&pod) {
            let security = &container["securityContext"];
            assert_eq!(security["allowPrivilegeEscalation"], false, "{title}");
            assert_eq!(security["readOnlyRootFilesystem"], true, "{title}");
            assert_eq!(security["capabilities"], json!({ "drop": ["ALL"] }), "{title}");
            assert_eq!(security.get("privileged"), None, "{title}");
            assert_eq!(security.get("runAsUser"), None, "{title}");
        }
        for volume in list(&pod, "volumes") {
            assert_eq!(volume.get("hostPath"), None, "{title}");
        }
    }
}

#[test]
fn pods_notice_a_lost_peer_within_eight_seconds() {
    for (title, _, pod, _) in pods() {
        let sysctls = || list(&pod["securityContext"], "sysctls");
        if pod.get("hostNetwork").is_some() {
            assert_eq!(sysctls().count(), 0, "{title}: Kubernetes rejects settings of the node's network");
            continue;
        }
        let setting = |name: &str| {
            let one = sysctls().find(|one| one["name"] == format!("net.ipv4.tcp_keepalive_{name}"))?;
            one["value"].as_str()?.parse::<u32>().ok()
        };
        let all = (setting("time"), setting("intvl"), setting("probes"));
        let (Some(time), Some(interval), Some(probes)) = all else { panic!("{title}: {all:?}") };
        assert!(time + interval * probes <= 8, "{title}: {all:?}");
    }
}

#[test]
fn containers_have_an_image_a_command_and_resources() {
    for (title, _, pod, _) in pods() {
        for container in containers(&pod) {
            let image = container["image"].as_str().unwrap();
            let reference = image.rsplit('/').next().unwrap();
            assert!(reference.contains(':') || image.contains("@sha256:"), "{title}: {image} has no tag");
            assert!(!container["command"].as_array().unwrap().is_empty(), "{title}");
            let resources = &container["resources"];
            for amount in ["/requests/cpu", "/requests/memory", "/limits/memory"] {
                assert!(resources.pointer(amount).is_some(), "{title} has no {amount}");
            }
        }
    }
}

#[test]
fn members_with_data_share_no_node_unless_the_user_allows_it() {
    let mut checked = 0;
    for (title, _, pod, rendered) in pods() {
        let by_node =
            || list(&pod, "topologySpreadConstraints").filter(|spread| spread["topologyKey"] == HOSTNAME);
        if pod["claims"].is_null() {
            assert!(by_node().all(|spread| spread["whenUnsatisfiable"] == "ScheduleAnyway"), "{title}");
            continue;
        }
        let chosen =
            rendered.plan.workloads.iter().flat_map(|workload| &workload.pod.scheduling.topology_spread);
        assert!(chosen.into_iter().all(|spread| spread.topology_key != HOSTNAME), "{title} tests nothing");
        let hard: Vec<&Value> = by_node().collect();
        assert_eq!(hard.len(), 1, "{title}");
        assert_eq!(
            (&hard[0]["maxSkew"], &hard[0]["whenUnsatisfiable"], &hard[0]["nodeTaintsPolicy"]),
            (&json!(1), &json!("DoNotSchedule"), &json!("Honor")),
            "{title}"
        );
        checked += 1;
    }
    assert!(checked > 0);
    let mut case = case("mariadb-rich");
    case.spec["topologySpread"] = json!([{ "topologyKey": HOSTNAME, "whenUnsatisfiable": "ScheduleAnyway" }]);
    let rendered = case.render(&Observed::default()).unwrap();
    let set = of(&rendered.manifests, STATEFUL_SET)[0];
    let constraints = &set.body["spec"]["template"]["spec"]["topologySpreadConstraints"];
    assert_eq!(constraints.as_array().unwrap().len(), 1);
    assert_eq!(constraints[0]["whenUnsatisfiable"], "ScheduleAnyway");
}

#[test]
fn ports_and_variables_of_a_container_are_unique() {
    for (title, _, pod, _) in pods() {
        for container in containers(&pod) {
            let (mut numbers, mut names) = (BTreeSet::new(), BTreeSet::new());
            for port in list(container, "ports") {
                let name = port["name"].as_str().unwrap();
                let place = (port["containerPort"].as_u64(), port["protocol"].as_str());
                assert!(numbers.insert(place), "{title}: {port}");
                assert!(names.insert(name) && name.len() <= 15, "{title}: {port}");
            }
            let mut known = BTreeSet::new();
            for variable in list(container, "env") {
                let text = variable["value"].as_str().unwrap_or_default();
                for used in text.split("$(").skip(1).filter_map(|rest| rest.split(')').next()) {
                    assert!(known.contains(used), "{title}: {used} is used before it is set");
                }
                assert!(known.insert(variable["name"].as_str().unwrap()), "{title}: {variable}");
            }
        }
    }
}

#[test]
fn all_mounts_have_a_source() {
    for (title, _, pod, rendered) in pods() {
        let maps: BTreeMap<&str, &Value> = of(&rendered.manifests, CONFIG_MAP)
            .into_iter()
            .map(|map| (map.name.as_str(), map.body.get("binaryData").unwrap_or(&map.body["data"])))
            .collect();
        let volumes: BTreeMap<&str, &Value> =
            list(&pod, "volumes").map(|volume| (volume["name"].as_str().unwrap(), volume)).collect();
        assert_eq!(volumes.len(), list(&pod, "volumes").count(), "{title}: a volume occurs twice");
        let claims: BTreeSet<&str> =
            list(&pod, "claims").map(|claim| claim["metadata"]["name"].as_str().unwrap()).collect();
        let mut used = BTreeSet::new();
        for container in containers(&pod) {
            let mut paths = BTreeSet::new();
            for mount in list(container, "volumeMounts") {
                let name = mount["name"].as_str().unwrap();
                assert!(name.len() <= 63);
                assert!(paths.insert(mount["mountPath"].as_str().unwrap()), "{title}: {mount}");
                used.insert(name);
                // The user provides the sources of extra mounts.
                if claims.contains(name) || name.starts_with("extra-") {
                    continue;
                }
                let volume = volumes.get(name).unwrap_or_else(|| panic!("{title}: no volume {name}"));
                if let Some(map) = volume["configMap"]["name"].as_str() {
                    let data = maps.get(map).unwrap_or_else(|| panic!("{title}: no ConfigMap {map}"));
                    if let Some(file) = mount["subPath"].as_str() {
                        assert!(data.get(file).is_some(), "{title}: no file {file}");
                    }
                    assert_eq!(mount["readOnly"], true, "{title}: {mount}");
                }
            }
        }
        let all: BTreeSet<&str> = volumes.keys().copied().chain(claims).collect();
        assert_eq!(used, all, "{title}: an unused volume");
    }
}

#[test]
fn files_in_commands_are_mounted() {
    for (title, _, pod, _) in pods() {
        for container in containers(&pod) {
            let mounted: Vec<&str> =
                list(container, "volumeMounts").map(|mount| mount["mountPath"].as_str().unwrap()).collect();
            let probes = ["startupProbe", "readinessProbe", "livenessProbe"];
            let stop = &container["lifecycle"]["preStop"]["exec"];
            let commands = probes.iter().map(|probe| &container[*probe]["exec"]).chain([container, stop]);
            for word in commands.flat_map(|command| list(command, "command")).filter_map(Value::as_str) {
                if word.starts_with("/etc/") {
                    assert!(
                        mounted.iter().any(|path| word.starts_with(path)),
                        "{title}: {word} is not mounted"
                    );
                }
            }
        }
    }
}

#[test]
fn servers_have_probes_and_a_grace_period() {
    for (title, is_job, pod, _) in pods() {
        assert!(pod["terminationGracePeriodSeconds"].as_i64().is_some(), "{title}");
        if is_job {
            assert_eq!(pod["restartPolicy"], "OnFailure", "{title}");
            assert_eq!(pod.get("topologySpreadConstraints"), None, "{title}");
            continue;
        }
        let spread = list(&pod, "topologySpreadConstraints").next().is_some();
        assert!(spread || title.contains("DaemonSet"), "{title}");
        for container in list(&pod, "containers") {
            assert!(container["readinessProbe"].is_object(), "{title} is never ready");
            for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
                if let Some(probe) = container.get(probe) {
                    let (period, timeout) = (&probe["periodSeconds"], &probe["timeoutSeconds"]);
                    assert!(period.as_i64() >= Some(1) && timeout.as_i64() >= Some(1), "{title}: {probe}");
                    let port = probe.pointer("/httpGet/port").or_else(|| probe.pointer("/tcpSocket/port"));
                    if let Some(port) = port {
                        let has = list(container, "ports").any(|own| own["containerPort"] == *port);
                        assert!(has, "{title}: no port {port}");
                    }
                }
            }
        }
    }
}
