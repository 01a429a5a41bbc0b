//! The Helm chart: the same objects as everywhere else, with expressions of the chart in place of values.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::installation::{self, Installation};
use crate::yaml::{documents, yaml};

/// Words that stand in the objects while they are made, and what the chart says in their place. YAML writes such a
/// word without quotes, so an expression is put in exactly as it is here.
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

/// What a chart shows to people after it was installed.
pub(crate) const NOTES_FILE: &str = "templates/NOTES.txt";

const NOTES: &str = "The operator runs in namespace {{ .Release.Namespace }}. Ask it for a cloud:

  kubectl apply -f cloud.yaml
  kubectl get openstackcontrolplanes --all-namespaces --watch
";

/// The chart's files by their paths in it, without its definitions of kinds.
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
    // Longer words first: one is the beginning of another.
    let mut expressions = EXPRESSIONS;
    expressions.sort_by_key(|(word, _)| std::cmp::Reverse(word.len()));
    expressions.iter().fold(documents(objects), |text, (word, expression)| text.replace(word, expression))
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
        "# Name of the operator's objects. Those that have no namespace must have a name of their own in each cluster.
name: {}

# How many processes; one works, the others stand by.
replicas: 1

# The operator's image. Push it to a registry of yours and name it here.
image:
  repository: {}
  # The chart's appVersion where this is empty.
  tag: \"\"
  # Secrets with which it is pulled, as a list of {{name: ...}}.
  pullSecrets: []

# Images of the clouds' services, where a cloud does not say it itself.
images:
  # kolla or debian.
  family: kolla
  # Registry and path before an image's name; the family's own where this is empty.
  registry: \"\"
  # Tags by release, as a list of RELEASE=TAG; a release that is not in it has the family's own tag for it.
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
    fn no_word_is_left_and_none_is_quoted() {
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
    fn values_have_everything_that_templates_ask_for() {
        let values: Value = serde_saphyr::from_str(&values()).unwrap();
        for (_, expression) in EXPRESSIONS {
            for path in expression.split_whitespace().filter_map(|word| word.strip_prefix(".Values")) {
                let pointer = path.replace('.', "/");
                assert!(values.pointer(&pointer).is_some(), "{path}");
            }
        }
    }
}
