//! What installs the operator: the committed objects, and what the tools of people make of them.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::corpus::root;
use crate::server::title;

/// The operator's name, and its namespace in everything that is committed.
const NAME: &str = "openstack-operator";
const CHART: &str = "deploy/helm/openstack-operator";
/// What the process takes where a variable is not set; an empty one counts as that.
const DEFAULTS: [&str; 3] = ["", "kolla", "cluster.local"];

/// The objects that the files of the kustomize base hold, with no tool in between.
pub fn committed() -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for directory in ["deploy/crds", "deploy/kustomize"] {
        let files = std::fs::read_dir(root().join(directory))
            .with_context(|| format!("failed to list {directory}"))?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<Vec<_>>>()?;
        for file in files.iter().filter(|file| !file.ends_with("kustomization.yaml")) {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("failed to read {}", file.display()))?;
            objects.extend(parse(&text)?);
        }
    }
    Ok(objects)
}

/// What `kubectl apply -k` would apply.
pub fn kustomized() -> Result<Vec<Value>> {
    parse(&run("APISERVER_KUBECTL", "kubectl", &["kustomize", "deploy/kustomize"])?)
}

/// What `helm install` would apply, with values as on its command line.
pub fn charted(values: &[&str]) -> Result<Vec<Value>> {
    let mut arguments = vec!["template", NAME, CHART, "--namespace", NAME];
    arguments.extend(values.iter().flat_map(|value| ["--set", value]));
    parse(&run("APISERVER_HELM", "helm", &arguments)?)
}

/// Fails where Helm has anything to say against the chart.
pub fn lint_chart() -> Result<()> {
    run("APISERVER_HELM", "helm", &["lint", "--strict", CHART]).map(|_| ())
}

/// Objects by kind and name, without what says the same as leaving it out.
pub fn by_title(objects: &[Value]) -> Result<BTreeMap<String, Value>> {
    let titled: BTreeMap<String, Value> =
        objects.iter().map(|object| (title(object), plain(whole_numbers(object)))).collect();
    ensure!(titled.len() == objects.len(), "something is there twice: {:?}", titled.keys());
    Ok(titled)
}

/// 1.0 is written as 1 by one tool and not by another.
fn whole_numbers(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            fields.iter().map(|(field, value)| (field.clone(), whole_numbers(value))).collect()
        }
        Value::Array(items) => items.iter().map(whole_numbers).collect(),
        Value::Number(number) => number.as_f64().map_or_else(|| value.clone(), Value::from),
        other => other.clone(),
    }
}

fn plain(mut object: Value) -> Value {
    // Only Helm needs to be kept from deleting the definitions.
    if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove("helm.sh/resource-policy");
    }
    let Some(pod) = object.pointer_mut("/spec/template/spec") else { return object };
    if pod["imagePullSecrets"] == json!([])
        && let Some(pod) = pod.as_object_mut()
    {
        pod.remove("imagePullSecrets");
    }
    let variables = pod.pointer_mut("/containers/0/env").and_then(Value::as_array_mut);
    if let Some(variables) = variables {
        variables
            .retain(|variable| variable["value"].as_str().is_none_or(|value| !DEFAULTS.contains(&value)));
    }
    object
}

fn parse(text: &str) -> Result<Vec<Value>> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(text).context("this is no YAML")?;
    Ok(objects.into_iter().filter(|object| !object.is_null()).collect())
}

/// Runs a tool that the runner names, in the checkout.
fn run(variable: &str, name: &str, arguments: &[&str]) -> Result<String> {
    let program = std::env::var_os(variable).with_context(|| {
        format!("{variable} does not name {name}: run through `cargo xtask test --only apiserver`")
    })?;
    // The local cluster's kubectl is one of many in one program, which goes by the name that it is called by.
    let output = Command::new(&program)
        .arg0(name)
        .args(arguments)
        .current_dir(root())
        .output()
        .with_context(|| format!("failed to start {}", program.display()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(
        output.status.success(),
        "{name} {} failed: {}{}",
        arguments.join(" "),
        text(&output.stdout),
        text(&output.stderr)
    );
    Ok(text(&output.stdout))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_and_what_says_the_same_are_equal() -> Result<()> {
        let deployment = |more: Value, variables: Value| {
            let mut pod = json!({ "containers": [{ "env": variables }] });
            for (field, value) in more.as_object().into_iter().flatten() {
                pod[field] = value.clone();
            }
            json!({ "kind": "Deployment", "metadata": { "name": "x" }, "spec": { "template": { "spec": pod } } })
        };
        let own = json!({ "name": "POD", "valueFrom": {} });
        let silent = [deployment(json!({ "terminationGracePeriodSeconds": 1.0 }), json!([own]))];
        let empty = json!({ "name": "TAG", "value": "" });
        let more = json!({ "imagePullSecrets": [], "terminationGracePeriodSeconds": 1 });
        let told = [deployment(more, json!([own, empty]))];
        assert_eq!(by_title(&silent)?, by_title(&told)?);
        let other = [deployment(json!({}), json!([own, { "name": "TAG", "value": "1" }]))];
        assert_ne!(by_title(&silent)?, by_title(&other)?);
        assert!(by_title(&[silent, other].concat()).is_err());
        Ok(())
    }

    #[test]
    fn everything_that_is_committed_is_read() -> Result<()> {
        let titled = by_title(&committed()?)?;
        for title in ["Namespace", "ServiceAccount", "ClusterRole", "RoleBinding", "Deployment"] {
            assert!(titled.contains_key(&format!("{title} {NAME}")), "{title}");
        }
        let kinds = titled.keys().filter(|title| title.starts_with("CustomResourceDefinition")).count();
        assert_eq!(kinds, openstack_operator_services::ALL.len());
        Ok(())
    }
}
