//! `generate`: writes the files that install the operator, or checks that they are up to date.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use snafu::{ResultExt, Snafu};

use crate::deploy::{self, HEADER};
use crate::input::Problems;
use crate::output;

/// Write the definitions, permissions, kustomization and chart of the operator into a directory.
#[derive(Args)]
#[command(
    hide = true,
    after_help = "EXAMPLES:
  openstack-operator generate deploy
  openstack-operator generate deploy --check"
)]
pub(crate) struct Arguments {
    directory: PathBuf,
    /// Write nothing, and end with 1 if a file is out of date.
    #[arg(long)]
    check: bool,
}

#[derive(Debug, Snafu)]
pub(crate) enum Error {
    #[snafu(display("failed to plan a cloud with every service: {source}"))]
    Plan { source: Problems },
    #[snafu(display("failed to read {}", path.display()))]
    Read { path: PathBuf, source: std::io::Error },
    #[snafu(display("failed to write {}", path.display()))]
    Write { path: PathBuf, source: std::io::Error },
    #[snafu(display("failed to remove {}", path.display()))]
    Remove { path: PathBuf, source: std::io::Error },
}

pub(crate) fn generate(arguments: &Arguments) -> Result<ExitCode, Error> {
    let directory = &arguments.directory;
    let mut outdated = Vec::new();
    let files = deploy::files().context(PlanSnafu)?;
    for (path, text) in &files {
        let path = directory.join(path);
        if read(&path)?.as_deref() == Some(text) {
            continue;
        }
        if !arguments.check {
            write(&path, text)?;
        }
        outdated.push(path);
    }
    let wanted: BTreeSet<PathBuf> = files.keys().map(|path| directory.join(path)).collect();
    for path in leftovers(directory, &wanted)? {
        if !arguments.check {
            fs::remove_file(&path).context(RemoveSnafu { path: path.clone() })?;
        }
        outdated.push(path);
    }
    if arguments.check && !outdated.is_empty() {
        let list: Vec<String> = outdated.iter().map(|path| path.display().to_string()).collect();
        output::remark(&format!(
            "these files are out of date: {}\nrun: cargo run -p openstack-operator -- generate {}",
            list.join(", "),
            directory.display()
        ));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> Result<Option<String>, Error> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        text => text.map(Some).context(ReadSnafu { path }),
    }
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).context(WriteSnafu { path })?;
    }
    fs::write(path, text).context(WriteSnafu { path })
}

/// Files that an earlier version generated and this one does not.
fn leftovers(directory: &Path, wanted: &BTreeSet<PathBuf>) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    let places: BTreeSet<&Path> = wanted.iter().filter_map(|path| path.parent()).collect();
    for place in places.into_iter().filter(|place| place.starts_with(directory) && place.is_dir()) {
        for entry in fs::read_dir(place).context(ReadSnafu { path: place })? {
            let path = entry.context(ReadSnafu { path: place })?.path();
            let is_ours = path.is_file() && !wanted.contains(&path);
            if is_ours
                && fs::read(&path).context(ReadSnafu { path: path.clone() })?.starts_with(HEADER.as_bytes())
            {
                found.push(path);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outdated_file_is_removed_and_a_file_of_the_user_is_not() {
        let directory =
            std::env::temp_dir().join(format!("openstack-operator-generate-{}", std::process::id()));
        let arguments = |check| Arguments { directory: directory.clone(), check };
        generate(&arguments(false)).unwrap();
        fs::write(directory.join("crds/old.yaml"), HEADER).unwrap();
        fs::write(directory.join("crds/mine.yaml"), "a: 1\n").unwrap();
        assert_eq!(format!("{:?}", generate(&arguments(true)).unwrap()), format!("{:?}", ExitCode::FAILURE));
        generate(&arguments(false)).unwrap();
        assert!(!directory.join("crds/old.yaml").exists());
        assert!(directory.join("crds/mine.yaml").exists());
        assert_eq!(format!("{:?}", generate(&arguments(true)).unwrap()), format!("{:?}", ExitCode::SUCCESS));
        fs::remove_dir_all(directory).unwrap();
    }
}
