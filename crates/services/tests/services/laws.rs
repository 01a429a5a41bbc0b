//! Invariants of the plans and manifests of all services.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use openstack_operator_model::kind::{
    CHILD_KINDS, CONFIG_MAP, CRON_JOB, DEPLOYMENT, HTTP_ROUTE, JOB, Kind, PERSISTENT_VOLUME_CLAIM,
    POD_DISRUPTION_BUDGET, SERVICE, STATEFUL_SET,
};
use openstack_operator_model::lower::{COMPONENT_LABEL, INSTANCE_LABEL, KIND_LABEL, Manifest, Observed};
use openstack_operator_model::name;
use openstack_operator_model::service::AnyService;
use openstack_operator_services::{ALL, kinds, of_kind};
use serde_json::{Value, json};

use crate::fixture::{
    Case, Rendered, case, cases, gadget, object, render, rendered, rendered_and_gadget, walk,
};

pub(crate) fn of(manifests: &[Manifest], kind: Kind) -> Vec<&Manifest> {
    manifests.iter().filter(|manifest| manifest.kind == kind).collect()
}

fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty()
        && text.len() <= 63
        && text.chars().all(inner)
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
}

/// Maximum length of the name of an object by the definition of its kind.
fn longest_name(kind: &str) -> usize {
    static LONGEST: LazyLock<BTreeMap<&str, usize>> = LazyLock::new(|| {
        ALL.iter().map(|service| (service.kind().kind, read_longest_name(*service))).collect()
    });
    LONGEST[kind]
}

fn read_longest_name(service: &dyn AnyService) -> usize {
    let definition = serde_json::to_value(service.crd()).unwrap();
    let rules = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"];
    let rules = rules.as_array().unwrap().iter().filter_map(|rule| rule["rule"].as_str());
    let rule = rules.into_iter().find(|rule| rule.contains("metadata.name")).unwrap();
    let most = rule.split("{0,").nth(1).and_then(|rest| rest.split('}').next()).unwrap();
    most.parse::<usize>().unwrap() + 2
}

fn with_longest_name(mut case: Case) -> Case {
    case.name = "a".repeat(longest_name(case.service.kind().kind));
    case
}

/// Names are valid and short enough, including those that Kubernetes derives from them.
pub(crate) fn check_names(title: &str, rendered: &Rendered) {
    for manifest in &rendered.manifests {
        let Manifest { kind, name, body, .. } = manifest;
        assert!(is_label(name), "{title}: {} {name}", kind.kind);
        assert_eq!(body["metadata"]["name"], name.as_str());
        // A StatefulSet labels its pods with its name and a hash. A CronJob names its Jobs by their time.
        let more = if [STATEFUL_SET, CRON_JOB].contains(kind) { "-0123456789".len() } else { 0 };
        assert!(name.len() + more <= 63, "{title}: {} {name}", kind.kind);
        walk("", body, &mut |path, value| {
            let labels =
                path.ends_with(".labels") || path.ends_with(".matchLabels") || path == ".spec.selector";
            for text in value
                .as_object()
                .filter(|_| labels)
                .into_iter()
                .flatten()
                .filter_map(|(_, text)| text.as_str())
            {
                assert!(text.len() <= 63, "{title}: {path} of {name}: {text}");
            }
        });
    }
    for secret in &rendered.plan.secrets {
        assert!(is_label(&secret.name), "{title}: Secret {}", secret.name);
    }
    for child in &rendered.plan.children {
        let longest = longest_name(child.kind.kind);
        assert!(child.name.len() <= longest, "{title}: {} has more than {longest}", child.name);
    }
}

/// Manifests contain no nulls, have watched kinds and are unique.
pub(crate) fn check_manifests(title: &str, rendered: &Rendered) {
    let mut places = BTreeSet::new();
    for manifest in &rendered.manifests {
        let Manifest { kind, name, body, .. } = manifest;
        assert!(CHILD_KINDS.contains(kind) || kinds().contains(kind), "{title}: {}", kind.kind);
        assert!(places.insert((kind, name)), "{title}: {} {name} occurs twice", kind.kind);
        walk("", body, &mut |path, value| {
            assert!(!value.is_null(), "{title}: {path} of {} {name} is null", kind.kind);
        });
        assert_eq!(body["apiVersion"], kind.api_version().as_str());
        assert_eq!(body["kind"], kind.kind);
        assert_eq!(body["metadata"]["namespace"], "openstack");
        let owners = body["metadata"]["ownerReferences"].as_array();
        // Only volumes are kept after their object.
        assert!(owners.is_some() || *kind == PERSISTENT_VOLUME_CLAIM, "{title}: {name}");
        let owners = owners.into_iter().flatten();
        assert!(
            owners.clone().count() <= 1 && owners.clone().all(|owner| owner["controller"] == true),
            "{title}: {name}"
        );
        assert_eq!(body["metadata"]["labels"]["app.kubernetes.io/managed-by"], "openstack-operator");
    }
}

