//! The program without a cluster.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails, also in shared functions")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use regex::Regex;

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_openstack-operator"));
    // Variables of the caller must not affect the tests.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OPENSTACK_OPERATOR_")) {
        command.env_remove(name);
    }
    command.current_dir(root());
    command
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn run(arguments: &[&str]) -> Output {
    program().args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A file that exists while a test runs.
struct Draft(PathBuf);

impl Draft {
    fn new(name: &str, content: &str) -> Self {
        let path = std::env::temp_dir().join(format!("openstack-operator-{}-{name}", std::process::id()));
        fs::write(&path, content).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}

fn kinds(rendered: &str) -> Vec<String> {
    let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(rendered).unwrap();
    documents.iter().map(|document| document["kind"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_sample_renders_in_the_order_of_phases() {
    let entries = fs::read_dir(root().join("samples")).unwrap().map(|entry| entry.unwrap().path());
    let samples: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "yaml")).collect();
    assert!(samples.len() >= 3);
    for sample in samples {
        let output = run(&["render", "-f", sample.to_str().unwrap()]);
        assert!(output.status.success(), "{}: {}", sample.display(), text(&output.stderr));
        let mut found = ranks(&text(&output.stdout));
        found.dedup();
        let mut sorted = found.clone();
        sorted.sort_unstable();
        assert_eq!(found, sorted, "{}", sample.display());
    }
}

#[test]
fn the_production_template_is_rejected_until_every_placeholder_is_replaced() {
    let template = fs::read_to_string(root().join("samples/production.yaml.template")).unwrap();
    let holds_placeholder = |line: &&str| !line.starts_with('#') && line.contains(": <");
    let placeholders: Vec<&str> = template.lines().filter(holds_placeholder).collect();
    assert!(placeholders.len() >= 5, "{placeholders:?}");
    let filled = Regex::new(": <.*>").unwrap().replace_all(&template, ": eth9").into_owned();
    let render = |text: &str| run(&["render", "-f", Draft::new("production.yaml", text).path()]);
    let accepted = render(&filled);
    assert!(accepted.status.success(), "{}", text(&accepted.stderr));
    for placeholder in placeholders {
        let value = placeholder.split_once(": ").unwrap().1;
        let rejected = render(&filled.replace(&placeholder.replace(value, "eth9"), placeholder));
        assert_eq!(rejected.status.code(), Some(2), "{placeholder}");
    }
}

/// The rank of documents by their kind.
fn ranks(rendered: &str) -> Vec<usize> {
    let order = [
        "Secret",
        "ConfigMap",
        "PersistentVolumeClaim",
        "Job",
        "CronJob",
        "Deployment",
        "StatefulSet",
        "DaemonSet",
        "PodDisruptionBudget",
        "Service",
        "HTTPRoute",
    ];
    // The operator's own kinds come first.
    let rank =
        |kind: &String| order.iter().position(|known| known == kind).map_or(0, |position| position + 1);
    kinds(rendered).iter().map(rank).collect()
}

#[test]
fn a_render_has_no_values_of_secrets_and_is_the_same_each_time() {
    let (first, second) =
        (run(&["render", "-f", "samples/ha.yaml"]), run(&["render", "-f", "samples/ha.yaml"]));
    assert_eq!(first.stdout, second.stdout);
    let rendered = text(&first.stdout);
    assert!(rendered.contains("  password: <generated>\n"), "{rendered}");
    assert!(
        rendered.contains("connection: mysql+pymysql://<cloud-keystone-database/username>:<cloud-keystone-database/password>@"),
        "{rendered}"
    );
    assert!(!rendered.contains("\ndata:\n  password"), "{rendered}");
}

#[test]
fn a_render_may_be_json_and_come_from_standard_input() {
    let sample = fs::File::open(root().join("samples/minimal.yaml")).unwrap();
    let output = program().args(["render", "-f", "-", "-o", "json"]).stdin(sample).output().unwrap();
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(list["items"].as_array().unwrap().len() > 20);
}

#[test]
fn a_problem_is_reported_with_file_document_path_and_reason() {
    let draft = Draft::new(
        "wrong.yaml",
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: n}\n---\n\
         apiVersion: openstack.k8s.io/v1alpha1\nkind: OpenStackControlPlane\nmetadata: {name: cloud}\n\
         spec:\n  keystone:\n    replica: 3\n    fernet: {rotationSchedule: daily}\n",
    );
    let output = run(&["render", "-f", draft.path()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let errors = text(&output.stderr);
    let place = format!("error: {}, document 2 (OpenStackControlPlane cloud): ", draft.path());
    assert!(errors.contains(&format!("{place}spec.keystone.replica: there is no such field")), "{errors}");
    assert!(errors.contains(&format!("{place}spec.keystone.fernet.rotationSchedule: ")), "{errors}");
}

#[test]
fn a_broken_rule_is_reported() {
    let draft = Draft::new(
        "broken.yaml",
        "apiVersion: openstack.k8s.io/v1alpha1\nkind: OpenStackControlPlane\nmetadata: {name: cloud}\n\
         spec:\n  mariadb: {replicas: 2}\n",
    );
    let output = run(&["render", "-f", draft.path()]);
    assert_eq!(output.status.code(), Some(2));
    let errors = text(&output.stderr);
    let reason = "spec.mariadb.replicas: replicas must be odd: 1, 3, 5 or 7 (it is 2)\n";
    assert!(errors.ends_with(reason), "{errors}");
}

#[test]
fn a_tag_is_that_of_one_release() {
    let render = |arguments: &[&str], variable: Option<&str>| {
        let mut command = program();
        command.args(["render", "-f", "samples/minimal.yaml", "--images-family", "debian"]).args(arguments);
        let variables = variable.map(|value| ("OPENSTACK_OPERATOR_IMAGES_TAG", value));
        command.envs(variables).output().unwrap()
    };
    for (arguments, variable, image) in [
        ([].as_slice(), None, "openstack/keystone:2025.1\n"),
        (&[], Some(""), "openstack/keystone:2025.1\n"),
        (&[], Some("2025.1=nightly"), "openstack/keystone:nightly\n"),
        (&["--images-tag", "2025.1=today"], Some("2025.1=nightly"), "openstack/keystone:today\n"),
    ] {
        let rendered = text(&render(arguments, variable).stdout);
        assert!(rendered.contains(image), "{arguments:?} {variable:?}: {rendered}");
    }
    let output = render(&["--images-tag", "nightly"], None);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("write e.g. 2025.1=nightly"), "{}", text(&output.stderr));
}

#[test]
fn a_problem_of_planning_names_the_part_of_the_cloud() {
    let draft = Draft::new(
        "schedule.yaml",
        "apiVersion: openstack.k8s.io/v1alpha1\nkind: OpenStackControlPlane\nmetadata: {name: cloud}\n\
         spec:\n  keystone:\n    fernet: {rotationSchedule: 99 0 * * 0}\n",
    );
    let output = run(&["render", "-f", draft.path(), "-n", "there"]);
    assert_eq!(output.status.code(), Some(2));
    let errors = text(&output.stderr);
    let part = "(Keystone there/cloud-keystone, part of OpenStackControlPlane there/cloud): spec.fernet.rotationSchedule: ";
    assert!(errors.contains(part), "{errors}");
}

#[test]
fn a_missing_file_is_an_error() {
    let output = run(&["render", "-f", "samples/none.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("error: failed to read samples/none.yaml: "));
}

#[test]
fn manifests_have_the_settings_of_the_flags() {
    let output = run(&[
        "manifests",
        "--namespace",
        "here",
        "--image",
        "r/operator:1",
        "--replicas",
        "2",
        "--images-family",
        "debian",
        "--images-registry",
        "r/o",
    ]);
    let rendered = text(&output.stdout);
    assert!(rendered.contains("image: r/operator:1\n"), "{rendered}");
    assert!(
        rendered.contains("- name: OPENSTACK_OPERATOR_IMAGES_REGISTRY\n          value: r/o\n"),
        "{rendered}"
    );
    let found = kinds(&rendered);
    assert_eq!(found[0], "Namespace");
    assert_eq!(found.last().unwrap(), "PodDisruptionBudget");
    let definitions = kinds(&text(&run(&["crds"]).stdout));
    assert!(definitions.len() >= 5);
    assert_eq!(found[1..=definitions.len()], definitions);
}

#[test]
fn manifests_are_the_objects_of_the_base() {
    let by_title = |objects: Vec<serde_json::Value>| -> BTreeMap<String, serde_json::Value> {
        let title = |object: &serde_json::Value| format!("{} {}", object["kind"], object["metadata"]["name"]);
        objects.into_iter().map(|object| (title(&object), object)).collect()
    };
    let read = |text: &str| -> Vec<serde_json::Value> { serde_saphyr::from_multiple(text).unwrap() };
    let mut printed = read(&text(&run(&["manifests"]).stdout));
    for object in &mut printed {
        // The base spells out defaults, so that users can change them.
        let variables = object.pointer_mut("/spec/template/spec/containers/0/env");
        if let Some(variables) = variables.and_then(serde_json::Value::as_array_mut) {
            variables
                .retain(|variable| !matches!(variable["value"].as_str(), Some("kolla" | "cluster.local")));
        }
    }
    let mut base = Vec::new();
    for directory in ["deploy/crds", "deploy/kustomize"] {
        for entry in fs::read_dir(root().join(directory)).unwrap() {
            let path = entry.unwrap().path();
            if !path.ends_with("kustomization.yaml") {
                base.extend(read(&fs::read_to_string(path).unwrap()));
            }
        }
    }
    assert_eq!(by_title(printed), by_title(base));
}

#[test]
fn the_committed_files_are_up_to_date() {
    let output = run(&["generate", "deploy", "--check"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn a_link_named_like_the_plugin_is_the_plugin() {
    let directory = std::env::temp_dir().join(format!("openstack-operator-plugin-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let link = directory.join("kubectl-openstack");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_openstack-operator"), &link).unwrap();
    let help = text(&Command::new(&link).args(["plan", "--help"]).output().unwrap().stdout);
    fs::remove_dir_all(directory).unwrap();
    assert!(help.contains("Usage: kubectl openstack plan"), "{help}");
    assert!(help.contains("kubectl openstack plan -f cloud.yaml"), "{help}");
}

#[test]
fn completion_knows_the_subcommands() {
    let script = text(&run(&["completion", "bash"]).stdout);
    assert!(script.contains("render") && script.contains("login"), "{script}");
}
