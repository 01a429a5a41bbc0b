//! Volumes of StatefulSets grow with the plan: the operator enlarges the existing claims, and recreates the StatefulSet
//! around its running pods.

use std::collections::BTreeMap;

use kube::core::DynamicObject;
use openstack_operator_model::kind::{PERSISTENT_VOLUME_CLAIM, STATEFUL_SET, STORAGE_CLASS};
use openstack_operator_model::lower::{Manifest, Source};
use openstack_operator_model::quantity;
use serde_json::{Value, json};

use crate::apply::to_json;
use crate::engine::Engine;
use crate::ports::PortResult;

const TEMPLATES: &str = "/spec/volumeClaimTemplates";
const REQUEST: &str = "/spec/resources/requests/storage";

/// Result of comparing the volumes of a StatefulSet with its manifest.
pub(crate) enum Growth {
    /// They have the planned sizes. `kept` is the manifest with their notation.
    Complete { kept: Manifest },
    /// All claims are enlarged, and the StatefulSet is deleted without its pods.
    Recreating,
    /// The volumes cannot get the planned sizes. `kept` is the manifest with their current sizes.
    Refused { kept: Manifest, message: String },
}

/// A claim template whose planned size differs.
struct Resize {
    template: String,
    from: String,
    to: String,
}

impl Engine {
    /// **Invariant:** all claims are enlarged before the StatefulSet is deleted, so an interrupted growth is repeated.
    pub(crate) async fn grow_volumes(
        &self,
        namespace: &str,
        manifest: &Manifest,
        live: &DynamicObject,
    ) -> PortResult<Growth> {
        let body = to_json(live);
        let resizes = resizes(&manifest.body, &body);
        let kept = with_sizes_of(manifest, &body);
        if resizes.is_empty() {
            return Ok(Growth::Complete { kept });
        }
        let refused = |message: String| {
            let message = format!("StatefulSet {}: {message}", manifest.name);
            Ok(Growth::Refused { kept: kept.clone(), message })
        };
        let mut small = Vec::new();
        for Resize { template, from, to } in &resizes {
            if quantity::is_smaller(to, from) {
                return refused(format!(
                    "its volumes cannot shrink from {from} to {to}: set the size to at least {from}"
                ));
            }
            for claim in self.claims(namespace, &manifest.name, template, &body).await? {
                if size(&claim).is_some_and(|size| quantity::is_smaller(size, to)) {
                    if let Some(reason) = self.expansion_blocker(&claim, to).await? {
                        return refused(reason);
                    }
                    small.push((claim, to));
                }
            }
        }
        for (claim, to) in small {
            self.enlarge(namespace, &claim, to).await?;
        }
        let uid = live.metadata.uid.as_deref().unwrap_or_default();
        self.ports.cluster.delete_and_orphan(STATEFUL_SET, namespace, &manifest.name, uid).await?;
        Ok(Growth::Recreating)
    }

    /// Claims of all pods for one template, including those of removed pods.
    async fn claims(
        &self,
        namespace: &str,
        set: &str,
        template: &str,
        live: &Value,
    ) -> PortResult<Vec<Value>> {
        let labels = live.pointer("/spec/selector/matchLabels").cloned().unwrap_or_default();
        let labels: BTreeMap<String, String> = serde_json::from_value(labels).unwrap_or_default();
        let claims = self.ports.cluster.list(PERSISTENT_VOLUME_CLAIM, namespace, &labels).await?;
        let prefix = format!("{template}-{set}-");
        let is_claim = |claim: &DynamicObject| {
            let ordinal = claim.metadata.name.as_deref().and_then(|name| name.strip_prefix(&prefix));
            ordinal.is_some_and(|ordinal| ordinal.parse::<u32>().is_ok())
        };
        Ok(claims.iter().filter(|claim| is_claim(claim)).map(to_json).collect())
    }

    /// Why a claim cannot grow.
    async fn expansion_blocker(&self, claim: &Value, to: &str) -> PortResult<Option<String>> {
        let name = text(claim, "/metadata/name");
        let class = text(claim, "/spec/storageClassName");
        let found = match class {
            "" => None,
            class => self.ports.cluster.get(STORAGE_CLASS, "", class).await?,
        };
        let allows = found.is_some_and(|class| class.data["allowVolumeExpansion"] == true);
        let size = size(claim).unwrap_or_default();
        Ok((!allows).then(|| {
            format!(
                "storage class {class:?} does not allow volume expansion, so PersistentVolumeClaim {name} stays at \
                 {size}: set allowVolumeExpansion of the class if its driver supports that, or replace the claim by \
                 one of {to}"
            )
        }))
    }

    async fn enlarge(&self, namespace: &str, claim: &Value, to: &str) -> PortResult<()> {
        let name = text(claim, "/metadata/name");
        let body = json!({
            "apiVersion": PERSISTENT_VOLUME_CLAIM.api_version(),
            "kind": PERSISTENT_VOLUME_CLAIM.kind,
            // A claim that was deleted in the meantime must not be created.
            "metadata": { "name": name, "namespace": namespace, "uid": claim.pointer("/metadata/uid") },
            "spec": { "resources": { "requests": { "storage": to } } },
        });
        let manifest =
            Manifest { kind: PERSISTENT_VOLUME_CLAIM, name: name.to_owned(), body, source: Source::Other };
        self.ports.cluster.apply(namespace, &manifest).await?;
        tracing::info!(claim = name, size = to, "enlarged a volume");
        Ok(())
    }
}

fn templates(body: &Value) -> impl Iterator<Item = (&str, &str)> {
    let templates = body.pointer(TEMPLATES).and_then(Value::as_array).into_iter().flatten();
    templates.filter_map(|template| Some((text(template, "/metadata/name"), size(template)?)))
}

fn resizes(wanted: &Value, live: &Value) -> Vec<Resize> {
    let current: BTreeMap<&str, &str> = templates(live).collect();
    let resize = |(template, to): (&str, &str)| {
        let from = *current.get(template)?;
        let resize = Resize { template: template.to_owned(), from: from.to_owned(), to: to.to_owned() };
        (!quantity::is_same(from, to)).then_some(resize)
    };
    templates(wanted).filter_map(resize).collect()
}

fn with_sizes_of(manifest: &Manifest, live: &Value) -> Manifest {
    let mut kept = manifest.clone();
    let current: BTreeMap<&str, &str> = templates(live).collect();
    let templates = kept.body.pointer_mut(TEMPLATES).and_then(Value::as_array_mut);
    for template in templates.into_iter().flatten() {
        let from = current.get(text(template, "/metadata/name")).copied();
        if let (Some(from), Some(request)) = (from, template.pointer_mut(REQUEST)) {
            *request = json!(from);
        }
    }
    kept
}

fn size(claim: &Value) -> Option<&str> {
    claim.pointer(REQUEST).and_then(Value::as_str)
}

fn text<'a>(body: &'a Value, pointer: &str) -> &'a str {
    body.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
