//! Configuration files as immutable ConfigMaps, named by their content.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use serde_json::json;

use super::{Instance, Lowering, Manifest, manifest};
use crate::kind::CONFIG_MAP;
use crate::name;
use crate::plan::{File, Plan};

/// Names of the ConfigMaps by file. A changed file gets a new name, so it restarts exactly the pods that mount it,
/// and old pods keep their file.
pub(super) fn files(instance: &Instance, plan: &Plan) -> BTreeMap<String, String> {
    plan.files
        .iter()
        .map(|(file, content)| {
            let part = format!("{}-{}", name::slug(file), name::hash(content.bytes()));
            (file.clone(), name::part(&instance.name, &part))
        })
        .collect()
}

pub(super) fn manifests(lowering: &Lowering<'_>) -> Vec<Manifest> {
    let files = lowering.plan.files.iter().zip(lowering.files.values());
    let mut manifests: Vec<Manifest> = files
        .map(|((file, content), name)| {
            let metadata = lowering.instance.metadata(name, None);
            let data = match content {
                File::Text(text) => ("data", json!({ file: text })),
                File::Bytes(bytes) => ("binaryData", json!({ file: ByteString(bytes.clone()) })),
            };
            manifest(CONFIG_MAP, name, &metadata, [("immutable", json!(true)), data])
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
