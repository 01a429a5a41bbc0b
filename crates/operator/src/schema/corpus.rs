//! The corpus of the API server tests gets the same verdicts here.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use openstack_operator_model::image::{Family, ImageDefaults};
use openstack_operator_model::service::Site;
use openstack_operator_services::ALL;
use serde_json::Value;

use super::*;
use crate::input::{self, Input, Namespace, Problems};
use crate::plan_all::{Known, plan_all};

struct File {
    name: String,
    /// A part of the API server's message, if it rejects the object.
    rejection: Option<String>,
    objects: Vec<Value>,
}

fn files(directory: &str) -> Vec<File> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/apiserver/corpus");
    let entries = std::fs::read_dir(corpus.join(directory)).unwrap();
    let files: Vec<File> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let first = text.lines().next().unwrap();
            let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
            File {
                name: path.display().to_string(),
                rejection: first.strip_prefix("# refused:").map(|part| part.trim().to_owned()),
                objects: objects.into_iter().filter(|object| !object.is_null()).collect(),
            }
        })
        .collect();
    assert!(!files.is_empty(), "there is nothing in {directory}");
    files
}

fn schema_of(object: &Value) -> &'static JSONSchemaProps {
    static SCHEMAS: LazyLock<BTreeMap<&str, JSONSchemaProps>> =
        LazyLock::new(|| ALL.iter().map(|service| (service.kind().kind, of(*service))).collect());
    &SCHEMAS[object["kind"].as_str().unwrap()]
}

fn problems(object: &Value, live: Option<&Value>) -> Vec<String> {
    check(schema_of(object), object, live).iter().map(ToString::to_string).collect()
}

/// Whether a problem is the one that the API server reports. Messages of rules are the same; others have different texts.
fn is_reported(rejection: &str, problems: &[String], schema: &JSONSchemaProps) -> bool {
    let plain = |text: &str| text.replace(": ", " ");
    let is_rule = is_rule(rejection, &serde_json::to_value(schema).unwrap());
    let is_ours = problems.iter().any(|problem| plain(problem).contains(&plain(rejection)));
    !problems.is_empty() && (is_ours || !is_rule)
}

fn is_rule(rejection: &str, schema: &Value) -> bool {
    let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array);
    let mut messages = rules.into_iter().flatten().filter_map(|rule| rule["message"].as_str());
    let mut inner = schema.as_object().into_iter().flat_map(|fields| fields.values());
    messages.any(|message| message.contains(rejection)) || inner.any(|schema| is_rule(rejection, schema))
}

#[test]
fn objects_that_the_api_server_accepts_have_no_problems() {
    let accepted = files("accepted").into_iter().flat_map(|file| {
        let name = file.name;
        file.objects.into_iter().map(move |object| (name.clone(), object))
    });
    let defaults = files("defaults").into_iter().map(|file| (file.name, file.objects[0].clone()));
    let rejected: Vec<String> = accepted
        .chain(defaults)
        .flat_map(|(name, object)| {
            problems(&object, None).into_iter().map(move |problem| format!("{name}: {problem}"))
        })
        .collect();
    assert!(rejected.is_empty(), "{}", rejected.join("\n"));
}

/// Objects whose needs are in the same file can be planned here.
#[test]
fn objects_that_the_api_server_accepts_can_be_planned() {
    let images = ImageDefaults { family: Family::Kolla, registry: None, tags: BTreeMap::new() };
    let site = Site { images, cluster_domain: "cluster.local".to_owned() };
    let namespace = Namespace::Default("corpus".to_owned());
    let mut wrong = Vec::new();
    for file in files("accepted") {
        let Input { documents, .. } = input::read(&[file.name.into()], &namespace).unwrap();
        let Err(Problems(problems)) = plan_all(documents, &site, &Known::default()) else { continue };
        let problems = problems.iter().map(ToString::to_string);
        wrong.extend(problems.filter(|problem| !problem.contains("add it, or reference another")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn objects_that_the_api_server_rejects_break_the_same_rule() {
    let mut wrong = Vec::new();
    for file in files("refused") {
        let rejection = file.rejection.unwrap();
        for (index, object) in file.objects.iter().enumerate() {
            let problems = problems(object, None);
            if !is_reported(&rejection, &problems, schema_of(object)) {
                wrong.push(format!("{}, document {}: {problems:#?}", file.name, index + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn changes_are_accepted_and_rejected_as_by_the_api_server() {
    let mut wrong = Vec::new();
    for file in files("changed") {
        let (first, changes) = file.objects.split_first().unwrap();
        // The change is invalid, not the object before or after it.
        for object in &file.objects {
            assert_eq!(problems(object, None), Vec::<String>::new(), "{}", file.name);
        }
        for (index, change) in changes.iter().enumerate() {
            let problems = problems(change, Some(first));
            let is_judged = match &file.rejection {
                None => problems.is_empty(),
                Some(rejection) => is_reported(rejection, &problems, schema_of(change)),
            };
            if !is_judged {
                wrong.push(format!("{}, document {}: {problems:#?}", file.name, index + 2));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn defaults_are_those_of_the_api_server() {
    for file in files("defaults") {
        let [written, expected] = file.objects.as_slice() else { panic!("{}", file.name) };
        let mut filled = written.clone();
        fill_defaults(schema_of(written), &mut filled);
        assert_eq!(filled["spec"], expected["spec"], "{}", file.name);
    }
}