#[test]
fn every_service_has_a_minimal_and_a_rich_case() {
    let titles: Vec<String> = cases().into_iter().map(|case| case.title).collect();
    for service in ALL.iter() {
        for kind in ["minimal", "rich"] {
            let title = format!("{}-{kind}", service.name());
            assert!(titles.contains(&title), "there is no tests/specs/{title}.yaml");
        }
    }
}

#[test]
fn a_rich_case_sets_more_fields_than_a_minimal_case() {
    // Otherwise a field without effect goes unnoticed.
    for service in ALL.iter() {
        let render = |kind: &str| {
            let title = format!("{}-{kind}", service.name());
            let case = cases().into_iter().find(|case| case.title == title).unwrap();
            (case.spec.clone(), case.render(&Observed::default()).unwrap())
        };
        let ((least, minimal), (spec, rich)) = (render("minimal"), render("rich"));
        let field_count = |spec: &Value| spec.as_object().unwrap().len();
        assert!(field_count(&spec) >= field_count(&least) + 3, "{}", service.name());
        assert_ne!((minimal.plan, minimal.manifests), (rich.plan, rich.manifests));
    }
}

#[test]
fn lowering_the_same_twice_gives_the_same_bytes() {
    let bytes = || -> Vec<String> {
        let all = rendered().into_iter().flat_map(|(_, rendered)| rendered.manifests);
        all.map(|manifest| manifest.body.to_string()).collect()
    };
    assert_eq!(bytes(), bytes());
}

/// Some objects have no manifests and only report the state of agents.
fn does_something(rendered: &Rendered) -> bool {
    !rendered.manifests.is_empty() || rendered.plan.agents.is_some()
}

#[test]
fn manifests_contain_no_nulls_and_only_watched_kinds() {
    for (case, rendered) in rendered_and_gadget() {
        assert!(does_something(&rendered), "{}", case.title);
        check_manifests(&case.title, &rendered);
    }
}

#[test]
fn derived_names_fit_the_longest_object_name() {
    let mut gadget = gadget();
    gadget.name = "a".repeat(name::LONGEST_INSTANCE);
    for case in cases().into_iter().map(with_longest_name).chain([gadget]) {
        let rendered = case.render(&Observed::default()).unwrap();
        check_names(&case.title, &rendered);
        // Tasks of upgrades and rotations have names too.
        let observed = Observed { installed: Some("another".to_owned()), ..Observed::default() };
        check_names(&case.title, &case.render(&observed).unwrap());
    }
}

#[test]
fn children_can_be_planned_from_the_spec_of_their_parent() {
    let mut planned = 0;
    for (case, rendered) in rendered() {
        for child in &rendered.plan.children {
            let service = of_kind(child.kind.kind).unwrap();
            let object = object(service, &child.name, &child.spec);
            let child_rendered = render(service, &object, &Observed::default());
            let child_rendered = child_rendered.unwrap_or_else(|invalid| panic!("{}: {invalid}", case.title));
            assert!(does_something(&child_rendered), "{}", child.name);
            planned += 1;
        }
    }
    assert!(planned > 0);
}

fn selects(selector: &Value, labels: &Value) -> bool {
    selector.as_object().unwrap().iter().all(|(label, value)| labels[label] == *value)
}

