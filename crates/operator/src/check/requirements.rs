//! What clouds require of a cluster: by their plans if files are given, by the defaults of the operator otherwise.

use std::collections::{BTreeMap, BTreeSet};

use openstack_operator_model::kind::{DAEMON_SET, HTTP_ROUTE, PERSISTENT_VOLUME_CLAIM, STATEFUL_SET};
use openstack_operator_model::need::NodeNeed;
use serde_json::Value;

use super::{items, text};
use crate::plan_all::Planned;

/// The label that selects compute nodes if a cloud has no topology for them.
const HYPERVISOR_LABEL: &str = "node-role.kubernetes.io/hypervisor";

/// Requirements of all clouds that are checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Requirements {
    /// Namespaces of the clouds, and whether their pods are privileged.
    pub(crate) namespaces: BTreeMap<String, Privilege>,
    pub(crate) gateways: Gateways,
    pub(crate) claims: Vec<Claim>,
    pub(crate) nodes: Vec<Nodes>,
    pub(crate) secrets: Vec<SecretRequirement>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Privilege {
    #[default]
    Baseline,
    Privileged,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Gateways {
    /// Any Gateway will do: no cloud is given.
    #[default]
    Any,
    /// By namespace and name.
    Named(BTreeSet<(String, String)>),
}

/// A volume claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) object: String,
    /// The default class if none is named.
    pub(crate) class: Option<String>,
    pub(crate) is_shared: bool,
}

/// Nodes that an object runs on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Nodes {
    pub(crate) object: String,
    pub(crate) need: NodeNeed,
}

/// A Secret that the user writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecretRequirement {
    pub(crate) object: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) field: String,
    pub(crate) keys: Vec<String>,
}

impl Requirements {
    /// Requirements of a cloud with the defaults of the operator.
    pub(crate) fn of_defaults(namespace: &str) -> Self {
        let labels = BTreeMap::from([(HYPERVISOR_LABEL.to_owned(), String::new())]);
        Self {
            namespaces: BTreeMap::from([(namespace.to_owned(), Privilege::Privileged)]),
            gateways: Gateways::Any,
            claims: vec![Claim { object: "a cloud".to_owned(), class: None, is_shared: false }],
            nodes: vec![Nodes {
                object: "a cloud".to_owned(),
                need: NodeNeed { labels, tolerations: Vec::new() },
            }],
            secrets: Vec::new(),
        }
    }

    pub(crate) fn of_plans(planned: &[Planned]) -> Self {
        let mut all = Self { gateways: Gateways::Named(BTreeSet::new()), ..Self::default() };
        for planned in planned {
            all.add(planned);
        }
        all
    }

    fn add(&mut self, planned: &Planned) {
        let namespace = &planned.key.namespace;
        let privilege = self.namespaces.entry(namespace.clone()).or_default();
        for manifest in planned.manifests.values().flatten() {
            let pod = manifest.body.pointer("/spec/template/spec").unwrap_or(&Value::Null);
            *privilege = (*privilege).max(privilege_of(pod));
            if manifest.kind == HTTP_ROUTE
                && let Gateways::Named(names) = &mut self.gateways
            {
                names.extend(items(&manifest.body, "/spec/parentRefs").map(|gateway| {
                    let place = gateway["namespace"].as_str().unwrap_or(namespace);
                    (place.to_owned(), text(gateway, "/name").to_owned())
                }));
            }
            let claim = |spec: &Value| Claim {
                object: format!("{} {}", manifest.kind.kind, manifest.name),
                class: spec["storageClassName"].as_str().map(str::to_owned),
                is_shared: items(spec, "/accessModes").any(|mode| mode == "ReadWriteMany"),
            };
            match manifest.kind {
                STATEFUL_SET => self.claims.extend(
                    items(&manifest.body, "/spec/volumeClaimTemplates")
                        .map(|template| claim(&template["spec"])),
                ),
                PERSISTENT_VOLUME_CLAIM => self.claims.push(claim(&manifest.body["spec"])),
                _ => {}
            }
        }
        let has_pods_on_nodes = planned.manifests.values().flatten().any(|one| one.kind == DAEMON_SET);
        if let Some(need) = planned.needs.nodes.clone().filter(|_| has_pods_on_nodes) {
            self.nodes.push(Nodes { object: planned.key.to_string(), need });
        }
        self.secrets.extend(planned.needs.secrets.iter().map(|need| SecretRequirement {
            object: planned.key.to_string(),
            namespace: namespace.clone(),
            name: need.name.clone(),
            field: need.field.clone(),
            keys: need.keys.clone(),
        }));
    }
}

/// The Pod Security level that a pod needs, in two steps: everything that `baseline` rejects is `Privileged`.
fn privilege_of(pod: &Value) -> Privilege {
    let host = ["hostNetwork", "hostPID", "hostIPC"].iter().any(|field| pod[*field] == true);
    let host_path = items(pod, "/volumes").any(|volume| volume.get("hostPath").is_some());
    let containers = items(pod, "/containers").chain(items(pod, "/initContainers"));
    let privileged = containers.into_iter().any(|container| {
        let added = items(container, "/securityContext/capabilities/add").next().is_some();
        added || container.pointer("/securityContext/privileged") == Some(&Value::Bool(true))
    });
    if host || host_path || privileged { Privilege::Privileged } else { Privilege::Baseline }
}

#[cfg(test)]
mod tests {
    use openstack_operator_model::image::{Family, ImageDefaults};
    use openstack_operator_model::service::Site;

    use super::*;
    use crate::input::{self, Namespace};
    use crate::plan_all::{Known, plan_all};

    fn requirements(file: &str) -> Requirements {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples").join(file);
        let input = input::read(&[path], &Namespace::Default("openstack".to_owned())).unwrap();
        let site = Site {
            images: ImageDefaults { family: Family::Debian, registry: None, tags: BTreeMap::new() },
            cluster_domain: "cluster.local".to_owned(),
        };
        Requirements::of_plans(&plan_all(input.documents, &site, &Known::default()).unwrap())
    }

    #[test]
    fn a_cloud_in_a_file_requires_what_its_plans_use() {
        let found = requirements("ha.yaml");
        assert_eq!(found.namespaces.values().collect::<Vec<_>>(), [&Privilege::Privileged]);
        assert!(matches!(&found.gateways, Gateways::Named(names) if names.len() == 1), "{found:?}");
        assert!(found.claims.iter().any(|claim| claim.object.contains("mariadb")), "{found:?}");
        assert!(found.nodes.iter().any(|nodes| nodes.object.starts_with("NovaCompute ")), "{found:?}");
    }
}
