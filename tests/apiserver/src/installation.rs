//! The installation of the operator: the committed objects, and the output of kustomize and Helm.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::corpus::root;
use crate::server::title;

/// Name and namespace of the operator in all committed files.
const NAME: &str = "openstack-operator";
const CHART: &str = "deploy/helm/openstack-operator";
/// Defaults of the process for variables that are unset or empty.
const DEFAULTS: [&str; 3] = ["", "kolla", "cluster.local"];

/// The objects in the files of the kustomize base.
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

/// The objects that `kubectl apply -k` applies.
pub fn kustomized() -> Result<Vec<Value>> {
    parse(&run("APISERVER_KUBECTL", "kubectl", &["kustomize", "deploy/kustomize"])?)
}

/// The objects that `helm install` applies, with values as on its command line.
pub fn charted(values: &[&str]) -> Result<Vec<Value>> {
    let mut arguments = vec!["template", NAME, CHART, "--namespace", NAME, "--include-crds"];
    arguments.extend(values.iter().flat_map(|value| ["--set", value]));
    parse(&run("APISERVER_HELM", "helm", &arguments)?)
}

/// Fails if Helm reports a problem of the chart.
pub fn lint_chart() -> Result<()> {
    run("APISERVER_HELM", "helm", &["lint", "--strict", CHART]).map(|_| ())
}

/// Objects by kind and name, without fields that equal their absence.
pub fn by_title(objects: &[Value]) -> Result<BTreeMap<String, Value>> {
    let titled: BTreeMap<String, Value> =
        objects.iter().map(|object| (title(object), plain(whole_numbers(object)))).collect();
    ensure!(titled.len() == objects.len(), "an object occurs twice: {:?}", titled.keys());
    Ok(titled)
}

/// Tools disagree on writing 1.0 as 1.
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
    let objects: Vec<Value> = serde_saphyr::from_multiple(text).context("the output is not YAML")?;
    Ok(objects.into_iter().filter(|object| !object.is_null()).collect())
}

/// Runs the tool that a variable names, in the checkout.
fn run(variable: &str, name: &str, arguments: &[&str]) -> Result<String> {
    let program = std::env::var_os(variable).with_context(|| {
        format!("{variable} does not name {name}: run through `cargo xtask test --only apiserver`")
    })?;
    // The local cluster's program contains many tools and runs the one by whose name it is called.
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
    fn absent_fields_equal_their_defaults() -> Result<()> {
        let deployment = |more: Value, variables: Value| {
            let mut pod = json!({ "containers": [{ "env": variables }] });
            for (field, value) in more.as_object().into_iter().flatten() {
                pod[field] = value.clone();
            }
            json!({ "kind": "Deployment", "metadata": { "name": "x" }, "spec": { "template": { "spec": pod } } })
        };
        let own = json!({ "name": "POD", "valueFrom": {} });
        let absent = [deployment(json!({ "terminationGracePeriodSeconds": 1.0 }), json!([own]))];
        let empty = json!({ "name": "TAG", "value": "" });
        let more = json!({ "imagePullSecrets": [], "terminationGracePeriodSeconds": 1 });
        let explicit = [deployment(more, json!([own, empty]))];
        assert_eq!(by_title(&absent)?, by_title(&explicit)?);
        let other = [deployment(json!({}), json!([own, { "name": "TAG", "value": "1" }]))];
        assert_ne!(by_title(&absent)?, by_title(&other)?);
        assert!(by_title(&[absent, other].concat()).is_err());
        Ok(())
    }

    #[test]
    fn all_committed_objects_are_read() -> Result<()> {
        let titled = by_title(&committed()?)?;
        for title in ["Namespace", "ServiceAccount", "ClusterRole", "RoleBinding", "Deployment"] {
            assert!(titled.contains_key(&format!("{title} {NAME}")), "{title}");
        }
        let kinds = titled.keys().filter(|title| title.starts_with("CustomResourceDefinition")).count();
        assert_eq!(kinds, openstack_operator_services::ALL.len());
        Ok(())
    }
}