#[test]
fn services_select_the_pods_of_one_component_and_never_a_job() {
    let mut checked = 0;
    for (case, rendered) in rendered_and_gadget() {
        let template = |manifest: &&Manifest| manifest.body["spec"]["template"]["metadata"]["labels"].clone();
        let workloads: Vec<Value> = [DEPLOYMENT, STATEFUL_SET]
            .iter()
            .flat_map(|kind| of(&rendered.manifests, *kind))
            .map(|manifest| template(&manifest))
            .collect();
        let mut jobs: Vec<Value> = of(&rendered.manifests, JOB).iter().map(template).collect();
        let runs = of(&rendered.manifests, CRON_JOB).into_iter();
        jobs.extend(
            runs.map(|run| run.body["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"].clone()),
        );
        for service in of(&rendered.manifests, SERVICE) {
            let mut selector = service.body["spec"]["selector"].clone();
            assert!(selector[COMPONENT_LABEL].is_string() && selector[INSTANCE_LABEL].is_string());
            // Only the StatefulSet controller sets this label.
            selector.as_object_mut().unwrap().remove("statefulset.kubernetes.io/pod-name");
            let selected = workloads.iter().filter(|labels| selects(&selector, labels)).count();
            assert_eq!(selected, 1, "{}: {}", case.title, service.name);
            assert!(
                !jobs.iter().any(|labels| selects(&selector, labels)),
                "{}: {}",
                case.title,
                service.name
            );
            checked += jobs.len();
        }
        for labels in workloads.iter().chain(&jobs) {
            assert_eq!(labels[KIND_LABEL], case.service.kind().kind, "pods are routed by it");
        }
    }
    assert!(checked > 0, "no case has both a Service and a Job");
}

#[test]
fn services_name_ports_of_containers() {
    for (case, rendered) in rendered_and_gadget() {
        for service in of(&rendered.manifests, SERVICE) {
            let component = &service.body["spec"]["selector"][COMPONENT_LABEL];
            let workload = [DEPLOYMENT, STATEFUL_SET]
                .iter()
                .flat_map(|kind| of(&rendered.manifests, *kind))
                .find(|workload| workload.body["metadata"]["labels"][COMPONENT_LABEL] == *component)
                .unwrap();
            let containers = workload.body["spec"]["template"]["spec"]["containers"].as_array().unwrap();
            let ports: Vec<(&Value, &Value)> = containers
                .iter()
                .flat_map(|container| container["ports"].as_array().into_iter().flatten())
                .map(|port| (&port["containerPort"], &port["protocol"]))
                .collect();
            let mut names = BTreeSet::new();
            for port in service.body["spec"]["ports"].as_array().unwrap() {
                assert!(ports.contains(&(&port["targetPort"], &port["protocol"])), "{}: {port}", case.title);
                assert!(names.insert(port["name"].as_str().unwrap()), "{}: {port}", case.title);
            }
        }
        for route in of(&rendered.manifests, HTTP_ROUTE) {
            let backend = &route.body["spec"]["rules"][0]["backendRefs"][0];
            let services = of(&rendered.manifests, SERVICE);
            let service = services.iter().find(|service| service.name == backend["name"]).unwrap();
            let ports = service.body["spec"]["ports"].as_array().unwrap();
            assert!(ports.iter().any(|port| port["port"] == backend["port"]), "{}: {backend}", case.title);
        }
    }
}

#[test]
fn stateful_sets_name_their_headless_service() {
    for (case, rendered) in rendered() {
        for set in of(&rendered.manifests, STATEFUL_SET) {
            // A StatefulSet without a Service only needs stable pod names.
            let Some(name) = set.body["spec"]["serviceName"].as_str() else {
                assert_eq!(
                    set.body["spec"].get("volumeClaimTemplates"),
                    None,
                    "{}: {}",
                    case.title,
                    set.name
                );
                continue;
            };
            let services = of(&rendered.manifests, SERVICE);
            let service = services.iter().find(|service| service.name == name);
            let service = service.unwrap_or_else(|| panic!("{}: there is no Service {name}", case.title));
            assert_eq!(service.body["spec"]["clusterIP"], "None");
            let labels = &set.body["spec"]["template"]["metadata"]["labels"];
            assert!(selects(&service.body["spec"]["selector"], labels), "{}: {name}", case.title);
        }
    }
}

fn with_replicas(case: &Case, replicas: i32) -> Option<Rendered> {
    let definition = serde_json::to_value(case.service.crd()).unwrap();
    let spec = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["properties"].get("replicas")?;
    let mut spec = case.spec.clone();
    spec["replicas"] = json!(replicas);
    let object = object(case.service, &case.name, &spec);
    Some(render(case.service, &object, &Observed::default()).unwrap())
}

