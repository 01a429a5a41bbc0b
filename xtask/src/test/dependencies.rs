//! The check of dependencies: licenses, sources and duplicates.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::cargo;
use crate::command::Log;
use crate::directories::Directories;
use crate::store::{self, Key};

/// The list of known vulnerabilities is in no package registry, so advisories are not checked.
const DEPENDENCIES: &str = "deny check bans licenses sources";
/// The version of the program that checks dependencies.
const CARGO_DENY: &str = "=0.20.2";

pub(super) fn check(directories: &Directories, log: &Log) -> Result<()> {
    let mut command = cargo(directories);
    command.args(DEPENDENCIES.split(' ')).env("PATH", path_with(&cargo_deny(directories, log)?)?);
    log.run(&mut command)
}

/// Installs the program that checks dependencies, and returns its directory.
fn cargo_deny(directories: &Directories, log: &Log) -> Result<PathBuf> {
    let key = Key::default().text(CARGO_DENY);
    let part = store::ensure(directories, "cargo-deny", key, |directory| {
        let mut command = cargo(directories);
        command.args(["install", "cargo-deny", "--locked", "--version", CARGO_DENY, "--root"]).arg(directory);
        log.run(&mut command)
    })?;
    Ok(part.path.join("bin"))
}

/// PATH with another directory at its front.
fn path_with(directory: &Path) -> Result<OsString> {
    let path = std::env::var_os("PATH").context("PATH is not set")?;
    let directories = std::iter::once(directory.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(directories).context("a directory's name has a colon in it")
}
