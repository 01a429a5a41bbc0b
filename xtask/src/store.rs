//! The store of built parts, by a hash of their inputs.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

use crate::directories::Directories;

/// The hash of a part's inputs. Equal inputs have equal keys on every machine.
#[derive(Default, Clone)]
pub(crate) struct Key(Sha256);

impl Key {
    pub(crate) fn text(mut self, text: &str) -> Self {
        self.0.update(text.len().to_le_bytes());
        self.0.update(text.as_bytes());
        self
    }

    /// Adds a file, or all files below a directory, with their names.
    pub(crate) fn path(mut self, path: &Path) -> Result<Self> {
        let mut files = Vec::new();
        collect_files(path, &mut files)?;
        files.sort();
        for file in files {
            let name = file.strip_prefix(path).unwrap_or(&file).to_string_lossy().into_owned();
            let content = fs::read(&file).with_context(|| format!("failed to read {}", file.display()))?;
            self = self.text(&name);
            self.0.update(content.len().to_le_bytes());
            self.0.update(&content);
        }
        Ok(self)
    }

    /// Twelve digits, which are enough to distinguish parts.
    pub(crate) fn digits(self) -> String {
        let digest: [u8; 32] = self.0.finalize().into();
        let number = digest.iter().take(6).fold(0_u64, |number, &byte| number << 8 | u64::from(byte));
        format!("{number:012x}")
    }
}

fn collect_files(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path).with_context(|| format!("failed to list {}", path.display()))? {
            collect_files(&entry?.path(), files)?;
        }
    } else {
        files.push(path.to_owned());
    }
    Ok(())
}

/// A part in the store.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) path: PathBuf,
    /// Whether this run built it.
    pub(crate) built: bool,
}

impl Part {
    pub(crate) fn detail(&self) -> String {
        if self.built { "built".to_owned() } else { "cached".to_owned() }
    }
}

/// The path of the part with this key, whether it exists or not.
pub(crate) fn part_path(directories: &Directories, name: &str, key: Key) -> PathBuf {
    directories.store().join(format!("{name}-{}", key.digits()))
}

/// Returns the part and builds it if necessary. The part appears by a rename, so that an interrupted build leaves
/// none.
pub(crate) fn ensure(
    directories: &Directories,
    name: &str,
    key: Key,
    build: impl FnOnce(&Path) -> Result<()>,
) -> Result<Part> {
    let path = part_path(directories, name, key);
    if path.exists() {
        return Ok(Part { path, built: false });
    }
    let unfinished = directories.store().join(format!(".{name}"));
    remove(&unfinished)?;
    fs::create_dir_all(&unfinished).with_context(|| format!("failed to create {}", unfinished.display()))?;
    build(&unfinished)?;
    remove_other_versions(directories, name, &path)?;
    fs::rename(&unfinished, &path)
        .with_context(|| format!("failed to move {} into place", path.display()))?;
    Ok(Part { path, built: true })
}

/// Removes earlier versions of the part, which would fill the disk.
fn remove_other_versions(directories: &Directories, name: &str, current: &Path) -> Result<()> {
    for entry in fs::read_dir(directories.store())? {
        let path = entry?.path();
        let version = path
            .file_name()
            .and_then(|file| file.to_str())
            .and_then(|file| file.strip_prefix(name)?.strip_prefix('-'));
        if version.is_some_and(|version| !version.contains('-')) && path != current {
            remove(&path)?;
        }
    }
    Ok(())
}

/// Removes a directory tree if it exists.
pub(crate) fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("failed to remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    fn directories(name: &str) -> Result<Directories> {
        Directories::find(Some(
            std::env::temp_dir().join(format!("xtask-store-{name}-{}", std::process::id())),
        ))
    }

    #[test]
    fn a_part_is_built_once_and_replaces_its_predecessor() -> Result<()> {
        let directories = directories("once")?;
        let build = |directory: &Path| Ok(fs::write(directory.join("program"), "x")?);
        let first = ensure(&directories, "tool", Key::default().text("1"), build)?;
        assert!(first.built);
        assert!(!ensure(&directories, "tool", Key::default().text("1"), build)?.built);
        ensure(&directories, "tool-two", Key::default().text("1"), build)?;
        let second = ensure(&directories, "tool", Key::default().text("2"), build)?;
        assert!(second.path.join("program").exists() && !first.path.exists());
        assert!(part_path(&directories, "tool-two", Key::default().text("1")).exists());
        fs::remove_dir_all(directories.cache())?;
        Ok(())
    }

    #[test]
    fn a_failed_build_leaves_no_part() -> Result<()> {
        let directories = directories("failed")?;
        let key = Key::default().text("1");
        let broken = ensure(&directories, "tool", key.clone(), |directory| {
            fs::write(directory.join("half"), "x")?;
            bail!("no space left")
        });
        assert!(broken.is_err());
        let part = ensure(&directories, "tool", key, |_| Ok(()))?;
        assert!(part.built && !part.path.join("half").exists());
        fs::remove_dir_all(directories.cache())?;
        Ok(())
    }

    #[test]
    fn adjacent_texts_are_hashed_separately() {
        let one = Key::default().text("ab").text("c").digits();
        assert_ne!(one, Key::default().text("a").text("bc").digits());
    }
}
