//! The Helm chart: the same objects as everywhere else, with expressions of the chart in place of values.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::installation::{self, Installation};
use crate::yaml::{documents, yaml};

/// Placeholders in the objects, and the template expressions that replace them. YAML does not quote the placeholders, so
/// that the expressions appear exactly as they are here.
const EXPRESSIONS: [(&str, &str); 10] = [
    ("HELM-NAME", "{{ .Values.name }}"),
    ("HELM-NAMESPACE", "{{ .Release.Namespace }}"),
    ("HELM-IMAGE", r#""{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}""#),
    ("HELM-REPLICAS", "{{ .Values.replicas }}"),
    ("HELM-RESOURCES", "{{ .Values.resources | toJson }}"),
    ("HELM-PULL-SECRETS", "{{ .Values.image.pullSecrets | toJson }}"),
    ("HELM-FAMILY", "{{ .Values.images.family | quote }}"),
    ("HELM-REGISTRY", "{{ .Values.images.registry | quote }}"),
    ("HELM-TAGS", r#"{{ join "," .Values.images.tags | quote }}"#),
    ("HELM-DOMAIN", "{{ .Values.clusterDomain | quote }}"),
];

const IGNORED: &str = "*.orig\n*.swp\n*.tmp\n";

/// Notes that Helm prints after an installation.
pub(crate) const NOTES_FILE: &str = "templates/NOTES.txt";

const NOTES: &str = "The operator runs in namespace {{ .Release.Namespace }}. Create a cloud:

  kubectl apply -f cloud.yaml
  kubectl get openstackcontrolplanes --all-namespaces --watch
";

/// The chart's files by path, without the definitions.
pub(crate) fn files() -> BTreeMap<String, String> {
    let installation = Installation {
        name: "HELM-NAME".to_owned(),
        namespace: "HELM-NAMESPACE".to_owned(),
        image: "HELM-IMAGE".to_owned(),
        replicas: json!("HELM-REPLICAS"),
        environment: vec![
            ("OPENSTACK_OPERATOR_IMAGES_FAMILY", "HELM-FAMILY".to_owned()),
            ("OPENSTACK_OPERATOR_IMAGES_REGISTRY", "HELM-REGISTRY".to_owned()),
            ("OPENSTACK_OPERATOR_IMAGES_TAG", "HELM-TAGS".to_owned()),
            ("OPENSTACK_OPERATOR_CLUSTER_DOMAIN", "HELM-DOMAIN".to_owned()),
        ],
        resources: json!("HELM-RESOURCES"),
        pull_secrets: Some(json!("HELM-PULL-SECRETS")),
    };
    let budget = template(&[installation.disruption_budget()]);
    let files = [
        ("Chart.yaml", yaml(&chart())),
        ("values.yaml", values()),
        (".helmignore", IGNORED.to_owned()),
        (NOTES_FILE, NOTES.to_owned()),
        ("templates/rbac.yaml", template(&installation.rbac())),
        ("templates/deployment.yaml", template(&[installation.deployment()])),
        (
            "templates/poddisruptionbudget.yaml",
            format!("{{{{- if gt (int .Values.replicas) 1 }}}}\n{budget}{{{{- end }}}}\n"),
        ),
    ];
    files.into_iter().map(|(path, text)| (path.to_owned(), text)).collect()
}

/// A CRD as a template of the chart. Helm never updates what is in a chart's `crds` directory, and deletes what is among
/// the templates together with every object of that kind, unless an annotation forbids it.
pub(crate) fn kept(crd: &Value) -> Value {
    let mut crd = crd.clone();
    crd["metadata"]["annotations"]["helm.sh/resource-policy"] = json!("keep");
    crd
}

fn template(objects: &[Value]) -> String {
    // Longer placeholders first: one is a prefix of another.
    let mut expressions = EXPRESSIONS;
    expressions.sort_by_key(|(placeholder, _)| std::cmp::Reverse(placeholder.len()));
    expressions
        .iter()
        .fold(documents(objects), |text, (placeholder, expression)| text.replace(placeholder, expression))
}

fn chart() -> Value {
    json!({
        "apiVersion": "v2",
        "name": installation::NAME,
        "description": env!("CARGO_PKG_DESCRIPTION"),
        "type": "application",
        "version": env!("CARGO_PKG_VERSION"),
        "appVersion": env!("CARGO_PKG_VERSION"),
    })
}

fn values() -> String {
    let resources = yaml(&json!({ "resources": installation::default_resources() }));
    format!(
        "# Name of the operator's objects. It must be unique in the cluster.
name: {}

# How many replicas; one leads, the others are on standby.
replicas: 1

# The operator's image. Push it to your registry and name it here.
image:
  repository: {}
  # Default: the chart's appVersion.
  tag: \"\"
  # Pull secrets, as a list of {{name: ...}}.
  pullSecrets: []

# Default images of the clouds' services.
images:
  # kolla or debian.
  family: kolla
  # Registry and path before an image's name. Default: that of the family.
  registry: \"\"
  # Tags by release, as a list of RELEASE=TAG. Default: those of the family.
  tags: []

# Domain of the cluster's Services.
clusterDomain: cluster.local

{resources}",
        installation::NAME,
        installation::NAME,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_is_replaced_and_none_is_quoted() {
        for (path, text) in files() {
            assert!(!text.contains("HELM-"), "{path}: {text}");
            assert!(!text.contains("\"{{ .Values.replicas"), "{path}: {text}");
        }
        let deployment = &files()["templates/deployment.yaml"];
        assert!(deployment.contains("replicas: {{ .Values.replicas }}\n"), "{deployment}");
        assert!(deployment.contains("namespace: {{ .Release.Namespace }}\n"), "{deployment}");
    }

    #[test]
    fn helm_updates_the_definitions_and_never_deletes_them() {
        for crd in installation::crds() {
            let kept = kept(&crd);
            assert_eq!(kept["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
            assert_eq!(kept["spec"], crd["spec"]);
            assert!(!yaml(&kept).contains("{{"), "Helm would evaluate it");
        }
    }

    #[test]
    fn values_has_every_value_of_the_templates() {
        let values: Value = serde_saphyr::from_str(&values()).unwrap();
        for (_, expression) in EXPRESSIONS {
            for path in expression.split_whitespace().filter_map(|token| token.strip_prefix(".Values")) {
                let pointer = path.replace('.', "/");
                assert!(values.pointer(&pointer).is_some(), "{path}");
            }
        }
    }
}
