//! Configuration files as ConfigMaps that never change: another content has another name.

use std::collections::BTreeMap;

use serde_json::json;

use super::{Instance, Lowering, Manifest, manifest};
use crate::kind::CONFIG_MAP;
use crate::name;
use crate::plan::Plan;

/// Names of the ConfigMaps by file. Pods refer to a ConfigMap by name, so that a changed file rolls exactly the
/// pods that mount it, and pods that are still to be replaced keep what they started with.
pub(super) fn files(instance: &Instance, plan: &Plan) -> BTreeMap<String, String> {
    plan.files
        .iter()
        .map(|(file, content)| {
            let part = format!("{}-{}", name::slug(file), name::hash(content));
            (file.clone(), name::part(&instance.name, &part))
        })
        .collect()
}

pub(super) fn manifests(lowering: &Lowering<'_>) -> Vec<Manifest> {
    let files = lowering.plan.files.iter().zip(lowering.files.values());
    let mut manifests: Vec<Manifest> = files
        .map(|((file, content), name)| {
            let metadata = lowering.instance.metadata(name, None);
            manifest(
                CONFIG_MAP,
                name,
                &metadata,
                [("immutable", json!(true)), ("data", json!({ file: content }))],
            )
        })
        .collect();
    if !lowering.plan.live_files.is_empty() {
        let name = live_name(lowering.instance);
        let metadata = lowering.instance.metadata(&name, None);
        manifests.push(manifest(CONFIG_MAP, &name, &metadata, [("data", json!(lowering.plan.live_files))]));
    }
    manifests
}

pub(super) fn live_name(instance: &Instance) -> String {
    name::part(&instance.name, "live")
}