#[test]
fn workloads_with_several_pods_have_a_disruption_budget() {
    let mut checked = 0;
    for case in cases() {
        for replicas in [1, 3] {
            let Some(rendered) = with_replicas(&case, replicas) else { continue };
            let budgets = of(&rendered.manifests, POD_DISRUPTION_BUDGET);
            for kind in [DEPLOYMENT, STATEFUL_SET] {
                for workload in of(&rendered.manifests, kind) {
                    let several = workload.body["spec"]["replicas"].as_i64().unwrap() > 1;
                    let labels = &workload.body["spec"]["template"]["metadata"]["labels"];
                    let guarded = budgets
                        .iter()
                        .filter(|budget| selects(&budget.body["spec"]["selector"]["matchLabels"], labels));
                    assert_eq!(guarded.count(), usize::from(several), "{}: {}", case.title, workload.name);
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 0);
}

#[test]
fn replicas_do_not_change_the_pod_template() {
    let mut checked = 0;
    for case in cases() {
        let (Some(one), Some(three)) = (with_replicas(&case, 1), with_replicas(&case, 3)) else { continue };
        let templates = |rendered: &Rendered| -> BTreeMap<String, Value> {
            let pods =
                rendered.manifests.iter().filter(|manifest| manifest.body["spec"]["template"].is_object());
            pods.map(|manifest| (manifest.name.clone(), manifest.body["spec"]["template"].clone())).collect()
        };
        assert_eq!(templates(&one), templates(&three), "{}", case.title);
        checked += templates(&one).len();
    }
    assert!(checked > 0);
}

#[test]
fn files_are_immutable_and_named_by_their_content() {
    let mut checked = 0;
    for (case, rendered) in rendered().into_iter().filter(|(_, rendered)| !rendered.plan.files.is_empty()) {
        for map in of(&rendered.manifests, CONFIG_MAP) {
            let live = map.name.ends_with("-live");
            assert_eq!(map.body["immutable"] == true, !live, "{}: {}", case.title, map.name);
        }
        let definition = serde_json::to_value(case.service.crd()).unwrap();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let configurable = schema["properties"]["spec"]["properties"].get("extraConfig").is_some();
        for file in rendered.plan.files.keys().filter(|_| configurable) {
            let mut spec = case.spec.clone();
            spec["extraConfig"][file]["law"]["option"] = json!("yes");
            let object = object(case.service, &case.name, &spec);
            // Scripts are not configuration.
            let Ok(changed) = render(case.service, &object, &Observed::default()) else { continue };
            let name = |rendered: &Rendered| {
                let maps = of(&rendered.manifests, CONFIG_MAP).into_iter();
                let mut named = maps.filter(|map| {
                    ["data", "binaryData"].iter().any(|data| map.body[data].get(file).is_some())
                });
                named.next().map(|map| map.name.clone())
            };
            assert_ne!(name(&changed), name(&rendered), "{}: {file}", case.title);
            checked += 1;
        }
    }
    assert!(checked > 0);
}

#[test]
fn a_file_that_is_not_text_is_stored_as_bytes_and_named_by_its_content() {
    let rendered = gadget().render(&Observed::default()).unwrap();
    let maps = of(&rendered.manifests, CONFIG_MAP);
    let map = maps.iter().find(|map| map.body.get("binaryData").is_some()).unwrap();
    assert_eq!(map.body["binaryData"], json!({ "logo.png": "iVBORw==" }));
    assert_eq!((map.body.get("data"), &map.body["immutable"]), (None, &json!(true)));
    assert_eq!(map.name, format!("test-logo-png-{}", name::hash(rendered.plan.files["logo.png"].bytes())));
}

#[test]
fn a_value_that_starts_with_a_dash_is_not_an_option() {
    let mut case = case("keystone-rich");
    case.spec["bootstrap"] = json!({ "adminUser": "-admin", "region": "--region" });
    let tasks = case.render(&Observed::default()).unwrap().plan.tasks;
    let words: Vec<&String> = tasks.iter().flat_map(|task| &task.container.command).collect();
    for (option, value) in [("--bootstrap-username", "-admin"), ("--bootstrap-region-id", "--region")] {
        assert!(words.contains(&&format!("{option}={value}")), "{words:?}");
        assert!(!words.iter().any(|word| *word == value), "{words:?}");
    }
}
