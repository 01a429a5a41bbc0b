//! Copies of Secrets that a fault deletes, for the time until the cloud has recovered.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::cloud::NAMESPACE;
use crate::command::{Log, output};
use crate::directories::Directories;
use crate::kubectl::Kubectl;
use crate::store;

/// `cargo xtask down` removes it with the state of the cluster.
fn directory(directories: &Directories) -> PathBuf {
    directories.cluster().join("drill-secrets")
}

/// Saves a Secret in a file that only the owner can read.
pub(super) fn save(directories: &Directories, kubectl: &Kubectl, name: &str) -> Result<()> {
    let get = ["--namespace", NAMESPACE, "get", "secret", name, "--output=json"];
    let secret: Value = serde_json::from_str(&output(kubectl.query().args(get))?)?;
    let directory = directory(directories);
    let path = directory.join(format!("{name}.json"));
    let mut options = OpenOptions::new();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .and_then(|()| options.write(true).create(true).truncate(true).mode(0o600).open(&path))
        .and_then(|mut file| file.write_all(copy(&secret).to_string().as_bytes()))
        .with_context(|| format!("failed to write {}", path.display()))
}

/// The Secret without what the API server has added.
fn copy(secret: &Value) -> Value {
    let fields = ["name", "namespace", "labels", "annotations", "ownerReferences"];
    let of = |field: &str| Some((field.to_owned(), secret["metadata"].get(field)?.clone()));
    let metadata: serde_json::Map<String, Value> = fields.into_iter().filter_map(of).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": secret["type"],
        "data": secret["data"],
    })
}

/// Restores every saved Secret with its values, and removes the files.
pub(super) fn restore_all(directories: &Directories, kubectl: &Kubectl, log: &Log) -> Result<()> {
    let directory = directory(directories);
    if !directory.exists() {
        return Ok(());
    }
    let files =
        fs::read_dir(&directory).with_context(|| format!("failed to list {}", directory.display()))?;
    for file in files {
        kubectl.apply(Some(NAMESPACE), &file?.path(), log)?;
    }
    forget_all(directories)
}

/// Removes the files: the cloud has recovered with other values.
pub(super) fn forget_all(directories: &Directories) -> Result<()> {
    store::remove(&directory(directories))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_can_be_applied_after_the_deletion() {
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": "a",
                "namespace": "b",
                "uid": "c",
                "resourceVersion": "1",
                "labels": { "d": "e" },
                "managedFields": [],
            },
            "type": "Opaque",
            "data": { "key": "dmFsdWU=" },
        });
        let copy = copy(&secret);
        assert_eq!(copy["data"], secret["data"]);
        assert_eq!(copy["metadata"]["labels"], secret["metadata"]["labels"]);
        for field in ["uid", "resourceVersion", "managedFields"] {
            assert!(copy["metadata"].get(field).is_none(), "{field}");
        }
    }
}
