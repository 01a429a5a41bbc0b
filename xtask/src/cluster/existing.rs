//! An existing cluster: a context of the user's kubeconfig.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::command::output;
use crate::directories::Directories;
use crate::host;
use crate::kubectl::Kubectl;
use crate::store::Key;

#[derive(Args, Default)]
pub(crate) struct Existing {
    /// Use an existing cluster: a context of the kubeconfig. Needs --registry.
    #[arg(long, value_name = "NAME", requires = "registry")]
    context: Option<String>,
    /// Registry with the images for the existing cluster, e.g. registry.example.org/openstack.
    #[arg(long, value_name = "PREFIX", requires = "context")]
    registry: Option<String>,
}

impl Existing {
    /// The context and the prefix of the images; none for the local cluster.
    pub(crate) fn get(&self) -> Option<(&str, &str)> {
        self.context.as_deref().zip(self.registry.as_deref())
    }
}

/// The directory of the tool for a context, whose name may contain any character.
pub(crate) fn directory(directories: &Directories, context: &str) -> PathBuf {
    directories.cache().join("contexts").join(Key::default().text(context).digits())
}

/// kubectl with a kubeconfig that contains only this context, so that no program can use another cluster by mistake.
pub(crate) fn kubectl(directories: &Directories, context: &str) -> Result<Kubectl> {
    let program = host::find("kubectl")
        .context("an existing cluster needs kubectl: install it and put it into PATH")?;
    let mut view = Command::new(&program);
    view.args(["config", "view", "--minify", "--flatten", "--raw", "--context", context]);
    let text = output(&mut view).with_context(|| {
        format!("context {context:?} cannot be used: kubectl config get-contexts lists all contexts")
    })?;
    let directory = directory(directories, context);
    let path = directory.join("kubeconfig");
    let unfinished = directory.join("kubeconfig.unfinished");
    // It may contain a private key.
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .and_then(|()| {
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)
        })
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&unfinished, &path))
        .with_context(|| format!("failed to write {}", path.display()))?;
    Ok(Kubectl::existing(program, path))
}
